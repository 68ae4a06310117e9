"""The house itself: which folder may import which, and who may know a pruner's class."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import headcount
from headcount.pruners.methods import METHODS

ROOT = Path(headcount.__file__).parent
# Each may import from those before it. Data flows in this order; a choice is made by what a cut
# costs, so that CUT stands before CHOOSE here.
ORDER = (
    "errors", "atomic", "json_file", "seams", "batch", "heads", "gates", "surgery", "version4",
    "pruners", "loading", "training", "tasks", "stats", "plots", "bench", "runs", "study",
    "analysis", "report", "deploy", "demo", "cli",
)  # fmt: skip


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def imports(path: Path) -> Iterator[str]:
    """What a module imports of headcount, wherever in the file; not what only types need."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headcount"):
            inside = (node.module or "").removeprefix("headcount").removeprefix(".")
            yield from ([inside] if inside else [alias.name for alias in node.names])


def test_nothing_imports_from_further_down() -> None:
    place = {name: number for number, name in enumerate(ORDER)}
    wrong = []
    for module, path in modules():
        own = module.partition(".")[0]
        for used in imports(path):
            other = used.partition(".")[0]
            if own and other != "__version__" and place[other] > place[own]:
                wrong.append(f"{module} imports {used}")
    assert not wrong


def test_every_folder_has_its_place() -> None:
    found = {path.stem for path in ROOT.glob("*.py")} | {
        path.parent.name for path in ROOT.glob("*/__init__.py")
    }
    assert found - {"__init__"} == set(ORDER)


def test_statistics_and_plots_know_nothing_of_runs() -> None:
    for module, path in modules():
        if module.partition(".")[0] in ("stats", "plots"):
            known = {used.partition(".")[0] for used in imports(path)}
            assert known <= {"errors", "atomic", "heads", "pruners", "stats", "plots"}, module


def test_no_module_outside_asks_for_a_pruners_class() -> None:
    concrete = {str(row).partition(":")[2] for row in METHODS.values()}
    asked = [
        f"{module} imports {alias.name}"
        for module, path in modules()
        if not module.startswith("pruners")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headcount")
        for alias in node.names
        if alias.name in concrete
    ]
    assert not asked


def test_a_file_name_is_written_in_one_place() -> None:
    for name in ("mask.json", "selection_history.json", "importance.json", "metrics.json"):
        homes = [module for module, path in modules() if f'"{name}"' in path.read_text("utf-8")]
        assert len(homes) == 1, (name, homes)
