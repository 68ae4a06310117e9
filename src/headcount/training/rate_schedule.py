"""The learning rate of a training in several parts: its schedule starts again in each part."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import SchedulerType, TrainingArguments, get_scheduler

from headcount.errors import HeadcountError


def begin_anew(
    scheduler: LRScheduler,
    args: TrainingArguments,
    bounds: Sequence[int],
    last: float | None = None,
) -> None:
    """Let a scheduler run through its schedule once in each part of the training.

    Args:
        scheduler: made by `Trainer` for the whole training; changed in place.
        args: what it was made from. The warm-up of a part is shorter, as the part is.
        bounds: the first step of each part, and the number of all steps.
        last: the model's learning rate in the last part; None for the same as before.
    """
    if not isinstance(scheduler, LambdaLR):
        raise HeadcountError(
            f"the learning rate cannot start again with the scheduler "
            f"{SchedulerType(args.lr_scheduler_type).value}; "
            "take linear, cosine or another that is a function of the step, or give anew=False"
        )
    # The first group is the model's.
    first = float(scheduler.base_lrs[0])
    share = 1.0 if last is None else last / first
    rates = [first] * (len(bounds) - 2) + [share * first]
    parts = [
        _part(args, rate, bounds[-1], *ends)
        for rate, ends in zip(rates, itertools.pairwise(bounds), strict=True)
    ]

    def factor(step: int) -> float:
        # The step after the last one belongs to the last part.
        number = sum(step >= start for start in bounds[1:-1])
        is_last = number == len(parts) - 1
        return (share if is_last else 1.0) * parts[number](step - bounds[number])

    scheduler.lr_lambdas = [factor] * len(scheduler.lr_lambdas)
    for group, rate in zip(scheduler.optimizer.param_groups, scheduler.base_lrs, strict=True):
        group["lr"] = rate * factor(0)


def _part(
    args: TrainingArguments, rate: float, total: int, start: int, stop: int
) -> Callable[[int], float]:
    """The factor by the step of one part; some schedules end at a fixed rate and need `rate`."""
    stand_in = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate)
    own: Any = args.lr_scheduler_kwargs or {}
    made = get_scheduler(
        args.lr_scheduler_type,
        optimizer=stand_in,
        num_warmup_steps=round(args.get_warmup_steps(total) * (stop - start) / total),
        num_training_steps=stop - start,
        scheduler_specific_kwargs=dict(own),
    )
    course: Callable[[int], float] = made.lr_lambdas[0]
    return course
