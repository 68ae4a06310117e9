"""Save and load pruned models with transformers' own `save_pretrained` and `from_pretrained`.

The kept heads are in the quantisation entry of `config.json`. This is the extension point where
transformers looks for what it must do to a model before its weights are loaded. The model has no
memory yet at that point (it is on the meta device), so the full size is never allocated. A loaded
model is an ordinary one: it is not marked as quantised.
"""

from __future__ import annotations

import functools
from typing import Any

from transformers import PreTrainedModel, modeling_utils
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from headcount import seams
from headcount.errors import HeadcountError
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.surgery.remove import remove_heads

METHOD = "headcount"
_problem: HeadcountError | None = None  # why pruned models cannot be loaded here


@register_quantization_config(METHOD)
class KeptHeads(QuantizationConfigMixin):
    """The entry in `config.json`: the mask of the heads whose weights are in the checkpoint.

    Attributes:
        mask: what `HeadMask.to_dict` wrote; empty for a model pruned by transformers v4.
        pruned_heads: removed heads by layer number, as transformers v4 wrote them.
    """

    def __init__(
        self,
        mask: dict[str, Any] | None = None,
        pruned_heads: dict[str, list[int]] | None = None,
        **_: Any,
    ) -> None:
        self.quant_method = METHOD  # type: ignore[assignment]
        self.mask = mask or {}
        self.pruned_heads = pruned_heads or {}

    def for_model(self, heads: HeadMap) -> HeadMask:
        """The mask for a model just built at full size."""
        if self.mask:
            return _mask_from_config(HeadMask.from_dict(self.mask), heads)
        return _mask_from_version_4(self.pruned_heads, heads)


def _mask_from_config(mask: HeadMask, heads: HeadMap) -> HeadMask:
    """Transfer a mask by the names of the blocks, since only a part of a model may be loaded."""
    saved, kept = dict(mask.layout), mask.by_block()
    for block in heads.blocks:
        if saved.get(block.name) != block.born:
            raise HeadcountError(
                f"config.json keeps heads of a model with {saved.get(block.name, 0)} heads in "
                f"{block.name}, but this model is built with {block.born}; config.json is damaged "
                "or belongs to other weights"
            )
    return HeadMask.from_indices(
        heads, (block.offset + head for block in heads.blocks for head in kept[block.name])
    )


def _mask_from_version_4(pruned: dict[str, list[int]], heads: HeadMap) -> HeadMask:
    layers = max((int(layer) for layer in pruned), default=0) + 1
    if len({block.kind for block in heads.blocks}) > 1 or layers > _layers(heads):
        raise HeadcountError(
            f"config.json has pruned_heads of transformers v4 for layer {layers - 1}, which this "
            "model does not have; config.json is damaged or belongs to another model"
        )
    gone = {
        heads.blocks[int(layer) * len(heads.blocks) // _layers(heads)].offset + head
        for layer, removed in pruned.items()
        for head in removed
    }
    return HeadMask.from_indices(heads, set(heads.indices) - gone)


def _layers(heads: HeadMap) -> int:
    return max(block.layer for block in heads.blocks) + 1


@register_quantizer(METHOD)
class HeadcountLoader(HfQuantizer):
    """Cuts the empty model down to the kept heads before `from_pretrained` fills it."""

    quantization_config: KeptHeads

    def preprocess_model(self, model: PreTrainedModel, dtype: Any = None, **kwargs: Any) -> None:
        """Called by transformers after the model is built, before its weights are read."""
        if _problem is not None:
            raise _problem
        remove_heads(model, self.quantization_config.for_model(find_heads(model)))

    def postprocess_model(self, model: PreTrainedModel, **kwargs: Any) -> None:
        """Called by transformers at the end: leave an ordinary model behind."""
        if "hf_quantizer" in vars(model):
            del model.hf_quantizer

    def is_serializable(self) -> bool:
        """A pruned model can always be saved again."""
        return True

    @property
    def is_trainable(self) -> bool:
        """A pruned model can always be trained."""
        return True


# Two decisions of `from_pretrained` have no extension point. Their functions are wrapped instead.


def _see_version_4(original: Any) -> Any:
    """Let models pruned by transformers v4 load: turn their `pruned_heads` into our entry.

    transformers v5 keeps the `pruned_heads` of an old `config.json` but does nothing with them.
    """

    @functools.wraps(original)
    def get_hf_quantizer(config: Any, *args: Any, **kwargs: Any) -> Any:
        pruned = getattr(config, "pruned_heads", None)
        if pruned and getattr(config, "quantization_config", None) is None:
            config.quantization_config = {
                "quant_method": METHOD,
                "pruned_heads": {str(layer): list(heads) for layer, heads in pruned.items()},
            }
        return original(config, *args, **kwargs)

    return get_hf_quantizer


def _load_as_unquantised(original: Any) -> Any:
    """Let the weights of a pruned model be read like those of any other model.

    transformers accepts weights of any shape when a model is quantised. A pruned model is not: its
    weights must have exactly the shapes that follow from its kept heads.
    """

    @functools.wraps(original)
    def init(self: Any, *args: Any, hf_quantizer: Any = None, **kwargs: Any) -> None:
        own = isinstance(hf_quantizer, HeadcountLoader)
        original(self, *args, hf_quantizer=None if own else hf_quantizer, **kwargs)

    return init


def _register() -> None:
    """Teach `from_pretrained` to load pruned models.

    A version of transformers that changed what this needs stays untouched. The error is raised
    when somebody loads a pruned model.
    """
    global _problem
    try:
        quantizer, init = seams.QUANTIZER.find(), seams.WEIGHTS.find()
    except HeadcountError as problem:
        _problem = problem
        return
    vars(modeling_utils)["get_hf_quantizer"] = _see_version_4(quantizer)
    config: Any = vars(modeling_utils)["LoadStateDictConfig"]
    config.__init__ = _load_as_unquantised(init)


_register()
