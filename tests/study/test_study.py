"""Studies: every run once, shared work once, whoever does it, and whatever happens to it."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

import headcount as hc
from headcount import HeadcountError
from headcount.report.write import write_report
from headcount.runs.prune import prune
from headcount.runs.result import RunResult
from headcount.study.plan import StudySettings
from headcount.study.read import read_study
from headcount.study.results import COLUMNS
from headcount.study.run import run_study

COMMAND = Path(sys.executable).with_name("headcount")

# Of one seed, and of one number of heads or none, to be brief.
VARIANTS: dict[str, Any] = {
    "michel-at-once": {"method": "michel", "keep": 2, "seeds": [0]},
    "random-longer": {
        "method": "random", "keep": [2], "seeds": 0, "training": {"epochs": 2, "log_every": 1},
    },
    "l0-dear": {"method": "hard-concrete", "lambda": 1e-3, "keep": "own", "seeds": [0]},
}  # fmt: skip
ROWS = 2 * (1 + 3 * 2) + 2 + len(VARIANTS)


def write_study(encoder: Path, tables: Path, path: Path) -> Path:
    settings = {
        "model": str(encoder),
        "task": "classification",
        "data": str(tables),
        "methods": ["unpruned", "together", "joint-dsp", "michel", "random", *VARIANTS],
        "keep": [4, 2],
        "seeds": [0, 1],
        "training": {"epochs": 1, "batch_size": 16},
        "settings": {
            "michel": {"step": 1},
            "together": {"method": "joint-dsp", "one_run": True, "seeds": [0]},
            **VARIANTS,
        },
        "speed": False,
    }
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path


@pytest.fixture
def study(encoder: Path, tables: Path, tmp_path: Path) -> Path:
    return write_study(encoder, tables, tmp_path / "study.yaml")


@pytest.fixture(scope="module")
def finished(encoder: Path, tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("finished")
    settings = StudySettings.read(write_study(encoder, tables, place / "study.yaml"))
    assert run_study(settings, place / "out") == {}
    return place / "out"


def test_a_study_has_a_row_per_run_and_split(finished: Path) -> None:
    folder = finished
    results = hc.load_study(folder)
    assert tuple(results.columns) == COLUMNS
    assert len(results) == ROWS
    assert set(results.loc[results.method == "joint-dsp", "heads"]) == {4, 2}
    assert set(results.loc[results.method == "unpruned", "heads"]) == {6}
    assert not list(folder.glob("runs/*/model.safetensors"))
    assert not list(folder.rglob("*.unfinished"))


def test_speed_is_measured_when_all_else_is_done(
    finished: Path, study: Path, tmp_path: Path
) -> None:
    """Also of a study that was begun without; and what was measured stays."""
    folder = tmp_path / "out"
    shutil.copytree(finished, folder)
    settings = replace(StudySettings.read(study), speed=True)
    runs = settings.runs()
    card = folder / "runs" / "joint-dsp-2-seed1" / "README.md"
    card.write_text("as of a study that keeps its models")
    seen = []
    for _ in range(2):
        assert run_study(settings, folder) == {}
        seen.append({name: RunResult.load(folder / "runs" / name) for name in runs})
    assert seen[0] == seen[1]
    for name, result in seen[0].items():
        assert (result.examples_per_second is None) == name.startswith("unpruned")
        before = RunResult.load(finished / "runs" / name)
        assert replace(result, examples_per_second=None) == before
    assert "| examples per second |" in card.read_text()
    shutil.rmtree(folder / "bases")
    (folder / "runs" / "random-2-seed1" / "mask.json").write_text("{")
    broken = folder / "runs" / "random-2-seed1"
    RunResult.load(finished / "runs" / "random-2-seed1").save(broken)
    (reason,) = run_study(settings, folder).values()
    assert str(broken / "mask.json") in reason


def test_shared_work_is_done_once(finished: Path) -> None:
    folder = finished
    bases = sorted(path.name for path in (folder / "bases").iterdir())
    assert [bases[0], bases[-1]] == ["seed0", "seed1"]
    assert len(bases) == 3  # and that of random-longer
    rankings = sorted(path.name.rpartition("-")[0] for path in (folder / "rankings").iterdir())
    assert rankings == ["michel-seed0", "michel-seed0", "michel-seed1"]  # at once, and step by step
    runs = folder / "runs"
    four, two = (hc.HeadMask.load(runs / f"michel-{k}-seed0" / "mask.json") for k in (4, 2))
    assert two < four


def test_variants_are_known_by_their_own_names(study: Path, finished: Path) -> None:
    results = hc.load_study(finished).set_index("method")
    for name, own in VARIANTS.items():
        row = results.loc[name]
        assert f"method:{own['method']}|" in row.signature
        assert row.seed == 0
    assert "lambda:0.001" in results.loc["l0-dear"].signature
    assert math.isnan(results.loc["l0-dear"].keep)
    run = finished / "runs" / "random-longer-2-seed0"
    written = json.loads((run / "settings.json").read_text())
    assert written["variant"] == "random-longer"
    assert written["training"]["epochs"] == 2.0
    assert written["training"]["batch_size"] == 16
    data = read_study(finished)
    assert data.problems == []
    (comparison,) = data.comparisons()
    order = [name for name in yaml.safe_load(study.read_text())["methods"] if name != "unpruned"]
    assert comparison.methods == order


def test_one_training_gives_every_number_of_heads(study: Path, finished: Path) -> None:
    runs = [finished / "runs" / f"together-{keep}-seed0" for keep in (4, 2)]
    four, two = (hc.HeadMask.load(run / "mask.json") for run in runs)
    assert two < four
    results = [RunResult.load(run) for run in runs]
    assert [result.shared_by for result in results] == [2, 2]
    assert results[0].seconds == results[1].seconds
    assert "keep:4/6|trained:4+2|" in results[0].signatures["validation"]
    names = [sorted(path.name for path in run.iterdir()) for run in runs]
    assert names[0] == [n for n in names[1] if n != "selection_history.json"]


def test_a_run_of_several_gives_the_same_alone(study: Path, finished: Path, tmp_path: Path) -> None:
    run = StudySettings.read(study).runs()["together-4-seed0"]
    prune(run, tmp_path / "alone", speed=False)
    mask = hc.HeadMask.load(tmp_path / "alone" / "mask.json")
    assert mask == hc.HeadMask.load(finished / "runs" / "together-4-seed0" / "mask.json")


def test_one_ranking_gives_what_every_chain_of_its_own_would(
    study: Path, finished: Path, tmp_path: Path
) -> None:
    for name, run in StudySettings.read(study).runs().items():
        if run.name == "michel" and run.seed == 0:
            alone = tmp_path / f"alone-{name}"
            prune(run, alone, base=finished / "bases" / "seed0", speed=False)
            shared = hc.HeadMask.load(finished / "runs" / name / "mask.json")
            assert hc.HeadMask.load(alone / "mask.json") == shared


def test_free_and_even_layouts_side_by_side(encoder: Path, tables: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        f"model: {encoder}\ntask: classification\ndata: {tables}\nkeep: [3]\nseeds: [0]\n"
        "methods: [surgeon, surgeon-even, ste-even]\ntraining: {epochs: 1}\nspeed: false\n"
        "settings:\n  surgeon-even: {method: surgeon, even: true}\n"
        "  ste-even: {method: ste, even: true, unit: group}\n"
    )
    assert run_study(StudySettings.read(study), tmp_path / "out") == {}
    for name in ("surgeon-even", "ste-even"):
        mask = hc.HeadMask.load(tmp_path / "out" / "runs" / f"{name}-3-seed0" / "mask.json")
        assert set(mask.counts().values()) == {1}
    # Each layout has a ranking of its own: a ranking may depend on what leaves on the way.
    assert len(list((tmp_path / "out" / "rankings").glob("surgeon-*.json"))) == 2


def test_parameters_and_losses_side_by_side(encoder: Path, tables: Path, tmp_path: Path) -> None:
    settings = yaml.safe_load(write_study(encoder, tables, tmp_path / "study.yaml").read_text())
    settings |= {
        "methods": ["unpruned", "michel", "random"], "seeds": [0], "parameters": [0.9, 0.8],
        "settings": {"random": {"within": 0.2}},
    }  # fmt: skip
    del settings["keep"]
    (tmp_path / "asks.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    study, out = StudySettings.read(tmp_path / "asks.yaml"), tmp_path / "out"
    assert run_study(study, out) == {}
    for asked in (0.9, 0.8):
        result = RunResult.load(out / "runs" / f"michel-parameters{asked}-seed0")
        assert result.parameters.ratio <= asked
    assert RunResult.load(out / "runs" / "random-within0.2-seed0").fewest_within is not None
    assert StudySettings.read(out / "study.json") == study
    assert run_study(replace(study, parameters=(0.9, 0.8, 0.7)), out) == {}
    assert len(hc.load_study(out)) == 5
    found = read_study(out)
    assert not found.problems
    assert write_report(out).written


def test_what_is_done_is_not_done_again(study: Path, finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.json")}
    more = yaml.safe_load(study.read_text()) | {"keep": [4, 3, 2]}
    more["settings"]["together"]["keep"] = [4, 2]
    study.write_text(yaml.safe_dump(more))
    run_study(StudySettings.read(study), folder)
    assert all(path.stat().st_mtime_ns == written for path, written in before.items())
    assert len(hc.load_study(folder)) == ROWS + 2 * 3


def test_a_fine_tuned_model_is_taken_as_it_is(study: Path, finished: Path, tmp_path: Path) -> None:
    given = finished / "bases" / "seed0"
    asked = yaml.safe_load(study.read_text()) | {
        "model": str(given),
        "methods": ["unpruned", "michel", "handover"],
        "keep": [2],
        "seeds": [1],
        "training": {"epochs": 0, "warm_start": True, "batch_size": 16},
        "settings": {},
    }
    study.write_text(yaml.safe_dump(asked))
    folder = tmp_path / "out"
    assert run_study(StudySettings.read(study), folder) == {}
    taken, own = (load_file(f / "model.safetensors") for f in (folder / "bases" / "seed1", given))
    assert all(own[name].equal(tensor) for name, tensor in taken.items())
    found = hc.load_study(folder).set_index("method")
    known = hc.load_study(finished)
    known = known[(known.method == "unpruned") & (known.seed == 0)]
    assert found.loc["unpruned"].value == known.iloc[0].value
    assert found.loc["handover"].heads == found.loc["michel"].heads == 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "epochs is 0, which takes .* as it is, but it is not fine-tuned"),
        ({"method": "handover"}, "but handover trains it; give --warm-start"),
        ({"method": "unpruned"}, "but unpruned trains it"),
    ],
)
def test_no_epochs_want_a_model_that_is_fine_tuned(
    study: Path, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    run = StudySettings.read(study).runs()["michel-2-seed0"]
    run = replace(run, **changed, settings={}, training=replace(run.training, epochs=0))
    base = None if changed else tmp_path / "base"
    with pytest.raises(HeadcountError, match=said):
        prune(run, tmp_path / "out", base=base, speed=False)
    assert not list(tmp_path.glob("base*"))
    assert not list(tmp_path.glob("out/*"))


def test_other_training_is_another_study(study: Path, finished: Path) -> None:
    folder = finished
    other = yaml.safe_load(study.read_text()) | {"training": {"epochs": 2}}
    study.write_text(yaml.safe_dump(other))
    with pytest.raises(HeadcountError, match="was begun with batch_size 16, but now it is unsaid"):
        run_study(StudySettings.read(study), folder)


def test_a_study_goes_on_when_a_setting_is_newer_than_it(
    study: Path, finished: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(finished, tmp_path / "out")
    for file in (folder / "study.json", *folder.glob("runs/*/settings.json")):
        begun = json.loads(file.read_text())
        del begun["training"]["recovery_epochs"], begun["harness"]  # None, and an empty list
        file.write_text(json.dumps(begun))
    run_study(StudySettings.read(study), folder)
    assert len(hc.load_study(folder)) == ROWS


def test_what_follows_a_cut_is_asked_only_of_methods_that_cut_a_trained_model(study: Path) -> None:
    asked = yaml.safe_load(study.read_text())
    asked["training"]["recovery_epochs"] = 1
    study.write_text(yaml.safe_dump(asked))
    runs = StudySettings.read(study).runs()
    assert runs["michel-2-seed0"].training.recovery_epochs == 1
    assert runs["joint-dsp-2-seed0"].training.recovery_epochs is None


@pytest.mark.parametrize(
    ("entry", "change", "said"),
    [
        ("l0-dear", {"lambda": 0.5}, r"l0-dear-own-seed0 was begun with lambda 0\.001, but now it"),
        ("together", {"keep": [4, 3, 2]}, r"was begun with trained_for \[4, 2\], but now it is"),
    ],
)
def test_results_of_other_settings_are_told(
    study: Path, finished: Path, entry: str, change: dict[str, object], said: str
) -> None:
    other = yaml.safe_load(study.read_text())
    other["settings"][entry] |= change
    study.write_text(yaml.safe_dump(other))
    with pytest.raises(HeadcountError, match=said):
        run_study(StudySettings.read(study), finished)


def _start(study: Path, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [COMMAND, "compare", study, "--output", folder],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_two_processes_share_a_study_and_one_may_be_killed(
    study: Path, finished: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    brief = yaml.safe_load(study.read_text()) | {"seeds": [0]}
    study.write_text(yaml.safe_dump(brief, sort_keys=False))
    first, second = _start(study, folder), _start(study, folder)
    for _ in range(600):
        if any(folder.glob("runs/*/metrics.json")) or first.poll() is not None:
            break
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    told, _ = second.communicate(timeout=300)
    assert second.returncode == 0, told
    columns = [name for name in COLUMNS if name != "seconds"]
    whole = hc.load_study(finished)
    expected = whole[whole.seed == 0].reset_index(drop=True)
    assert hc.load_study(folder)[columns].equals(expected[columns])


def test_a_run_that_fails_does_not_stop_the_others(study: Path, tmp_path: Path) -> None:
    own = {"together": {"method": "joint-dsp", "one_run": True}, "michel": {"step": 1}}
    methods = ["unpruned", "joint-dsp", "together", "michel", "random"]
    change = {"keep": [7, 2], "seeds": [0], "methods": methods, "settings": own}
    study.write_text(yaml.safe_dump(yaml.safe_load(study.read_text()) | change))
    failed = run_study(StudySettings.read(study), tmp_path / "out")
    alone = {f"{method}-7-seed0" for method in ("joint-dsp", "michel", "random")}
    assert set(failed) == alone | {"together-7-seed0", "together-2-seed0"}
    assert all("6 heads" in reason for reason in failed.values())
    assert len(hc.load_study(tmp_path / "out")) == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"methods": ["michael"]}, r"line \d+: there is no method michael"),
        ({"settings": {"ste": {}}}, r"line 2: ste is not among the methods"),
        ({"settings": {"michel": {"steps": 1}}}, r"line 3: michel has no setting steps"),
        ({"seed": [1]}, r"line \d+: there is no key seed; did you mean seeds\?"),
        ({"keep": [0]}, r"line \d+: keep is 0"),
        ({"keep": []}, r"needs to know how many heads"),
        ({"seeds": []}, r"line \d+: a study without seeds"),
        ({"settings": {"mine": {"method": "unpruned"}}}, r"line 3: unpruned is what all others"),
        ({"settings": {"mine": {"method": "michael"}}}, r"line 3: there is no method michael"),
        ({"settings": {"mine": {"step": 1}}}, r"line 2: there is no method mine; .*method: under"),
        ({"settings": {"michel": {"method": "ste"}}}, r"line 3: michel is a method itself; give"),
        ({"settings": {"unpruned": {"keep": 2}}}, r"line 3: unpruned keeps all heads"),
        (
            {"settings": {"unpruned": {"training": {"recovery_epochs": 1}}}},
            r"line 4: unpruned trains the model itself",
        ),
        ({"settings": {"michel": {"keep": "all"}}}, r"line 3: keep is 'all', expected a list"),
        ({"settings": {"michel": {"keep": "own"}}}, r"line 2: michel needs to know how many"),
        ({"settings": {"michel": {"seeds": "x"}}}, r"line 3: seeds is 'x', expected a list"),
        ({"settings": {"michel": {"seeds": {3: [0]}}}}, r"line 4: .* 3 heads, but keep has 4, 2;"),
        ({"settings": {"michel": {"seeds": {4: "x"}}}}, r"line 3: seeds is 'x', expected a list"),
        ({"settings": {"michel": {"one_run": True}}}, r"line 3: michel cannot learn for several"),
        ({"settings": {"michel": {"training": {"epoch": 1}}}}, r"line 4: .*mean epochs\?"),
    ],
)
def test_a_wrong_study_is_told_with_its_line(
    study: Path, change: dict[str, object], said: str
) -> None:
    own: Any = change.get("settings", {})
    methods = ["unpruned", "michel", *(name for name in own if name == "mine")]
    rest = yaml.safe_load(study.read_text()) | {"methods": methods}
    study.write_text(
        yaml.safe_dump({"settings": own} | rest | change | {"settings": own}, sort_keys=False)
    )
    with pytest.raises(HeadcountError, match=said):
        StudySettings.read(study)


def test_a_number_of_heads_may_have_seeds_of_its_own(study: Path) -> None:
    own = {"methods": ["unpruned", "random"], "settings": {"random": {"seeds": {2: [1]}}}}
    study.write_text(yaml.safe_dump(yaml.safe_load(study.read_text()) | own))
    expected = {"random-4-seed0", "random-4-seed1", "random-2-seed1"}
    read = StudySettings.read(study)
    assert set(read.runs()) == expected | {"unpruned-all-seed0", "unpruned-all-seed1"}
    study.write_text(json.dumps(asdict(read)))  # as the study's folder keeps it
    assert StudySettings.read(study).runs() == read.runs()


def test_a_folder_of_something_else_is_left_alone(study: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("mine")
    with pytest.raises(HeadcountError, match="is no study"):
        run_study(StudySettings.read(study), tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["precious"]
    with pytest.raises(HeadcountError, match=r"has no results\.csv"):
        hc.load_study(tmp_path / "mine")


def test_settings_are_written_with_the_study(finished: Path) -> None:
    written = json.loads((finished / "study.json").read_text())
    assert written["settings"]["together"]["one_run"]
    read = StudySettings.read(finished / "study.json")
    assert json.loads(json.dumps(asdict(read))) == written


def test_a_lambda_finds_its_own_count_beside_a_common_keep(study: Path) -> None:
    written = yaml.safe_load(study.read_text())
    written["methods"] = ["unpruned", "michel", "dear", "cheap", "adjusted", "steered"]
    written["settings"] = {
        "dear": {"method": "hard-concrete", "lambda": 0.1},
        "cheap": {"method": "hard-concrete", "lambda": 0.001},
        "adjusted": {"method": "hard-concrete", "lambda": 0.1, "keep": [4]},
        "steered": {"method": "hard-concrete"},
    }
    study.write_text(yaml.safe_dump(written))
    runs = StudySettings.read(study).runs()
    assert [name for name in runs if name.startswith(("dear", "cheap")) and "seed0" in name] == [
        "dear-own-seed0",
        "cheap-own-seed0",
    ]
    assert {run.keep for name, run in runs.items() if name.startswith("adjusted")} == {4}
    assert {run.keep for name, run in runs.items() if name.startswith("steered")} == {4, 2}
