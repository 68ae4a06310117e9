"""The methods by name: which pruner, what it trains, and its settings from a recipe."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, Literal

from headcount.errors import HeadcountError
from headcount.pruners import (
    STE,
    Ablation,
    Attrition,
    Countdown,
    DSPSettings,
    Fixed,
    Handover,
    HardConcrete,
    JointDSP,
    Michel,
    PipelinedDSP,
    Pruner,
    Random,
    Surgeon,
    Unpruned,
)
from headcount.pruners.choice import Keep
from headcount.pruners.dsp import PRESETS
from headcount.pruners.handover import AT_ONCE
from headcount.pruners.schedule import Annealing
from headcount.runs.settings import TrainingSettings

# What a method works on: a model that it trains; a fine-tuned model, of which it trains only the
# gates; or a fine-tuned model that it leaves as it is.
Needs = Literal["training", "gate training", "scoring"]

_ANNEALING = {"start_temperature": "start", "end_temperature": "end", "cooldown": "cooldown"}
_ANNEALED = "annealing"  # of DSP: false leaves the temperature where it starts
# Of Michel: stop before the metric falls below this share of the unpruned model's. Of methods that
# score on the training data: the share of it to score on.
UNTIL, SAMPLE = "until", "sample"
# Of methods that do not train the weights: give back what a cut takes, fitted on so many examples
# of the training data.
COMPENSATE, COMPENSATE_SAMPLE = "compensate", "compensate_sample"
_EXAMPLES = 512
_YES_OR_NO = (
    _ANNEALED, "anew", "balance", "clamp", "decay", "fit", "halve", "hard", "normalise", "shed",
)  # fmt: skip
_NUMBERS = (
    SAMPLE, UNTIL, "min_per_block", "commit_at", "step", "learning_rate", "lambda", "start",
    "memory", "ridge", "start_temperature", "end_temperature", "cooldown", "spread",
)  # fmt: skip
_SCOPE = ("kinds", "layers", "min_per_block", "freeze", "commit_at")


@dataclass(frozen=True)
class Method:
    """A row of the table of methods.

    Attributes:
        name: as on the command line.
        pruner: the class behind it.
        needs: what it works on.
        own_count: works without a keep.
        compensates: gives back what a cut takes, unless it is told not to.
    """

    name: str
    pruner: type[Pruner]
    needs: Needs
    own_count: bool = False
    compensates: bool = False

    @property
    def post_hoc(self) -> bool:
        """Whether it needs a model that was fine-tuned before."""
        return self.needs != "training"

    def make(
        self, keep: Keep | None, settings: Mapping[str, Any], seed: int, warm: bool = False
    ) -> Pruner:
        """The pruner, from the settings of a recipe.

        Args:
            keep: K.
            settings: of the method.
            seed: of the run.
            warm: the model is fine-tuned already.
        """
        if warm and self.pruner is Handover and settings.get("operations", 1) == 1:
            settings = {"countdown": astuple(AT_ONCE), **settings}
        try:
            return self._made(keep, settings, seed)
        except (TypeError, ValueError) as error:  # a word where a number should be, and the like
            said = ", ".join(f"{name}: {value!r}" for name, value in settings.items())
            raise HeadcountError(
                f"{self.name} cannot be made with {said}: {error}; give settings of the right kind"
            ) from error

    def compensation(self, settings: Mapping[str, Any]) -> int | None:
        """How many examples to fit on what a cut takes; None if it is not given back."""
        wanted, sample = settings.get(COMPENSATE), settings.get(COMPENSATE_SAMPLE)
        if wanted is None:
            wanted = self.compensates
        if not isinstance(wanted, bool):
            raise HeadcountError(
                f"{COMPENSATE} of {self.name} is {wanted!r}, expected true or false"
            )
        if not wanted:
            if sample is not None:
                raise HeadcountError(
                    f"{COMPENSATE_SAMPLE} is {sample!r}, but nothing is compensated; give "
                    f"{COMPENSATE} too"
                )
            return None
        if not self.post_hoc:
            able = ", ".join(name for name, row in METHODS.items() if row.post_hoc)
            raise HeadcountError(
                f"{self.name} trains the model itself, which makes up for heads that go; leave "
                f"out {COMPENSATE}, which is for {able}"
            )
        if sample is None:
            return _EXAMPLES
        if not isinstance(sample, int) or isinstance(sample, bool) or sample < 1:
            raise HeadcountError(
                f"{COMPENSATE_SAMPLE} is {sample!r}, expected a number of examples from 1"
            )
        return sample

    def _made(self, keep: Keep | None, settings: Mapping[str, Any], seed: int) -> Pruner:
        if isinstance(keep, Collection):
            self.refuse_many()
        self.compensation(settings)
        given = choosing(settings)
        for name in _NUMBERS:
            if not _is_number(given.get(name)):
                raise HeadcountError(f"{name} of {self.name} is {given[name]!r}, expected a number")
        for name in _YES_OR_NO:
            if not isinstance(given.get(name, True), bool):
                raise HeadcountError(
                    f"{name} of {self.name} is {given[name]!r}, expected true or false"
                )
        if "lambda" in given and self.pruner is HardConcrete:
            given["penalty_weight"] = given.pop("lambda")
        if "countdown" in given:
            given["countdown"] = _countdown(given["countdown"])
            if given["countdown"] is None and self.pruner in (Attrition, Handover):
                raise HeadcountError(
                    f"{self.name} is a countdown, so it cannot be without one; leave countdown "
                    "out, or give its start, end and power"
                )
        if self.pruner in (JointDSP, PipelinedDSP):
            # Pipelined, the whole model is frozen.
            own = [name for name in _SCOPE if name != "freeze" or self.pruner is JointDSP]
            given = {
                **{name: given.pop(name) for name in own if name in given},
                "settings": _dsp_settings(self.name, given, own),
            }
        if self.pruner in (Michel, Surgeon):
            given.pop(SAMPLE, None)
        own_count = self.own_count
        if self.pruner is Michel:
            own_count = given.pop(UNTIL, None) is not None
        self._refuse_unknown(given)
        if self.pruner is not Unpruned:
            if keep is None and not own_count:
                raise HeadcountError(f"{self.name} needs to know how many heads to keep; give keep")
            for one in keep if isinstance(keep, Collection) else (keep,):
                if one is not None and one <= 0:
                    raise HeadcountError(
                        f"keep is {one}, expected one head or more; give a larger one"
                    )
            given["keep"] = keep
        return self.pruner(seed=seed, **given)

    def refuse_no_training(self, training: TrainingSettings, has_base: bool) -> None:
        """Tell of a training without epochs, unless it is that of a model taken as it is."""
        starts_trained = self.post_hoc or training.warm_start
        if not (training.epochs or starts_trained or (self.pruner is Unpruned and has_base)):
            raise HeadcountError(
                f"epochs is 0, which takes a fine-tuned model as it is, but {self.name} trains it; "
                "give --warm-start to prune that, or more epochs"
            )

    def refuse_recovery(self, epochs: float | None) -> None:
        """Tell that a method trains the model itself, if it is to be trained after the cut."""
        if epochs is not None and not self.post_hoc:
            able = ", ".join(name for name, row in METHODS.items() if row.post_hoc)
            raise HeadcountError(
                f"{self.name} trains the model itself, so it has nothing to recover from; leave "
                f"out recovery_epochs, which is for {able}"
            )

    def refuse_freezing(self, settings: Mapping[str, Any], recovers: bool) -> None:
        """Tell that nothing is trained or fitted that could be frozen."""
        if not settings.get("freeze") or self.needs != "scoring":
            return
        if not recovers and self.compensation(settings) is None:
            raise HeadcountError(
                f"{self.name} changes no weights, so that none can be frozen; leave out freeze, or "
                f"give {COMPENSATE} or recovery_epochs too"
            )

    def refuse_many(self) -> None:
        """Tell that a method chooses for one K at a time, if it does."""
        if not self.pruner.takes_many:
            able = " or ".join(name for name, row in METHODS.items() if row.pruner.takes_many)
            raise HeadcountError(
                f"{self.name} cannot learn for several K in one run; give one keep, or use {able}"
            )

    def _refuse_unknown(self, given: Mapping[str, Any]) -> None:
        # The rate is `pruning_learning_rate`, which other methods have too.
        known = {*inspect.signature(self.pruner).parameters, *_SCOPE} - {"scope", "keep", "rate"}
        known |= {SAMPLE} if self.pruner in (Michel, Surgeon) else set()
        known |= {UNTIL} if self.pruner is Michel else set()
        known |= {COMPENSATE, COMPENSATE_SAMPLE} if self.post_hoc else set()
        if self.needs == "scoring":  # there is no training to choose in
            known.remove("commit_at")
        for name in given:
            if name not in known:
                raise HeadcountError(
                    f"{self.name} has no setting {name}; it has {', '.join(sorted(known))}"
                )


def _is_number(value: Any) -> bool:
    """Or nothing, which leaves a setting as it is."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _countdown(said: Any) -> Countdown | None:
    """From true or false, or its numbers: start, end and power."""
    if isinstance(said, bool | None):
        return Countdown() if said else None
    return Countdown(*(float(number) for number in said))


