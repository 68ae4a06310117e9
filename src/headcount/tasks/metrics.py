"""Metrics, as scikit-learn and scipy compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from headcount.errors import HeadcountError

Numbers = Any  # an array of one dimension

COMBINED = "combined"


def accuracy(predicted: Numbers, labels: Numbers) -> float:
    """The share of right answers."""
    return float(accuracy_score(labels, predicted))


def f1(predicted: Numbers, labels: Numbers, positive: int = 1) -> float:
    """F1 of one of two labels; 0 if it is never predicted."""
    return float(
        f1_score(np.equal(labels, positive), np.equal(predicted, positive), zero_division=0)
    )


def macro_f1(predicted: Numbers, labels: Numbers) -> float:
    """The mean of all labels' F1."""
    return float(f1_score(labels, predicted, average="macro", zero_division=0))


def matthews(predicted: Numbers, labels: Numbers) -> float:
    """Matthews correlation; 0 if all predictions are the same."""
    return float(matthews_corrcoef(labels, predicted))


def pearson(predicted: Numbers, labels: Numbers) -> float:
    """Pearson correlation; 0 if all predictions are the same, where it has no value."""
    return _correlation(pearsonr, predicted, labels)


def spearman(predicted: Numbers, labels: Numbers) -> float:
    """Spearman's rank correlation; 0 if all predictions are the same, where it has no value."""
    return _correlation(spearmanr, predicted, labels)


def _correlation(function: Callable[..., Any], predicted: Numbers, labels: Numbers) -> float:
    # A model that says the same of everything, or nothing at all, must lose every comparison; NaN
    # would not.
    if not (np.ptp(predicted) > 0 and np.ptp(labels) > 0):
        return 0.0
    return float(function(predicted, labels).statistic)


METRICS: dict[str, Callable[[Numbers, Numbers], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews_correlation": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def score(
    names: tuple[str, ...], predicted: Numbers, labels: Numbers, positive: int = 1
) -> dict[str, float]:
    """Several metrics of the same predictions.

    Args:
        names: of metrics in `METRICS`; `combined`, the mean of all before it, as GLUE reports.
        predicted: numbers of the predicted labels, or predicted values.
        labels: the right ones.
        positive: the number of the label that F1 is of.
    """
    scores: dict[str, float] = {}
    for name in names:
        if name == COMBINED:
            scores[name] = sum(scores.values()) / len(scores)
        elif name == "f1":
            scores[name] = f1(predicted, labels, positive)
        else:
            scores[name] = METRICS[name](predicted, labels)
    return scores


@dataclass(frozen=True)
class Scorer:
    """Scores of translations against one reference each.

    Attributes:
        tokenize: sacrebleu's name for how sentences are split into words.
        lowercase: whether case is ignored.
        tokenised: whether to add a BLEU of the words as they stand, separated by spaces. It is
            what `multi-bleu.perl` gives, and right for data that was tokenised beforehand, and
            for nothing else.
    """

    tokenize: str = "13a"
    lowercase: bool = False
    tokenised: bool = False

    def __post_init__(self) -> None:
        if self.tokenize not in BLEU.TOKENIZERS:
            known = ", ".join(BLEU.TOKENIZERS)
            raise HeadcountError(f"sacrebleu cannot tokenize by {self.tokenize!r}; it has {known}")

    def scores(self, translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """BLEU and chrF from 0 to 100, and how long the translations are against the references."""
        bleu = self._bleu().corpus_score(translations, [references])
        scores = {
            "bleu": bleu.score,
            "chrf": CHRF().corpus_score(translations, [references]).score,
            "length_ratio": bleu.sys_len / max(bleu.ref_len, 1),
        }
        if self.tokenised:
            words = self._words().corpus_score(translations, [references])
            scores["bleu_tokenised"] = words.score
        return scores

    def signature(self) -> str:
        """The one of sacrebleu, without which a BLEU cannot be compared."""
        parts = [f"bleu:{_signature(self._bleu())}"]
        if self.tokenised:
            parts.append(f"bleu_tokenised:{_signature(self._words())}")
        return " ".join(parts)

    def _bleu(self) -> BLEU:
        return BLEU(tokenize=self.tokenize, lowercase=self.lowercase)

    def _words(self) -> BLEU:
        # "force": sacrebleu would warn that this looks tokenised, which is the point of it.
        return BLEU(tokenize="none", lowercase=self.lowercase, force=True)


def _signature(metric: BLEU) -> str:
    metric.corpus_score(["a"], [["a"]])  # the number of references is known only then
    return str(metric.get_signature())
