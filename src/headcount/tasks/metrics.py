"""Metrics: of labels and values by scikit-learn and scipy, of translations by sacrebleu."""

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
    """F1 of one label, by its number; 0 if it is never predicted."""
    return float(
        f1_score(np.equal(labels, positive), np.equal(predicted, positive), zero_division=0)
    )


def macro_f1(predicted: Numbers, labels: Numbers) -> float:
    """The mean F1 of all labels."""
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
    # A model that always gives the same answer, or NaN, must lose every comparison. With a score
    # of NaN it would not.
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
        names: names in `METRICS`, or `combined`, which is the mean of all before it, as in GLUE.
        predicted: numbers of the predicted labels, or predicted values.
        labels: numbers of the right labels, or the right values.
        positive: the number of the label whose F1 is reported.
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
    """Scores translations against one reference each.

    Attributes:
        tokenize: sacrebleu's name of the tokeniser that splits sentences into words.
        lowercase: whether to ignore case.
        tokenised: whether to add a BLEU that splits words only at spaces, as `multi-bleu.perl`
            does. Use it only for data that was tokenised beforehand.
    """

    tokenize: str = "13a"
    lowercase: bool = False
    tokenised: bool = False

    def __post_init__(self) -> None:
        if self.tokenize not in BLEU.TOKENIZERS:
            known = ", ".join(BLEU.TOKENIZERS)
            raise HeadcountError(f"sacrebleu cannot tokenize by {self.tokenize!r}; it has {known}")

    def scores(self, translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """BLEU and chrF from 0 to 100, and the length relative to that of the references."""
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
        """The signature of sacrebleu; a BLEU score can only be compared with it."""
        parts = [f"bleu:{_signature(self._bleu())}"]
        if self.tokenised:
            parts.append(f"bleu_tokenised:{_signature(self._words())}")
        return " ".join(parts)

    def _bleu(self) -> BLEU:
        return BLEU(tokenize=self.tokenize, lowercase=self.lowercase)

    def _words(self) -> BLEU:
        # "force": otherwise sacrebleu warns that this looks tokenised, which it is on purpose.
        return BLEU(tokenize="none", lowercase=self.lowercase, force=True)


def _signature(metric: BLEU) -> str:
    metric.corpus_score(["a"], [["a"]])  # sets the number of references in the signature
    return str(metric.get_signature())
