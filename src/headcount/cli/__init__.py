"""The command line: commands parse, call and print; what they do is elsewhere.

Heavy packages are imported inside the commands, so that `headcount --help` is quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import typer
from rich.console import Console

from headcount import __version__
from headcount.cli.ablate import ablate
from headcount.cli.analyses import agreement, dynamics
from headcount.cli.bench import bench
from headcount.cli.demo import demo
from headcount.cli.evaluate import evaluate, score
from headcount.cli.export import LIST, export
from headcount.cli.heads import heads, remove
from headcount.cli.help import WHAT, Command, Group, option
from headcount.cli.methods import methods
from headcount.cli.prune import prune
from headcount.cli.roles import roles
from headcount.cli.show import make_encodable
from headcount.cli.study import compare, report
from headcount.cli.usage import UsageError, usage_sentence
from headcount.errors import HeadcountError, Stopped

ABOUT = """Keep exactly K attention heads of a Transformer, and cut the rest out of the weights.

headcount COMMAND --help explains a command.

Examples:
    # See it work, in some minutes
    headcount demo
    # Keep 12 of the 144 heads of BERT on MNLI
    headcount prune bert-base-uncased --task mnli --data nyu-mll/glue --keep 12 --output small
"""
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Make a smaller model": (prune, methods, export, remove, demo),
    "Look at a model": (heads, evaluate, bench, score, roles),
    "Compare methods in a study": (compare, report, agreement, dynamics),
}
app = typer.Typer(
    name="headcount", help=ABOUT, no_args_is_help=True, add_completion=False,
    pretty_exceptions_enable=False, cls=Group,
)  # fmt: skip
for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(cls=Command, rich_help_panel=panel)(command)
app.add_typer(ablate, rich_help_panel="Look at a model")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"headcount {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        option(WHAT, None, "Show the version.", "--version", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


def _quieten_transformers() -> None:
    """Show no warnings and progress bars except our own."""
    # transformers and the hub's client read these when they are loaded, which takes seconds.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    if "transformers" in sys.modules:
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()


def main() -> None:
    """Run the command line. A user's mistake is one sentence and exit code 2."""
    _quieten_transformers()
    for stream in (sys.stdout, sys.stderr):
        make_encodable(stream)
    code: str | int | None
    try:
        code = _run()
        if sys.stdout is not None:
            sys.stdout.flush()  # what fails later, Python itself would report
    except BrokenPipeError:  # who read the output has seen enough
        _drop_output()
        code = 1
    except OSError as error:
        if error.errno is None:  # of no system call
            raise
        _drop_output()
        what = f"{error.filename} cannot be used" if error.filename else "cannot print the result"
        _complain(f"{what}: {error.strerror}; make room or give another place, and try again")
        code = 2
    sys.exit(code)


def _run() -> str | int | None:
    """Run the command; returns its exit code."""
    try:
        code: int | None = app(_completed(sys.argv[1:]), "headcount", standalone_mode=False)
        return code
    except SystemExit as ended:
        return ended.code
    except UsageError as error:
        if str(error):  # the page of help was asked for, and shown
            _complain(usage_sentence(error))
    except HeadcountError as error:
        _complain(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "headcount"):
            raise  # no package that could be installed
        _complain(
            f"this needs the package {error.name}, which is not installed; run: "
            "pip install 'headcount[tasks]'"
        )
    except Stopped as stopped:
        _complain(str(stopped), style="")
        return 130  # as a shell reports Ctrl-C
    return 2


def _completed(arguments: list[str]) -> list[str]:
    """The arguments, with a value for `--to` of `headcount export` where it has none."""
    if arguments[:1] != ["export"]:
        return arguments
    made = []
    for argument, following in zip(arguments, [*arguments[1:], "-"], strict=True):
        made.append(argument)
        if argument == "--to" and following.startswith("-"):
            made.append(LIST)
    return made


def _complain(sentence: str, style: str = "red") -> None:
    """Say it on stderr; if even that cannot be written, the exit code has to do."""
    with suppress(OSError):
        console = Console(stderr=True, soft_wrap=True)
        console.print(f"headcount: {sentence}", style=style, markup=False)


def _drop_output() -> None:
    """Send what is still to be printed nowhere, so that Python does not fail again at its end."""
    with suppress(OSError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
