"""The pages of help: whole at every width, with examples that work; mistakes are one sentence."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from headcount.cli import _completed, app
from headcount.cli.help import PANELS, name_of, read_docstring
from headcount.deploy.targets import TARGETS
from headcount.pruners.methods import METHODS, find_pruner, recipe_keys
from headcount.tasks.registry import CLASSES

ROOT: Any = typer.main.get_command(app)
PAGES = [Path("README.md"), *sorted(Path("docs").glob("*.md"))]


def commands(inside: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    yield " ".join(path), inside
    if isinstance(inside, TyperGroup):
        for name, command in inside.commands.items():
            yield from commands(command, (*path, name))


COMMANDS = dict(commands())


def parsed(call: str) -> tuple[Any, dict[str, Any]]:
    """The command of a line for the shell, and the values of its options; nothing is run."""
    name, *words = _completed(shlex.split(call)[1:])
    command = ROOT.commands[name]
    if isinstance(command, TyperGroup):
        command = command.commands[words.pop(0)]
    outside = ROOT.make_context("headcount", [name])
    return command, command.make_context(command.name, words, parent=outside).params


def parameters(command: Any) -> list[Any]:
    found = command.get_params(typer.Context(command))
    return [parameter for parameter in found if parameter.name != "help"]


@pytest.mark.parametrize("width", [20, 60, 80, 100, 120, 300])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_is_whole_at_every_width(name: str, width: int, headcount: Any) -> None:
    page = headcount(*name.split(), "--help", columns=width)
    assert page.code == 0, page.err
    lines = page.out.splitlines()
    boxes = [len(line) for line in lines if line.startswith(("│", "╭"))]
    assert set(boxes) == {min(max(width, 40), 100)}
    assert width < 60 or max(map(len, lines)) <= max(boxes)
    assert "…" not in page.out
    for parameter in parameters(COMMANDS[name]):
        wanted = name_of(parameter, value=True)
        assert any(re.match(rf"│ {re.escape(wanted)}(  |$| *│)", line) for line in lines), wanted
        assert " ".join(parameter.help.split()[:2]) in page.out
    if width == 80:
        begins = [re.match(r"│ --?\S+(?: \S+)?  +(?=[^│\s])", line) for line in lines]
        assert all(match.end() <= 27 for match in begins if match)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_its_place_and_every_command_two_examples_that_work(name: str) -> None:
    command = COMMANDS[name]
    for parameter in parameters(command):
        assert parameter.rich_help_panel in PANELS, parameter.name
        assert parameter.metavar or parameter.is_flag, parameter.name
        assert parameter.help and parameter.help[0] != " "
    about, examples = read_docstring(command.help)
    assert len(about[0]) <= 72 or not name
    assert len(examples) >= 2
    assert len({example.aim for example in examples}) == len(examples)
    for example in examples:
        assert 0 < len(example.aim) <= 55
        assert example.command.startswith(" ".join(["headcount", *name.split()]))
        found, values = parsed(example.command)
        assert found is command or isinstance(command, TyperGroup)
        assert values.get("task") in (*CLASSES, None)
        for target in (values.get("to") or "plain").split(","):
            assert target in (*TARGETS, "list")
        for method in [values.get("method")] if found.name == "prune" else []:
            known = recipe_keys(find_pruner(method or "handover"))
            assert {pair.partition("=")[0] for pair in values["setting"] or ()} <= set(known)
        for method in values.get("method") if found.name == "report" else []:
            assert method in METHODS


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_can_be_copied_from_the_screen(name: str, width: int, headcount: Any) -> None:
    shown = headcount(*name.split(), "--help", columns=width).out.partition("Examples:\n")[2]
    lines = [line for line in shown.replace("\\\n", "").splitlines() if line.strip()]
    calls = [shlex.split(line) for line in lines if not line.strip().startswith("#")]
    _, examples = read_docstring(COMMANDS[name].help)
    assert calls == [shlex.split(example.command) for example in examples]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_are_understood(page: Path) -> None:
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8").replace("\\\n", " ")
    for block in re.findall(r"```(?:bash|sh)\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("headcount ") and "…" not in line:
                parsed(" ".join(shlex.split(line, comments=True)))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("prune m --output o --epochs three", "--epochs is 'three', expected a number"),
        ("prune m --output o --epochs=three", "--epochs is 'three', expected a number"),
        ("prune m --output o --limit-train 1.5", "--limit-train is '1.5', expected a whole number"),
        ("prune m --output o --max-steps ''", "--max-steps is '', expected a whole number"),
        ("prune m --output o --epochs " + "x" * 300, "xxx', expected a number"),
        ("bench m --batch-size 3 --batch-size x", "--batch-size is 'x', expected a whole number"),
        ("bench m --rounds 2", "--rounds is '2', expected 3 or more"),
        ("score m --output o --sample 1.5", "--sample is '1.5', expected 1 or less"),
        ("ablate one m --output o --alpha -1", "--alpha is '-1', expected 0 or more"),
        ("prune", "prune needs --output FOLDER; headcount prune --help has examples"),
        ("heads", "heads needs MODEL; headcount heads --help has examples"),
        ("ablate checkpoints", "checkpoints needs FOLDERS...; headcount ablate checkpoints --help"),
        ("prune m --outptu o", "there is no option --outptu; did you mean --output or --option?"),
        ("prune m --xyzzy o", "no such option: --xyzzy; headcount prune --help says what there is"),
        ("prune m --output", "option '--output' requires an argument; headcount COMMAND --help"),
        ("heads a b", "got unexpected extra argument(s) (b); headcount heads --help says"),
        ("prun m", "no such command 'prun'; did you mean 'prune'?"),
        ("ablate two", "no such command 'two'; headcount ablate --help says what there is"),
    ],
)
def test_a_call_that_cannot_be_read_is_told_in_one_sentence(
    call: str, says: str, headcount: Any
) -> None:
    ended = headcount(*shlex.split(call))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("headcount: ") and says in ended.err
    assert len(ended.err.splitlines()) == 1 and len(ended.err) < 200


@pytest.mark.parametrize("call", ["", "ablate"])
def test_a_group_alone_shows_its_page(call: str, headcount: Any) -> None:
    ended = headcount(*call.split())
    assert (ended.code, ended.err) == (2, "")
    assert ended.out == headcount(*call.split(), "--help").out.removesuffix("\n")
