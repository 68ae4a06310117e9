"""Prune: from a model and data to a smaller model, and a measure of what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headcount.atomic import refuse_existing
from headcount.errors import HeadcountError
from headcount.runs.job import Options, PruningJob
from headcount.runs.progress import Progress, Silent
from headcount.runs.result import RunResult
from headcount.runs.settings import RunSettings
from headcount.runs.unfinished import discard, refuse_other_settings, unfinished


def prune(
    settings: RunSettings,
    output: Path,
    *,
    base: Path | None = None,
    resume: bool = False,
    speed: bool = True,
    weights: bool = True,
    ranking: Path | None = None,
    hub_name: str | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Train, choose, cut, check and measure; write all of it into a folder.

    Under `accelerate launch` every process calls it; the first one writes.

    Args:
        settings: everything that decides the run.
        output: a new folder, which appears when all is done.
        base: the folder of the fine-tuned, unpruned model. If it is missing, the model is
            fine-tuned and kept there. Pipelined methods start from it; the others are compared
            with it. Without it, pipelined methods need a model that is already fine-tuned.
        resume: go on with a run that was stopped.
        speed: measure how fast the pruned and the unpruned model are. False saves a few seconds.
        weights: write the pruned model itself. False writes only the mask, the figures and so on.
        ranking: an importance file that `rank_heads` wrote. A method that scores then takes this
            ranking instead of scoring again.
        hub_name: what the model card calls the model. Give it if the folder goes to the hub; None
            for the folder's name.
        progress: receives each stage and step, for a progress bar; None shows nothing.
    """
    if isinstance(settings.keep, tuple):
        raise HeadcountError(
            f"keep is {list(settings.keep)}, expected one K; prune_many is for several"
        )
    if resume and output.is_dir() and unfinished(output).is_dir():
        # Killed after its last act but one.
        refuse_other_settings(output, settings.to_dict())
        discard(unfinished(output))
        return RunResult.load(output)
    refuse_existing(output)
    options = Options(base, resume, speed, weights, ranking, hub_name=hub_name)
    job = PruningJob(settings, output, options, progress or Silent())
    return job.go({settings.keep: output})[settings.keep]


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
    """Prune to several numbers of heads with one training; each gets a folder as from `prune`.

    Each folder appears when it is complete. With `resume`, a stopped training goes on and complete
    folders stay. The selection history follows the smallest K, so only its folder has one.

    Args:
        settings: everything that decides the run. Its `keep` has several K, and its method must
            be able to learn for several.
        output: a new folder, with a folder for each K in it: `keep-48`, `keep-24`, and so on.
        folders: the folder for each K, to put them elsewhere; None for those in `output`.
        base: see `prune`.
        resume: see `prune`.
        speed: see `prune`.
        weights: see `prune`.
        progress: see `prune`.

    Returns:
        The figures by K. Each has the seconds of the whole training, and how many results share it.
    """
    if not isinstance(settings.keep, tuple):
        raise HeadcountError(f"keep is {settings.keep}, expected several; prune is for one K")
    if folders is None:
        folders = {keep: output / f"keep-{keep}" for keep in settings.keep}
        if not resume:
            refuse_existing(output)
    options = Options(base, resume, speed, weights, shared_by=len(folders))
    job = PruningJob(settings, output, options, progress or Silent())
    done = {}
    for keep, folder in folders.items():
        if not resume:
            refuse_existing(folder)
        elif folder.exists():
            refuse_other_settings(folder, job.settings_of(keep).to_dict())
            done[keep] = RunResult.load(folder)
    missing = {keep: folder for keep, folder in folders.items() if keep not in done}
    made = job.go(missing) if missing else {}
    discard(job.run.work)
    return {keep: done.get(keep) or made[keep] for keep in folders}
