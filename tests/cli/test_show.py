"""What a person sees of many runs: one bar that stays, and the stages of the current run."""

from __future__ import annotations

import time
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from rich.console import Console

from headcount.analysis.roles.result import HeadRoles, Roles
from headcount.cli.show import Bars, make_encodable, show_analysis, show_rows

RUNS = ("unpruned-all-seed0", "joint-dsp-12-seed0", "[ste]-12-seed0")


def screen(bars: Bars, out: StringIO) -> str:
    """What stands on the terminal now: what was drawn after the last lines were erased."""
    bars.live.refresh()
    return out.getvalue().split("\x1b[2K")[-1]


@pytest.fixture
def out() -> StringIO:
    return StringIO()


@pytest.fixture
def terminal(out: StringIO) -> Console:
    return Console(force_terminal=True, color_system=None, file=out, width=100)


def test_a_study_has_one_bar_and_the_stages_of_its_run(terminal: Console, out: StringIO) -> None:
    with Bars(terminal) as bars:
        for done, (name, left) in enumerate(zip(RUNS, (0, 20, 5), strict=True)):
            bars.overall(done, len(RUNS), name)
            bars.first = (0, time.monotonic() - 600)  # as if it had begun ten minutes ago
            bars.begin(f"fine-tuning for {name}", 20)
            bars.advance(5, "loss 0.3")
            bars.begin(f"writing {name}")
            seen = screen(bars, out)
            assert f"{done}/3" in seen
            assert f"fine-tuning for {name}" in seen and f"writing {name}" in seen
            assert ("about" in seen, f"about {left} min left" in seen) == (done > 0, done > 0)
            assert len(seen.splitlines()) == 3
            assert not [other for other in RUNS if other != name and other in seen]
    left = out.getvalue().split("\x1b[2K")[-1]
    assert "3/3" in left
    assert "writing" not in left


def test_runs_that_end_elsewhere_move_the_bar(terminal: Console, out: StringIO) -> None:
    with Bars(terminal) as bars:
        bars.finished(1, 3, RUNS[0])
        assert "1/3" in screen(bars, out)
        bars.finished(2, 3, RUNS[1])
        assert "2/3" in screen(bars, out) and RUNS[1] in screen(bars, out)


def test_what_breaks_off_is_not_shown_as_done(terminal: Console, out: StringIO) -> None:
    with pytest.raises(KeyboardInterrupt), Bars(terminal) as bars:
        bars.overall(1, 3, RUNS[1])
        raise KeyboardInterrupt
    assert "1/3" in out.getvalue().split("\x1b[2K")[-1]


def test_the_time_left_of_a_stage_is_shown_where_it_is_known(
    terminal: Console, out: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bars(terminal) as bars:
        now = 0.0
        monkeypatch.setattr(bars.stages, "get_time", lambda: now)
        bars.begin("counting")
        bars.advance(1)
        assert "left" not in screen(bars, out)  # of how many it is one, nobody knows
        bars.begin("fine-tuning", 20)
        assert "left" not in screen(bars, out)
        for done in (5, 10):
            now += 30
            bars.advance(done)
        assert "0:01:00 left" in screen(bars, out)
        bars.begin("writing")
        assert "left" not in screen(bars, out)


def test_one_run_keeps_its_stages_on_the_screen(terminal: Console, out: StringIO) -> None:
    with Bars(terminal) as bars:
        bars.begin("fine-tuning", 20)
        bars.begin("writing")
    left = out.getvalue().split("\x1b[2K")[-1]
    assert "fine-tuning" in left and "20/20" in left and "writing" in left
    assert "runs" not in left


def test_without_a_terminal_there_are_few_lines(out: StringIO) -> None:
    with Bars(Console(file=out, width=100)) as bars:
        for done, name in enumerate(RUNS):
            bars.overall(done, len(RUNS), name)
            bars.begin("fine-tuning", 20)
            bars.advance(5)
        bars.overall(3, 3, "measuring speed", left=30.0)
        bars.finished(3, 3, RUNS[2])
    lines = out.getvalue().splitlines()
    assert lines[0] == f"run 1 of 3: {RUNS[0]}"
    assert lines[2].startswith(f"run 3 of 3: {RUNS[2]}, about ")  # however short
    assert lines[3:] == [
        "all 3 runs done: measuring speed, about 30 s left",
        f"3 of 3 runs done: {RUNS[2]}",
    ]


def test_a_run_that_takes_long_tells_its_steps(
    out: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with Bars(Console(file=out, width=100)) as bars:
        bars.overall(0, 3, RUNS[0])
        bars.begin("fine-tuning", 20)
        now = 10.0
        bars.advance(5)
        now = 20.0
        bars.advance(10)
    assert out.getvalue().splitlines()[1:] == ["  fine-tuning: 10 of 20, 20 s left  "]


def test_time_left_that_is_known_is_shown(terminal: Console, out: StringIO) -> None:
    with Bars(terminal) as bars:
        bars.overall(0, 3, RUNS[0], left=300.0)
        assert "about 5 min left" in screen(bars, out)


def test_the_time_left_is_reckoned_from_where_a_training_begins(
    out: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the steps of an earlier sitting count, nor what is done before the first step."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with Bars(Console(file=out, width=100)) as bars:
        bars.begin("fine-tuning")
        now = 1000.0  # heads are ranked first
        bars.advance(50, total=100)
        now = 1100.0
        bars.advance(60, "loss 0.3")
    assert "fine-tuning: 60 of 100, 400 s left  loss 0.3" in out.getvalue()


def wide_analysis() -> Roles:
    heads = tuple(
        HeadRoles(
            f"encoder.0.{number}", "encoder", ("rare", "duplicate"), -1, 0.9, None, None, None,
            None, (), 0.5, 0.1, 0.875, 0.1, 0.4, 0.5, 0.6,
        )
        for number in range(2)
    )  # fmt: skip
    return Roles("bert", "text", 9, (("encoder.0", 2),), heads, (), kept=("encoder.0.1",))


def test_a_narrow_screen_leaves_columns_out_and_says_so(out: StringIO) -> None:
    narrow = Console(force_terminal=True, color_system=None, file=out, width=60)
    show_analysis(narrow, wide_analysis(), Path("out"))
    table, told = out.getvalue().split("└")
    assert "encoder.0.1 │ rare, duplicate │ −1" in table and "│ yes" in table
    assert max(map(len, table.splitlines())) <= 60
    assert "…" not in table and "accuracy" not in out.getvalue()  # it is empty
    assert "too narrow for some columns" in told and "duplicate by chance" in told


def test_a_file_gets_the_whole_table(out: StringIO) -> None:
    show_analysis(Console(file=out, width=60), wide_analysis(), Path("out"))
    assert "duplicate by chance" in out.getvalue().splitlines()[2]
    assert "too narrow" not in out.getvalue()


def test_names_are_no_markup(out: StringIO) -> None:
    show_rows(Console(file=out, width=60), "[/b]", ["[red]x"], [["[/i]", "[1]"]])
    assert all(name in out.getvalue() for name in ("[/b]", "[red]x", "[/i]", "[1]"))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_signs_that_a_screen_lacks_are_printed_with_others(encoding: str) -> None:
    file = TextIOWrapper(BytesIO(), encoding=encoding)
    make_encodable(file)
    console = Console(file=file, width=60)
    show_rows(console, "λ → τ …", ["mean – sd"], [["ste†", "81.00 − 0.50"], ["■ ☃", "–"]])
    file.flush()
    text = file.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    for part in ("lambda -> tau ...", "mean - sd", "ste+", "81.00 - 0.50", r"# \u2603"):
        assert part in text
