"""What was studied, in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headcount.errors import HeadcountError
from headcount.report.study_data import Comparison, StudyData


def headline(comparisons: Sequence[Comparison]) -> str:
    """The page's title."""
    groups = _listed(f"{c.model} on {c.task}" for c in comparisons)
    return f"Attention heads of {groups}"


def facts(study: StudyData, comparisons: Sequence[Comparison]) -> Iterator[tuple[str, str]]:
    """Terms and what they are in this study."""
    results = study.results
    settings = [run.settings for run in study.runs.values()]
    yield "Model", _listed(results["model"])
    yield "Task", _listed(results["task"])
    if data := _listed(of.get("data") for of in settings):
        yield "Data", data
    limits = _listed((of.get("training") or {}).get("limit_train") for of in settings)
    if limits:
        yield "Trained on", f"at most {limits} examples"
    yield "Evaluated on", _listed(_with_size(study, c) for c in comparisons)
    yield "Methods", _listed(m for c in comparisons for m in c.methods)
    counts = sorted({int(k) for c in comparisons for k in c.counted["k"]}, reverse=True)
    born = _listed(run.result.heads.before for run in study.runs.values())
    if counts:
        yield "Heads kept", _listed(counts) + (f" of {born}" if born else "")
    yield "Seeds", _listed(sorted(set(results["seed"])))
    yield "Runs", str(len(study.runs))


def _with_size(study: StudyData, comparison: Comparison) -> str:
    """The evaluation set, with its size where a run kept its predictions."""
    for name in comparison.rows["run"]:
        try:
            if name:
                examples = len(study.runs[name].predictions(comparison.split))
                return f"{comparison.split} ({examples:,} examples)"
        except HeadcountError:
            continue
    return comparison.split


def _listed(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))
