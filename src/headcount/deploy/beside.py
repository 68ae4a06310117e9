"""Other forms of a pruned model, beside it in its folder, and how to load each in its card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headcount.atomic import new_folder, write_text
from headcount.deploy.auto_class import FOLDER
from headcount.deploy.targets import Record, Target, fill, find_target
from headcount.errors import HeadcountError
from headcount.loading.folder import load_model
from headcount.loading.origin import CARD


def targets_named(names: str) -> tuple[Target, ...]:
    """The targets of a list such as `plain,gguf`, which can be written here.

    Raises:
        HeadcountError: there is no such target, or it needs a package that is not installed.
    """
    targets = tuple(find_target(name.strip()) for name in dict.fromkeys(names.split(",")))
    for target in targets:
        try:
            target.refuse_missing_packages()
        except HeadcountError as problem:
            raise HeadcountError(f"--to {target.name} cannot be written: {problem}") from problem
    return targets


def export_beside(folder: Path, targets: Sequence[Target]) -> dict[str, Record]:
    """Write a model in other forms, each into a folder of its own inside the model's.

    A target that cannot hold the model does not keep the others from being written.

    Args:
        folder: the folder of a pruned model, with its card.
        targets: the forms.

    Returns:
        What was written and checked, by target.

    Raises:
        HeadcountError: a target cannot hold the model. All that could be written is there.
    """
    model = load_model(str(folder))
    records: dict[str, Record] = {}
    problems: list[str] = []
    for target in targets:
        try:
            with new_folder(folder / target.name) as inner:
                records[target.name] = fill(inner, model, str(folder), target)
        except HeadcountError as problem:
            problems.append(str(problem))
    if records:
        _tell(folder / CARD, records)
    if problems:
        raise HeadcountError(f"the model is in {folder}, but {'; '.join(problems)}")
    return records


def _tell(card: Path, records: dict[str, Record]) -> None:
    """Add to a model's card how to load its other forms."""
    lines = [card.read_text(encoding="utf-8").rstrip() if card.is_file() else "", ""]
    lines += ["## Without headcount", "", "The same model in forms that other programs load:", ""]
    for name, record in records.items():
        lines += [f"### `{name}/`", ""]
        if "why" in record:
            lines += [f"Form: {record['why']}.", ""]
        load = record.get("load", "").replace(FOLDER, f"{FOLDER}/{name}")
        if load:
            lines += [f"```{'python' if '(' in load else 'sh'}", load, "```", ""]
        if "flag" in record:
            lines += [record["flag"], ""]
    write_text(card, "\n".join(lines).rstrip() + "\n")
