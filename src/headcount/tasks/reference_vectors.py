"""The vectors of the unpruned encoder: found once, and kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from accelerate import PartialState
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from headcount.atomic import write_atomically
from headcount.batch import evaluating
from headcount.errors import HeadcountError
from headcount.tasks.base import Processor
from headcount.tasks.digest import digest_of
from headcount.tasks.prepared import fingerprint

AT_ONCE = 64  # texts of a batch
_PROBE = 8  # texts by whose vectors an encoder is known again
_NAME = "vectors"


def reference_vectors(
    model: PreTrainedModel,
    processor: Processor,
    texts: Sequence[str],
    length: int,
    cache: Path,
    tell: Callable[[int, int], None] | None = None,
) -> Tensor:
    """The vector of each text, a row each.

    Args:
        model: a sentence encoder; see `load_sentence_encoder`.
        processor: its tokenizer.
        texts: what to embed.
        length: the longest text in tokens; longer ones are cut.
        cache: the folder that keeps vectors for later runs.
        tell: receives how many texts are done, and how many there are.
    """
    probe = embedded(model, processor, texts[:_PROBE], length)
    known = digest_of({"encoder": [probe.numpy().tobytes()], "texts": list(texts)})
    key = digest_of({"": [known, fingerprint(processor), str(length)]})
    path = cache / _NAME / f"{key}.safetensors"
    try:
        if path.is_file():
            return load_file(path)[_NAME]
    except (OSError, SafetensorError):
        path.unlink(missing_ok=True)  # damaged, and ours
    found = embedded(model, processor, texts, length, tell)
    try:
        write_atomically(path, lambda scratch: save_file({_NAME: found}, scratch))
    except OSError as error:
        raise HeadcountError(
            f"vectors cannot be kept in {cache}: {error.strerror or error}; give another folder as "
            "the cache, or set HEADCOUNT_CACHE"
        ) from error
    return found


@torch.inference_mode()
def embedded(
    model: PreTrainedModel,
    processor: Processor,
    texts: Sequence[str],
    length: int,
    tell: Callable[[int, int], None] | None = None,
) -> Tensor:
    """The vector of each text, found now; see `reference_vectors`."""
    nn.Module.to(model, PartialState().device)
    order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
    rows: dict[int, Tensor] = {}
    with evaluating(model):
        for start in range(0, len(order), AT_ONCE):
            if tell is not None:
                tell(start, len(order))
            places = order[start : start + AT_ONCE]
            batch = processor(
                [texts[place] for place in places],
                truncation=True, max_length=length, padding=True, return_tensors="pt",
            ).to(model.device)  # fmt: skip
            rows |= dict(zip(places, model(**batch).logits.float().cpu(), strict=True))
    return torch.stack([rows[place] for place in range(len(texts))]).clone()
