"""Distillation: a model that loses heads learns from the one that has them all.

The teacher is the fine-tuned, unpruned model. Its outputs, softened by a temperature, say more
about an example than the label does. Pruned models keep their width, so the hidden states of every
layer can be compared, too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from headcount.batch import IGNORED, gives_vectors, predicts_next_token
from headcount.errors import HeadcountError
from headcount.training.checkpoint_files import load_teacher, save_teacher

if TYPE_CHECKING:
    from headcount.training.trainer import PruningTrainer

_ENCODER = ("hidden_states", "encoder_hidden_states")


@dataclass(frozen=True)
class Distillation:
    """How to learn from a teacher.

    Attributes:
        weight: the teacher's weight in the loss; the labels get the rest. 1 ignores the labels.
        temperature: divides the logits of both models. A higher one gives more weight to what the
            teacher says about unlikely answers.
        hidden: also compare the hidden states of every layer, relative to the teacher's size.
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
        self,
        taught: Any,
        teacher: Any,
        seen: Tensor | None,
        counted: Tensor | None,
        vectors: bool = False,
    ) -> Tensor:
        """The distance of a model's outputs from the teacher's, as a mean over what counts.

        Args:
            taught: outputs of the model.
            teacher: outputs of the teacher for the same inputs.
            seen: which positions of the input are not padding, (batch, length); None for all.
            counted: which positions have a label, (batch, length); None for one per example.
            vectors: whether the outputs are vectors, and not the scores of classes.
        """
        if vectors:
            loss = _relative(taught.logits, teacher.logits, None)
        else:
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
    """The divergence of softened distributions; for single numbers the squared distance."""
    if counted is not None:
        own, theirs = own[counted], theirs[counted]
    if own.shape[-1] == 1:
        return F.mse_loss(own, theirs)
    # With the square, the gradient keeps its size as the temperature rises.
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


class Teacher:
    """Mixes the distance to a teacher's outputs into the loss of a trainer.

    Args:
        trainer: the trainer whose model learns.
        distillation: how to learn; None for the defaults.
        learns_from_itself: make the model as it is before its first operation the teacher.

    Attributes:
        model: the teacher; None if there is none, or none yet.
    """

    def __init__(
        self, trainer: PruningTrainer, distillation: Distillation | None, learns_from_itself: bool
    ) -> None:
        self.trainer = trainer
        self.distillation = distillation or Distillation()
        self.learns_from_itself = learns_from_itself
        self.model: PreTrainedModel | None = None

    def learn_from(self, model: PreTrainedModel) -> None:
        """Use this model as the teacher from now on; it is frozen, in evaluation mode."""
        if model is self.trainer.plain_model():
            raise HeadcountError(
                "a model cannot be its own teacher; give the fine-tuned model with all its heads, "
                "or a copy of it"
            )
        # A copy of a model in training is wrapped in accelerate's mixed precision; one that a
        # resumed run loads is not. So the wrapper is removed, and `_said` adds it for all.
        if vars(model).pop("_original_forward", None) is not None:
            vars(model).pop("forward", None)
        self.model = model.eval().to(self.trainer.args.device).requires_grad_(False)

    def copy_before_operation(self, model: PreTrainedModel) -> None:
        """Make a copy of the model the teacher before its first operation, if it is to be."""
        if self.learns_from_itself and self.model is None:
            self.learn_from(copy.deepcopy(model))
            if self.trainer.args.should_save:
                save_teacher(model, self.trainer.folder())

    def restore(self) -> None:
        """In a resumed training, load the copy that was made before the first operation."""
        if self.learns_from_itself and self.model is None:
            teacher = copy.deepcopy(self.trainer.plain_model())
            load_teacher(teacher, self.trainer.folder())
            self.learn_from(teacher)

    def mixed_loss(
        self,
        inputs: dict[str, Any],
        items: Tensor | int | None,
        own: Callable[[dict[str, Any]], tuple[Tensor, Any]],
    ) -> tuple[Tensor, Any]:
        """The loss of a training batch, mixed with the distance to the teacher, and the outputs.

        Args:
            inputs: the batch.
            items: how many labels the whole step has.
            own: returns the model's own loss and outputs for some inputs.
        """
        assert self.model is not None
        labels = inputs.get("labels")
        asked = {**inputs, "output_hidden_states": self.distillation.hidden}
        said = self._said(asked)
        loss, outputs = own(asked)
        seen, counted = inputs.get("attention_mask"), _counted(labels, said.logits)
        if counted is not None and predicts_next_token(self.model):
            said.logits, outputs.logits = said.logits[:, :-1], outputs.logits[:, :-1]
            counted = counted[:, 1:]
        weight = self.distillation.weight
        if counted is not None and not counted.any():  # nothing to compare
            return (1 - weight) * loss, outputs
        seen = None if seen is None else seen.bool()
        vectors = gives_vectors(self.model)
        distance = self.distillation.loss(outputs, said, seen, counted, vectors)
        answers = labels != IGNORED if labels is not None and counted is None else counted
        distance = self._share(answers, items) * distance  # first: a share may be a float32
        return (1 - weight) * loss + weight * distance, outputs

    def _said(self, asked: dict[str, Any]) -> Any:
        """The teacher's outputs, computed in the precision of the training, as float32."""
        from accelerate.utils import convert_to_fp32  # needed by a Trainer, not by this import

        assert self.model is not None
        with torch.no_grad(), self.trainer.accelerator.autocast():
            return convert_to_fp32(self.model(**asked))

    def _share(self, answers: Tensor | None, items: Tensor | int | None) -> Tensor | float:
        """The weight of a micro-batch's mean in its step, the same as for the model's own loss."""
        trainer = self.trainer
        by_items = trainer.model_accepts_loss_kwargs or trainer.compute_loss_func is not None
        if answers is None or items is None or not by_items:
            return 1.0
        share = answers.sum() / items
        if trainer.args.average_tokens_across_devices:
            share = share * trainer.accelerator.num_processes
        return share


def _counted(labels: Tensor | None, logits: Tensor) -> Tensor | None:
    """Which positions have a label; None if there is not one per position."""
    if labels is None or labels.shape != logits.shape[:-1] or labels.dim() < 2:
        return None
    return labels != IGNORED
