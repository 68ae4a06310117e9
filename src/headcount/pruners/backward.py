"""Backward passes for scores, in little memory: few gradients of weights, never all logits at once.

A graph of a whole model is larger than the model, and so are the logits of a long text. Here layers
are computed again in the backward pass once the graph holds a share of the weights' memory (Chen et
al. 2016), the loss of a language model is taken a few positions at a time, and a large batch of
texts goes through the model in parts. Scores stay the same, except for rounding.

A sentence encoder has no labels, and its distance to its own vectors has no gradient. There a pass
goes back along a random direction of each vector: the second moment of such gradients is the
curvature of the squared distance (the Gauss–Newton matrix).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from headcount.batch import (
    IGNORED,
    Batch,
    answers_per_example,
    batch_size,
    evaluating,
    gives_vectors,
    loss_of,
    other_forward,
    parts_of,
    predicts_next_token,
    without_cache,
)
from headcount.pruners.base import frozen

GRAPH = 0.4  # what a graph may hold before layers are computed again, as a share of the weights
LOGITS = 1 / 32  # what the logits of one slice may take, as a share of the weights
SLICE = 64  # tokens that a slice has at least: fewer would read the head's weights too often
TOKENS = 2048  # of one part of a batch: more are no faster, and take more memory
PROBE = 16  # tokens on which the loss in slices is compared with the model's own

_CACHES = ("past_key_values", "past_key_value", "layer_past", "cache_params")


class Backward:
    """Takes batches through a model and back; the `grad` of its parameters stays as it is.

    Hooks on the model's modules call `leaf` for what they want gradients of.

    Args:
        model: in any mode; it is in evaluation mode inside `opened`.
        besides: bytes that the caller holds for its sums, which the graph then may not take.
        weights: parameters to find gradients of too, in every part; all others are frozen.

    Attributes:
        again: a layer is computed again for its gradients. Hooks must do the same then as the first
            time, and note nothing.
        scale: gradients are those of the batch's loss times this: in half precision, those of a
            mean over many tokens would be rounded to 0. A power of two, which rounds nothing.
        batch: the part that goes through now.
        gradients: of the weights, then of the leaves of this part in the order of their calls.
    """

    def __init__(
        self, model: nn.Module, besides: int = 0, weights: Sequence[nn.Parameter] = ()
    ) -> None:
        self.model, self._sought = model, weights
        self._weights = {parameter.data_ptr() for parameter in model.parameters()}
        size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
        self._most = GRAPH * size - besides
        self._logits = LOGITS * size
        self.again, self.scale = False, 1.0
        self.batch: Batch = {}
        self.gradients: tuple[Tensor, ...] = ()
        self._leaves: list[Tensor] = []
        self._held = 0  # bytes of the graph so far
        self._inside = False  # a layer that is computed again, or counted
        self._in_slices: bool | None = None  # whether the model's loss can be; None: not known yet
        self._directions = torch.Generator().manual_seed(0)

    @contextmanager
    def opened(self) -> Iterator[Backward]:
        """Prepare the model for passes until the block ends."""
        with evaluating(self.model), frozen(self.model, ["*"]), ExitStack() as layers:
            for weight in self._sought:
                layers.callback(weight.requires_grad_, False)
                weight.requires_grad_()
            for module in self.model.modules():
                if isinstance(module, GradientCheckpointingLayer):
                    layers.enter_context(
                        other_forward(module, partial(self._layer, module.forward))
                    )
            yield self

    def leaf(self, tensor: Tensor) -> Tensor:
        """A tensor to find the gradient of."""
        tensor.requires_grad_()
        if not self.again:
            self._leaves.append(tensor)
        return tensor

    def passes(self, batch: Batch) -> Iterator[Batch]:
        """Go forward and back with a batch; yields each part of it when it is done.

        A batch has one part, except for many tokens of a language model. Gradients are always those
        of the whole batch's loss, which is a mean.
        """
        batch = {**without_cache(self.model), **batch}
        answers = answers_per_example(self.model, batch)
        number = batch_size(batch) if answers is None else max(int(answers.sum()), 1)
        half = any(p.element_size() < 4 for p in self.model.parameters())
        self.scale = 2.0 ** round(math.log2(number)) if half else 1.0
        if not self._sliceable(batch):
            self._begin(batch)
            self._back(self._loss(batch) * self.scale, None)
            yield batch
            return
        for part in parts_of(batch, TOKENS):
            self._begin(part)
            given = self._hidden_states(part)
            felt = self._felt(given, part, self.scale / number)
            self._back(given.last_hidden_state, felt)
            del given, felt
            yield part

    def _loss(self, batch: Batch) -> Tensor:
        """The model's loss, or how far vectors go in random directions, relative to their size."""
        if not gives_vectors(self.model):
            return loss_of(self.model, batch)
        vectors: Tensor = self.model(**{**batch, "labels": None}).logits
        size = vectors.detach().norm(dim=-1, keepdim=True)
        step = torch.randn(vectors.shape, generator=self._directions).to(vectors)
        along: Tensor = (vectors * step / size).sum(-1)
        return along.mean()

    def _begin(self, batch: Batch) -> None:
        self.batch, self._leaves, self.gradients, self._held = batch, [*self._sought], (), 0

    def _back(self, end: Tensor, felt: Tensor | None) -> None:
        leaves, self.again = self._leaves, True
        try:
            if leaves and end.requires_grad:
                self.gradients = torch.autograd.grad(
                    end, leaves, felt, allow_unused=True, materialize_grads=True
                )
            else:
                self.gradients = tuple(torch.zeros_like(leaf) for leaf in leaves)
        finally:
            self.again = False

    # Layers that are computed again.

    def _layer(self, plain: Callable[..., Any], *args: Any, **given: Any) -> Any:
        cached = any(given.get(name) is not None for name in _CACHES)
        if self._inside or cached or not torch.is_grad_enabled():
            return plain(*args, **given)
        self._inside = True
        try:
            if self._held < self._most:
                seen: set[int] = set()
                with saved_tensors_hooks(partial(self._count, seen), _itself):
                    return plain(*args, **given)
            return checkpoint(plain, *args, use_reentrant=False, **given)
        finally:
            self._inside = False

    def _count(self, seen: set[int], saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in seen and saved.data_ptr() not in self._weights:
            seen.add(storage.data_ptr())
            self._held += storage.nbytes()
        return saved.detach()  # the tensor itself could make a reference cycle

    # The loss of a language model in slices.

    def _sliceable(self, batch: Batch) -> bool:
        """Whether the logits are many, and their loss is the usual one of a language model."""
        ids, labels = batch.get("input_ids"), batch.get("labels")
        head = getattr(self.model, "get_output_embeddings", lambda: None)()
        if head is None or not isinstance(ids, Tensor) or not isinstance(labels, Tensor):
            return False
        vocabulary = getattr(head, "weight", ids).shape[0]
        if ids.numel() * vocabulary * 4 <= self._logits and ids.numel() <= TOKENS:
            return False
        if any(isinstance(v, Tensor) and v.shape != ids.shape for v in batch.values()):
            return False
        if self._in_slices is None:
            self._in_slices = self._usual_loss(batch)
        return self._in_slices

    def _usual_loss(self, batch: Batch) -> bool:
        """Compare the loss in slices with the model's own, on a few tokens."""
        taken = inspect.signature(self.model.forward).parameters
        if not predicts_next_token(self.model) or "logits_to_keep" not in taken:
            return False
        if getattr(self.model, "base_model", self.model) is self.model:
            return False
        few = {n: v[:1, -PROBE:] if isinstance(v, Tensor) else v for n, v in batch.items()}
        few["labels"] = few["input_ids"]
        few.pop("attention_mask", None)
        self.again = True  # hooks must not note these tokens
        try:
            with torch.no_grad():
                own = loss_of(self.model, few).float()
                given = self._hidden_states(few)
                if not hasattr(given, "last_hidden_state"):
                    return False
                ours = sum(self._slices(given, given.last_hidden_state, few)) / max(
                    few["labels"].numel() - 1, 1
                )
        finally:
            self.again = False
        return torch.allclose(own, torch.as_tensor(ours).to(own), rtol=1e-3)

    def _hidden_states(self, batch: Batch) -> Any:
        """What the model without its head gives; the head itself runs for one position only."""
        heard: list[Any] = []

        def hear(module: nn.Module, args: Any, answer: Any) -> None:
            heard.append(answer)

        base: Any = self.model.base_model
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        with base.register_forward_hook(hear):
            self.model(**inputs, logits_to_keep=1)
        return heard[-1]

    def _slices(self, given: Any, last: Tensor, batch: Batch) -> Iterator[Tensor]:
        """The sums of the losses of a few positions each, from the hidden states before the head.

        The model's own code makes the logits, because it may scale or cap them.
        """
        ids = batch["input_ids"]
        labels = nn.functional.pad(batch["labels"], (0, 1), value=IGNORED)[:, 1:]
        head: Any = self.model.get_output_embeddings()  # type: ignore[operator]
        tokens = max(self._logits / (head.weight.shape[0] * 4), SLICE)
        places = max(int(tokens / len(ids)), 1)
        base: Any = self.model.base_model
        for start in range(0, ids.shape[1], places):
            here = slice(start, start + places)
            answer = type(given)(**{**given, "last_hidden_state": last[:, here].contiguous()})
            with other_forward(base, partial(_answer, answer)):
                logits = self.model(input_ids=ids[:, here], use_cache=False).logits.float()
            wanted = labels[:, here].flatten().to(logits.device)
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1), wanted, ignore_index=IGNORED, reduction="sum"
            )
            del logits  # the loss needs only their softmax
            yield loss

    def _felt(self, given: Any, batch: Batch, factor: float) -> Tensor:
        """The gradient of the loss at the hidden states before the head."""
        inputs: Tensor = given.last_hidden_state.detach().requires_grad_()
        for loss in self._slices(given, inputs, batch):
            (loss * factor).backward()
        assert inputs.grad is not None
        return inputs.grad


def _answer(given: Any, *args: Any, **inputs: Any) -> Any:
    """Stands in for a model without its head: gives hidden states that were found before."""
    return given


def _itself(saved: Tensor) -> Tensor:
    return saved
