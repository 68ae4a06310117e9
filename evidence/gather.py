"""Copy what others can check out of a study's folder: no weights, no data.

    headcount report STUDY
    python evidence/gather.py STUDY evidence/NAME

What was asked for (`study.json`), the results, the mask of every run, the tables, the figures, and
the tables and figures of the study's analyses. A report of some methods alone, `STUDY/report-SOME`,
becomes a folder `SOME`. `runs.tar.xz` has all that `headcount report` reads
of the runs, their predictions among them: unpacked beside `results.csv` it makes the folder a study
again, which can be reported anew or go on. Predictions that stand beside sentences of the data stay
where they are; without them, significance is not tested anew.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tarfile
from pathlib import Path

FIGURES = (".png",)
TABLES = (".md", ".csv", ".json")
RECORDS = (
    "metrics.json",
    "settings.json",
    "mask.json",
    "importance.json",
    "selection_history.json",
    "predictions/*.json",
)


def gather(study: Path, place: Path) -> None:
    """Copy from the folder of a study into another."""
    place.mkdir(parents=True, exist_ok=True)
    for name in ("study.json", "results.csv"):
        shutil.copyfile(study / name, place / name)
    runs = {}
    for run in sorted((study / "runs").iterdir()):
        mask = run / "mask.json"
        if mask.is_file():
            runs[run.name] = json.loads(mask.read_text(encoding="utf-8"))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(mask)}" for name, mask in runs.items())
    (place / "masks.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    _pack(study, place / "runs.tar.xz")
    for report in (study / "report", *sorted(study.glob("report-*"))):
        home = place / report.name.removeprefix("report").removeprefix("-")
        for part, endings in (("tables", TABLES), ("figures", FIGURES)):
            shutil.rmtree(home / part, ignore_errors=True)  # names that the study has no more
            _copy(report / part, home / part, endings)
    for analysis in sorted((study / "analyses").glob("*")):
        _copy(analysis, place / "analyses" / analysis.name, (*TABLES, *FIGURES))


def _pack(study: Path, archive: Path) -> None:
    """Pack the records of the finished runs; the same records make the same bytes."""
    with tarfile.open(archive, "w:xz") as pack:
        for result in sorted(study.glob("runs/*/metrics.json")):
            files = (file for pattern in RECORDS for file in sorted(result.parent.glob(pattern)))
            for file in files:
                if _quotes_data(file):
                    continue
                entry = tarfile.TarInfo(str(file.relative_to(study)))
                entry.size = file.stat().st_size
                with file.open("rb") as content:
                    pack.addfile(entry, content)


def _quotes_data(file: Path) -> bool:
    """Whether a file holds sentences of the data: the references of a translation."""
    if file.parent.name != "predictions":
        return False
    rows = json.loads(file.read_text(encoding="utf-8"))
    return any(" " in str(row["reference"]) for row in rows)  # labels are words


def _copy(folder: Path, place: Path, endings: tuple[str, ...]) -> None:
    for file in sorted(folder.rglob("*")):
        if file.suffix in endings:
            target = place / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("place", type=Path)
    asked = parser.parse_args()
    gather(asked.study, asked.place)
