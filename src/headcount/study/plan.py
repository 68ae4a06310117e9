"""What a study compares, from its YAML file to a list of runs.

An `Entry` is one line of a study's tables: a method, or a variant of one with a name of its own. A
`Job` is what is done at once: a run, or several that share a training.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headcount.atomic import refuse_bad_name
from headcount.errors import HeadcountError, SettingError
from headcount.pruners.methods import (
    METHODS,
    UNPRUNED,
    find_pruner,
    make_pruner,
    read_settings,
    refuse_many,
)
from headcount.runs.job import refuse_recovery
from headcount.runs.recipe import Key, Recipe, fill
from headcount.runs.settings import ExampleSettings, RunSettings, TrainingSettings

SETTINGS = "study.json"  # a study file too, since YAML reads JSON
OWN = "own"  # as a keep: the count that a method finds
RECOVERY_EPOCHS = "recovery_epochs"
MOST_RUNS = 10_000
_NAME = re.compile(r"\w[\w.+=-]*")  # the name of a variant becomes a part of folder names
Count = float | int | None  # of heads; None for the one that the method finds


@dataclass(frozen=True)
class StudySettings:
    """Everything that decides a study.

    Attributes:
        model: a model folder or a name on the hub.
        task: a name that `headcount prune --help` lists.
        data: a folder, a file, or a data set on the hub.
        methods: what to compare: names of methods, and names of your own for variants of them.
        keep: numbers of heads to keep, or fractions below 1; empty for methods that find their own.
        seeds: every method is run with each seed. Give several to see how much is chance.
        training: how models are trained.
        examples: where in the data the examples are.
        settings: the settings of each entry of `methods`, by its name. These keys are not the
            method's: `method` makes the entry a variant of that method. `keep` (numbers, or `own`
            for the count that the method finds) and `seeds` (a list, or lists by number of heads)
            replace the study's. `training` has what is different for this entry. `one_run` prunes
            to every keep with one training.
        harness: tasks of lm-evaluation-harness to evaluate every pruned model on, besides the
            study's task; their accuracies are rows of `results.csv`.
        harness_tasks: a folder with YAML files of such tasks of your own; None for none.
        speed: measure how fast every pruned model is, beside the unpruned one, after all runs.
        models: keep the weights of every pruned model. They take much space in a large study.
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
    harness: tuple[str, ...] = ()
    harness_tasks: str | None = None
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
        _refuse_too_many(study.entries(recipe), recipe)
        try:
            runs = study.runs()
        except SettingError as error:  # a seed, which is the study's or an entry's
            raise recipe.error((f"{error.setting}s",), str(error)) from error
        for name, run in runs.items():
            try:
                refuse_bad_name(name)
                make_pruner(run.method, run.keep, run.settings, seed=run.seed)
            except HeadcountError as error:
                raise recipe.error(_place(run.name, study, error), str(error)) from error
        return study

    def entries(self, recipe: Recipe | None = None) -> list[Entry]:
        """What is compared, in the order of the file.

        Args:
            recipe: the study file, to name the line of a mistake; None names none.
        """
        recipe = recipe or Recipe(Path("study"), {}, {})
        return [
            read_entry(
                name, self.settings.get(name, {}), self.keep, self.seeds, self.training, recipe
            )
            for name in dict.fromkeys(self.methods)
        ]

    def jobs(self) -> Iterator[Job]:
        """Everything to do, seed by seed, the unpruned model first."""
        common = RunSettings(
            self.model, self.task, self.data, examples=self.examples, harness=self.harness,
            harness_tasks=self.harness_tasks,
        )  # fmt: skip
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


def _refuse_too_many(entries: list[Entry], recipe: Recipe) -> None:
    """Refuse lists that multiply to more runs than anybody waits for, before they are made."""
    number = sum(len(seeds) for entry in entries for seeds in entry.seeds.values())
    if number > MOST_RUNS:
        raise recipe.error(
            ("methods",),
            f"this study has {number:,} runs, expected at most {MOST_RUNS:,}; split it",
        )


def _place(name: str, study: StudySettings, error: HeadcountError) -> Key:
    """The key of an entry's mistake: the setting that is wrong, if it is one."""
    if name not in study.settings:
        return ("keep",) if study.keep else ("methods",)
    setting = str(getattr(error, "setting", ""))
    return ("settings", name, setting) if setting in study.settings[name] else ("settings", name)


