import pytest

from headcount.stats.numbers import in_percent, less_is_better, shown


@pytest.mark.parametrize(
    ("metric", "less", "text"),
    [
        ("accuracy", False, "50.0 %"), ("acc_norm", False, "50.0 %"), ("bleu_acc", False, "50.0 %"),
        ("matthews_correlation", False, "50.0 %"), ("bleu_tokenised", False, "0.50"),
        ("perplexity", True, "0.50"), ("word_perplexity", True, "0.50"),
        ("byte_perplexity, none", True, "0.50"), ("bits_per_byte", True, "0.5000"),
        ("loss", True, "0.50"), ("tokens", False, "0"),
    ],
)  # fmt: skip
def test_metrics_are_known_by_their_names(metric: str, less: bool, text: str) -> None:
    assert less_is_better(metric) == less
    assert shown(metric, 0.5) == text
    assert in_percent(metric) == text.endswith("%")
