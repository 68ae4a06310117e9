"""lm-evaluation-harness on pruned and masked models, with a task and data of our own, offline."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

import headcount as hc
from headcount import HeadcountError
from headcount.cli import main
from headcount.report.tables import build_table
from headcount.runs.harness import evaluate_on_harness
from headcount.runs.progress import Silent
from headcount.runs.prune import prune
from headcount.runs.result import RunResult
from headcount.study.plan import StudySettings
from headcount.study.read import read_study
from headcount.study.results import load_study
from headcount.study.run import run_study
from tests.runs.test_other_tasks import BRIEF, images, language_modelling
from tests.tasks.test_lambada import PASSAGES, transcribed, write_passages

pytest.importorskip("lm_eval")
pytestmark = pytest.mark.filterwarnings("ignore")

CHOICES = """
task: which_animal
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/which.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{text}}}}"
doc_to_choice: ["dog", "cat"]
doc_to_target: right
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""
LAST_WORD = """
task: own_lambada
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/passages.jsonl}}}}
test_split: test
output_type: loglikelihood
doc_to_text: "{{{{text.split(' ')[:-1]|join(' ')}}}}"
doc_to_target: "{{{{' '+text.split(' ')[-1]}}}}"
metric_list:
  - {{metric: perplexity, aggregation: perplexity, higher_is_better: false}}
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
"""


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "tasks"
    folder.mkdir()
    rows = [{"text": "a big", "right": n % 2} for n in range(8)]
    (folder / "which.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_passages(folder / "passages.jsonl", PASSAGES)
    for name, text in (("which", CHOICES), ("own", LAST_WORD)):
        (folder / f"{name}.yaml").write_text(text.format(folder=folder))
    return folder


def scored(model: str, tasks: Path, mask: Any = None, **others: Any) -> dict[str, Any]:
    names = ("which_animal", "own_lambada")
    return evaluate_on_harness(model, names, mask, Silent(), folder=str(tasks), **others)


def bare(folder: str) -> None:
    """Take the </s> that the tiny model's tokenizer ends a text with, which the harness reads."""
    file = Path(folder) / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"post_processor": None}))


def test_a_masked_model_scores_as_the_pruned_one(tmp_path: Path, tasks: Path) -> None:
    model = language_modelling(tmp_path).model
    bare(model)
    loaded = AutoModelForCausalLM.from_pretrained(model)
    mask = hc.HeadMask.from_names(hc.find_heads(loaded), ["decoder.0.1", "decoder.1.0"])
    hc.remove_heads(loaded, mask)
    small = str(tmp_path / "small")
    loaded.save_pretrained(small)
    for file in Path(model).glob("tokenizer*"):
        (Path(small) / file.name).write_bytes(file.read_bytes())
    cut, gated, whole = scored(small, tasks), scored(model, tasks, mask), scored(model, tasks)
    assert cut["own_lambada"] == pytest.approx(gated["own_lambada"], rel=1e-4)
    assert whole["own_lambada"]["perplexity"] != pytest.approx(cut["own_lambada"]["perplexity"])
    assert set(cut["which_animal"]) == {"acc", "acc_norm"}
    assert cut["which_animal"]["acc"] == 0.5  # one answer to all, right every other time
    accuracy, perplexity = transcribed(small, PASSAGES)  # and our own task agrees
    assert cut["own_lambada"]["acc"] == accuracy
    assert cut["own_lambada"]["perplexity"] == pytest.approx(perplexity, rel=1e-4)


def test_the_command_prints_a_table_and_json(
    tmp_path: Path,
    tasks: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(*arguments: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["headcount", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code or 0

    settings = language_modelling(tmp_path)
    call = ["evaluate", settings.model, "--harness", "which_animal", "--harness-tasks", str(tasks)]
    assert run(*call) == 0
    out = capsys.readouterr().out
    assert "which_animal" in out and "acc_norm" in out and "|lm-eval:" in out
    assert run(*call, "--json", "--limit-eval", "1") == 0
    assert json.loads(capsys.readouterr().out)["which_animal"]["acc"] in (0.0, 1.0)
    assert run(*call, "--json", "--data", settings.data) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["validation", "which_animal"]


def test_a_study_has_a_row_for_each_accuracy(tmp_path: Path, tasks: Path) -> None:
    settings = language_modelling(tmp_path)
    study = StudySettings(
        settings.model, settings.task, settings.data, ("unpruned", "random", "surgeon"), keep=(2,),
        training=replace(BRIEF, epochs=0.0), harness=("which_animal", "own_lambada"),
        harness_tasks=str(tasks), harness_limit=2, speed=False,
    )  # fmt: skip
    assert run_study(study, tmp_path / "study") == {}
    rows = load_study(tmp_path / "study")
    found = {(row.method, row.split, row.metric) for row in rows.itertuples()}
    sets = [("validation", "perplexity"), ("which_animal", "acc"), ("which_animal", "acc_norm")]
    sets += [("own_lambada", "acc")]
    assert found == {(method, *pair) for method in study.methods for pair in sets}
    read = read_study(tmp_path / "study")
    assert read.problems == [] and all(read.results["run"])
    better = {one.metric: one.greater_is_better for one in read.comparisons()}
    assert better == {"perplexity": False, "acc": True, "acc_norm": True}
    notes = {one.split: build_table(read, one).notes for one in read.comparisons()}
    assert notes["validation"] == ()
    assert [len(notes[name]) for name in ("which_animal", "own_lambada")] == [1, 1]
    assert "not tested, since lm-evaluation-harness keeps no answers" in notes["own_lambada"][0]
    result = RunResult.load(tmp_path / "study" / "runs" / "random-2-seed0")
    assert result.harness["own_lambada"]["perplexity"] > 1
    assert result.signatures["which_animal"].endswith("|limit:2")


def test_mistakes_are_told_before_anything_is_done(tmp_path: Path, tasks: Path) -> None:
    settings = replace(language_modelling(tmp_path), method="random", keep=2)
    with pytest.raises(HeadcountError, match="there is no folder nowhere with tasks"):
        prune(replace(settings, harness=("which_animal",), harness_tasks="nowhere"), tmp_path / "o")
    with pytest.raises(HeadcountError, match="lm-evaluation-harness has no task 'which_beast'"):
        prune(replace(settings, harness=("which_beast",)), tmp_path / "o")
    (tasks / "which.jsonl").unlink()
    with pytest.raises(HeadcountError, match="lm-evaluation-harness cannot evaluate which_animal"):
        scored(settings.model, tasks)
    (tmp_path / "more").mkdir()
    vision = replace(images(tmp_path / "more"), keep=2, harness=("which_animal",))
    with pytest.raises(HeadcountError, match="is for language models and the task is image-class"):
        prune(vision, tmp_path / "o")
    assert not (tmp_path / "o").exists()