@dataclass(frozen=True)
class Job:
    """What is done at once: a run, or runs of several numbers of heads that share a training.

    Attributes:
        name: the name of its lock.
        runs: the runs by the names of their folders.
    """

    name: str
    runs: dict[str, RunSettings]

    @property
    def settings(self) -> RunSettings:
        """The settings of the run, or of all runs together."""
        run = next(iter(self.runs.values()))
        return (
            run if run.trained_for is None else replace(run, keep=run.trained_for, trained_for=None)
        )


@dataclass(frozen=True)
class Entry:
    """One of the things that a study compares.

    Attributes:
        name: its name in tables and figures: the method's, or one that the user gave a variant.
        method: the method.
        seeds: the seeds to run it with, by the number of heads.
        training: how models are trained.
        one_run: one training serves every number of heads.
        settings: the method's settings.
    """

    name: str
    method: str
    seeds: dict[Count, tuple[int, ...]]
    training: TrainingSettings
    one_run: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    def runs(self, common: RunSettings, seed: int) -> dict[str, RunSettings]:
        """Its runs with this seed by the names of their folders, most heads first.

        Args:
            common: the settings that all entries of the study share.
            seed: gives no runs if it is none of this entry's.
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


def read_entry(
    name: str,
    written: Mapping[str, Any],
    keep: tuple[float | int, ...],
    seeds: tuple[int, ...],
    training: TrainingSettings,
    recipe: Recipe,
) -> Entry:
    """Make an entry from what the study's settings have below its name.

    Args:
        name: the entry's name.
        written: what the study's settings have below it.
        keep: the study's numbers of heads, unless the entry has its own.
        seeds: the study's seeds, unless the entry has its own.
        training: the study's training; the entry may change parts of it.
        recipe: knows the lines, for error messages.
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
            refuse_many(method)
        except HeadcountError as error:
            raise recipe.error((*at, "one_run"), str(error)) from error
        if own_count:
            raise recipe.error((*at, "one_run"), f"one_run needs the keep of {name} in numbers")
        if single:
            raise recipe.error((*at, "seeds"), "one_run has one list of seeds for all; give that")
    everything = {**asdict(training), **given.training}
    try:
        refuse_recovery(method, given.training.get(RECOVERY_EPOCHS))
    except HeadcountError as error:
        raise recipe.error((*at, "training", RECOVERY_EPOCHS), str(error)) from error
    if not find_pruner(method).is_post_hoc():
        everything[RECOVERY_EPOCHS] = None  # the study's is for the other methods
    settings = {key: value for key, value in written.items() if key not in RESERVED}
    counts = keep if given.keep is None else given.keep
    ordered: tuple[Count, ...] = tuple(sorted(set(counts), reverse=True))
    own_count |= given.keep is None and _finds_own_count(method, settings)
    if own_count or method == UNPRUNED or not ordered:
        ordered = (None,)
    usual = seeds if given.seeds is None else given.seeds
    return Entry(
        name=name,
        method=method,
        seeds=dict.fromkeys(ordered, usual) | _single(single, ordered, recipe, (*at, "seeds")),
        training=fill(TrainingSettings, recipe, everything, (*at, "training")),
        one_run=given.one_run,
        settings=settings,
    )


def _finds_own_count(method: str, settings: Mapping[str, Any]) -> bool:
    """Whether an entry says by its settings how many heads stay: a λ, or a layout to follow.

    The study's keep is for the other entries then. To adjust what a λ leaves to K heads, give the
    entry a keep of its own.
    """
    try:
        return find_pruner(method).finds_own_count(read_settings(method, settings))
    except HeadcountError:
        return False  # refused later, with its line


@dataclass(frozen=True)
class _Reserved:
    """The keys of an entry that are not settings of its method."""

    method: str | None = None
    keep: tuple[float | int, ...] | None = None
    seeds: tuple[int, ...] | None = None
    training: dict[str, Any] = field(default_factory=dict)
    one_run: bool = False


RESERVED = tuple(asdict(_Reserved()))


def _method(name: str, said: str | None, recipe: Recipe) -> str:
    """The method of an entry: the one it names, or its own name."""
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


def _single(
    written: Mapping[Any, Any], counts: tuple[Count, ...], recipe: Recipe, at: Key
) -> dict[Count, tuple[int, ...]]:
    """Seeds that are given for single numbers of heads."""
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
