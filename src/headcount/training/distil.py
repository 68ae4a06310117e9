"""Distillation: a model that loses its heads is taught by the one that has them all.

The teacher is the fine-tuned, unpruned model. Its answers, softened by a temperature, say more of
an example than its label does; and since pruned models keep their width, the hidden states of every
layer can be compared as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel, Trainer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from headcount.errors import HeadcountError
from headcount.surgery.outputs import IGNORED

_ENCODER = ("hidden_states", "encoder_hidden_states")


@dataclass(frozen=True)
class Distillation:
    """What is learned from a teacher.

    Attributes:
        weight: of the teacher in the loss; the labels have the rest.
        temperature: that softens the answers of both.
        hidden: compare the hidden states of every layer too, each relative to the teacher's size.
    """

    weight: float = 0.7
    temperature: float = 2.0
    hidden: bool = True

    def __post_init__(self) -> None:
        if not (0 < self.weight <= 1 and self.temperature > 0):
            raise HeadcountError(
                f"a teacher's weight of {self.weight} at temperature {self.temperature} makes no "
                "loss; give a weight above 0 and up to 1, and a temperature above 0"
            )

    def loss(
        self, taught: Any, teacher: Any, seen: Tensor | None, counted: Tensor | None
    ) -> Tensor:
        """How far a model's outputs are from the teacher's, as a mean over what counts.

        Args:
            taught: outputs of the model.
            teacher: outputs of the teacher for the same inputs.
            seen: which places of the input are not padding, (batch, length); None for all.
            counted: which places of the answer count, (batch, length); None if there is one each.
        """
        loss = _difference(taught.logits, teacher.logits, self.temperature, counted)
        if self.hidden:
            parts = []
            for name in (*_ENCODER, "decoder_hidden_states"):
                where = seen if name in _ENCODER else counted
                for own, theirs in zip(
                    getattr(taught, name, None) or (),
                    getattr(teacher, name, None) or (),
                    strict=True,
                ):
                    parts.append(_relative(own, theirs, where))
            loss = loss + torch.stack(parts).mean()
        return loss


def _difference(own: Tensor, theirs: Tensor, temperature: float, counted: Tensor | None) -> Tensor:
    """Of answers: a divergence of softened distributions, or of numbers their squared distance."""
    if counted is not None:
        own, theirs = own[counted], theirs[counted]
    if own.shape[-1] == 1:
        return F.mse_loss(own, theirs)
    # The square keeps the gradient's size as the temperature rises.
    return temperature**2 * F.kl_div(
        F.log_softmax(own / temperature, dim=-1),
        F.log_softmax(theirs / temperature, dim=-1),
        reduction="batchmean",
        log_target=True,
    )


def _relative(own: Tensor, theirs: Tensor, where: Tensor | None) -> Tensor:
    """The squared distance of hidden states, as a share of the teacher's squares."""
    if where is not None and where.shape == own.shape[: where.dim()]:
        own, theirs = own[where], theirs[where]
    return (own - theirs).square().mean() / theirs.square().mean()


class DistillingTrainer(Trainer):
    """A `Trainer` with a teacher, or without.

    Args:
        *args: see `Trainer`.
        teacher: the unpruned, fine-tuned model; None to learn from labels alone.
        distillation: what is learned from it.
        **kwargs: see `Trainer`.
    """

    def __init__(
        self,
        *args: Any,
        teacher: PreTrainedModel | None = None,
        distillation: Distillation | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if teacher is not None and teacher is self.accelerator.unwrap_model(self.model):
            raise HeadcountError(
                "a model cannot be its own teacher; give the fine-tuned model with all its heads, "
                "or a copy of it"
            )
        self.distillation = distillation or Distillation()
        self.teacher: PreTrainedModel | None = None
        if teacher is not None:
            self.learn_from(teacher)

    def learn_from(self, teacher: PreTrainedModel) -> None:
        """Have this teacher from now on."""
        # A copy of a model in training has accelerate's mixed precision about it, which one that a
        # resumed run loads has not; so none has it, and `compute_loss` adds it for all.
        if vars(teacher).pop("_original_forward", None) is not None:
            vars(teacher).pop("forward", None)
        self.teacher = teacher.eval().to(self.args.device).requires_grad_(False)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss of `Trainer`, mixed with what the teacher says while the model trains."""
        if self.teacher is None or not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        labels = inputs.get("labels")
        asked = {**inputs, "output_hidden_states": self.distillation.hidden}
        said = self._taught(asked)
        loss, outputs = super().compute_loss(model, asked, True, num_items_in_batch)
        seen, counted = inputs.get("attention_mask"), self._counted(labels, said.logits)
        if counted is not None and not inputs_are_aligned(self.teacher):
            said.logits, outputs.logits = said.logits[:, :-1], outputs.logits[:, :-1]
            counted = counted[:, 1:]
        weight = self.distillation.weight
        if counted is not None and not counted.any():  # nothing to compare
            return ((1 - weight) * loss, outputs) if return_outputs else (1 - weight) * loss
        far = self.distillation.loss(outputs, said, None if seen is None else seen.bool(), counted)
        answers = labels != IGNORED if labels is not None and counted is None else counted
        loss = (1 - weight) * loss + weight * self._share(answers, num_items_in_batch) * far
        return (loss, outputs) if return_outputs else loss

    def _taught(self, asked: dict[str, Any]) -> Any:
        """What the teacher says, in the precision of the training, as float32."""
        from accelerate.utils import convert_to_fp32  # a Trainer needs it, to import does not

        assert self.teacher is not None
        with torch.no_grad(), self.accelerator.autocast():
            return convert_to_fp32(self.teacher(**asked))

    def _counted(self, labels: Tensor | None, logits: Tensor) -> Tensor | None:
        """Which places have an answer, where there is one per place."""
        if labels is None or labels.shape != logits.shape[:-1] or labels.dim() < 2:
            return None
        return labels != IGNORED

    def _share(self, answers: Tensor | None, items: Tensor | int | None) -> Tensor | float:
        """What the mean over a micro-batch counts in its step, as the model's own loss does."""
        by_items = self.model_accepts_loss_kwargs or self.compute_loss_func is not None
        if answers is None or items is None or not by_items:
            return 1.0
        share = answers.sum() / items
        if self.args.average_tokens_across_devices:
            share = share * self.accelerator.num_processes
        return share


def inputs_are_aligned(model: PreTrainedModel) -> bool:
    """Whether the answer at a place belongs to the label there, not to that of the next place."""
    return type(model).__name__ not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
