"""Stop a training in the middle, as Ctrl-C would, without a signal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from transformers import Trainer, TrainerCallback

from headcount.errors import Stopped
from headcount.runs import stages
from headcount.runs.resume import train as really_train


class _Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
        if state.global_step == 5:
            control.should_save = control.should_training_stop = True


@contextmanager
def stopped_training() -> Iterator[None]:
    """Expect of the block that its training is stopped after five steps."""

    def train_a_little(trainer: Trainer) -> None:
        trainer.add_callback(_Stop())
        really_train(trainer)
        raise Stopped("in the middle of it")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "train", train_a_little)
        with pytest.raises(Stopped):
            yield
