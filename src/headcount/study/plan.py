"""What a study compares, from its YAML file to a list of runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.runs.methods import METHODS, find_method
from headcount.runs.recipe import Key, Recipe, fill
from headcount.runs.settings import ExampleSettings, RunSettings, TrainingSettings

SETTINGS = "study.json"  # a study file too, since YAML reads JSON


@dataclass(frozen=True)
class Job:
    """What is done at once: a run, or runs of several numbers of heads that share a training.

    Attributes:
        name: of its lock.
        runs: by the names of their folders.
    """

    name: str
    runs: dict[str, RunSettings]

    @property
    def settings(self) -> RunSettings:
        """Of the run, or of all of them together."""
        run = next(iter(self.runs.values()))
        return (
            run if run.trained_for is None else replace(run, keep=run.trained_for, trained_for=None)
        )


@dataclass(frozen=True)
class StudySettings:
    """A study.

    Attributes:
        model: a model folder or a name on the hub.
        task: as for `headcount prune`.
        data: a folder, a file, or a data set on the hub.
        methods: to compare: names of methods, and names of your own for variants of them.
        keep: numbers of heads, or fractions below 1.
        seeds: every method is run with each.
        training: how models are trained.
        examples: where in the data the examples are.
        settings: of each method, by its name. Besides its own, an entry may have `method`, which
            makes it a variant, `keep` (numbers, or `own` for the count that it finds) and `seeds`
            (a list, or lists by number of heads) in place of the study's, `training` with what is
            different for it, and `one_run`, which prunes to every keep from one training.
        speed: measure every pruned model's, beside the unpruned one, when all runs are done.
        models: keep the weights of every pruned model.
    """

    model: str
    task: str
    data: str
    methods: tuple[str, ...]
    keep: tuple[float | int, ...] = ()
    seeds: tuple[int, ...] = (0,)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    examples: ExampleSettings = field(default_factory=ExampleSettings)
    settings: dict[str, Any] = field(default_factory=dict)
    speed: bool = True
    models: bool = False

    @classmethod
    def read(cls, path: Path) -> StudySettings:
        """Read and check a study file."""
        recipe = Recipe.read(path)
        study = fill(cls, recipe, recipe.values)
        for needed in ("methods", "seeds"):
            if not getattr(study, needed):
                raise recipe.error(
                    (needed,), f"a study without {needed} has nothing to run; give one"
                )
        for name, own in study.settings.items():
            if name not in study.methods:
                raise recipe.error(
                    ("settings", name), f"{name} is not among the methods of this study"
                )
            if not isinstance(own, dict):
                raise recipe.error(("settings", name), f"{name} must have settings below it")
        study.entries(recipe)
        for run in study.runs().values():
            try:
                find_method(run.method).make(run.keep, run.settings, run.seed)
            except HeadcountError as error:
                key = ("settings", run.name) if run.name in study.settings else ("keep",)
                raise recipe.error(key, str(error)) from error
        return study

    def entries(self, recipe: Recipe | None = None) -> list[Entry]:
        """What is compared, in the order of the file.

        Args:
            recipe: tells the lines of mistakes.
        """
        recipe = recipe or Recipe(Path("study"), {}, {})
        return [
            read_entry(
                name, self.settings.get(name, {}), self.keep, self.seeds, self.training, recipe
            )
            for name in dict.fromkeys(self.methods)
        ]

    def jobs(self) -> Iterator[Job]:
        """All that is to be done, seed by seed; the unpruned model first."""
        common = RunSettings(self.model, self.task, self.data, examples=self.examples)
        entries = sorted(self.entries(), key=lambda entry: entry.method != UNPRUNED)
        every = (seeds for entry in entries for seeds in entry.seeds.values())
        for seed in dict.fromkeys(seed for seeds in every for seed in seeds):
            for entry in entries:
                runs = entry.runs(common, seed)
                if entry.one_run and runs:
                    yield Job(f"{entry.name}-together-seed{seed}", runs)
                else:
                    yield from (Job(name, {name: run}) for name, run in runs.items())

    def runs(self) -> dict[str, RunSettings]:
        """Every run by the name of its folder."""
        return {name: run for job in self.jobs() for name, run in job.runs.items()}


UNPRUNED = "unpruned"
OWN = "own"  # the count that a method finds
_NAME = re.compile(r"\w[\w.+=-]*")  # it becomes a part of folder names

Count = float | int | None  # of heads; None for the one that the method finds


@dataclass(frozen=True)
class Entry:
    """One of the things that a study compares.

    Attributes:
        name: in tables and figures: the method's, or one of the user's own.
        method: behind it.
        seeds: to run it with, by the number of heads.
        training: how it is trained.
        one_run: one training is for every number of heads.
        settings: of the method.
    """

    name: str
    method: str
    seeds: dict[Count, tuple[int, ...]]
    training: TrainingSettings
    one_run: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    def runs(self, common: RunSettings, seed: int) -> dict[str, RunSettings]:
        """Its runs with a seed by the names of their folders, most heads first.

        Args:
            common: what all entries of the study share.
            seed: of the runs.
        """
        counts = tuple(keep for keep in self.seeds if keep is not None)
        run = replace(
            common,
            method=self.method,
            seed=seed,
            training=self.training,
            settings=self.settings,
            trained_for=counts if self.one_run else None,
            variant=None if self.name == self.method else self.name,
        )
        none = "all" if self.method == UNPRUNED else OWN
        return {
            f"{self.name}-{none if keep is None else keep}-seed{seed}": replace(run, keep=keep)
            for keep, seeds in self.seeds.items()
            if seed in seeds
        }


@dataclass(frozen=True)
class _Reserved:
    """The keys below an entry that are not settings of its method."""

    method: str | None = None
    keep: tuple[float | int, ...] | None = None
    seeds: tuple[int, ...] | None = None
    training: dict[str, Any] = field(default_factory=dict)
    one_run: bool = False


RECOVERY_EPOCHS = "recovery_epochs"
RESERVED = tuple(asdict(_Reserved()))


def read_entry(
    name: str,
    written: Mapping[str, Any],
    keep: tuple[float | int, ...],
    seeds: tuple[int, ...],
    training: TrainingSettings,
    recipe: Recipe,
) -> Entry:
    """Make an entry of what stands below its name in the study's settings.

    Args:
        name: of the entry.
        written: what stands there.
        keep: numbers of heads of the study.
        seeds: of the study.
        training: of the study.
        recipe: tells the lines of mistakes.
    """
    at = ("settings", name)
    reserved = {key: value for key, value in written.items() if key in RESERVED}
    own_count = reserved.get("keep") == OWN
    if own_count:
        del reserved["keep"]
    single = reserved.pop("seeds") if isinstance(reserved.get("seeds"), Mapping) else {}
    given = fill(_Reserved, recipe, reserved, at)
    method = _method(name, given.method, recipe)
    if method == UNPRUNED and "keep" in written:
        raise recipe.error((*at, "keep"), f"{name} keeps all heads; remove its keep")
    if given.one_run:
        try:
            find_method(method).refuse_many()
        except HeadcountError as error:
            raise recipe.error((*at, "one_run"), str(error)) from error
        if own_count:
            raise recipe.error((*at, "one_run"), f"one_run needs the keep of {name} in numbers")
        if single:
            raise recipe.error((*at, "seeds"), "one_run has one list of seeds for all; give that")
    everything = {**asdict(training), **given.training}
    try:
        find_method(method).refuse_recovery(given.training.get(RECOVERY_EPOCHS))
    except HeadcountError as error:
        raise recipe.error((*at, "training", RECOVERY_EPOCHS), str(error)) from error
    if not find_method(method).post_hoc:
        everything[RECOVERY_EPOCHS] = None  # the study's is for the other methods
    counts = keep if given.keep is None else given.keep
    ordered: tuple[Count, ...] = tuple(sorted(set(counts), reverse=True))
    if own_count or method == UNPRUNED or not ordered:
        ordered = (None,)
    usual = seeds if given.seeds is None else given.seeds
    return Entry(
        name=name,
        method=method,
        seeds=dict.fromkeys(ordered, usual) | _single(single, ordered, recipe, (*at, "seeds")),
        training=fill(TrainingSettings, recipe, everything, (*at, "training")),
        one_run=given.one_run,
        settings={key: value for key, value in written.items() if key not in RESERVED},
    )


def _single(
    written: Mapping[Any, Any], counts: tuple[Count, ...], recipe: Recipe, at: Key
) -> dict[Count, tuple[int, ...]]:
    """The seeds of single numbers of heads."""
    known = {str(count): count for count in counts}  # keys of JSON are text
    for key in written:
        if str(key) not in known:
            raise recipe.error(
                (*at, str(key)),
                f"seeds are given for {key} heads, but keep has {', '.join(known)}; add it there",
            )
    return {
        known[str(key)]: fill(_Reserved, recipe, {"seeds": own}, at[:-1]).seeds or ()
        for key, own in written.items()
    }


def _method(name: str, said: str | None, recipe: Recipe) -> str:
    known = ", ".join(METHODS)
    if said is None:
        if name not in METHODS:
            raise recipe.error(
                ("settings", name) if ("settings", name) in recipe.lines else ("methods",),
                f"there is no method {name}; known are {known}, and names of your own that have a "
                "method: under settings",
            )
        return name
    at = ("settings", name, "method")
    if said not in METHODS:
        raise recipe.error(at, f"there is no method {said}; known are {known}")
    if said == UNPRUNED and name != UNPRUNED:
        raise recipe.error(
            at, f"{UNPRUNED} is what all others are measured against and has no variants"
        )
    if name in METHODS and name != said:
        raise recipe.error(
            at, f"{name} is a method itself; give the variant of {said} another name"
        )
    if not _NAME.fullmatch(name):
        raise recipe.error(
            at[:2], f"{name!r} becomes a part of folder names; use letters, digits and . + = - _"
        )
    return said
