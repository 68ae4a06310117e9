"""Which model classes of the installed `transformers` can lose heads, and is the result exact?

Builds every registered model class with a tiny configuration and random weights, masks heads,
removes the same heads from a copy, and compares the outputs; then does so again with every other
value that its configuration offers. Prints how many classes agree, which are refused and why, and
which cannot be built; writes the list to COVERAGE.md beside this file.

Usage: families.py [--jobs N] [--json FILE] [PATTERN ...]
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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from rich.progress import track
from zoo.inputs import tiny_inputs
from zoo.models import ModelClass, build, model_classes, run
from zoo.variants import MIXTURES, Changes, said, variants

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


def few_masks(heads: hc.HeadMap) -> Iterator[tuple[str, hc.HeadMask]]:
    """Half of the heads, and the first block emptied: enough to tell another layout."""
    wanted = ("half", "first block emptied")
    return ((name, mask) for name, mask in masks(heads) if name in wanted)


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


@dataclass(frozen=True)
class Case:
    """A class, as it is or with some values of its configuration changed."""

    entry: ModelClass
    changes: Changes = field(default_factory=dict)

    @property
    def about(self) -> Result:
        """What a result says of the case."""
        return {"class": self.entry.class_name, "variant": said(self.changes)}


def check(case: Case) -> Result:
    """What happens to one case."""
    try:
        model = build(case.entry, changes=case.changes)
        inputs = tiny_inputs(model)
        whole = outputs(copy.deepcopy(model), inputs)
        if not whole or not all(bool(t.isfinite().all()) for t in whole.values()):
            raise ValueError("its outputs are not finite")
    except Exception as error:
        return case.about | {"status": UNBUILT, "why": _first_line(error)}
    try:
        heads = hc.find_heads(model)
    except hc.HeadcountError as error:
        status = NO_ATTENTION if "no attention heads were found" in str(error) else REFUSED
        return case.about | {"status": status, "why": str(error)}
    except Exception as error:
        return case.about | {"status": BROKEN, "why": f"finding heads: {_first_line(error)}"}
    result = case.about | {"heads": len(heads), "left_alone": len(heads.left_alone)}
    chosen = few_masks(heads) if case.changes else masks(heads)
    return result | _check_masks(model, inputs, whole, chosen)


def _check_masks(
    model: Any,
    inputs: Mapping[str, Any],
    whole: Outputs,
    chosen: Iterable[tuple[str, hc.HeadMask]],
) -> Result:
    seen = False
    for name, mask in chosen:
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
    while (case := connection.recv()) is not None:
        connection.send(check(case))


class Worker:
    """A process that checks one case after another, and is replaced if one hangs or kills it."""

    def __init__(self) -> None:
        self.connection, theirs = mp.Pipe()
        self.process = mp.get_context("fork").Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.case: Case | None = None

    def begin(self, case: Case) -> None:
        self.case, self.started = case, time.monotonic()
        self.connection.send(case)

    def finished(self) -> Result | None:
        """The result of the current case, if there is one by now."""
        assert self.case is not None
        failed = self.case.about | {"status": UNBUILT}
        try:
            if self.connection.poll():
                return dict(self.connection.recv())
        except EOFError:
            return failed | {"why": "the process died"}
        if time.monotonic() - self.started > TIMEOUT:
            return failed | {"why": f"took longer than {TIMEOUT:.0f} s"}
        return None


def check_all(cases: list[Case], jobs: int) -> Iterator[Result]:
    """The results of all cases, as they come."""
    todo = iter(cases)
    workers = [Worker() for _ in range(jobs)]
    for worker, case in zip(list(workers), todo, strict=False):
        worker.begin(case)
    busy = [worker for worker in workers if worker.case is not None]
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
            if (next_case := next(todo, None)) is not None:
                worker.begin(next_case)
                busy.append(worker)


class Notes:
    """The results so far, each written down as it comes, so that a stopped check goes on."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path and path.exists() else []
        self.results: list[Result] = [json.loads(line) for line in lines]

    def complete(self, cases: list[Case], jobs: int, what: str) -> None:
        """Checks the cases that have no result yet."""
        known = {(result["class"], result["variant"]) for result in self.results}
        todo = [case for case in cases if tuple(case.about.values()) not in known]
        for result in track(check_all(todo, jobs), description=what, total=len(todo)):
            self.results.append(result)
            if self.path:
                with self.path.open("a") as file:
                    file.write(json.dumps(result) + "\n")


