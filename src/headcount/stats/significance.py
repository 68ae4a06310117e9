"""Is one method better than another, or is it chance? Paired tests from the predictions.

Several seeds answer the same examples, and mostly alike. Their answers are never counted as if
they were answers to more examples, which would make chance look smaller than it is.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest
from scipy.stats import binomtest, chi2

from headcount.errors import HeadcountError
from headcount.stats import resampling
from headcount.stats.resampling import Array, Score

LEVEL = 0.05
RESAMPLES = 1000
_MOST_RESAMPLES = 30_000  # for many tests at once; more take minutes
_SURELY_CHANCE = 20  # resamples as far off as what was found, after which no more are drawn
_EXACT = 1000  # up to so many differing examples, the binomial is summed
_AT_ONCE = 4_000_000  # numbers that a batch of resamples may hold
_LOSSES = ("perplexity", "loss")
_OF_VALUES: dict[str, Score] = {
    "pearson": resampling.pearson,
    "spearman": resampling.spearman,
    "combined": lambda p, r: (resampling.pearson(p, r) + resampling.spearman(p, r)) / 2,
    **dict.fromkeys(_LOSSES, resampling.mean),
}


@dataclass(frozen=True)
class Predictions:
    """What a model said of each example of an evaluation set, and what was right.

    Attributes:
        predicted: one per example, in the order of the set.
        references: likewise.
    """

    predicted: tuple[Any, ...]
    references: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.predicted)


@dataclass(frozen=True)
class Significance:
    """The outcome of a test.

    Attributes:
        p_value: two-sided.
        test: its name.
        n: pairs of answers that it saw, over all seeds.
        least: the smallest p-value that its resamples can tell; 0 for a test without any.
    """

    p_value: float
    test: str
    n: int
    least: float = 0.0


def enough_resamples(tests: int, alpha: float) -> int:
    """How many let one of so many tests be below alpha after Holm's correction, if any do."""
    wanted = 2 * tests / alpha if alpha > 0 else math.inf
    return math.ceil(max(RESAMPLES, min(wanted, _MOST_RESAMPLES)))


def compare(
    metric: str,
    first: Sequence[Predictions],
    second: Sequence[Predictions],
    signature: str = "",
    positive: str | None = None,
    resamples: int = RESAMPLES,
) -> Significance:
    """Test whether two systems differ, from their answers to the same examples.

    Args:
        metric: the one that they are compared by.
        first: of one system, one per seed.
        second: of the other, for the same seeds in the same order.
        signature: of a BLEU; its tokenizer and case are used.
        positive: the label that an F1 is of.
        resamples: of a bootstrap, see `enough_resamples`; translations take no more than the usual
            number, as each of theirs is slow.
    """
    _refuse_unpaired(first, second)
    if metric == "accuracy" and len(first) == 1:
        return mcnemar(_right(first[0]), _right(second[0]))
    if metric.startswith(("bleu", "chrf")):
        return paired_translation(metric, first, second, signature)
    return paired_bootstrap(metric, first, second, positive, resamples)


def mcnemar(first: Array, second: Array) -> Significance:
    """McNemar's test on which answers are right, for one seed.

    Args:
        first: whether the answer of one system to each example is right.
        second: likewise, of the other system.
    """
    gained = int(np.sum(~first & second))
    lost = int(np.sum(first & ~second))
    differing = gained + lost
    if differing == 0:
        return Significance(1.0, "McNemar, exact", len(first))
    if differing <= _EXACT:
        p = float(binomtest(min(gained, lost), differing, 0.5).pvalue)
        return Significance(p, "McNemar, exact", len(first))
    statistic = max(abs(gained - lost) - 1, 0) ** 2 / differing
    return Significance(float(chi2.sf(statistic, 1)), "McNemar, chi-squared", len(first))


