"""Only models that differ in their heads are timed beside one another.

All get the inputs of the first one, and are called faster or slower than it. With another
vocabulary, other labels or fewer positions the inputs do not fit. With another width, number of
layers or output layer they do, but the speed-up is not that of a cut.
"""

from __future__ import annotations

from collections.abc import Mapping

from transformers import PreTrainedModel

from headcount.errors import HeadcountError
from headcount.heads.find import find_heads


def refuse_other_models(models: Mapping[str, PreTrainedModel]) -> None:
    """Raise if some models were not pruned from the same one.

    Args:
        models: the models by name or folder, the unpruned one first.

    Raises:
        HeadcountError: a model has another class, heads that the first one never had, or a weight
            of another shape outside its attention.
    """
    (first, whole), *others = models.items()
    expected = _traits(whole)
    for name, model in others:
        found = _traits(model)
        for trait in dict.fromkeys([*expected, *found]):
            here, there = found.get(trait, "missing"), expected.get(trait, "missing")
            if here != there:
                raise HeadcountError(
                    f"{name} cannot be timed beside {first}: its {trait} is {here}, but that of "
                    f"{first} is {there}; give models that were pruned from the same one"
                )


def _traits(model: PreTrainedModel) -> dict[str, str]:
    """All that a removal of heads leaves as it is, by name."""
    heads = find_heads(model)
    inside = tuple(f"{block.path}." for block in heads.blocks)
    shapes = {
        name: " × ".join(map(str, weight.shape))
        for name, weight in model.named_parameters()
        if not name.startswith(inside)
    }
    return {
        "class": type(model).__name__,
        **shapes,
        **{f"number of heads in {name}": str(born) for name, born in heads.layout},
    }
