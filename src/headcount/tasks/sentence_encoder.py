"""Sentence encoders: models whose answer to a text is one vector.

A folder of sentence-transformers lists its modules in `modules.json`: a Transformer, a pooling, and
maybe others after it. headcount prunes the Transformer. What comes after it stays as it is, and is
no part of the weights that are saved with the model.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from headcount.errors import HeadcountError
from headcount.json_file import checked, entry, read_json
from headcount.loading.folder import COMPANIONS, first_line, leads_out, loading
from headcount.tasks.models import load_for

MODULES = "modules.json"
POOLINGS = ("mean", "cls", "max")
_PACKAGE = "sentence_transformers"
# What a folder has of the unpruned model, and what is written anew.
_WEIGHTS = (".safetensors", ".bin", ".h5", ".ot", ".msgpack", ".onnx", ".index.json")
_OTHER_FORMS = ("onnx", "openvino")
_ANEW = ("config.json", "README.md")


def load_sentence_encoder(source: str, pooling: str | None) -> PreTrainedModel:
    """An encoder whose logits are the vectors of texts, and whose labels are vectors, too.

    Args:
        source: a folder of sentence-transformers or its name on the hub, or a bare encoder; pruned
            or not.
        pooling: how a bare encoder makes one vector of those of the tokens; None for one that says
            it.

    Raises:
        HeadcountError: it is not said how it pools, or its folder is not understood.
    """
    folder = _folder(source)
    listed = (folder / MODULES).is_file()
    if listed and pooling is not None:
        raise HeadcountError(
            f"{source} says in {MODULES} how it makes a vector, so pooling={pooling} does not fit; "
            "leave out that option"
        )
    if not listed and pooling not in POOLINGS:
        raise HeadcountError(
            f"{source} has no {MODULES} that says how it makes one vector of a text; give --option "
            "pooling=mean, cls or max"
        )
    model = load_for(AutoModel, source, "embedding", whole=False)
    after = _modules(source, folder) if listed else _pooling(model, str(pooling))
    return as_sentence_encoder(model, after, folder if listed else None)


def as_sentence_encoder(
    model: PreTrainedModel, after: Sequence[nn.Module], folder: Path | None
) -> PreTrainedModel:
    """Give an encoder a forward pass that ends with one vector per text; changes it in place.

    Args:
        model: the encoder.
        after: what sentence-transformers does after it, module by module.
        folder: has the files that belong to it besides its weights; None if there are none.
    """
    own = type(model)

    class Encoder(own):  # type: ignore[misc, valid-type]
        """The same model with one vector per text."""

        gives_vectors = True

        def forward(self, *args: Any, labels: Tensor | None = None, **inputs: Any) -> Any:
            states = super().forward(*args, **inputs)
            vectors = _embedded(after, states.last_hidden_state, inputs.get("attention_mask"))
            loss: Any = None if labels is None else distance(vectors, labels).mean()
            inside = {name: states.get(name) for name in ("hidden_states", "attentions")}
            given: dict[str, Any] = {"loss": loss, "logits": vectors, **inside}
            return SequenceClassifierOutput(**given)

        def save_pretrained(self, save_directory: Any, *args: Any, **given: Any) -> None:
            super().save_pretrained(save_directory, *args, **given)
            if folder is not None:
                copy_beside(folder, Path(save_directory))

    taken = inspect.signature(own.forward)
    labels = inspect.Parameter("labels", inspect.Parameter.KEYWORD_ONLY, default=None)
    known = [p for p in taken.parameters.values() if p.kind is not p.VAR_KEYWORD]
    # Batches are made of what a forward pass says that it takes.
    Encoder.forward.__signature__ = taken.replace(parameters=[*known, labels])  # type: ignore[attr-defined]
    Encoder.__name__ = own.__name__  # written into config.json
    model.__class__ = Encoder
    return model


def distance(vectors: Tensor, wanted: Tensor) -> Tensor:
    """The squared distance of each vector to the one that is wanted, relative to its size.

    For vectors of length 1 it is 2 − 2 cosine.
    """
    wanted = wanted.to(vectors)
    return (vectors - wanted).square().sum(-1) / wanted.square().sum(-1)


def _embedded(after: Sequence[nn.Module], states: Tensor, seen: Tensor | None) -> Tensor:
    if seen is None:
        seen = states.new_ones(states.shape[:2])
    features = {"token_embeddings": states, "attention_mask": seen}
    for module in after:
        features = module.to(states.device)(features)
    return features["sentence_embedding"]


def longest_text(source: str) -> int | None:
    """How many tokens of a text sentence-transformers gives to an encoder; None if unsaid."""
    file = _folder(source) / "sentence_bert_config.json"
    if not file.is_file():
        return None
    length = checked(read_json(file), dict, str(file)).get("max_seq_length")
    return length if isinstance(length, int) and length > 0 else None


def _folder(source: str) -> Path:
    """The files of an encoder besides its weights, in a folder."""
    if Path(source).is_dir():
        return Path(source)
    with loading(source):
        return Path(snapshot_download(source, allow_patterns=list(COMPANIONS)))


def _modules(source: str, folder: Path) -> list[nn.Module]:
    """What comes after the Transformer, loaded by sentence-transformers."""
    listed = checked(read_json(folder / MODULES), list, f"{source}/{MODULES}")
    made = []
    for place, row in enumerate(listed):
        kind, path = entry(row, "type", str), entry(row, "path", str)
        module, _, name = kind.rpartition(".")
        if not module.startswith(_PACKAGE):
            raise HeadcountError(
                f"{source} has a module {kind} of its own, whose code headcount does not run; give "
                "an encoder with modules of sentence-transformers"
            )
        if (name == "Transformer") != (place == 0):
            raise HeadcountError(
                f"{source} has {name} at place {place} of {MODULES}, expected one Transformer, at "
                "the beginning; give an encoder that is built so"
            )
        if place:
            made.append(_loaded(source, folder, module, name, path))
    return made


def _loaded(source: str, folder: Path, module: str, name: str, path: str) -> nn.Module:
    if leads_out(folder / path, folder):
        raise HeadcountError(f"{source}/{path} leads out of the folder; put the files there")
    try:
        cls: Any = getattr(import_module(module), name)
        loaded: nn.Module = cls.load(str(folder), subfolder=path)
    except Exception as error:  # of any type: each module reads files of its own
        raise HeadcountError(
            f"{source} has a module {name} that cannot be loaded: {first_line(error)}; restore its "
            f"folder {path}"
        ) from error
    return loaded.eval().requires_grad_(False)


def _pooling(model: PreTrainedModel, mode: str) -> list[nn.Module]:
    return [Pooling(model.config.hidden_size, mode)]


def copy_beside(source: Path, target: Path) -> None:
    """Copy what a folder of sentence-transformers has besides weights; what is there stays.

    Graphs of the unpruned model and links that lead out are left out.
    """
    for file in sorted(source.rglob("*")):
        place = file.relative_to(source)
        if (
            not file.is_file()
            or (target / place).exists()
            or place.parts[0] in _OTHER_FORMS
            or place.parts[0].startswith(".")
            or (len(place.parts) == 1 and file.name.endswith(_WEIGHTS))
            or str(place) in _ANEW
            or leads_out(file, source)
        ):
            continue
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target / place)
