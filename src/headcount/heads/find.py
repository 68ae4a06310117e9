"""Find the attention heads of a model and give each one its index and its name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import nn
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from headcount.errors import HeadcountError
from headcount.heads.anatomy import Anatomy, pruned_record
from headcount.heads.blocks import AttentionBlock, HeadMap, Kind, LeftAlone
from headcount.heads.families import CROSS_NAMES, REFUSED_LAYERS, REFUSED_MODELS
from headcount.heads.probe import refuted
from headcount.heads.recognise import recognise, why_not_recognised

Found = tuple[str, Anatomy, tuple[int, ...]]


def find_heads(model: nn.Module) -> HeadMap:
    """Find every attention head of a model.

    Args:
        model: a `transformers` model, pruned before or not. Nothing in it is changed.

    Returns:
        The map of its heads. `left_alone` lists attention modules that are not understood, with
        the reason; they are never gated or cut.

    Raises:
        HeadcountError: no attention of the model is understood, the model is quantised, or its
            attention has adapters that are not merged.
    """
    _refuse_unsuitable(model)
    found, left_alone = _proved(model, *_walk(model))
    _refuse_adapters(model, left_alone)
    if not found:
        _refuse_without_blocks(model, left_alone)
    names = _names(model, [(path, anatomy) for path, anatomy, _ in found])
    blocks: list[AttentionBlock] = []
    offset = 0
    for (path, anatomy, heads), (name, kind, layer) in zip(found, names, strict=True):
        born = anatomy.num_heads
        blocks.append(AttentionBlock(name, kind, layer, heads, born, offset, path, anatomy))
        offset += born
    return HeadMap(_model_type(model), tuple(blocks), tuple(left_alone))


def _proved(
    model: nn.Module, found: list[Found], left_alone: list[LeftAlone]
) -> tuple[list[Found], list[LeftAlone]]:
    """Set aside blocks that a probe of the model itself refutes; see `heads.probe`."""
    fresh = [(path, a) for path, a, _ in found if pruned_record(model.get_submodule(path)) is None]
    wrong = refuted(model, fresh)
    aside = [
        LeftAlone(path, f"a probe of it refutes what it looks like: {reason}")
        for path, reason in wrong.items()
    ]
    return [block for block in found if block[0] not in wrong], [*left_alone, *aside]


def _refuse_unsuitable(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise HeadcountError(
            f"heads live in a torch module, but this is a {type(model).__name__}; "
            "pass a model from transformers' from_pretrained"
        )
    shared = REFUSED_MODELS.get(_model_type(model)) or _refused_layer(model)
    if shared is not None:
        raise HeadcountError(
            f"heads of {type(model).__name__} cannot be removed: {shared}; prune another model"
        )
    method = getattr(getattr(model, "hf_quantizer", None), "quantization_config", None)
    name = getattr(method, "quant_method", None)
    if name is not None and name != "headcount":
        raise HeadcountError(
            f"this model is quantised ({getattr(name, 'value', name)}) and its rows cannot be cut; "
            "remove heads from the unquantised model, then quantise the result"
        )


def _refused_layer(model: nn.Module) -> str | None:
    """Why layers of the model cannot lose heads although their blocks are understood."""
    for module in model.modules():
        for (name, part), reason in REFUSED_LAYERS.items():
            if type(module).__name__ == name and hasattr(module, part):
                return reason
    return None


def _refuse_adapters(model: nn.Module, left_alone: Sequence[LeftAlone]) -> None:
    """Refuse attention that is not understood because peft has wrapped its projections."""
    for module in left_alone:
        refuse_adapters(model, module.path)


def refuse_adapters(model: nn.Module, path: str) -> None:
    """Refuse a module with adapters of peft inside."""
    if any(hasattr(part, "base_layer") for part in model.get_submodule(path).modules()):
        raise HeadcountError(
            f"{path} has adapters whose rows cannot be cut with the heads; merge them first "
            "(peft: model = model.merge_and_unload()), and put new ones on the pruned model"
        )


def _refuse_without_blocks(model: nn.Module, left_alone: Sequence[LeftAlone]) -> None:
    name = type(model).__name__
    if not left_alone:
        raise HeadcountError(f"no attention heads were found in {name}; is it a Transformer?")
    first = left_alone[0]
    raise HeadcountError(
        f"the attention of {name} is not understood: in {first.path}, {first.reason}; "
        "add a row for its class to headcount's families or prune another model"
    )


def _walk(model: nn.Module) -> tuple[list[Found], list[LeftAlone]]:
    found: list[Found] = []
    left_alone: list[LeftAlone] = []
    settled: list[str] = []
    suspects: list[str] = []
    for path, module in model.named_modules():
        if any(path.startswith(f"{home}.") for home in settled[-1:]):
            continue
        record = pruned_record(module)
        what = record.anatomy if record is not None else recognise(module, path)
        if isinstance(what, Anatomy):
            heads = record.heads if record is not None else tuple(range(what.num_heads))
            found.append((path, what, heads))
            settled.append(path)
        elif isinstance(what, LeftAlone):
            left_alone.append(what)
            settled.append(path)
        elif "Attention" in type(module).__name__ and any(True for _ in module.parameters()):
            suspects.append(path)
    found, shared = _without_shared_weights(model, found)
    left_alone += shared
    for path in suspects:
        if not any(home == path or home.startswith(f"{path}.") for home in settled):
            left_alone.append(LeftAlone(path, why_not_recognised(model.get_submodule(path))))
            settled.append(path)
    return found, left_alone


def _without_shared_weights(
    model: nn.Module, found: list[Found]
) -> tuple[list[Found], list[LeftAlone]]:
    """Set aside blocks that have the same weights in different modules.

    One module that several layers call (ALBERT) is one block. Two modules with tied weights would
    have to lose the same heads, and a mask does not guarantee that.
    """
    owners: dict[int, list[Found]] = {}
    for block in found:
        path, anatomy, _ = block
        projection = model.get_submodule(path).get_submodule(anatomy.output)
        owners.setdefault(id(projection.weight), []).append(block)
    shared = [block for blocks in owners.values() if len(blocks) > 1 for block in blocks]
    reason = "its weights are tied to those of another attention module"
    alone = [LeftAlone(path, reason) for path, _, _ in shared]
    return [block for block in found if block not in shared], alone


def _model_type(model: nn.Module) -> str:
    # A wrapper such as DistributedDataParallel holds the model as its module.
    for candidate in (model, getattr(model, "module", None)):
        model_type = getattr(getattr(candidate, "config", None), "model_type", None)
        if model_type:
            return str(model_type)
    return type(model).__name__


def _names(model: nn.Module, found: Sequence[tuple[str, Anatomy]]) -> list[tuple[str, Kind, int]]:
    kinds = [_kind(model, path, anatomy) for path, anatomy in found]
    stacks = [re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", path) for path, _ in found]
    towers: dict[tuple[Kind, str], str] = {}
    for kind in set(kinds):
        of_kind = sorted({stack for stack, k in zip(stacks, kinds, strict=True) if k == kind})
        for stack, tower in zip(of_kind, _towers(of_kind), strict=True):
            towers[kind, stack] = tower
    keys = list(zip(kinds, stacks, strict=True))
    names: list[tuple[str, Kind, int]] = []
    for i, (kind, _) in enumerate(keys):
        same = [j for j, key in enumerate(keys) if key == keys[i]]
        layer = _layers([found[j][0] for j in same])[same.index(i)]
        tower = towers[keys[i]]
        names.append((f"{tower}.{kind}.{layer}" if tower else f"{kind}.{layer}", kind, layer))
    return names


def _towers(stacks: Sequence[str]) -> list[str]:
    """A name for each stack of the same kind: the first part of the path that differs."""
    if len(stacks) == 1:
        return [""]
    parts = [stack.split(".") for stack in stacks]
    first = next(
        i for i in range(max(map(len, parts))) if len({tuple(p[: i + 1]) for p in parts}) > 1
    )
    short = [re.sub(r"_(model|tower)$", "", p[min(first, len(p) - 1)]) for p in parts]
    if len(set(short)) == len(short):
        return short
    return [stack.replace(".*", "") for stack in stacks]


def _layers(paths: Sequence[str]) -> list[int]:
    """Layer numbers of the blocks of one stack: a number in the path, if it is unique."""
    numbers = [[int(part) for part in path.split(".") if part.isdecimal()] for path in paths]
    for column in zip(*numbers, strict=True):
        if len(set(column)) == len(paths):
            return list(column)
    return list(range(len(paths)))


def _kind(model: nn.Module, path: str, anatomy: Anatomy) -> Kind:
    attention = model.get_submodule(path).get_submodule(anatomy.core)
    parts = path.lower().split(".")
    if getattr(attention, "is_cross_attention", False) or any(
        name in part for part in parts for name in CROSS_NAMES
    ):
        return "cross"
    if any("decoder" in part for part in parts):
        return "decoder"
    if any("encoder" in part for part in parts):
        return "decoder" if getattr(attention, "is_decoder", False) else "encoder"
    causal = getattr(attention, "is_causal", None)
    if causal is None:
        config = getattr(attention, "config", None) or getattr(model, "config", None)
        causal = getattr(attention, "is_decoder", False) or _is_causal_type(
            str(getattr(config, "model_type", ""))
        )
    return "decoder" if causal else "encoder"


def _is_causal_type(model_type: str) -> bool:
    generates = model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return generates and model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES
