"""The main job: from a model and data to a smaller model and the proof of what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headcount.errors import HeadcountError
from headcount.runs.progress import Progress, Silent
from headcount.runs.pruning import PruningRun
from headcount.runs.result import RunResult
from headcount.runs.settings import RunSettings
from headcount.runs.unfinished import discard, refuse_other_settings


def prune(
    settings: RunSettings,
    output: Path,
    *,
    base: Path | None = None,
    resume: bool = False,
    speed: bool = True,
    weights: bool = True,
    ranking: Path | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Train, choose, cut, check and measure; write all of it into a folder.

    Under `accelerate launch` every process calls it; the first one writes.

    Args:
        settings: of the run.
        output: a new folder, which appears when all is done.
        base: where the fine-tuned, unpruned model is, or is to be kept. Pipelined methods start
            from it; for the others it is what they are compared with.
        resume: go on with a run that was stopped.
        speed: measure it, beside the unpruned model.
        weights: write the pruned model too, not only what is known about it.
        ranking: an importance file for methods that score, instead of scoring; see `rank_heads`.
        progress: who wants to know.
    """
    if isinstance(settings.keep, tuple):
        raise HeadcountError(
            f"keep is {list(settings.keep)}, expected one K; prune_many is for several"
        )
    _refuse_existing(output)
    run = PruningRun(settings, output, base, resume, speed, progress or Silent())
    run.weights, run.ranking = weights, ranking
    return run.go({settings.keep: output})[settings.keep]


def prune_many(
    settings: RunSettings,
    output: Path,
    *,
    folders: Mapping[float | int, Path] | None = None,
    base: Path | None = None,
    resume: bool = False,
    speed: bool = True,
    weights: bool = True,
    progress: Progress | None = None,
) -> dict[float | int, RunResult]:
    """Prune to several numbers of heads from one training; each has a folder as `prune` writes.

    Each folder appears when it is complete. A training that was stopped goes on, and folders that
    are there already stay. The selection history, which is that of the smallest K, is in the
    folder of the smallest K alone.

    Args:
        settings: of the run, with several `keep`, for a method that can.
        output: a new folder, with a folder for each K in it: `keep-48`, `keep-24`, and so on.
        folders: of each K, if they are to be elsewhere.
        base: see `prune`.
        resume: see `prune`.
        speed: see `prune`.
        weights: see `prune`.
        progress: who wants to know.

    Returns:
        The figures by K. Each has the seconds of the whole training, and says how many share it.
    """
    if not isinstance(settings.keep, tuple):
        raise HeadcountError(f"keep is {settings.keep}, expected several; prune is for one K")
    if folders is None:
        folders = {keep: output / f"keep-{keep}" for keep in settings.keep}
        if not resume:
            _refuse_existing(output)
    run = PruningRun(settings, output, base, resume, speed, progress or Silent())
    run.weights, run.shared_by = weights, len(folders)
    done = {}
    for keep, folder in folders.items():
        if not resume:
            _refuse_existing(folder)
        elif folder.exists():
            refuse_other_settings(folder, run.settings_of(keep).to_dict())
            done[keep] = RunResult.load(folder)
    missing = {keep: folder for keep, folder in folders.items() if keep not in done}
    made = run.go(missing) if missing else {}
    discard(run.work)
    return {keep: done.get(keep) or made[keep] for keep in folders}


def _refuse_existing(output: Path) -> None:
    if output.exists():
        raise HeadcountError(f"{output} exists already; give a new folder for the output")
