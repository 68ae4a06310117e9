"""The card of an exported folder: what it is, where it comes from, and how to load it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from headcount.atomic import write_text
from headcount.loading.origin import CARD, TAGS, origin_of


def write_card(folder: Path, source: str, runs_in: str, record: dict[str, Any]) -> None:
    """Write the card of an exported folder.

    Args:
        folder: the folder.
        source: the model's folder or hub name; what its own card says for the hub is kept.
        runs_in: the programs that load the folder.
        record: what was written and checked.
    """
    data = _hub_data(source)
    write_text(folder / CARD, f"---\n{data}\n---\n\n{_text(runs_in, record)}")


def _hub_data(source: str) -> str:
    """The hub's metadata: what the model's own card says, or where the model comes from."""
    if not source:
        return ModelCardData(library_name="transformers", tags=list(TAGS)).to_yaml()
    try:
        return str(ModelCard.load(Path(source) / CARD).data.to_yaml())
    except Exception:  # no card, or a damaged one: of no common type
        origin = origin_of(source)
    return ModelCardData(
        base_model=origin.name,
        library_name="transformers",
        license=origin.licence,
        license_name=origin.licence_name,
        license_link=origin.licence_link,
        language=origin.language,
        tags=list(TAGS),
    ).to_yaml()


def _text(runs_in: str, record: dict[str, Any]) -> str:
    lines = [
        "# A model with fewer attention heads",
        "",
        f"Written by headcount for {runs_in}.",
        "headcount is not needed to run it.",
        "",
    ]
    if "why" in record:
        lines += [f"Form: {record['why']}.", ""]
    if "load" in record:
        language = "python" if "(" in record["load"] else "sh"
        lines += ["## How to load it", "", f"```{language}", record["load"], "```", ""]
    if "flag" in record:
        lines += [record["flag"], ""]
    checked = record.get("checked", "It was compared with the model that it was written from.")
    lines += ["## What was checked", "", checked]
    if record.get("difference") is not None:
        lines += [f"The largest difference is {record['difference']:.1e}."]
    if "difference_in_f32" in record:
        lines += [
            f"The same file in float32 differs by {record['difference_in_f32']:.1e}: the rest is "
            "rounding."
        ]
    if "greedy" in record:
        lines += [f"{record['greedy']}."]
    return "\n".join(lines) + "\n"
