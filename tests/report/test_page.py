"""The page, as a browser without a network shows it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from headcount.heads.mask import HeadMask
from headcount.report.finding import find_all
from headcount.report.page.page import write_page
from headcount.report.page.payload import build_payload, course_data
from headcount.report.page.sections import Grid, Picture, Section
from headcount.report.table_text import to_markdown
from headcount.report.tables import build_table
from headcount.report.write import write_report
from headcount.study.read import read_study

from .synthetic import EXAMPLES, RIGHT, Writer, answers, write_study

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PLANTED = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 20" onload="wrong()">
<script>document.title = "wrong"; top.document.title = "wrong"</script>
<image href="https://example.org/x.png"/><foreignObject><b>drawn</b></foreignObject>
<rect width="40" height="20" fill="#00ff00"/></svg>"""
NASTY = '</script><b title="x">&amp;'


def write(study_folder: Path, path: Path, more: tuple[Section, ...] = ()) -> Path:
    study = read_study(study_folder)
    comparisons = list(study.comparisons())
    tables = [build_table(study, comparison) for comparison in comparisons]
    texts = {f"{c.split}.md": to_markdown(t) for c, t in zip(comparisons, tables, strict=True)}
    write_page(path, study, comparisons, tables, find_all(study), texts, study.problems, more)
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared; one run lacks its importances."""
    folder = write_study(tmp_path_factory.mktemp("study"))
    (folder / "runs" / "michel-2-seed2" / "importance.json").unlink()
    return folder


@pytest.fixture(scope="module")
def path(study: Path) -> Path:
    return write(study, study / "report.html")


@pytest.fixture(scope="module")
def results(study: Path) -> pd.DataFrame:
    return pd.read_csv(study / "results.csv")


class Reader(HTMLParser):
    """Elements with their attributes, and the texts of scripts and everything else."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        where = self.scripts if self.tags and self.tags[-1][0] == "script" else self.texts
        where.append(data)


