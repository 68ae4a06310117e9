"""What a study compares, from its YAML file to a list of runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.runs.methods import find_method
from headcount.runs.recipe import Recipe, fill
from headcount.runs.settings import ExampleSettings, RunSettings, TrainingSettings
from headcount.study.entry import UNPRUNED, Entry, read_entry

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
