"""What a study compares, from its YAML file to a list of runs.

An `Entry` is one line of a study's tables: a method, or a variant of one with a name of its own. A
`Job` is what is done at once: a run, or several that share a training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
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
from headcount.runs.how_many import refuse_ask
from headcount.runs.job import refuse_recovery
from headcount.runs.recipe import Key, Recipe, fill
from headcount.runs.settings import (
    ASKS,
    ExampleSettings,
    RunSettings,
    TrainingSettings,
    refuse_several_asks,
)

SETTINGS = "study.json"  # a study file too, since YAML reads JSON
OWN = "own"  # as a keep: the count that a method finds
RECOVERY_EPOCHS = "recovery_epochs"
MOST_RUNS = 10_000
_SHARES = ("cache", "parameters")  # of which a larger one is more heads
_NAME = re.compile(r"\w[\w.+=-]*")  # the name of a variant becomes a part of folder names


@dataclass(frozen=True)
class Ask:
    """What runs are asked for instead of a number of heads.

    Attributes:
        name: `cache`, `parameters`, `speed_up` or `within`.
        value: how much.
    """

    name: str
    value: float

    def __str__(self) -> str:
        return f"{self.name}{self.value:g}"


Count = float | int | Ask | None  # of heads; None for the one that the method finds


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
        harness_limit: how many examples of each of these tasks; None for the training's
            `limit_eval`.
        speed: measure how fast every pruned model is, beside the unpruned one, after all runs.
        models: keep the weights of every pruned model. They take much space in a large study.
        cache: shares of the key-value cache to keep, instead of `keep`. An entry may have its own,
            as of the three that follow.
        parameters: shares of the parameters to keep, instead of `keep`.
        speed_up: times as fast, instead of `keep`.
        within: parts of the metric that may be lost, instead of `keep`.
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
    harness_limit: int | None = None
    speed: bool = True
    models: bool = False
    cache: tuple[float, ...] = ()
    parameters: tuple[float, ...] = ()
    speed_up: tuple[float, ...] = ()
    within: tuple[float, ...] = ()

    @property
    def counts(self) -> tuple[Count, ...]:
        """How many heads the entries keep that do not say it themselves."""
        return (*self.keep, *_asks({name: getattr(self, name) for name in ASKS}))

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
        _refuse_several(recipe, (), {name: getattr(study, name) for name in ("keep", *ASKS)})
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
        except SettingError as error:  # of the study or of an entry
            key = f"{error.setting}s" if error.setting == "seed" else error.setting
            raise recipe.error((key,), str(error)) from error
        for name, run in runs.items():
            try:
                refuse_bad_name(name)
                refuse_ask(run)
                keep = 1 if run.keep is None and run.asks else run.keep
                make_pruner(run.method, keep, run.settings, seed=run.seed)
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
                name, self.settings.get(name, {}), self.counts, self.seeds, self.training, recipe
            )
            for name in dict.fromkeys(self.methods)
        ]

    def jobs(self) -> Iterator[Job]:
        """Everything to do, seed by seed, the unpruned model first."""
        common = RunSettings(
            self.model, self.task, self.data, examples=self.examples, harness=self.harness,
            harness_tasks=self.harness_tasks, harness_limit=self.harness_limit,
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
        said = [key for key in ("keep", *ASKS) if getattr(study, key)]
        return (said[0],) if said else ("methods",)
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
        counts = tuple(keep for keep in self.seeds if isinstance(keep, int | float))
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
            f"{self.name}-{none if keep is None else keep}-seed{seed}": _with_count(run, keep)
            for keep, seeds in self.seeds.items()
            if seed in seeds
        }


def _with_count(run: RunSettings, count: Count) -> RunSettings:
    if isinstance(count, Ask):
        return replace(run, **{count.name: count.value})  # type: ignore[arg-type]
    return replace(run, keep=count)


def _asks(given: Mapping[str, Iterable[float] | None]) -> tuple[Ask, ...]:
    return tuple(Ask(name, value) for name, values in given.items() for value in values or ())


def _refuse_several(recipe: Recipe, at: Key, given: Mapping[str, Any]) -> None:
    try:
        refuse_several_asks(given)
    except HeadcountError as error:
        said = [name for name, value in given.items() if value not in (None, ())]
        raise recipe.error((*at, said[-1]), str(error)) from error


def read_entry(
    name: str,
    written: Mapping[str, Any],
    keep: tuple[Count, ...],
    seeds: tuple[int, ...],
    training: TrainingSettings,
    recipe: Recipe,
) -> Entry:
    """Make an entry from what the study's settings have below its name.

    Args:
        name: the entry's name.
        written: what the study's settings have below it.
        keep: the study's numbers of heads, or what it asks for instead, unless the entry has its
            own.
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
    said = [key for key in ("keep", *ASKS) if key in written]
    if method == UNPRUNED and said:
        raise recipe.error((*at, said[0]), f"{name} keeps all heads; remove its {said[0]}")
    _refuse_several(recipe, at, {key: written[key] for key in said})
    if given.one_run:
        try:
            refuse_many(method)
        except HeadcountError as error:
            raise recipe.error((*at, "one_run"), str(error)) from error
        own_asks = any(getattr(given, name) for name in ASKS)
        if own_count or own_asks or any(isinstance(one, Ask) for one in keep if not given.keep):
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
    own = (*(given.keep or ()), *_asks({key: getattr(given, key) for key in ASKS}))
    ordered = _ordered(own if said and not own_count else keep)
    own_count |= not said and _finds_own_count(method, settings)
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


def _ordered(counts: Iterable[Count]) -> tuple[Count, ...]:
    """The same without repeats, most heads first; a loss or a speed-up is larger with fewer."""
    numbers = sorted({one for one in counts if isinstance(one, int | float)}, reverse=True)
    asks = {one for one in counts if isinstance(one, Ask)}
    shares = sorted((one for one in asks if one.name in _SHARES), key=lambda one: -one.value)
    rest = sorted(asks - set(shares), key=lambda one: one.value)
    return (*numbers, *shares, *rest)


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
    cache: tuple[float, ...] | None = None
    parameters: tuple[float, ...] | None = None
    speed_up: tuple[float, ...] | None = None
    within: tuple[float, ...] | None = None


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
