"""What `--help` shows: how to call a command, its options in panels, and worked examples.

typer's own page has columns for types and for `--no-` names, which leave a terminal of 80 columns
21 for the texts. Here the name of an option and its value are one column, and all else is text.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

# The panels of options, the everyday ones first.
PANELS = ("What", "Data", "Method", "Training", "Output", "Rarely needed")
WHAT, DATA, METHOD, TRAINING, OUTPUT, RARE = PANELS
_FEW = 8  # options that need no panels
_LEAST, _WIDEST = 40, 100  # columns; longer lines are hard to read
_LONGEST = 22  # columns; the text of a longer name begins in the next line
_NARROWEST = 36  # columns of text; with fewer, all texts are below the names
_NAME, _VALUE, _ASIDE = "bold cyan", "yellow", "dim"
_Row = tuple[Text, Text]  # a name, and what it does


def option(panel: str, value: str | None, text: str, *names: str, **more: Any) -> Any:
    """Declare an option.

    Args:
        panel: the panel of the page that it is in.
        value: a name for its value, such as FILE; None for a switch.
        text: what it does. A switch that is on by default is shown as `--no-…`, and its text says
            what that does.
        names: other names than that of the parameter.
        more: what else `typer.Option` takes.
    """
    return typer.Option(*names, metavar=value, help=text, rich_help_panel=panel, **more)


def argument(name: str, text: str) -> Any:
    """Declare an argument.

    Args:
        name: its name on the page, such as MODEL.
        text: what it is.
    """
    return typer.Argument(metavar=name, help=text, rich_help_panel=WHAT)


class Command(TyperCommand):
    """A command with our page of help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the page."""
        _print_page(self, ctx)


class Group(TyperGroup):
    """A group of commands with our page of help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the page."""
        _print_page(self, ctx)


@dataclass(frozen=True)
class Example:
    """A worked example.

    Attributes:
        aim: what it is for.
        command: the command, in one line.
    """

    aim: str
    command: str


def read_docstring(docstring: str) -> tuple[list[str], list[Example]]:
    """The paragraphs of a command's docstring, and its examples.

    In the section Examples, a line that begins with # says what the command below it is for. Lines
    that are indented further continue it.
    """
    words, _, section = inspect.cleandoc(docstring).partition("Examples:\n")
    examples: list[Example] = []
    aim = ""
    for line in inspect.cleandoc(section).splitlines():
        if line.startswith("# "):
            aim = line[2:]
        elif line.startswith(" "):
            last = examples.pop()
            examples.append(Example(last.aim, f"{last.command} {line.strip()}"))
        elif line:
            examples.append(Example(aim, line))
    return [" ".join(part.split()) for part in words.split("\n\n") if part.strip()], examples


def _print_page(command: Any, ctx: Any) -> None:
    width = min(max(Console().width, _LEAST), _WIDEST)
    console = Console(width=width, highlight=False)
    paragraphs, examples = read_docstring(command.help or "")
    _print(console, Text(f"\nUsage: {_usage(command, ctx)}\n", style="bold"), width)
    for paragraph in paragraphs:
        _print(console, _marked(paragraph).append("\n"), width)
    panels = {**_command_panels(command, ctx), **dict(_option_panels(command, ctx))}
    left = _left(panels, width - 4)
    for title, rows in panels.items():
        panel = Panel(
            _rows(console, rows, left, width - 4), title=title, title_align="left",
            border_style=_ASIDE, width=width,
        )  # fmt: skip
        console.print(panel)
    console.print("\nExamples:", style="bold")
    for example in examples:
        console.print(Text(f"  # {example.aim}", style=_ASIDE), soft_wrap=True)
        for line in _broken(example.command, width - 4):
            console.print(f"  {line}", markup=False, soft_wrap=True)


def _print(console: Console, words: Text, width: int) -> None:
    for line in words.wrap(console, width):
        line.rstrip()
        console.print(line, soft_wrap=True)


def _left(panels: dict[str, list[_Row]], width: int) -> int:
    """Where texts begin: behind the names, if there is room enough for both."""
    names = [len(name) for rows in panels.values() for name, _ in rows]
    left = max((name for name in names if name <= _LONGEST), default=0) + 2
    return left if width - left >= _NARROWEST else 4


def _rows(console: Console, rows: Sequence[_Row], left: int, width: int) -> Text:
    """Names, each with its text beside it, or below it if the name is too long for that."""
    lines: list[Text] = []
    for name, words in rows:
        begin = Text() if len(name) + 2 > left else name.copy()
        if not begin:
            lines.append(name)
        for line in words.wrap(console, width - left):
            begin.pad_right(left - len(begin))
            lines.append(begin + line)
            begin = Text()
    return Text("\n").join(lines)


def _usage(command: Any, ctx: Any) -> str:
    words = [ctx.command_path, *(["COMMAND"] if isinstance(command, TyperGroup) else [])]
    parameters = _parameters(command, ctx)
    for kind in ("argument", "option"):
        for parameter in (p for p in parameters if p.param_type_name == kind):
            name = name_of(parameter, value=True)
            if parameter.required:
                words.append(name)
            elif kind == "argument":
                words.append(f"[{name}]")
    return " ".join([*words, "[OPTIONS]"])


def _parameters(command: Any, ctx: Any) -> list[Any]:
    return [p for p in command.get_params(ctx) if p.name != "help" and not p.hidden]


def _option_panels(command: Any, ctx: Any) -> Iterator[tuple[str, list[_Row]]]:
    """The panels of a command with the names of their options, and what each does."""
    parameters = _parameters(command, ctx)
    sorted_in = {
        title: [p for p in parameters if (p.rich_help_panel or WHAT) == title] for title in PANELS
    }
    if len(parameters) <= _FEW:
        sorted_in = {"Options": [p for inside in sorted_in.values() for p in inside]}
    for title, inside in sorted_in.items():
        if inside:
            yield title, [(_name(p), _text(p)) for p in inside]


def name_of(parameter: Any, value: bool = False) -> str:
    """An option or an argument as it is typed.

    Args:
        parameter: typer's object for it.
        value: with the name of its value.
    """
    if parameter.param_type_name == "argument":
        return str(parameter.metavar) + ("..." if parameter.nargs != 1 else "")
    names = parameter.secondary_opts if parameter.default is True else parameter.opts
    return f"{names[0]} {parameter.metavar}" if value and not parameter.is_flag else str(names[0])


def _name(parameter: Any) -> Text:
    name, _, value = name_of(parameter, value=True).partition(" ")
    return Text.assemble((name, _NAME), (f" {value}" if value else "", _VALUE))


def _text(parameter: Any) -> Text:
    text = _marked(parameter.help or "")
    if parameter.required:
        text.append(" [required]", style=_ASIDE)
    elif parameter.default is not None and not isinstance(parameter.default, bool):
        shown = parameter.default
        text.append(f" [{shown:g}]" if isinstance(shown, float) else f" [{shown}]", style=_ASIDE)
    return text


def _command_panels(command: Any, ctx: Any) -> dict[str, list[_Row]]:
    """The panels of a group with the names of its commands; none for a command."""
    panels: dict[str, list[_Row]] = {}
    if isinstance(command, TyperGroup):
        for name in command.list_commands(ctx):
            inside: Any = command.get_command(ctx, name)
            first, *_ = read_docstring(inside.help or "")[0]
            row = (Text.assemble((name, _NAME)), _marked(first))
            panels.setdefault(inside.rich_help_panel or "Commands", []).append(row)
    return panels


def _marked(words: str) -> Text:
    """A text in which the names of options stand out."""
    text = Text(words)
    text.highlight_regex(r"(?<![\w-])--\w[\w-]*", "cyan")
    return text


def _broken(command: str, width: int) -> Iterator[str]:
    """A command in lines that a shell takes as one; an option and its value stay together."""
    line = ""
    for part in re.split(r" (?=--)", command):
        if line and len(line) + len(part) + 3 > width:
            yield f"{line} \\"
            line = "   "
        line = f"{line} {part}" if line else part
    yield line
