"""Where a model comes from: its name on the hub, its licence and its languages, as far as known.

A model that is made from another one carries these on. Nothing is guessed: what a folder does not
say stays out, and the folder's own path or name never gets into a model card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError
from huggingface_hub.repocard import metadata_load
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from headcount.json_file import parse_json, read_bytes
from headcount.loading.folder import LICENCES, copy_companions, inner_place, leads_out

TAGS = ("headcount", "pruning", "attention-heads")  # of every model with fewer heads
CARD = "README.md"  # of every model on the hub, and of every model folder that is written
# Names without an owner that are on the hub from its first days; other such names are folders.
_WITHOUT_OWNER = re.compile(
    r"bert-(base|large|base-multilingual)-(un)?cased|distilbert-base-(un)?cased|distilroberta-base"
    r"|(xlm-)?roberta-(base|large)|(distil)?gpt2|gpt2-(medium|large|xl)|t5-(small|base|large)"
    r"|albert-base-v2|camembert-base"
)
_FOLDERS = re.compile(
    r"(checkpoints?|data|models?|out|outputs?|results?|runs?|saved.*|te?mp|weights)/", re.IGNORECASE
)
_CACHE = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>[^/]+)/snapshots/")


@dataclass(frozen=True)
class Origin:
    """What is known about where a model comes from; None is unknown.

    Attributes:
        name: the model's name on the hub, or that of the model it was made from.
        licence: the licence as the hub's model cards have it: a name, or a list of names.
        licence_name: the name of a licence that is none of the hub's.
        licence_link: where that one can be read.
        language: the languages as model cards have them: a code, or a list of codes.
        files: the folder with its licence files.
    """

    name: str | None = None
    licence: Any = None
    licence_name: str | None = None
    licence_link: str | None = None
    language: Any = None
    files: Path | None = None


def origin_of(source: str) -> Origin:
    """Where a model comes from; never fails.

    Args:
        source: a model folder, or a name on the hub. The card and licence of such a name are
            fetched; without a connection they stay unknown.
    """
    folder = Path(source)
    is_local = folder.exists()
    if not is_local:
        if not is_hub_name(source):
            return Origin()
        fetched = _fetch(source)
        if fetched is None:
            return Origin(source)
        folder = fetched
    card = _front_matter(folder)
    return Origin(
        name=_name_in(folder, card) if is_local else source,
        licence=_texts(card.get("license")),
        licence_name=_text(card.get("license_name")),
        licence_link=_text(card.get("license_link")),
        language=_texts(card.get("language")),
        files=folder,
    )


def copy_licence(origin: Origin, target: Path) -> None:
    """Copy the licence and notice files of a model, which must stay with what is made of it."""
    if origin.files is not None:
        copy_companions(str(origin.files), target, LICENCES)


def is_hub_name(name: str) -> bool:
    """Whether a text can be the name of something on the hub."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def _fetch(name: str) -> Path | None:
    try:
        return Path(snapshot_download(name, allow_patterns=[CARD, *LICENCES]))
    except Exception:  # no connection, no access, no such name: of no common type
        return None


def _front_matter(folder: Path) -> Mapping[str, Any]:
    """The metadata of a folder's card; empty if there is none, or it is damaged."""
    file = folder / CARD
    try:
        found = None if leads_out(file, folder) else metadata_load(file)
    except Exception:  # no file, no UTF-8, no YAML, too deep: of no common type
        found = None
    return found if isinstance(found, dict) else {}


def _name_in(folder: Path, card: Mapping[str, Any]) -> str | None:
    """The name on the hub that a folder gives for itself, or for what it was made from."""
    cached = _CACHE.search(folder.resolve().as_posix() + "/")
    if cached:
        return f"{cached['owner']}/{cached['name']}"
    base = card.get("base_model")
    index = card.get("model-index")
    said = [base[0] if isinstance(base, list) and len(base) == 1 else base, _recorded(folder)]
    if isinstance(index, list) and len(index) == 1 and isinstance(index[0], dict):
        said.append(index[0].get("name"))
    return next((name for name in said if _is_real_name(name)), None)


def _recorded(folder: Path) -> Any:
    """What transformers v4 loaded the model from, as it noted in `config.json`."""
    try:
        file = Path(inner_place(str(folder))) / "config.json"
        config = parse_json(read_bytes(file).decode("utf-8"))
    except Exception:  # missing or damaged in any way
        return None
    return config.get("_name_or_path") if isinstance(config, dict) else None


def _is_real_name(name: Any) -> bool:
    """Whether a text is a name on the hub, and not the path of a folder on some computer."""
    if not isinstance(name, str) or not is_hub_name(name):
        return False
    if "/" not in name:
        return _WITHOUT_OWNER.fullmatch(name) is not None
    return not (_FOLDERS.match(name) or Path(name).exists())


def _texts(value: Any) -> Any:
    """A text or a list of them; None for anything else."""
    if isinstance(value, list):
        known = [text for text in map(_text, value) if text is not None]
        return known if known and len(known) == len(value) else None
    return _text(value)


def _text(value: Any) -> str | None:
    fits = isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()
    return value if fits else None
