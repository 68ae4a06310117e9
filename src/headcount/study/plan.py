"""What a study compares, from its YAML file to a list of runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.runs.methods import METHODS, find_method
from headcount.runs.recipe import Recipe, fill
from headcount.runs.settings import ExampleSettings, RunSettings, TrainingSettings

UNPRUNED = "unpruned"


@dataclass(frozen=True)
class StudySettings:
    """A study.

    Attributes:
        model: a model folder or a name on the hub.
        task: as for `headcount prune`.
        data: a folder, a file, or a data set on the hub.
        methods: to compare.
        keep: numbers of heads, or fractions below 1.
        seeds: every method is run with each.
        training: how models are trained, the same for all methods.
        examples: where in the data the examples are.
        settings: of each method, by its name.
        speed: measure every pruned model's, beside the unpruned one.
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
        for name in study.methods:
            if name not in METHODS:
                known = ", ".join(METHODS)
                raise recipe.error(("methods",), f"there is no method {name}; known are {known}")
        for name, own in study.settings.items():
            if name not in study.methods:
                raise recipe.error(
                    ("settings", name), f"{name} is not among the methods of this study"
                )
            if not isinstance(own, dict):
                raise recipe.error(("settings", name), f"{name} must have settings below it")
        for method, run in ((run.method, run) for _, run in study.runs()):
            try:
                find_method(method).make(run.keep, run.settings, run.seed)
            except HeadcountError as error:
                key = ("settings", method) if method in study.settings else ("keep",)
                raise recipe.error(key, str(error)) from error
        return study

    def runs(self) -> Iterator[tuple[str, RunSettings]]:
        """Every run by the name of its folder; the unpruned model and cheap methods first."""
        order = sorted(self.methods, key=lambda name: name != UNPRUNED)
        for seed in self.seeds:
            for method in order:
                for keep in self._keeps(method):
                    what = "all" if keep is None and method == UNPRUNED else keep or "own"
                    yield f"{method}-{what}-seed{seed}", self._run(method, keep, seed)

    def _keeps(self, method: str) -> tuple[float | int | None, ...]:
        own = self.settings.get(method, {})
        if method == UNPRUNED or not self.keep or (method == "hard-concrete" and "keep" in own):
            return (None,)
        return tuple(sorted(set(self.keep), reverse=True))

    def _run(self, method: str, keep: float | int | None, seed: int) -> RunSettings:
        return RunSettings(
            model=self.model,
            task=self.task,
            data=self.data,
            method=method,
            keep=keep,
            seed=seed,
            training=self.training,
            examples=self.examples,
            settings=self.settings.get(method, {}),
        )
