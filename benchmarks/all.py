"""Run every script of this folder and write what they claim into `RESULTS.md`.

Ratios of one run, so that the machine matters little; let it be quiet all the same. With names of
scripts, only these are run, and their sections of the page are renewed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from measuring.claims import Claim, read

from headcount.atomic import write_atomically
from headcount.bench.speed import this_machine

FOLDER = Path(__file__).parent
APART = ("all", "families")  # this one, and one that has a page of its own
MOST = 1200  # seconds of one script
LINES = 6  # the last of a script that claims nothing


def run(script: Path) -> tuple[str, str | None]:
    """What a script prints, and what went wrong."""
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            out, err = process.communicate(timeout=MOST)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            return out, f"took longer than {MOST} seconds"
    wrong = None
    if process.returncode:
        wrong = err.strip().splitlines()[-1] if err.strip() else f"ended with {process.returncode}"
    return out, wrong


def section(script: Path, text: str, wrong: str | None) -> list[str]:
    """Of the page, for one script."""
    about = script.read_text(encoding="utf-8").split('"""')[1].splitlines()[0]
    lines = [f"## {script.name}", "", about, ""]
    claims = read(text)
    if claims:
        lines += ["| figure | value | goal | |", "| --- | ---: | ---: | --- |"]
        lines += [row(claim) for claim in claims]
    else:
        lines += ["```text", *text.strip().splitlines()[-LINES:], "```"]
    if wrong is not None:
        lines += ["", f"**It failed: {wrong}**"]
    return [*lines, ""]


def row(claim: Claim) -> str:
    value = f"{claim.value:.3f}{claim.spread.replace(', quartiles ', ' (').replace(' to ', '–')}"
    value += ")" if claim.spread else ""
    met = "met" if claim.met else "**missed**"
    return f"| {claim.name} | {value} | {claim.side} {claim.goal:g} | {met} |"


def kept_sections(page: Path) -> dict[str, str]:
    """The sections of a page that was written before, by the names of their scripts."""
    if not page.is_file():
        return {}
    _, *parts = page.read_text(encoding="utf-8").split("\n## ")
    return {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in parts}


def main() -> None:
    names = [Path(name).stem for name in sys.argv[1:]]
    scripts = [p for p in sorted(FOLDER.glob("*.py")) if p.stem not in APART]
    results = FOLDER / "RESULTS.md"
    sections = kept_sections(results) if names else {}
    failed = []
    for script in [p for p in scripts if not names or p.stem in names]:
        began = time.monotonic()
        print(f"{script.name} …", flush=True)
        text, wrong = run(script)
        print(text.rstrip() if wrong is None else f"{text}failed: {wrong}")
        print(f"{script.name}: {time.monotonic() - began:.0f} seconds\n", flush=True)
        sections[script.name] = "\n".join(section(script, text, wrong))
        failed += [] if wrong is None else [script.name]
    page = ["# Ratios", "", "Written by `make bench`: every figure is a ratio measured in one run, "
            "both sides in turn.", "", f"Machine: {this_machine()}.", ""]  # fmt: skip
    page += [sections[script.name] for script in scripts if script.name in sections]
    whole = "\n".join(page)
    write_atomically(results, lambda path: path.write_text(whole, encoding="utf-8"))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
