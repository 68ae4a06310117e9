"""The settings of differentiable subset pruning, with the papers' as presets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, replace
from typing import Any, Literal, Self

from headcount.errors import HeadcountError, SettingError
from headcount.pruners.schedule import Annealing, Countdown
from headcount.pruners.settings import (
    PRESET,
    Key,
    LearnedSettings,
    PostHocSettings,
    converted,
    find_preset,
    hints_of,
    meanings_of,
    said,
    shown,
)

Relaxation = Literal["gumbel", "poisson"]
First = Literal["random", "michel"]
WARM_TO_COLD = Annealing(2.0, 1e-2, 0.7)


@dataclass(frozen=True)
class DSPSettings(LearnedSettings):
    """How w is started, learned and annealed.

    The defaults suit trainings of any length. The papers' settings, tuned for about 37,000 and
    66,000 steps, move w so fast that in a short training the choice is made by drift before the
    temperature has fallen.

    Attributes:
        preset: the papers' settings (Table 2 and the code) instead of the defaults. Settings that
            are given too replace those of the preset.
        annealing: how the temperature falls; with `commit_at`, within the time until then. In a
            recipe, true lets it fall, and `end` holds the end temperature from the first step, as
            the authors' code does without annealing (Fig. 7b). `start`, or false, stays at the
            start temperature.
        start_temperature: temperature of the first step. A high one makes all gates nearly equal.
        end_temperature: temperature when the cooldown is over. A low one makes gates nearly 0 or 1.
        cooldown: number of steps in which the temperature falls, or a share of the training up to
            1.0.
        learning_rate: learning rate of w, in an optimizer like Adam. With a high one, w may decide
            before the temperature has fallen.
        spread: each w starts at a random number between minus this and this.
        first: what w starts from: `random` numbers, or `michel`, the log of the scores that Michel
            gives the model as it is on 512 training examples. That needs a fine-tuned model.
        scale: standard deviation of the logits at the start and at the end of the cooldown, however
            large w has grown. That of the noise is 1.28. None takes w as it is.
        balance: divide the gates' gradient by its norm in each block, so that layers are compared
            fairly.
        clamp: cut gates above 1 down to 1. The relaxed gates of the paper may exceed 1.
        shed: cut heads that cannot come back while the model trains, once the cooldown is over; see
            `JointDSP.lasting`. The rest of the training is then faster.
        relaxation: what the soft gates are. `gumbel` is the paper's soft top-K of noisy logits.
            `poisson` is the exact probability of being among the K, without noise; try it in a
            short training.
        hard: multiply by K heads that are drawn in each step, so that training sees what evaluation
            will. The gradient is that of the soft gates.
        countdown: begin with all heads and fall to K, as attrition does: start, end and power, or
            true for [0.05, 0.55, 3]. None has K heads from the start.
    """

    annealing: Annealing = WARM_TO_COLD
    learning_rate: float = 0.05
    spread: float = 0.05
    scale: tuple[float, float] | None = (1.0, 10.0)
    balance: bool = True
    clamp: bool = False
    shed: bool = False
    relaxation: Relaxation = "gumbel"
    hard: bool = False
    countdown: Countdown | None = None
    first: First = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale is not None and not min(self.scale) > 0:
            raise SettingError(
                "scale", self.scale, "two numbers above 0, the first and the last, or none"
            )

    @classmethod
    def from_recipe(cls, given: Mapping[str, Any]) -> Self:
        """The settings from a recipe, which has the annealing's numbers as keys of their own."""
        given = dict(given)
        start = find_preset(cls, given.pop(PRESET)) if PRESET in given else cls()
        numbers = {
            part: _number(key, given.pop(key)) for key, part in ANNEALING.items() if key in given
        }
        held = _held(given.pop("annealing", True))
        if held is not None:
            if numbers.keys() - {held}:
                raise HeadcountError(
                    f"DSP without annealing stays at its {held}_temperature; leave out the other "
                    "one and cooldown"
                )
            stays = numbers.get(held, getattr(start.annealing, held))
            numbers = {"start": stays, "end": stays, "cooldown": None}
        values = super().from_recipe(given)  # checked, with defaults in place of what is not given
        own = {key: getattr(values, key) for key in given}
        return replace(start, annealing=replace(start.annealing, **numbers), **own)

    @classmethod
    def recipe_fields(cls) -> Iterator[tuple[str, Field[Any]]]:
        """Those of the class, without the annealing, which recipes spell out."""
        return ((key, field) for key, field in super().recipe_fields() if key != "annealing")

    @classmethod
    def described(cls) -> list[Key]:
        """Everything that a recipe can say, the annealing first."""
        meanings, hints = meanings_of(cls), hints_of(Annealing)
        usual = cls().annealing
        first, *others = super().described() if cls.presets else [None, *super().described()]
        spelled = [
            Key(
                key,
                said(hints[part]),
                shown(getattr(usual, part)),
                {name: shown(getattr(of.annealing, part)) for name, of in cls.presets.items()},
                meanings[key],
            )
            for key, part in ANNEALING.items()
        ]
        yes = dict.fromkeys(cls.presets, "true")
        switch = Key("annealing", "true, start or end", "true", yes, meanings["annealing"])
        return [*([first] if first else []), *spelled, switch, *others]


def _held(said: Any) -> Literal["start", "end"] | None:
    """The end of the annealing whose temperature is held all the time; None for neither."""
    if said is True:
        return None
    if said is False or said == "start":
        return "start"
    if said == "end":
        return "end"
    raise SettingError("annealing", said, "true, start or end")


def _number(key: str, value: Any) -> Any:
    hint = hints_of(Annealing)[ANNEALING[key]]
    try:
        return converted(hint, value)
    except ValueError:
        raise SettingError(key, value, said(hint)) from None


# Keys of a recipe, and the parts of the annealing that they are.
ANNEALING = {"start_temperature": "start", "end_temperature": "end", "cooldown": "cooldown"}


PRESETS = {
    "default": DSPSettings(),
    "paper-bert": DSPSettings(
        annealing=Annealing(1000.0, 1e-8, 25_000),
        learning_rate=0.5,
        spread=0.5,
        scale=None,
        balance=False,
        clip="with-model",
    ),
    "paper-encdec": DSPSettings(
        annealing=Annealing(0.1, 1e-8, 15_000),
        learning_rate=0.2,
        spread=0.522,
        scale=None,
        balance=False,
        decay=False,
        clip=None,
    ),
}
DSPSettings.presets = PRESETS


def shallow(settings: DSPSettings) -> dict[str, Any]:
    """The settings by name, to make others of."""
    return {field.name: getattr(settings, field.name) for field in fields(settings)}


@dataclass(frozen=True)
class PipelinedDSPSettings(DSPSettings, PostHocSettings):
    """How w is started, learned and annealed while all of the model is frozen."""

    freeze: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.commit_at is not None or self.shed:
            raise HeadcountError(
                "pipelined DSP trains only its choice, so that there is nothing to train "
                "on once heads are cut; leave out commit_at and shed"
            )

    @property
    def frozen_after(self) -> tuple[str, ...]:
        """None: all weights are frozen only while w is learned."""
        return ()


PipelinedDSPSettings.presets = {
    name: PipelinedDSPSettings(**{**shallow(preset), "freeze": ("*",)})
    for name, preset in PRESETS.items()
}
