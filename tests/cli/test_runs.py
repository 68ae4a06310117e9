"""`prune`, `evaluate` and `score` as a person uses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, LlamaConfig, LlamaModel, set_seed

from headcount import HeadMask


@pytest.fixture
def grouped(encoder: Path, tmp_path: Path) -> Path:
    """A decoder with two layers of eight query heads, two to a key-value head."""
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    set_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=8, num_key_value_heads=4, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    folder = tmp_path / "grouped"
    LlamaModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_prune_evaluate_and_score_go_together(
    headcount: Any, encoder: Path, tables: Path, tmp_path: Path
) -> None:
    on = ("--task", "classification", "--data", tables)
    out, base = tmp_path / "out", tmp_path / "base"
    brief = ("--epochs", 1, "--batch-size", 16, "--seed", 3, "--base", base)
    pruned = headcount("prune", encoder, *on, "--keep", 3, *brief, "--output", out)
    assert pruned.code == 0, pruned.err
    for words in ("handover, 3 of 6 heads", "accuracy, validation", "parameters", "× 0.50"):
        assert words in pruned.out
    assert "method:handover|keep:3/6" in pruned.out

    told = headcount("evaluate", out, *on, "--json")
    assert told.code == 0, told.err
    measured = json.loads((out / "metrics.json").read_text())["scores"]
    assert json.loads(told.out)["validation"] == pytest.approx(measured["validation"], abs=1e-6)

    masked = headcount("evaluate", base, *on, "--mask", out / "mask.json")
    assert masked.code == 0, masked.err
    assert "accuracy" in masked.out

    learned = headcount("score", out, "--output", tmp_path / "learned")
    assert learned.code == 0, learned.err
    scored = headcount("score", base, *on, "--sample", 0.5, "--output", tmp_path / "scores")
    assert scored.code == 0, scored.err
    for folder, method in (("learned", "handover"), ("scores", "michel")):
        files = sorted(path.name for path in (tmp_path / folder).iterdir())
        assert files == ["heads.png", "heads.svg", "importance.json"]
        data = json.loads((tmp_path / folder / "importance.json").read_text())
        assert data["method"] == method
        assert len(data["heads"]) == 6


def test_two_files_of_two_columns_need_nothing_else(
    headcount: Any, encoder: Path, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my").mkdir()
    for name in ("train", "validation"):
        _, *rows = (tables / f"{name}.csv").read_text().splitlines()
        (tmp_path / "my" / f"{name}-1.csv").write_text("\n".join(["phrase,tone", *rows]))
    monkeypatch.chdir(tmp_path / "my")
    files = ("--train", "train-1.csv", "--evaluate", "../my/validation-1.csv")
    on = ("prune", encoder, "--task", "classification", *files, "--epochs", 1, "--no-speed")
    pruned = headcount(*on, "--keep", 3, "--output", tmp_path / "out")
    assert pruned.code == 0, pruned.err
    assert pruned.out.count("'phrase' is taken for the text and 'tone' for the label") == 1
    assert "data:my-validation-1|" in pruned.out
    told = headcount("evaluate", tmp_path / "out", *on[2:4], *files[2:], "--json")
    assert told.code == 0, told.err
    measured = json.loads((tmp_path / "out" / "metrics.json").read_text())["scores"]
    found = json.loads(told.out)["validation-1"]
    assert found == pytest.approx(measured["validation-1"], abs=1e-6)

    recipe = tmp_path / "recipe.yaml"
    train, evaluate = files[1], files[3]
    recipe.write_text(
        f"model: {encoder}\ntask: classification\nkeep: 3\nexamples: {{train: {train}, "
        f"evaluate: [{evaluate}]}}\ntraining: {{epochs: 1}}\n"
    )
    again = headcount("prune", "--recipe", recipe, "--no-speed", "--output", tmp_path / "again")
    assert again.code == 0, again.err
    first, second = (tmp_path / name / "mask.json" for name in ("out", "again"))
    assert first.read_text() == second.read_text()


def test_flags_stand_above_the_recipe(
    headcount: Any, encoder: Path, tables: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"model: {encoder}\ntask: classification\ndata: {tables}\nkeep: 2\nmethod: ste\n"
        "training: {epochs: 1, batch_size: 16}\n"
        "settings: {ste: {learning_rate: 0.1}, joint-dsp: {preset: paper-bert}}\n"
    )
    out = tmp_path / "out"
    run = headcount("prune", "--recipe", recipe, "--keep", 4, "--no-speed", "--output", out)
    assert run.code == 0, run.err
    settings = json.loads((out / "settings.json").read_text())
    assert settings["keep"] == 4
    assert settings["method"] == "ste"
    assert settings["settings"] == {"learning_rate": 0.1}

    fresh = tmp_path / "fresh"
    recipe.write_text(recipe.read_text().replace("keep: 2", "keep: 4"))
    like = ("--from-scratch-like", out, "--no-speed", "--output", fresh)
    run = headcount("prune", "--recipe", recipe, *like)
    assert run.code == 0, run.err
    assert "fixed, 4 of 6 heads" in run.out
    assert (fresh / "mask.json").read_text() == (out / "mask.json").read_text()


def test_even_layers_and_whole_groups_are_asked_for_by_flags(
    headcount: Any, grouped: Path, tables: Path, tmp_path: Path
) -> None:
    on = (grouped, "--task", "classification", "--data", tables, "--no-speed", "--epochs", 1)
    for name, flags in (
        ("flags", ("--even", "--unit", "group")),
        ("settings", ("--setting", "even=true", "--setting", "unit=group")),
    ):
        run = headcount("prune", *on, "--keep", 0.5, *flags, "--output", tmp_path / name)
        assert run.code == 0, run.err
        assert "keep:8/16|even|unit:group|" in run.out
    first, second = (tmp_path / name / "mask.json" for name in ("flags", "settings"))
    assert first.read_text() == second.read_text()
    mask = HeadMask.load(first)
    assert set(mask.counts().values()) == {4}
    assert json.loads((tmp_path / "flags" / "settings.json").read_text())["settings"] == {
        "even": True,
        "unit": "group",
    }
    told = headcount("heads", tmp_path / "flags", "--json")
    assert told.code == 0, told.err


def test_a_recipe_may_ask_for_even_layers_and_a_flag_may_not(
    headcount: Any, encoder: Path, tables: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"model: {encoder}\ntask: classification\ndata: {tables}\nkeep: 3\nmethod: ste\n"
        "training: {epochs: 1, batch_size: 16}\nsettings: {ste: {even: true}}\n"
    )
    on = ("prune", "--recipe", recipe, "--no-speed")
    assert headcount(*on, "--output", tmp_path / "even").code == 0
    mask = HeadMask.load(tmp_path / "even" / "mask.json")
    assert set(mask.counts().values()) == {1}
    refused = headcount(*on, "--keep", 4, "--output", tmp_path / "four")
    assert refused.code == 2
    said = "3 layers with 2 heads each need a multiple of 3; keep 3 or 6"
    assert said in " ".join(refused.err.split())
    free = headcount(*on, "--keep", 4, "--no-even", "--output", tmp_path / "four")
    assert free.code == 0, free.err


def test_what_is_asked_for_instead_of_a_number_is_shown_beside_what_there_is(
    headcount: Any, grouped: Path, tables: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"model: {grouped}\ntask: classification\ndata: {tables}\nspeed_up: 1.1\n"
        "training: {epochs: 1, batch_size: 16}\n"
    )
    on = ("prune", "--recipe", recipe, "--no-speed", "--output")
    run = headcount(*on, tmp_path / "speed")
    assert run.code == 0, run.err
    assert "asked: speed-up 1.1 · got 1.1" in run.out
    run = headcount(*on, tmp_path / "cache", "--cache", 0.5)  # in place of the recipe's
    assert run.code == 0, run.err
    for words in ("8 of 16 heads", "asked: cache 0.5 · got 0.50", "|unit:group|"):
        assert words in run.out
    assert "cache 0.5 is 8 heads of average size, in whole groups" in run.out + run.err
    base = ("--method", "michel", "--base", tmp_path / "base")
    run = headcount(*on, tmp_path / "within", "--within", 0.1, *base, "--json")
    assert run.code == 0, run.err
    found = json.loads(run.out)
    assert found["fewest_within"]["heads"] == found["heads"]["after"]


@pytest.mark.parametrize("flag", ["--cache", "--parameters", "--speed-up", "--within"])
def test_text_is_no_number(headcount: Any, encoder: Path, flag: str, tmp_path: Path) -> None:
    run = headcount("prune", encoder, flag, "half", "--output", tmp_path / "out")
    assert (run.code, run.err) == (2, f"headcount: {flag} is 'half', expected a number\n")


def test_several_numbers_of_heads_come_from_one_training(
    headcount: Any, encoder: Path, tables: Path, tmp_path: Path
) -> None:
    on = (encoder, "--task", "classification", "--data", tables, "--no-speed", "--epochs", 1)
    out = tmp_path / "out"
    on = (*on, "--method", "joint-dsp")
    run = headcount("prune", *on, "--keep", "4, 2", "--output", out)
    assert run.code == 0, run.err
    for words in ("joint-dsp, 4 of 6 heads", "joint-dsp, 2 of 6 heads", "keep:2/6|trained:4+2"):
        assert words in run.out
    assert sorted(path.name for path in out.iterdir()) == ["keep-2", "keep-4"]
    again = headcount("prune", *on, "--keep", "4,2", "--output", out, "--resume", "--json")
    assert [result["heads"]["after"] for result in json.loads(again.out)] == [4, 2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--keep", 9), "6 heads"),
        (("--keep", "few"), "--keep is 'few', expected a count"),
        (("--keep", "4,2", "--method", "ste"), "ste cannot learn for several K in one run"),
        (("--keep", 2, "--method", "michel"), "needs a model that is fine-tuned"),
        (("--keep", 2, "--setting", "learning_rate"), "expected name=value"),
        (("--keep", 2, "--text", "sentence"), "sentence"),
        (("--keep", 2, "--option", "beams=5"), "beams"),
        (("--keep", 2, "--unit", "layer"), "unit of handover is 'layer', expected head or group"),
        (("--keep", 2, "--method", "fixed", "--even"), "fixed has no setting even"),
        (("--keep", 2, "--from-scratch-like", "."), "leave out --keep"),
        (("--from-scratch-like", "nowhere"), "cannot read the mask nowhere"),
        (("--keep", 2, "--cache", 0.5), "keep and cache each say how many heads stay; give one of"),
        (("--cache", 0.5, "--within", 0.1), "cache and within each say how many heads stay"),
        (("--parameters", 0), "parameters is 0.0, expected a share above 0 and up to 1"),
        (("--parameters", -1), "parameters is -1.0, expected a share above 0 and up to 1"),
        (("--parameters", 1.5), "parameters is 1.5, expected a share above 0 and up to 1"),
        (("--speed-up", 0.5), "speed_up is 0.5, expected times as fast, from 1"),
        (("--within", 1), "within is 1.0, expected a number above 0 and below 1"),
        (("--within", 0.1), "choose one of surgeon, michel, random, ablation, magnitude"),
        (("--parameters", 0.01), "parameters 0.01 cannot be had: with 1 of 6 heads"),
        (("--cache", 0.5), "no cache to count"),
        (("--cache", 0.5, "--from-scratch-like", "."), "leave out --cache"),
    ],
)
def test_a_mistake_is_one_sentence(
    headcount: Any,
    encoder: Path,
    tables: Path,
    tmp_path: Path,
    arguments: tuple[object, ...],
    said: str,
) -> None:
    out = tmp_path / "out"
    run = headcount(
        "prune", encoder, "--task", "classification", "--data", tables, *arguments, "--output", out
    )
    assert run.code == 2
    assert said in run.err
    assert "Traceback" not in run.err
    assert not list(tmp_path.glob("out*"))


def test_a_bare_encoder_cannot_be_evaluated(headcount: Any, encoder: Path, tables: Path) -> None:
    run = headcount("evaluate", encoder, "--task", "classification", "--data", tables)
    assert run.code == 2
    assert "is not fine-tuned for classification" in run.err


def test_a_wrong_setting_in_a_recipe_is_told_with_its_line(headcount: Any, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "model: m\ntask: classification\ndata: d\nmethod: ste\nkeep: 3\nsettings:\n  ste:\n"
        "    spread: wide\n"
    )
    for more, said in (
        ((), "recipe.yaml, line 8: spread of ste is 'wide', expected a number"),
        (("--setting", "spread=0.1", "--setting", "tau=1"), "ste has no setting tau; it has"),
    ):
        told = headcount("prune", "--recipe", recipe, *more, "--output", tmp_path / "out")
        assert told.code == 2
        assert said in told.err
