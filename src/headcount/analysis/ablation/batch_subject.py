"""A model whose heads are ablated on batches of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from torch import Tensor
from transformers import PreTrainedModel

from headcount.analysis.ablation.replay import MaskedPasses, batch_size
from headcount.analysis.ablation.subject import Subject, refuse_few
from headcount.analysis.ablation.trace import Batch
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.michel import importance
from headcount.runs.evaluate import Evaluation
from headcount.runs.progress import Progress, Silent
from headcount.tasks.metrics import accuracy


class BatchSubject(Subject):
    """A model and batches of your own; the metric is the accuracy of its logits.

    Args:
        model: gives logits for what the batches hold.
        batches: of each evaluation set by its name, with `labels`; −100 is not counted. Each set
            is a list of batches.
        training: batches for `importance`; those of the first set if left out.
        name: of the model.
        progress: who wants to know.
    """

    metric, greater_is_better, task = "accuracy", True, "batches"

    def __init__(
        self,
        model: PreTrainedModel,
        batches: Mapping[str, Sequence[Batch]],
        training: Sequence[Batch] | None = None,
        name: str = "the model",
        progress: Progress | None = None,
    ) -> None:
        self.model, self.name = model.eval(), name
        self.progress = Silent() if progress is None else progress
        self.heads = find_heads(model)
        self._batches = batches
        for split, some in batches.items():
            refuse_few(split, sum(batch_size(batch) for batch in some))
        self._training = next(iter(batches.values())) if training is None else training
        self._passes = MaskedPasses(model, next(iter(batches.values()))[0])

    @property
    def sets(self) -> tuple[str, ...]:
        """As they were named."""
        return tuple(self._batches)

    def evaluate(self, split: str, masks: Sequence[HeadMask]) -> list[Evaluation]:
        """By shared passes; a prediction for every label that counts."""
        answers: list[list[int]] = [[] for _ in masks]
        gold: list[int] = []
        for batch in self._batches[split]:
            counted = batch["labels"] != -100
            gold += batch["labels"][counted].tolist()
            taken = self._passes.run(batch, masks, partial(_said, where=counted))
            for given, part in zip(answers, taken, strict=True):
                given += part.tolist()
        return [Evaluation({"accuracy": accuracy(row, gold)}, row, gold) for row in answers]

    def importance(self) -> Tensor:
        """On the training batches."""
        return importance(self.model, self.heads, HeadMask.all(self.heads), self._training)

    def halved(self) -> BatchSubject:
        """Every other example of every batch."""
        split, batches = next(iter(self._batches.items()))
        halves = {
            f"{split}, {name} half": [
                {key: value[start::2] for key, value in batch.items()}
                for batch in batches
                if batch_size(batch) > start  # one example alone has no second half
            ]
            for start, name in enumerate(("first", "second"))
        }
        return BatchSubject(self.model, halves, self._training, self.name, self.progress)


def _said(logits: Tensor, where: Tensor) -> Tensor:
    return logits.argmax(-1)[where]
