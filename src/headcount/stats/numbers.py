"""How the value of a metric is shown to a reader: in percent, or as it is."""

from __future__ import annotations

# Metrics that are not shares between 0 and 1, so they are not shown in percent.
_COUNTS = ("tokens",)
_PLAIN = ("bleu", "chrf", "perplexity", "loss", "bits_per_byte", *_COUNTS)


def in_percent(metric: str) -> bool:
    """Whether a metric is shown in percent; accuracies and correlations are, as in papers."""
    return not any(metric.lower().startswith(name) for name in _PLAIN)


def shown(metric: str, value: float) -> str:
    """A value of a metric as text, with its unit."""
    if metric in _COUNTS:
        return f"{value:.0f}"
    if metric == "bits_per_byte":  # about 1: two decimals would hide what a cut costs
        return f"{value:.4f}"
    return f"{100 * value:.1f} %" if in_percent(metric) else f"{value:.2f}"
