"""What commands show: a progress bar with the time left, and a table at the end.

`make_encodable` lets every command print on a screen or into a file that knows few signs.
"""

from __future__ import annotations

import codecs
import io
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from headcount.analysis.base import Analysis

EVERY = 15.0  # seconds between two lines where no bar can be drawn
FILE_WIDTH = 1000  # columns of output that goes to no terminal: wide enough for any table
_PLAIN = {  # what to print where the encoding lacks a sign
    "→": "->", "×": "x", "±": "+-", "…": "...", "–": "-", "−": "-", "†": "+", "λ": "lambda",
    "τ": "tau", "■": "#", "·": ".", "•": "*",
}  # fmt: skip


def make_encodable(stream: TextIO | None) -> None:
    """Let a stream print other signs for those that its encoding lacks, instead of failing."""
    if isinstance(stream, io.TextIOWrapper):
        codecs.register_error("headcount", _in_plain_signs)
        stream.reconfigure(errors="headcount")


def _in_plain_signs(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    escaped = (sign.encode("ascii", "backslashreplace").decode() for sign in signs)
    return "".join(map(_PLAIN.get, signs, escaped)), error.end


class Bars:
    """Draws one bar per stage; writes a line now and then if the output is not a terminal.

    With many runs, one bar stays for all of them, above the stages of the current one. Without a
    terminal, a line tells each run, and other lines only what takes long.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.runs = Progress(
            TextColumn("runs"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            _TimeLeft(),
            TextColumn("{task.description}", style="dim", markup=False),
            console=console,
        )
        self.stages = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            _StageTimeLeft(),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console,
        )
        self.live = Live(Group(self.runs, self.stages), console=console, refresh_per_second=10)
        self.task: TaskID | None = None
        self.stage, self.total, self.told = "", 0, 0.0
        self.since = (0, 0.0)  # steps that were done, and when: from here the time left is computed
        self.first: tuple[int, float] | None = None  # runs that were done at the start, and when

    def __enter__(self) -> Bars:
        with suppress(ImportError):  # its own bars would appear between ours
            from datasets import disable_progress_bars

            disable_progress_bars()
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.runs.tasks:
            self._clear_stages()
            if error is None:
                whole = self.runs.tasks[0].total
                self.runs.update(TaskID(0), completed=whole, until=None, description="")
        self.live.stop()

    def begin(self, stage: str, total: int | None = None) -> None:
        """A stage begins; the one before is over."""
        if self.task is not None:
            done = next(task for task in self.stages.tasks if task.id == self.task)
            self.stages.update(self.task, total=done.total or 1, completed=done.total or 1)
        self.task = self.stages.add_task(stage, total=total, note="")
        self.stage, self.total, self.since = stage, total or 0, (0, time.monotonic())
        if not self.console.is_terminal and self.first is None:
            self.say(f"{stage} …")
            self.told = time.monotonic()

    def advance(self, done: int, note: str = "", total: int | None = None) -> None:
        """This many steps of the stage are done."""
        if self.task is None:
            return
        now = time.monotonic()
        if total and total != self.total:  # a training begins now, perhaps where one stopped
            self.total, self.since = total, (done, now)
        self.stages.update(self.task, completed=done, note=note, total=self.total or None)
        before, then = self.since
        if not self.console.is_terminal and now - self.told > EVERY and done > before:
            left = (now - then) / (done - before) * max(self.total - done, 0)
            self.console.print(
                f"  {self.stage}: {done} of {self.total or '?'}, {left:.0f} s left  {note}",
                highlight=False,
                markup=False,
            )
            self.told = now

    def overall(self, done: int, total: int, name: str, left: float | None = None) -> None:
        """This many runs of all are done, and this is next.

        Args:
            done: how many runs are done.
            total: how many runs there are.
            name: the next run; or what is done after all of them.
            left: seconds that are left; None computes them, as if all runs were equally long.
        """
        left = self._count_runs(done, total, name, left)
        if not self.console.is_terminal:
            rest = f", about {_span(left)} left" if left else ""
            which = f"run {done + 1} of {total}" if done < total else f"all {total} runs done"
            self.say(f"{which}: {name}{rest}")
            self.told = time.monotonic()

    def finished(self, done: int, total: int, name: str) -> None:
        """This many runs of all are done, and this was the last."""
        self._count_runs(done, total, name)
        if not self.console.is_terminal:
            self.say(f"{done} of {total} runs done: {name}")

    def _count_runs(
        self, done: int, total: int, name: str, left: float | None = None
    ) -> float | None:
        """Set the bar of all runs, and clear the stages below it; returns the seconds left."""
        now = time.monotonic()
        if self.first is None:
            self.first = (done, now)
            self.runs.add_task(name, total=total, until=None)
        before, began = self.first
        if left is None and done > before:
            left = (now - began) / (done - before) * (total - done)
        until = None if left is None else now + left
        self._clear_stages()
        self.runs.update(TaskID(0), completed=done, total=total, description=name, until=until)
        return left

    def _clear_stages(self) -> None:
        for task in self.stages.task_ids:
            self.stages.remove_task(task)
        self.task = None

    def say(self, line: str) -> None:
        """Show a line above the bars."""
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


class _StageTimeLeft(TimeRemainingColumn):
    """The time left for a stage; nothing where that is not known, or no time is left."""

    def render(self, task: Task) -> Text:
        left = super().render(task)
        return Text(f"{left} left", left.style) if task.time_remaining else Text("")


class _TimeLeft(ProgressColumn):
    """The time left for all runs. Unlike rich's own, it also works if a step takes minutes."""

    def render(self, task: Task) -> Text:
        until: float | None = task.fields["until"]
        left = 0.0 if until is None else until - time.monotonic()
        return Text(f"about {_span(left)} left" if left > 0 else "")


def _span(seconds: float) -> str:
    if seconds > 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"


def show_rows(
    console: Console,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: bool = False,
) -> None:
    """Show a table: names on the left, figures on the right.

    Args:
        console: where to show it.
        title: what is above it.
        columns: the names of all columns except the first.
        rows: a name, and a text for every column.
        words: the columns have words, which belong on the left.
    """
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    # Names often differ only at their ends, so a narrow screen takes room from figures first.
    table.add_column("", min_width=max((len(row[0]) for row in rows), default=0))
    for column in columns:
        table.add_column(escape(column), justify="left" if words else "right")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def show_analysis(console: Console, found: Analysis, folder: Path) -> None:
    """Show the table of an analysis, what it means, and where its files are."""
    from headcount.analysis.base import shown

    table = found.table()
    names, cells = [str(name) for name in table.columns], shown(table)
    numbers = [table[name].dtype.kind in "if" for name in table.columns]
    printed = Table(title=escape(found.title), title_justify="left", title_style="bold")
    if not console.is_terminal:
        console = Console(file=console.file, width=FILE_WIDTH)
    fitting, left_out = _fitting(names, cells, numbers, console.width)
    for place in fitting:
        justify: Literal["left", "right"] = "right" if numbers[place] else "left"
        printed.add_column(escape(names[place]), justify=justify, no_wrap=not numbers[place])
    for row in cells:
        printed.add_row(*(escape(row[place]) for place in fitting))
    console.print(printed)
    lines = [found.note, f"table, figures and data are in {folder}"]
    if left_out:
        missing = ", ".join(names[place] for place in left_out)
        lines.append(f"the screen is too narrow for some columns of the table: {missing}")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _fitting(
    names: Sequence[str], cells: Sequence[Sequence[str]], numbers: Sequence[bool], room: int
) -> tuple[list[int], list[int]]:
    """The columns that a screen has room for, and those that it has not; empty ones are in neither.

    Words come before numbers, because a row without its names says nothing.
    """
    places = [n for n in range(len(names)) if any(row[n] != "–" for row in cells) or not cells]
    shown: list[int] = []
    left_out: list[int] = []
    room -= 1  # for the left border; each column has one on its right, and a space on both sides
    for place in sorted(places, key=lambda n: (numbers[n], n)):
        head = max(map(len, names[place].split())) if numbers[place] else len(names[place])
        wide = 3 + max(head, max((len(row[place]) for row in cells), default=0))
        if not shown or wide <= room:
            shown.append(place)
            room -= wide
        else:
            left_out.append(place)
    return sorted(shown), sorted(left_out)
