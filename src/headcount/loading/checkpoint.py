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
from headcount.version4 import mask_without

METHOD = "headcount"
_problem: HeadcountError | None = None  # why pruned models cannot be loaded here


@register_quantization_config(METHOD)
class KeptHeads(QuantizationConfigMixin):
    """The entry in `config.json`: the mask of the heads whose weights are in the checkpoint.

    Attributes:
        mask: what `HeadMask.to_dict` wrote; None for a model pruned by transformers v4.
        pruned_heads: removed heads by layer number, as transformers v4 wrote them.

    Both come from a file and may be anything; `for_model` refuses what is wrong.
    """

    def __init__(
        self,
        mask: Any = None,
        pruned_heads: Any = None,
        **_: Any,
    ) -> None:
        self.quant_method = METHOD  # type: ignore[assignment]
        self.mask = mask
        self.pruned_heads = pruned_heads

    @classmethod
    def of(cls, config: Any) -> KeptHeads | None:
        """The entry of a configuration, which may be one of transformers v4; None for neither.

        Raises:
            HeadcountError: the model is quantised.
        """
        entry = getattr(config, "quantization_config", None)
        pruned = getattr(config, "pruned_heads", None)
        if entry is None:
            return cls(pruned_heads=pruned) if pruned else None
        method = entry.get("quant_method")
        if method != METHOD:
            raise HeadcountError(
                f"this model is quantised ({method}) and its rows cannot be cut; "
                "remove heads from the unquantised model, then quantise the result"
            )
        return cls(entry.get("mask"), entry.get("pruned_heads"))

    def for_model(self, heads: HeadMap) -> HeadMask:
        """The mask for a model just built at full size."""
        if self.mask is None or (self.mask == {} and self.pruned_heads):
            return _mask_from_version_4(self.pruned_heads, heads)
        try:
            mask = HeadMask.from_dict(self.mask)
        except HeadcountError as error:
            raise HeadcountError(f"the kept heads in config.json: {error}") from error
        return _mask_from_config(mask, heads)


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


def _mask_from_version_4(pruned: Any, heads: HeadMap) -> HeadMask:
    """The mask that leaves out what transformers v4 removed, by layer."""
    try:
        return mask_without(pruned, heads)
    except ValueError as error:
        raise HeadcountError(
            f"pruned_heads of config.json {error}; restore the config.json that was saved with "
            "the weights"
        ) from error


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
                "pruned_heads": pruned,
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