def paired_bootstrap(
    metric: str,
    first: Sequence[Predictions],
    second: Sequence[Predictions],
    positive: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Significance:
    """Resample the examples, the same for both systems and all seeds.

    An example is drawn with the answers of all seeds, and what is compared is the mean over seeds:
    a seed that answers like another one adds nothing. It tells whether these models would differ on
    other examples; how much seeds differ is what the deviation beside the mean tells.

    Args:
        metric: accuracy, F1, Matthews, a correlation, GLUE's mean of two, or a loss.
        first: of one system, one per seed.
        second: of the other, likewise.
        positive: the label that an F1 is of.
        resamples: how many at most; a difference that many of the first reach needs no more.
        seed: of the draws.
    """
    score, sides, references = _prepared(metric, first, second, positive)
    n = len(references)
    generator = np.random.default_rng(seed)
    whole = _difference(score, sides, references, np.arange(n)[None])[0]
    batch = max(1, _AT_ONCE // n)
    drawn = beyond = 0
    while drawn < resamples and (drawn < RESAMPLES or beyond < _SURELY_CHANCE):
        rows = generator.integers(0, n, (min(batch, resamples - drawn), n))
        found = _difference(score, sides, references, rows)
        # Around the difference that was found, chance moves as far as it would around none.
        beyond += int(np.sum(np.abs(found - whole) >= abs(whole)))
        drawn += len(rows)
    p = (1 + beyond) / (1 + drawn)
    return Significance(min(p, 1.0), "paired bootstrap", n * len(first), 1 / (1 + resamples))


def paired_translation(
    metric: str, first: Sequence[Predictions], second: Sequence[Predictions], signature: str
) -> Significance:
    """The paired bootstrap of sacrebleu, seed by seed; of several seeds twice the median p-value.

    sacrebleu resamples sentences of one translation each. Twice the median holds however much the
    seeds depend on one another: if there is no difference, at most a share α of all studies has
    half of its p-values below α/2. A seed in which the other system is ahead counts as 1.
    """
    scorer = CHRF() if metric.startswith("chrf") else _bleu(metric, signature)
    found = [_of_one_seed(scorer, a, b) for a, b in zip(first, second, strict=True)]
    n = sum(len(part) for part in first)
    least = 1 / (1 + min(map(_samples, first)))
    if len(found) == 1:
        return Significance(found[0][1], "paired bootstrap of sacrebleu", n, least)
    ahead = sum(gain for gain, _ in found) > 0
    p_values = [p if (gain > 0) == ahead else 1.0 for gain, p in found]
    p = min(1.0, 2 * statistics.median(p_values))
    test = "paired bootstrap of sacrebleu, twice the median over seeds"
    return Significance(p, test, n, 2 * least)


def _samples(side: Predictions) -> int:
    # sacrebleu holds all resamples at once.
    return max(200, min(RESAMPLES, 10_000_000 // len(side)))


def _of_one_seed(
    scorer: BLEU | CHRF, first: Predictions, second: Predictions
) -> tuple[float, float]:
    """By how much the second is ahead, and the p-value."""
    systems = [[str(text) for text in side.predicted] for side in (first, second)]
    if systems[0] == systems[1]:
        return 0.0, 1.0
    test = PairedTest(
        [("first", systems[0]), ("second", systems[1])],
        {"score": scorer},
        [[str(text) for text in first.references]],
        test_type="bs",
        n_samples=_samples(first),
    )
    _, scores = test()
    results: list[Any] = next(found for name, found in scores.items() if name != "System")
    return results[1].score - results[0].score, float(results[1].p_value)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several tests, raised by Holm's method, in their order."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    raised = [0.0] * len(p_values)
    highest = 0.0
    for place, i in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - place) * p_values[i]))
        raised[i] = highest
    return raised


def _right(side: Predictions) -> Array:
    pairs = zip(side.predicted, side.references, strict=True)
    return np.array(
        [str(predicted) == str(reference) for predicted, reference in pairs], dtype=bool
    )


def _refuse_unpaired(first: Sequence[Predictions], second: Sequence[Predictions]) -> None:
    if not first or len(first) != len(second):
        raise HeadcountError("two methods have no seed in common; run both with the same seeds")
    for a, b in zip(first, second, strict=True):
        if not len(a) or a.references != b.references:
            raise HeadcountError(
                f"two runs answered different examples ({len(a)} and {len(b)}); compare runs that "
                "were evaluated on the same data in the same order"
            )


def _prepared(
    metric: str,
    first: Sequence[Predictions],
    second: Sequence[Predictions],
    positive: str | None,
) -> tuple[Score, list[list[Array]], Array]:
    """The score, the answers of both systems by seed, and the references, all as numbers."""
    references = first[0].references
    answers = [[part.predicted for part in side] for side in (first, second)]
    if any(part.references != references for part in first):
        raise HeadcountError("the seeds were evaluated on different examples; use the same ones")
    values = all(isinstance(a, float | int) for side in answers for row in side for a in row)
    if values and metric in _OF_VALUES:
        sides = [[np.array(row, dtype=float) for row in side] for side in answers]
        if metric in _LOSSES:  # the references say nothing that a loss has not
            return _OF_VALUES[metric], sides, np.zeros(len(references))
        return _OF_VALUES[metric], sides, np.array(references, dtype=float)
    flat, names = resampling.numbered([*answers[0], *answers[1], references])
    scores: dict[str, Score] = {
        "accuracy": resampling.accuracy,
        "matthews_correlation": partial(resampling.matthews, labels=len(names)),
        "macro_f1": partial(resampling.macro_f1, labels=len(names)),
    }
    if positive in names:
        f1 = partial(resampling.f1, label=names.index(positive))
        scores["f1"] = f1
        scores["combined"] = lambda p, r: (resampling.accuracy(p, r) + f1(p, r)) / 2
    if metric not in scores:
        raise HeadcountError(
            f"the predictions do not tell how to test {metric}; compare by another metric"
        )
    middle = len(first)
    return scores[metric], [flat[:middle], flat[middle:-1]], flat[-1]


def _difference(score: Score, sides: list[list[Array]], references: Array, rows: Array) -> Array:
    means = [
        np.mean([score(predicted[rows], references[rows]) for predicted in side], axis=0)
        for side in sides
    ]
    difference: Array = means[1] - means[0]
    return difference


def _bleu(metric: str, signature: str) -> BLEU:
    lowercase = "case:lc" in signature
    if metric == "bleu_tokenised":
        return BLEU(tokenize="none", lowercase=lowercase, force=True)
    tokenizer = re.search(r"tok:([\w-]+)", signature)
    return BLEU(tokenize=tokenizer[1] if tokenizer else None, lowercase=lowercase, force=True)
