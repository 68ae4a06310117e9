"""How the value of a metric is shown to a reader: in percent, or as it is."""

from __future__ import annotations

import re

# Words in the names of metrics that are not shares between 0 and 1, so not shown in percent.
_LESS_IS_BETTER = {"perplexity", "ppl", "loss", "bits", "ter", "brier", "mse"}
_PLAIN = {*_LESS_IS_BETTER, "bleu", "chrf", "tokens", "cosine"}
_SHARES = {"acc", "accuracy"}  # also in `bleu_acc`
_COUNTS = ("tokens",)


def in_percent(metric: str) -> bool:
    """Whether a metric is shown in percent; accuracies and correlations are, as in papers."""
    words = _words(metric)
    return bool(words & _SHARES) or not words & _PLAIN


def less_is_better(metric: str) -> bool:
    """Whether a lower value of a metric is better, by its name, as for `word_perplexity`."""
    words = _words(metric)
    return bool(words & _LESS_IS_BETTER) and not words & _SHARES


def _words(metric: str) -> set[str]:
    return set(re.findall("[a-z]+", metric.lower()))


def shown(metric: str, value: float) -> str:
    """A value of a metric as text, with its unit."""
    if metric in _COUNTS:
        return f"{value:.0f}"
    if metric == "bits_per_byte":  # about 1: two decimals would hide what a cut costs
        return f"{value:.4f}"
    if metric == "cosine":
        return f"{value:.3f}"
    return f"{100 * value:.1f} %" if in_percent(metric) else f"{value:.2f}"
