"""Which model classes of the installed `transformers` can lose heads, and is the result exact?

Builds every registered model class with a tiny configuration and random weights, masks heads,
removes the same heads from a copy, and compares the outputs. Prints how many classes agree, which
are refused and why, and which cannot be built; writes the list to COVERAGE.md beside this file.

Usage: families.py [--jobs N] [PATTERN ...]
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import multiprocessing as mp
import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from rich.progress import track
from zoo.inputs import tiny_inputs
from zoo.models import ModelClass, build, model_classes, run

import headcount as hc

TOLERANCE = 1e-5
TIMEOUT = 60.0
REPORT = Path(__file__).with_name("COVERAGE.md")
Result = dict[str, Any]
Outputs = dict[str, torch.Tensor]

AGREES, WRONG, BROKEN = "agrees", "WRONG", "BROKEN"
REFUSED, NO_ATTENTION, UNSEEN, UNBUILT = "refused", "no attention", "unseen", "cannot be built"
MEANING = {
    AGREES: "masked and removed give the same outputs, for every mask tried",
    WRONG: "masked and removed give different outputs",
    BROKEN: "the model no longer runs after removal",
    REFUSED: "refused with a reason, and left untouched",
    NO_ATTENTION: "the class has no attention at all",
    UNSEEN: "no output depends on the heads in this tiny model, so nothing is shown",
    UNBUILT: "the tiny model could not be built or run here",
}


def masks(heads: hc.HeadMap) -> Iterator[tuple[str, hc.HeadMask]]:
    """Half, three quarters, one head in all, the first block emptied, every block emptied."""
    yield "half", hc.HeadMask.random(heads, max(1, len(heads) // 2), seed=1)
    yield "most", hc.HeadMask.random(heads, max(1, 3 * len(heads) // 4), seed=7)
    yield "one head", hc.HeadMask.random(heads, 1, seed=3)
    first = hc.HeadMask.from_indices(heads, heads.blocks[0].indices)
    yield "first block emptied", hc.HeadMask.all(heads) - first
    yield "every block emptied", hc.HeadMask.none(heads)


def outputs(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Outputs:
    """Everything a model returns but attention weights, whose shape follows the heads."""
    return {n: t for n, t in run(model, dict(inputs)).items() if "attention" not in n}


def difference(some: Outputs, others: Outputs) -> float:
    """The largest difference, relative to the scale of the output where that is above one."""
    if {n: t.shape for n, t in some.items()} != {n: t.shape for n, t in others.items()}:
        return float("inf")
    gaps = [
        float(((t - others[n]).abs() / t.abs().max().clamp(min=1)).max())
        for n, t in some.items()
        if t.numel()
    ]
    return max(float("inf") if math.isnan(gap) else gap for gap in gaps)


def compare(model: Any, inputs: Mapping[str, Any], mask: hc.HeadMask) -> tuple[float, Outputs]:
    """Difference of masked and removed, and the masked outputs."""
    small = copy.deepcopy(model)  # before its first forward pass, as a model is when it was loaded
    whole = copy.deepcopy(model)
    with hc.masked(whole, mask):
        expected = outputs(whole, inputs)
    hc.remove_heads(small, mask)
    return difference(expected, outputs(small, inputs)), expected


def in_double(model: Any, inputs: Mapping[str, Any], mask: hc.HeadMask) -> float:
    """The same difference in double precision, where rounding cannot explain it."""
    doubled = {
        n: t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t
        for n, t in inputs.items()
    }
    model = copy.deepcopy(model).double()
    for module in model.modules():
        if hasattr(getattr(module, "config", None), "_experts_implementation"):
            module.config._experts_implementation = "eager"  # the grouped kernel has no double
    return compare(model, doubled, mask)[0]


def check(entry: ModelClass) -> Result:
    """What happens to one class."""
    result: Result = {"class": entry.class_name, "type": entry.model_type}
    try:
        model = build(entry)
        inputs = tiny_inputs(model)
        whole = outputs(copy.deepcopy(model), inputs)
        if not whole or not all(bool(t.isfinite().all()) for t in whole.values()):
            raise ValueError("its outputs are not finite")
    except Exception as error:
        return result | {"status": UNBUILT, "why": _first_line(error)}
    try:
        heads = hc.find_heads(model)
    except hc.HeadcountError as error:
        status = NO_ATTENTION if "no attention heads were found" in str(error) else REFUSED
        return result | {"status": status, "why": str(error)}
    result |= {"heads": len(heads), "left_alone": len(heads.left_alone)}
    return result | _check_masks(model, inputs, heads, whole)


def _check_masks(
    model: Any, inputs: Mapping[str, Any], heads: hc.HeadMap, whole: Outputs
) -> Result:
    seen = False
    for name, mask in masks(heads):
        try:
            found, masked = compare(model, inputs, mask)
            if not found <= TOLERANCE:
                found = in_double(model, inputs, mask)
        except hc.HeadcountError as error:
            return {"status": REFUSED, "why": f"{name}: {error}"}
        except Exception as error:
            return {"status": BROKEN, "why": f"{name}: {_first_line(error)}"}
        if not found <= TOLERANCE:
            return {"status": WRONG, "why": f"{name}: differs by {found:.1e}"}
        seen = seen or difference(masked, whole) > TOLERANCE
    return {"status": AGREES if seen else UNSEEN, "why": ""}


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _work(connection: Connection) -> None:
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    while (entry := connection.recv()) is not None:
        connection.send(check(entry))


class Worker:
    """A process that checks one class after another, and is replaced if one hangs or kills it."""

    def __init__(self) -> None:
        self.connection, theirs = mp.Pipe()
        self.process = mp.get_context("fork").Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.entry: ModelClass | None = None

    def begin(self, entry: ModelClass) -> None:
        self.entry, self.started = entry, time.monotonic()
        self.connection.send(entry)

    def finished(self) -> Result | None:
        """The result of the current class, if there is one by now."""
        assert self.entry is not None
        failed = {"class": self.entry.class_name, "type": self.entry.model_type}
        try:
            if self.connection.poll():
                return dict(self.connection.recv())
        except EOFError:
            return failed | {"status": UNBUILT, "why": "the process died"}
        if time.monotonic() - self.started > TIMEOUT:
            return failed | {"status": UNBUILT, "why": f"took longer than {TIMEOUT:.0f} s"}
        return None


def check_all(entries: list[ModelClass], jobs: int) -> Iterator[Result]:
    """The results of all classes, as they come."""
    todo = iter(entries)
    workers = [Worker() for _ in range(jobs)]
    for worker, entry in zip(list(workers), todo, strict=False):
        worker.begin(entry)
    busy = [worker for worker in workers if worker.entry is not None]
    while busy:
        wait([worker.connection for worker in busy], timeout=1.0)
        for worker in list(busy):
            result = worker.finished()
            if result is None:
                continue
            yield result
            busy.remove(worker)
            if result["status"] == UNBUILT:  # it may be stuck or dead
                worker.process.kill()
                worker = Worker()
            if (entry := next(todo, None)) is not None:
                worker.begin(entry)
                busy.append(worker)


def report(results: list[Result]) -> str:
    """The findings as a Markdown page."""
    counts = Counter(result["status"] for result in results)
    partly = sum(r["status"] == AGREES and r["left_alone"] > 0 for r in results)
    lines = [
        "# Which model classes can lose heads",
        "",
        "Written by `benchmarks/families.py`: tiny random models of every class that transformers "
        f"{transformers.__version__} registers, torch {torch.__version__}, float32, difference "
        f"below {TOLERANCE:g} relative to the outputs' scale where that is above one (checked "
        "again in float64 where rounding may explain a difference).",
        "",
        "| classes | outcome |",
        "|---:|---|",
        *(f"| {counts[status]} | **{status}**: {MEANING[status]} |" for status in MEANING),
        f"| {len(results)} | in all |",
        "",
        f"In {partly} of the classes that agree, some attention modules are not understood; they "
        "are listed by `headcount heads` and left alone.",
    ]
    for status in MEANING:
        if status != AGREES and counts[status]:
            lines += ["", f"## {status}", "", *_listed(r for r in results if r["status"] == status)]
    lines += ["", f"## {AGREES}", ""]
    lines.append(", ".join(r["class"] for r in results if r["status"] == AGREES))
    return "\n".join(lines) + "\n"


def _listed(results: Iterator[Result]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for result in results:
        told = re.search(r"not understood: in \S+, (.*); add a row", result["why"])
        reason = told[1] if told else result["why"].replace(result["class"], "it")
        by_reason.setdefault(reason, []).append(result["class"])
    return [f"- {', '.join(names)}: {why}" for why, names in sorted(by_reason.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="*", help="only classes that match one of these")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="also write every result as a line of JSON")
    options = parser.parse_args()
    wanted = [
        entry
        for entry in model_classes()
        if not options.patterns or any(re.search(p, entry.class_name) for p in options.patterns)
    ]
    progress = track(
        check_all(wanted, options.jobs), description="checking classes", total=len(wanted)
    )
    results = sorted(progress, key=lambda result: str(result["class"]))
    if options.json:
        options.json.write_text("\n".join(map(json.dumps, results)) + "\n")
    page = report(results)
    if options.patterns:
        print(page)
    else:
        REPORT.write_text(page)
        print(page.split("\n## ")[0])
        print(f"the whole list is in {REPORT}")


if __name__ == "__main__":
    main()