def report(results: list[Result]) -> str:
    """The findings as a Markdown page."""
    plain = [result for result in results if not result["variant"]]
    varied = [result for result in results if result["variant"]]
    partly = sum(r["status"] == AGREES and r["left_alone"] > 0 for r in plain)
    lines = [
        "# Which model classes can lose heads",
        "",
        "Written by `benchmarks/families.py`: tiny random models of every class that transformers "
        f"{transformers.__version__} registers, torch {torch.__version__}, float32, difference "
        f"below {TOLERANCE:g} relative to the outputs' scale where that is above one (checked "
        "again in float64 where rounding may explain a difference).",
        "",
        *_counted(plain, "classes"),
        "",
        f"In {partly} of the classes that agree, some attention modules are not understood; they "
        "are listed by `headcount heads` and left alone.",
        "",
        "## Their variants",
        "",
        "The same classes with other values in their configurations: every switch turned by "
        "itself, other numbers of heads and of key-value heads, another head size, all layers of "
        "one kind, other kinds of positions, projections without a low rank, `eager` attention in "
        f"place of the default, and up to {MIXTURES} mixtures of these drawn at random; "
        f"{len({r['class'] for r in varied})} classes have some. Two masks each: half of the "
        "heads, and the first block emptied.",
        "",
        *_counted(varied, "variants"),
    ]
    for status in MEANING:
        found = [r for r in plain if r["status"] == status]
        if status != AGREES and found:
            lines += ["", f"## {status}", "", *_listed(found)]
    lines += _varied_sections(plain, varied)
    lines += ["", f"## {AGREES}", ""]
    lines.append(", ".join(r["class"] for r in plain if r["status"] == AGREES))
    return "\n".join(lines) + "\n"


def _counted(results: list[Result], what: str) -> list[str]:
    """A table of outcomes."""
    counts = Counter(result["status"] for result in results)
    return [
        f"| {what} | outcome |",
        "|---:|---|",
        *(f"| {counts[status]} | **{status}**: {MEANING[status]} |" for status in MEANING),
        f"| {len(results)} | in all |",
    ]


def _varied_sections(plain: list[Result], varied: list[Result]) -> list[str]:
    """The variants that are wrong or broken, and those refused although their class agrees."""
    agree = {result["class"] for result in plain if result["status"] == AGREES}
    lines = []
    for status in (WRONG, BROKEN, REFUSED):
        found = [r for r in varied if r["status"] == status and r["class"] in agree]
        if found:
            named = [r | {"class": f"{r['class']} ({r['variant']})"} for r in found]
            lines += ["", f"## {status}, in a variant of a class that agrees", "", *_listed(named)]
    return lines


def _listed(results: Iterable[Result]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for result in results:
        told = re.search(r"not understood: in \S+, (.*); add a row", result["why"])
        reason = told[1] if told else result["why"].replace(result["class"], "it")
        by_reason.setdefault(reason, []).append(result["class"])
    return [f"- {', '.join(names)}: {why}" for why, names in sorted(by_reason.items())]


def variants_of(cases: list[Case], results: list[Result]) -> list[Case]:
    """The variants of all classes that could be built."""
    built = {r["class"] for r in results if not r["variant"] and r["status"] != UNBUILT}
    return [
        Case(case.entry, changes)
        for case in cases
        if case.entry.class_name in built
        for changes in variants(case.entry)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="*", help="only classes that match one of these")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--json", type=Path, help="write results there as they come, and go on from what is there"
    )
    options = parser.parse_args()
    cases = [
        Case(entry)
        for entry in model_classes()
        if not options.patterns or any(re.search(p, entry.class_name) for p in options.patterns)
    ]
    notes = Notes(options.json)
    notes.complete(cases, options.jobs, "checking classes")
    notes.complete(variants_of(cases, notes.results), options.jobs, "checking their variants")
    page = report(sorted(notes.results, key=lambda result: (result["class"], result["variant"])))
    if options.patterns:
        print(page)
    else:
        REPORT.write_text(page)
        print(page.split("\n## WRONG")[0].split("\n## refused")[0])
        print(f"the whole list is in {REPORT}")


if __name__ == "__main__":
    main()