def choosing(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a recipe that decide which heads are kept."""
    after = (COMPENSATE, COMPENSATE_SAMPLE)
    return {name: value for name, value in settings.items() if name not in after}


def _dsp_settings(method: str, given: dict[str, Any], scope: Collection[str]) -> DSPSettings:
    preset = given.pop("preset", "default")
    if preset not in PRESETS:
        raise HeadcountError(
            f"there is no preset {preset!r} of {method}; choose one of {', '.join(PRESETS)}"
        )
    settings = PRESETS[preset]
    known = {f.name for f in fields(DSPSettings)}
    for name in given:
        if name not in known and name not in _ANNEALING:
            raise HeadcountError(
                f"{method} has no setting {name}; it has "
                f"{', '.join(sorted({'preset', *known, *_ANNEALING, *scope}))}"
            )
    course: dict[str, Any] = {_ANNEALING[n]: given.pop(n) for n in list(given) if n in _ANNEALING}
    if isinstance(given.get("scale"), list):
        given["scale"] = tuple(given["scale"])
    annealed = given.pop(_ANNEALED, True)
    if not annealed:
        if course.keys() - {"start"}:
            raise HeadcountError(
                f"{method} without annealing stays at its start_temperature; leave out "
                "end_temperature and cooldown"
            )
        start = course.get("start", settings.annealing.start)
        course = {"start": start, "end": start, "cooldown": None}
    return replace(settings, annealing=replace(settings.annealing, **course), **given)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("joint-dsp", JointDSP, "training"),
        Method("handover", Handover, "training"),
        Method("pipelined-dsp", PipelinedDSP, "gate training"),
        Method("ste", STE, "training"),
        Method("hard-concrete", HardConcrete, "training", own_count=True),
        Method("surgeon", Surgeon, "scoring", compensates=True),
        Method("michel", Michel, "scoring"),
        Method("random", Random, "scoring"),
        Method("attrition", Attrition, "training"),
        Method("fixed", Fixed, "training", own_count=True),
        Method("ablation", Ablation, "scoring"),
        Method("unpruned", Unpruned, "training"),
    )
}


def find_method(name: str) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise HeadcountError(f"there is no method {name!r}; choose one of {', '.join(METHODS)}")
    return METHODS[name]


def countdown_of(pruner: Pruner) -> Countdown | None:
    """When a pruner lets heads go, for those that begin with all."""
    if isinstance(pruner, JointDSP):
        return pruner.settings.countdown
    return pruner.countdown if isinstance(pruner, Attrition | Handover | STE) else None


def annealing_of(pruner: Pruner) -> Annealing | None:
    """The course of a pruner's temperature, for those that have one."""
    return pruner.settings.annealing if isinstance(pruner, JointDSP) else None