def test_a_name_cannot_break_out(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for keep in (24, 12):
        place = writer.run("ste", keep, 0, {"dev": answers(90 + keep)}, {"dev": 0.4 + keep / 100})
        metrics = json.loads((place / "metrics.json").read_text())
        (place / "metrics.json").write_text(json.dumps(metrics | {"method": NASTY}))
    for row in writer.rows:
        row["method"] = NASTY
    reader = Reader(write(writer.finish(), tmp_path / "page.html").read_text(encoding="utf-8"))
    assert not any(tag == "b" or "title" in found for tag, found in reader.tags)
    payload = json.loads(reader.scripts[0])
    assert payload["methods"] == [NASTY] and payload["runs"][0]["method"] == NASTY
    assert NASTY in reader.texts  # the head of the table's column


def test_nothing_is_fetched_and_ids_and_headings_are_in_order(path: Path) -> None:
    reader = Reader(path.read_text(encoding="utf-8"))
    outside = [found for _, found in reader.tags if "src" in found or found.get("rel")]
    assert [found for found in outside if not str(found.get("src")).startswith("data:")] == []
    ids = [found["id"] for _, found in reader.tags if "id" in found]
    assert len(set(ids)) == len(ids)
    links = {str(found["href"])[1:] for tag, found in reader.tags if tag == "a" and found["href"]}
    assert links - {""} <= set(ids)
    levels = [int(tag[1]) for tag, _ in reader.tags if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1 and levels.count(1) == 1 and max(np.diff(levels)) == 1
    assert reader.tags[0] == ("html", {"lang": "en"})


def test_problems_are_told_and_sections_of_others_are_shown(study_folder: Path) -> None:
    (study_folder / "runs" / "ste-12-seed1" / "metrics.json").unlink()
    (study_folder / "runs" / "ste-6-seed1" / "importance.json").write_text("[]")
    drawn = study_folder / "drawn.svg"
    drawn.write_text(f'<?xml version="1.0"?>\n{PLANTED}')
    more = Section(
        "Of others", "A note.", pictures=[Picture.read(drawn, "What is drawn.")],
        grids=[Grid("A caption", ("head", "value"), [("encoder.0.1", "0.5")], ["A footnote."])],
    )  # fmt: skip
    reader = Reader(write(study_folder, study_folder / "page.html", (more,)).read_text())
    told = "\n".join(reader.texts)
    assert "run ste-12-seed1 is missing or broken" in told
    assert "run ste-6-seed1 has no readable importances" in told
    assert {"Of others", "A note.", "encoder.0.1", "A footnote."} <= set(reader.texts)
    assert any(found.get("id") == "section-of-others" for _, found in reader.tags)
    (image,) = [found for tag, found in reader.tags if tag == "img"]
    kind, _, content = str(image["src"]).partition(",")
    assert (kind, image["alt"]) == ("data:image/svg+xml;base64", "What is drawn.")
    assert base64.b64decode(content).decode() == PLANTED


def test_no_script_but_our_own_may_run(path: Path) -> None:
    """By their digests, which the page's policy lists."""
    text = path.read_text(encoding="utf-8")
    reader = Reader(text)
    (policy,) = [
        str(found["content"]) for tag, found in reader.tags
        if found.get("http-equiv") == "Content-Security-Policy"
    ]  # fmt: skip
    rules = dict(rule.split(maxsplit=1) for rule in policy.split("; "))
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    assert rules["script-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert len(digests) == 2
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"


def test_courses_are_thinned_to_where_they_change() -> None:
    steps = np.arange(6) * 10
    shares = np.array([0.5, 0.5, 0.75, 0.75, 1.0, 1.0])
    assert course_data(steps, shares) == [[0, 20, 40, 50], [50.0, 75.0, 100.0, 100.0]]
    many = course_data(np.arange(1000), np.arange(1000) % 7 / 7)
    assert len(many[0]) == 80 and many[0][0] == 0 and many[0][-1] == 999


def test_the_payload_has_the_study(study: Path, results: pd.DataFrame) -> None:
    read = read_study(study)
    comparisons = list(read.comparisons())
    tables = [build_table(read, comparison) for comparison in comparisons]
    payload = build_payload(read, comparisons, tables, {})
    for curve in payload["comparisons"]:
        of_split = results[results["split"] == curve["split"]]
        unpruned = of_split[of_split["method"] == "unpruned"]["value"]
        assert curve["unpruned"] == pytest.approx(100 * unpruned.mean(), rel=1e-5)
        assert set(curve["own"]) == {"hard-concrete"}
        for method in ("joint-dsp", "ste", "michel"):
            of = of_split[of_split["method"] == method].groupby("keep")["value"]
            found = np.array(curve["means"][method], dtype=float)
            np.testing.assert_allclose(found[:, 0], list(of.groups))
            np.testing.assert_allclose(found[:, 1], 100 * of.mean(), rtol=1e-5)
            np.testing.assert_allclose(found[:, 2], 100 * of.std(), rtol=1e-5)
    assert payload["settings"] == {"model": "models/bert-small", "task": "mnli"}
    runs = {run["name"]: run for run in payload["runs"]}
    assert "importance" not in runs["michel-2-seed2"]
    given = json.loads((study / "runs/ste-12-seed1/importance.json").read_text())["heads"]
    np.testing.assert_allclose(
        runs["ste-12-seed1"]["importance"], [row["importance"] for row in given], rtol=5e-4
    )


def test_variants_have_their_names_and_one_line_by_price(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for penalty, heads in ((0.1, 20), (1.0, 5)):
        place = writer.run(
            "hard-concrete", None, 0, {"dev": answers(heads)}, {"dev": heads / EXAMPLES},
            heads=heads, penalty=penalty,
        )  # fmt: skip
        settings = json.loads((place / "settings.json").read_text())
        (place / "settings.json").write_text(json.dumps(settings | {"variant": f"l0-{penalty}"}))
        writer.rows[-1]["method"] = f"l0-{penalty}"
    study = read_study(writer.finish())
    (comparison,) = study.comparisons()
    payload = build_payload(study, [comparison], [build_table(study, comparison)], {})
    assert payload["methods"] == ["l0-0.1", "l0-1.0"]
    named = [(run["method"], run["pruner"]) for run in payload["runs"]]
    assert named == [("l0-0.1", "hard-concrete"), ("l0-1.0", "hard-concrete")]
    assert set(payload["looks"]) == {"l0-0.1", "l0-1.0", "hard-concrete"}


# What follows needs a browser.


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Without a sandbox, which root may not have; the page is ours.
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


class Opened:
    """The page in a window of its own, and all that went wrong there."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True
        )
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("console", lambda message: self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self._ask(request.url))
        self.page.goto(path.as_uri())

    def _ask(self, url: str) -> None:
        if not url.startswith(("file:", "blob:", "data:")):
            self.wrong.append(url)

    def kept(self) -> tuple[str, ...]:
        """The heads that the map marks, in the order of the page."""
        script = "cells => cells.map(cell => cell.dataset.head)"
        return tuple(self.page.eval_on_selector_all("#map td.kept", script))

    def says(self) -> str:
        return str(self.page.text_content("#map-says"))

    def trace(self, plot: str, name: str) -> dict[str, Any]:
        script = "([plot, name]) => document.getElementById(plot).data.find(t => t.name === name)"
        found: dict[str, Any] = self.page.evaluate(script, [plot, name])
        return found


@pytest.fixture(scope="module")
def opened(browser: Any, path: Path) -> Iterator[Opened]:
    window = Opened(browser, path)
    yield window
    window.context.close()


def test_the_page_opens_without_a_network_or_an_error(opened: Opened) -> None:
    plots = opened.page.eval_on_selector_all(".plot", "all => all.map(p => p.data.length)")
    assert len(plots) == 5 and min(plots) > 0
    assert opened.wrong == []


def test_the_slider_moves_by_keyboard(opened: Opened, study: Path) -> None:
    page = opened.page
    page.select_option("#map-method", "joint-dsp")
    page.select_option("#map-seed", "0")
    page.focus("#map-keep")
    page.keyboard.press("Home")
    for keep in (2, 6, 12):
        mask = HeadMask.load(study / "runs" / f"joint-dsp-{keep}-seed0" / "mask.json")
        assert opened.kept() == mask.names
        value = 100 * RIGHT["joint-dsp"][keep] / EXAMPLES
        assert opened.says() == (
            f"joint-dsp, seed 0: {keep} of 48 heads kept, accuracy {value:.1f} %"
        )
        assert page.get_attribute("#map-keep", "aria-valuetext") == f"{keep} heads"
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert ": 12 of 48 heads kept" in opened.says()


@pytest.mark.parametrize("method", ["ste", "michel"])
def test_another_method_and_seed_keep_the_number_of_heads(
    opened: Opened, study: Path, method: str
) -> None:
    shown = set()
    opened.page.select_option("#map-method", "joint-dsp")
    opened.page.focus("#map-keep")
    opened.page.keyboard.press("Home")
    for _ in range(2):
        opened.page.keyboard.press("ArrowRight")
    opened.page.select_option("#map-method", method)
    for seed in ("0", "2"):
        opened.page.select_option("#map-seed", seed)
        mask = HeadMask.load(study / "runs" / f"{method}-12-seed{seed}" / "mask.json")
        assert opened.kept() == mask.names
        shown.add(opened.kept())
    assert len(shown) == 2


def test_the_map_tells_of_a_head(opened: Opened, study: Path) -> None:
    page = opened.page
    page.select_option("#map-method", "ste")
    page.select_option("#map-seed", "1")
    keep = len(opened.kept())
    rows = json.loads((study / f"runs/ste-{keep}-seed1/importance.json").read_text())["heads"]
    page.focus("#map td[data-head]")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    head = next(row for row in rows if row["head"] == "encoder.1.1")
    kept = "kept" if head["kept"] else "cut"
    assert page.text_content("#tip") == (
        f"encoder.1.1: importance {float(format(head['importance'], '.4g')):g}, {kept}"
    )
    assert page.is_visible("#tip")
    page.select_option("#map-method", "michel")
    page.select_option("#map-seed", "2")
    page.focus("#map-keep")
    page.keyboard.press("Home")
    assert page.text_content("#map-least") == "This run has no importances."
    assert len(opened.kept()) == 2


def test_methods_that_find_their_count_are_mapped_by_price(opened: Opened, study: Path) -> None:
    opened.page.select_option("#map-method", "hard-concrete")
    opened.page.select_option("#map-seed", "0")
    opened.page.focus("#map-keep")
    opened.page.keyboard.press("End")
    assert opened.says().startswith("hard-concrete, seed 0, λ = 0.01: 40 of 48 heads kept")
    assert opened.kept() == HeadMask.load(study / "runs/hard-concrete-0.01-seed0/mask.json").names


def test_tables_and_curves_have_the_results(opened: Opened, results: pd.DataFrame) -> None:
    page = opened.page
    script = "tables => tables.map(t => [...t.rows].map(r => [...r.cells].map(c => c.innerText)))"
    tables = page.eval_on_selector_all("#section-results table", script)
    for place, split in enumerate(("matched", "mismatched")):
        head, *rows = tables[2 * place]
        page.select_option("#section-metric-by-kept-heads select", str(place))
        for column, method in enumerate(head[1:-1], 1):
            of = results[(results["method"] == method) & (results["split"] == split)]
            by_keep = 100 * of.groupby("keep")["value"].mean()
            line = opened.trace("curves", method)
            np.testing.assert_allclose(line["x"], by_keep.index)
            np.testing.assert_allclose(line["y"], by_keep, rtol=1e-5)
            assert f"2 heads<br>{by_keep[2]:.2f} ± " in line["text"][0]
            assert all(f"seed {seed}: " in line["text"][0] for seed in range(3))
            for row in rows:
                mean = float(row[column].split(" ±")[0])
                assert mean == pytest.approx(by_keep[int(row[0])], abs=0.005)
    best = page.eval_on_selector_all("#section-results strong", "all => all.map(s => s.innerText)")
    assert len(best) == 2 * 5
    assert "†" in "".join(cell for row in tables[0] for cell in row)


def test_few_heads_and_seeds_can_be_chosen(opened: Opened) -> None:
    page = opened.page
    count = "document.getElementById('curves').data.length"
    before = page.evaluate(count)
    page.uncheck("#each")
    assert page.evaluate(count) == before - 3
    page.check("#few")
    assert opened.trace("curves", "ste")["x"] == [2, 6, 12]
    page.uncheck("#few")
    page.check("#each")
    assert page.evaluate(count) == before


def test_downloads_are_the_files(opened: Opened, study: Path) -> None:
    def downloaded(link: str) -> str:
        with opened.page.expect_download() as waiting:
            opened.page.click(link)
        return Path(waiting.value.path()).read_text(encoding="utf-8")

    def mask(name: str) -> Any:
        return json.loads((study / "runs" / name / "mask.json").read_text(encoding="utf-8"))

    assert downloaded("a[data-file='results.csv']") == (study / "results.csv").read_text()
    everything = json.loads(downloaded("#masks"))
    assert everything == {run.name: mask(run.name) for run in (study / "runs").iterdir()}
    opened.page.select_option("#map-method", "joint-dsp")
    opened.page.select_option("#map-seed", "1")
    keep = len(opened.kept())
    assert json.loads(downloaded("#map-mask")) == mask(f"joint-dsp-{keep}-seed1")
    opened.page.fill("#filter", "ste 12 SEED2")
    assert opened.page.text_content("#filtered") == "1 of 57 runs"
    opened.page.click("#run-list details:not([hidden]) summary")
    inside = "#run-list details[open] .inside"
    assert json.loads(downloaded(f"{inside} a")) == mask("ste-12-seed2")
    text = opened.page.inner_text(inside)
    for part in ("examples per second", "models/bert-small", "method:ste|keep:12/48|seed:2"):
        assert part in text
    assert opened.wrong == []


def write_many(folder: Path, counts: tuple[int, ...]) -> Path:
    """A study of twenty variants of handover; the first are the best."""
    writer = Writer(folder)
    writer.run("unpruned", None, 0, {"dev": answers(180)}, {"dev": 0.9})
    for number in range(20):
        for keep in counts:
            right = 150 - 5 * number + keep // 12
            writer.run(f"variant-{number}", keep, 0, {"dev": answers(right)}, {"dev": right / 200})
    return writer.finish()


def test_of_many_methods_the_best_are_drawn_and_others_when_asked(
    browser: Any, tmp_path: Path
) -> None:
    window = Opened(browser, write(write_many(tmp_path, (24, 12)), tmp_path / "page.html"), 400)
    page = window.page

    def drawn() -> set[str]:
        script = "[...document.getElementById('curves').data].map(t => t.legendgroup)"
        return set(page.evaluate(script)) - {"unpruned"}

    assert drawn() == {f"variant-{number}" for number in range(6)}
    entries = page.locator("#curves-legend .entry")
    assert entries.all_inner_texts() == [
        *(f"variant-{number}" for number in range(20)), "unpruned, 48 heads"
    ]  # fmt: skip
    page.click("#curves-legend .entry:text-is('variant-19')")
    page.click("#curves-legend .entry:text-is('variant-0')")
    assert drawn() == {*(f"variant-{number}" for number in range(1, 6)), "variant-19"}
    assert page.inner_text(":focus") == "variant-0"
    pressed = page.eval_on_selector_all(
        "#size-legend [aria-pressed=true]", "all => all.map(one => one.innerText)"
    )
    assert set(pressed) == drawn()  # one choice for all figures
    page.click("#curves-legend button:text-is('All')")
    assert len(drawn()) == 20
    page.select_option("#view", "methods")
    assert drawn() == {"24 heads", "12 heads"}
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert window.wrong == []
    window.context.close()


def test_many_methods_with_one_number_of_heads_stand_side_by_side(
    browser: Any, tmp_path: Path
) -> None:
    window = Opened(browser, write(write_many(tmp_path, (12,)), tmp_path / "page.html"))
    assert window.page.input_value("#view") == "methods"
    dots = window.trace("curves", "12 heads")
    assert set(dots["y"]) == {f"variant-{number}" for number in range(20)}
    axis = window.page.evaluate("document.getElementById('curves').layout.yaxis.categoryarray")
    assert axis[-1] == "variant-0"  # on top
    assert window.wrong == []
    window.context.close()


def test_the_page_leads_with_the_finding_and_its_table(study: Path, tmp_path: Path) -> None:
    page = write_report(study, output=tmp_path / "out").folder / "report.html"
    reader = Reader(page.read_text(encoding="utf-8"))
    texts = [text.strip() for text in reader.texts if text.strip()]
    (found,) = find_all(read_study(study))
    place = texts.index(found.says.replace(" %", "\u00a0%"))
    assert place < texts.index("Results") < texts.index("bert-small, mnli, mismatched: accuracy, %")
    payload = json.loads(reader.scripts[0])
    assert [one["split"] for one in payload["comparisons"]] == ["mismatched", "matched"]


def test_a_long_report_is_folded(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    splits = ("a", "b", "c", "d")
    for number in range(8):
        right = dict.fromkeys(splits, 100 + number)
        writer.run(
            f"variant-{number}", 12, 0, {split: answers(n) for split, n in right.items()},
            {split: n / 200 for split, n in right.items()},
        )  # fmt: skip
    text = write_report(writer.finish()).folder.joinpath("report.html").read_text(encoding="utf-8")
    folded = re.findall(r"<details><summary>(.*?)</summary>", text)
    assert folded == [
        *(f"bert-small, mnli, {split}: accuracy, %, 8 rows" for split in "abc"), "2 more pictures"
    ]  # fmt: skip


def test_a_planted_script_does_not_run(browser: Any, study_folder: Path) -> None:
    drawn = study_folder / "drawn.svg"
    drawn.write_text(PLANTED)
    more = Section("Of others", pictures=[Picture.read(drawn, "What is drawn.")])
    page = write(study_folder, study_folder / "page.html", (more,))
    # Even HTML that someone adds to the page later runs nothing.
    text = page.read_text(encoding="utf-8")
    added = '<script>document.title = "wrong"</script><img src="data:," onerror="wrong()">'
    page.write_text(text.replace("<main", f"{added}<main"), encoding="utf-8")
    window = Opened(browser, page)
    assert window.page.title().startswith("Attention heads of")
    shown = window.page.eval_on_selector(
        ".pictures img", "i => [i.complete, i.naturalWidth > 0, i.clientWidth > 100]"
    )
    assert shown == [True, True, True]
    assert len(window.wrong) == 2  # what was added; nothing was asked for over the network
    assert all("Content Security Policy" in line for line in window.wrong)
    window.context.close()


def test_a_phone_in_the_dark(browser: Any, tmp_path: Path) -> None:
    kinds = ("encoder", "decoder", "cross")
    writer = Writer(tmp_path, layout=tuple((f"{kind}.{i}", 8) for kind in kinds for i in range(2)))
    for method in ("joint-dsp", "pipelined-dsp", "ste", "michel", "ablation", "random"):
        for keep in (24, 12):
            writer.run(method, keep, 0, {"dev": answers(keep)}, {"dev": keep / EXAMPLES})
    window = Opened(browser, write(writer.finish(), tmp_path / "page.html"), 360, "dark")
    page = window.page

    def look() -> tuple[float, float]:
        """How light the paper is, and a line that is black in the figures."""
        line = window.trace("curves", "random")["line"]["color"]
        return _light(page.evaluate("getComputedStyle(document.body).backgroundColor")), _light(
            line
        )

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    captions = page.eval_on_selector_all("#map caption", "all => all.map(c => c.innerText)")
    assert captions == list(kinds)
    mask = HeadMask.load(tmp_path / "runs" / "joint-dsp-12-seed0" / "mask.json")
    assert window.kept() == mask.names
    paper, line = look()
    assert paper < 50 and line > 200
    page.click("#theme")
    paper, line = look()
    assert paper > 200 and line < 50
    page.reload()
    assert look() == (paper, line)
    assert window.wrong == []
    window.context.close()


def _light(colour: str) -> float:
    """The mean of red, green and blue of `rgb(1, 2, 3)`."""
    return float(np.mean([float(part) for part in colour.strip("rgb()").split(",")]))
