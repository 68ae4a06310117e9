"""Is one method better than another, or is it chance? Paired tests on their predictions.

Several seeds answer the same examples, mostly in the same way. Their answers never count as answers
to more examples, which would make chance look smaller than it is.
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
_MOST_RESAMPLES = 30_000  # for many tests at once; more would take minutes
_SURELY_CHANCE = 20  # stop drawing when this many resamples are as far off as the real difference
_EXACT = 1000  # with more differing examples, chi-squared approximates the binomial
_AT_ONCE = 4_000_000  # numbers in a batch of resamples, at most
_MEANS = ("perplexity", "loss", "cosine")  # of values that need no references
_OF_VALUES: dict[str, Score] = {
    "pearson": resampling.pearson,
    "spearman": resampling.spearman,
    "combined": lambda p, r: (resampling.pearson(p, r) + resampling.spearman(p, r)) / 2,
    **dict.fromkeys(_MEANS, resampling.mean),
}


@dataclass(frozen=True)
class Predictions:
    """A model's answers to the examples of an evaluation set, and the right answers.

    Attributes:
        predicted: the model's answers, in the order of the set.
        references: the right answers, in the same order.
    """

    predicted: tuple[Any, ...]
    references: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.predicted)


@dataclass(frozen=True)
class Significance:
    """The outcome of a test.

    Attributes:
        p_value: two-sided p-value.
        test: name of the test.
        n: number of pairs of answers, over all seeds.
        least: the smallest p-value that the resamples can give; 0 for a test without resamples.
    """

    p_value: float
    test: str
    n: int
    least: float = 0.0


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
        metric: name of the metric to compare by.
        first: answers of one system, one entry per seed.
        second: answers of the other system, for the same seeds in the same order.
        signature: sacrebleu's signature; BLEU takes tokenizer and case from it.
        positive: the label that F1 is about.
        resamples: resamples of a bootstrap, see `enough_resamples`. Translations use no more than
            `RESAMPLES`, because theirs are slow.
    """
    _refuse_unpaired(first, second)
    if metric == "accuracy" and len(first) == 1:
        return mcnemar(_right(first[0]), _right(second[0]))
    if metric.startswith(("bleu", "chrf")):
        return paired_translation(metric, first, second, signature)
    return paired_bootstrap(metric, first, second, positive, resamples)


def enough_resamples(tests: int, alpha: float) -> int:
    """Resamples per test, so that Holm's correction of many tests can still pass alpha."""
    wanted = 2 * tests / alpha if alpha > 0 else math.inf
    return math.ceil(max(RESAMPLES, min(wanted, _MOST_RESAMPLES)))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several tests after Holm's correction, in the same order."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    raised = [0.0] * len(p_values)
    highest = 0.0
    for place, i in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - place) * p_values[i]))
        raised[i] = highest
    return raised


def _refuse_unpaired(first: Sequence[Predictions], second: Sequence[Predictions]) -> None:
    if not first or len(first) != len(second):
        raise HeadcountError("two methods have no seed in common; run both with the same seeds")
    for a, b in zip(first, second, strict=True):
        if not len(a) or a.references != b.references:
            raise HeadcountError(
                f"two runs answered different examples ({len(a)} and {len(b)}); compare runs that "
                "were evaluated on the same data in the same order"
            )


def mcnemar(first: Array, second: Array) -> Significance:
    """McNemar's test on which answers are right, for one seed.

    Args:
        first: for each example, whether the answer of one system is right.
        second: the same for the other system.
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


def _right(side: Predictions) -> Array:
    pairs = zip(side.predicted, side.references, strict=True)
    return np.array(
        [str(predicted) == str(reference) for predicted, reference in pairs], dtype=bool
    )


def paired_bootstrap(
    metric: str,
    first: Sequence[Predictions],
    second: Sequence[Predictions],
    positive: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Significance:
    """Resample the examples, the same for both systems and all seeds.

    An example is drawn with the answers of all seeds, and the mean over seeds is compared. So a
    seed that answers like another one adds nothing. The test shows whether these models would
    differ on other examples. It does not show how much seeds differ; the deviation does.

    Args:
        metric: accuracy, F1, Matthews, a correlation, GLUE's mean of two, or a loss.
        first: answers of one system, one entry per seed.
        second: answers of the other system, for the same seeds in the same order.
        positive: the label that F1 is about.
        resamples: most resamples to draw. Fewer are drawn if chance clearly reaches the difference.
        seed: seed of the draws.
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
        # Chance moves the difference as far around the one found as it would around zero.
        beyond += int(np.sum(np.abs(found - whole) >= abs(whole)))
        drawn += len(rows)
    p = (1 + beyond) / (1 + drawn)
    return Significance(min(p, 1.0), "paired bootstrap", n * len(first), 1 / (1 + resamples))


def _prepared(
    metric: str,
    first: Sequence[Predictions],
    second: Sequence[Predictions],
    positive: str | None,
) -> tuple[Score, list[list[Array]], Array]:
    """The score, the answers of both systems per seed, and the references, all as numbers."""
    references = first[0].references
    answers = [[part.predicted for part in side] for side in (first, second)]
    if any(part.references != references for part in first):
        raise HeadcountError("the seeds were evaluated on different examples; use the same ones")
    values = all(isinstance(a, float | int) for side in answers for row in side for a in row)
    if values and metric in _OF_VALUES:
        sides = [[np.array(row, dtype=float) for row in side] for side in answers]
        if metric in _MEANS:
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


def paired_translation(
    metric: str, first: Sequence[Predictions], second: Sequence[Predictions], signature: str
) -> Significance:
    """The paired bootstrap of sacrebleu, per seed; with several seeds twice the median p-value.

    sacrebleu compares one translation per system. Twice the median is valid however much the seeds
    depend on each other: without a difference, at most a share α of all studies has half of its
    p-values below α/2. A seed in which the other system is ahead counts as 1.
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


def _bleu(metric: str, signature: str) -> BLEU:
    lowercase = "case:lc" in signature
    if metric == "bleu_tokenised":
        return BLEU(tokenize="none", lowercase=lowercase, force=True)
    tokenizer = re.search(r"tok:([\w-]+)", signature)
    return BLEU(tokenize=tokenizer[1] if tokenizer else None, lowercase=lowercase, force=True)


def _of_one_seed(
    scorer: BLEU | CHRF, first: Predictions, second: Predictions
) -> tuple[float, float]:
    """How far the second system is ahead, and the p-value."""
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


def _samples(side: Predictions) -> int:
    # sacrebleu holds all resamples in memory.
    return max(200, min(RESAMPLES, 10_000_000 // len(side)))
