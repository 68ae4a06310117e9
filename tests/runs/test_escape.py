"""Names that come from folders of others: no file that we write lets them do anything."""

from __future__ import annotations

import ast
import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from headcount.runs.card import write_card
from headcount.runs.escape import csv_text, markdown, markdown_code, read_csv_cell
from headcount.runs.result import RunResult, Sides
from headcount.runs.settings import RunSettings

FORMULAS = (
    "=cmd|' /C calc'!A0", "+1", "-2", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "'=1", "＝1",  # noqa: RUF001
)  # fmt: skip
HARMLESS = ("bert-small", "'quoted'", "a,b", 'a "b"', "a\r=b", "", "NA", "a=b", "007")
NASTY = '</code><script>alert(1)</script>|[x](y)`\n```\n"); import os; os.system("x") # *_&'


def cell_of(text: object) -> str:
    rows = list(csv.reader(io.StringIO(csv_text(["name", "n"], [[text, -1.5]]), newline="")))
    assert len(rows) == 2 and rows[1][1] == "-1.5"
    return rows[1][0]


@pytest.mark.parametrize("name", FORMULAS)
def test_no_name_is_a_formula(name: str) -> None:
    assert cell_of(name).startswith("'")
    assert read_csv_cell(cell_of(name)) == name


@pytest.mark.parametrize("name", HARMLESS)
def test_other_names_stay_as_they_are(name: str) -> None:
    assert cell_of(name) == name == read_csv_cell(name)


@pytest.mark.parametrize(
    ("number", "text"), [(-3, "-3"), (-0.5, "-0.5"), (None, ""), (float("nan"), ""), (True, "True")]
)
def test_numbers_stay_numbers(number: object, text: str) -> None:
    assert cell_of(number) == text


def test_the_name_of_a_column_is_no_formula_either() -> None:
    assert csv_text(["=1"], []) == "'=1\n"


def test_markdown_shows_a_name_as_it_is() -> None:
    assert markdown("a|b<i>\n`c`") == r"a\|b&lt;i&gt; \`c\`"
    assert markdown("joint_dsp, _x_ & \\") == r"joint_dsp, \_x\_ &amp; \\"
    assert markdown_code("a|b") == "`a|b`"
    assert markdown_code("a``b\nc`") == "``` a``b c` ```"


@pytest.fixture
def settings() -> RunSettings:
    return RunSettings(model="owner/model", task="mnli", method="ste", keep=3, data="data")


@pytest.fixture
def result() -> RunResult:
    return RunResult(
        method="ste", metric="accuracy", greater_is_better=True,
        scores={NASTY: {"accuracy": 0.5}}, before=None, signatures={NASTY: f"data:{NASTY}"},
        heads=Sides(6, 3), parameters=Sides(9, 8), bytes=Sides(9, 8), examples_per_second=None,
        generated_per_second=None, difference=0.0, seconds={},
    )  # fmt: skip


def test_no_name_breaks_out_of_the_card(
    settings: RunSettings, result: RunResult, tmp_path: Path
) -> None:
    write_card(tmp_path, NASTY, "AutoModel", replace(settings, model=NASTY), result)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    _, front, body = text.split("---\n", 2)
    (index,) = yaml.safe_load(front)["model-index"]
    assert index["name"] == index["results"][0]["dataset"]["split"] == NASTY
    assert "base_model" not in yaml.safe_load(front)  # no name on the hub looks so
    before, code, after = body.split("\n```python\n")[0], *_fenced(body)
    shown = before + after.replace(markdown_code(f"data:{NASTY}"), "")
    assert "<script" not in shown and "\n```" not in shown
    assert all(line.count(" | ") == 3 for line in before.splitlines() if line.startswith("| "))
    (call,) = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    assert isinstance(call.args[0], ast.Constant) and call.args[0].value == NASTY


def _fenced(body: str) -> tuple[str, str]:
    code, _, after = body.partition("\n```python\n")[2].partition("\n```\n")
    return code, after


def test_a_card_of_a_folder_whose_name_is_no_text(
    settings: RunSettings, result: RunResult, tmp_path: Path
) -> None:
    write_card(tmp_path, "b\udcffrt", "AutoModel", settings, result)
    code, _ = _fenced((tmp_path / "README.md").read_text(encoding="utf-8"))
    assert code.endswith(r'from_pretrained("b\udcffrt")')
