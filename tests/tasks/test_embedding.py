"""Sentence encoders: from plain sentences to a folder that sentence-transformers opens."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Normalize,
    Pooling,
    Transformer,
)
from transformers import EvalPrediction, T5Config, T5EncoderModel, XLMConfig, XLMModel

import headcount as hc
from headcount import HeadcountError
from headcount.analysis.ablation.task_subject import TaskSubject
from headcount.heads.mask import HeadMask
from headcount.loading.folder import load_model
from headcount.report.write import write_report
from headcount.runs.evaluate import evaluate_model, score_heads
from headcount.runs.progress import Silent
from headcount.runs.prune import prune
from headcount.runs.settings import ExampleSettings, RunSettings, TrainingSettings
from headcount.study.plan import StudySettings
from headcount.study.results import load_study
from headcount.study.run import run_study
from headcount.tasks.base import DataSettings
from headcount.tasks.embedding import Embedding
from headcount.tasks.models import load_tokenizer
from headcount.tasks.sentence_encoder import as_sentence_encoder, distance, load_sentence_encoder
from headcount.tasks.vectors import same_neighbours
from tests.small_task import BAD, GOOD, WORDS, save_encoder
from tests.tiny import build

BRIEF = TrainingSettings(epochs=1.0, pruning_epochs=1.0, batch_size=16, max_length=16)


def sentences(number: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    words = [*WORDS, *GOOD, *BAD]
    return [" ".join(draw.choices(words, k=draw.randint(2, 8))) for _ in range(number)]


PAIRS = [
    (one, other, number % 6)
    for number, (one, other) in enumerate(zip(sentences(12, 1), sentences(12, 2), strict=True))
]


@pytest.fixture
def bare(tmp_path: Path) -> str:
    return str(save_encoder(tmp_path / "bare", spread=0.4))


@pytest.fixture
def encoder(tmp_path: Path, bare: str) -> str:
    """A folder of sentence-transformers with a dense module and files of its own."""
    torch.manual_seed(1)
    modules = [Transformer(bare, max_seq_length=12), Pooling(16, "mean"), Dense(16, 6), Normalize()]
    folder = tmp_path / "encoder"
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    (folder / "train_script.py").write_text("kept")
    for of_the_unpruned in ("onnx", "checkpoint-5"):
        (folder / of_the_unpruned).mkdir()
        (folder / of_the_unpruned / "model.onnx").write_bytes(b"weights")
    return str(folder)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Sentences to train on, and pairs with scores to evaluate on."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.txt").write_text("\n".join(sentences(60)) + "\n\n")
    with (folder / "dev.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *PAIRS])
    return folder


def settings_of(model: str, data: Path, method: str = "surgeon", **others: Any) -> RunSettings:
    return RunSettings(model, "embedding", str(data), method, 3, training=BRIEF, **others)


class Heard(Silent):
    """Remembers each stage and its length."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int | None]] = []

    def begin(self, stage: str, total: int | None = None) -> None:
        self.stages.append((stage, total))


def vectors_of(folder: str | Path, texts: list[str]) -> Any:
    return SentenceTransformer(str(folder), device="cpu").encode(texts)


def test_vectors_are_those_of_sentence_transformers(encoder: str) -> None:
    model, texts = load_sentence_encoder(encoder, None, 12), sentences(5)
    tokenizer = SentenceTransformer(encoder, device="cpu").tokenizer
    batch = tokenizer(texts, padding=True, truncation=True, max_length=12, return_tensors="pt")
    found = model.eval()(**batch)
    np.testing.assert_allclose(found.logits.detach(), vectors_of(encoder, texts), atol=1e-6)
    again = model(**batch, labels=found.logits.detach().roll(1, 0))
    cosines = (found.logits * found.logits.roll(1, 0)).sum(-1)
    torch.testing.assert_close(again.loss, (2 - 2 * cosines).mean())


@pytest.mark.parametrize("method", ["surgeon", "michel", "random", "handover", "pipelined-dsp"])
def test_a_pruned_encoder_opens_with_everything_that_was_in_it(
    method: str, encoder: str, data: Path, tmp_path: Path
) -> None:
    result = prune(settings_of(encoder, data, method), tmp_path / "out", speed=False)
    assert (result.heads.before, result.heads.after) == (6, 3)
    assert result.metric == "spearman"
    assert set(result.scores["dev"]) == {
        "cosine", "similarities", "spearman"
    }  # fmt: skip
    names = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")}
    old = {str(path.relative_to(encoder)) for path in Path(encoder).rglob("*")}
    assert old - names == {
        "onnx", "onnx/model.onnx", "checkpoint-5", "checkpoint-5/model.onnx"
    }  # fmt: skip
    assert result.scores["dev"]["cosine"] < 0.999
    scores = json.loads((tmp_path / "out" / "importance.json").read_text())["heads"]
    assert method == "random" or any(row["importance"] > 1e-4 for row in scores)
    texts = sentences(8, seed=2)
    assert vectors_of(tmp_path / "out", texts).shape == (8, 6)
    pruned = load_sentence_encoder(str(tmp_path / "out"), None, 12)
    assert len(hc.find_heads(pruned)) == 3


def test_it_is_told_how_far_the_unpruned_vectors_are(
    encoder: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are looked for once: a second run has them on disk, and says nothing."""
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    asked = []
    for number in (1, 2):
        heard = Heard()
        prune(settings_of(encoder, data), tmp_path / f"out{number}", progress=heard, speed=False)
        asked.append([each for each in heard.stages if each[0] == "asking the unpruned model"])
    assert asked == [[("asking the unpruned model", 60 + 2 * len(PAIRS))], []]


def test_scores_say_how_far_vectors_are_from_the_unpruned_ones(
    encoder: str, data: Path, tmp_path: Path
) -> None:
    result = prune(settings_of(encoder, data), tmp_path / "out", speed=False)
    assert result.before is not None
    assert result.before["dev"]["cosine"] == pytest.approx(1, abs=1e-6)
    texts = [text for pair in PAIRS for text in pair[:2]]
    new, old = vectors_of(tmp_path / "out", texts), vectors_of(encoder, texts)
    scores = result.scores["dev"]
    assert scores["cosine"] == pytest.approx(float((new * old).sum(-1).mean()), abs=1e-5)
    cosines = (new[0::2] * new[1::2]).sum(-1)
    gold = [score for *_, score in PAIRS]
    assert scores["spearman"] == pytest.approx(spearmanr(cosines, gold).statistic, abs=1e-5)
    options = ExampleSettings(options={"reference": encoder})
    evaluated = settings_of(str(tmp_path / "out"), data, examples=options)
    _, again = evaluate_model(evaluated, None, Silent())
    assert again["dev"].metrics == pytest.approx(result.scores["dev"], abs=1e-6)


def test_sentences_alone_need_no_scores_and_hold_some_out(bare: str, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("\n".join(sentences(50)))
    options = ExampleSettings(options={"pooling": "cls"})
    settings = settings_of(bare, tmp_path / "mine.txt", "michel", examples=options)
    result = prune(settings, tmp_path / "out", speed=False)
    assert result.metric == "cosine" and list(result.scores) == ["held-out"]
    predictions = json.loads((tmp_path / "out" / "predictions" / "held-out.json").read_text())
    assert len(predictions) == 5
    assert not (tmp_path / "out" / "modules.json").exists()


def test_heads_within_a_loss_are_found_on_pairs(encoder: str, data: Path, tmp_path: Path) -> None:
    settings = replace(settings_of(encoder, data), keep=None, within=0.9)
    result = prune(settings, tmp_path / "out", speed=False)
    assert result.fewest_within is not None and result.fewest_within.heads < 6


def test_a_study_of_encoders(encoder: str, data: Path, tmp_path: Path) -> None:
    study = StudySettings(
        encoder, "embedding", str(data), ("unpruned", "surgeon", "handover"), keep=(4, 2),
        training=BRIEF, speed=False,
    )  # fmt: skip
    assert run_study(study, tmp_path / "study") == {}
    rows = load_study(tmp_path / "study")
    assert set(rows["metric"]) == {"spearman", "cosine", "similarities"}
    assert sorted(rows[rows["metric"] == "cosine"]["heads"]) == [2, 2, 4, 4, 6]
    write_report(tmp_path / "study")
    page = (tmp_path / "study" / "report" / "report.html").read_text()
    assert "spearman" in page and "the answers kept are those of another metric" in page
    base = load_sentence_encoder(str(tmp_path / "study" / "bases" / "seed0"), None, 12)
    whole = load_sentence_encoder(encoder, None, 12).state_dict()
    assert all(torch.equal(value, whole[key]) for key, value in base.state_dict().items())


def test_the_same_neighbours() -> None:
    draw = np.random.default_rng(0)
    old = draw.normal(size=(50, 4))
    old /= np.linalg.norm(old, axis=-1, keepdims=True)
    turned = old @ np.linalg.qr(draw.normal(size=(4, 4)))[0]
    assert same_neighbours(old, old, old, 10) == 1.0
    assert same_neighbours(turned, turned, old, 10) == pytest.approx(1.0)  # among themselves
    assert same_neighbours(turned, old, old, 10) < 0.5  # in an index of old vectors


def test_distance_is_relative() -> None:
    vectors = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    assert distance(vectors, vectors).tolist() == [0, 0]
    assert distance(torch.zeros(2, 2), vectors).tolist() == [1, 1]


def test_pairs_stay_together_however_long_they_are(encoder: str, data: Path) -> None:
    task = Embedding(DataSettings(str(data), max_length=16))
    task.model_folder(encoder)
    processor = task.load_processor(encoder)
    (found,) = task.evaluation_data(processor).values()
    vectors = np.eye(len(found))[:, :6] + np.arange(len(found))[:, None] / 100
    whole = task.scores(EvalPrediction(vectors, vectors), processor, "dev")
    assert whole["cosine"] == pytest.approx(1)
    first = task.half("dev", found, 0, "half")
    second = task.half("dev", found, 1, "other half")
    assert sorted([*first["labels"], *second["labels"]]) == sorted(found["labels"])
    assert all(a + 1 == b for a, b in zip(first["labels"][::2], first["labels"][1::2], strict=True))
    half = np.arange(len(first) * 3, dtype=float).reshape(-1, 3)
    assert np.isfinite(task.scores(EvalPrediction(half, half), processor, "half")["spearman"])


@pytest.mark.parametrize(
    ("options", "model", "says"),
    [
        ({}, "bare", "has no modules.json that says how it makes one vector of a text; give"),
        ({"pooling": "sum"}, "bare", "give --option pooling=mean, cls or max"),
        ({"pooling": "cls"}, "encoder", "says in modules.json how it makes a vector"),
        ({"reference": "nowhere"}, "encoder", "nowhere"),
    ],
)
def test_encoders_that_are_not_understood_are_refused(
    options: dict[str, str],
    model: str,
    says: str,
    data: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    source = request.getfixturevalue(model)
    settings = settings_of(source, data, examples=ExampleSettings(options=options))
    with pytest.raises(HeadcountError, match=says):
        prune(settings, tmp_path / "out", speed=False)
    assert not (tmp_path / "out").exists()


def test_code_of_a_folder_is_not_run(encoder: str, data: Path, tmp_path: Path) -> None:
    listed = json.loads((Path(encoder) / "modules.json").read_text())
    listed[-1]["type"] = "evil.Module"
    (Path(encoder) / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(HeadcountError, match=r"a module evil\.Module of its own, whose code"):
        prune(settings_of(encoder, data), tmp_path / "out", speed=False)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"train.txt": "a\nb\nc\n"}, "has 3 different sentences, expected at least 20"),
        ({"a.csv": "x,y\n1,2\n", "b.csv": "x,y\n1,2\n"}, "no sentences were named"),
        ({"train.csv": "x,y\n1,2\n"}, "no column of .* has a usual name for sentences"),
        (
            {"train.csv": "sentence1,sentence2,score\n" + "a,b,1\n" * 20},
            "has the same few sentences in all pairs",
        ),
        ({"train.csv": "sentence1,sentence2,score\na,b,1\n"}, "has 1 pairs, expected at least 20"),
        (
            {"train.txt": "a\nb\n", "dev.csv": "sentence1,sentence2,score\na,b,high\n"},
            "row 1 of .* has 'high' as score, expected a number",
        ),
    ],
)
def test_bad_sentences(files: dict[str, str], says: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(HeadcountError, match=says):
        Embedding(DataSettings(str(tmp_path)))


def test_a_table_without_a_header_is_told_its_columns(tmp_path: Path) -> None:
    for name in ("train", "dev"):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(PAIRS)
    options = {"columns": "sentence1,sentence2,score"}
    task = Embedding(DataSettings(str(tmp_path), options=options))
    assert task.metric == "spearman" and len(task._sets["dev"]) == 24
    assert task._train is not None and not task._train.scores and len(task._train) == 24


def test_of_pairs_alone_some_are_held_out_with_their_scores(tmp_path: Path) -> None:
    both = zip(sentences(40, 3), sentences(40, 4), strict=True)
    rows = [(*pair, number % 6) for number, pair in enumerate(both)]
    with (tmp_path / "mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("a", "b", "like"), *rows])
    settings = DataSettings(str(tmp_path / "mine.csv"), text=("a", "b"), label="like")
    task = Embedding(settings)
    (held,) = task._sets.values()
    assert task.metric == "spearman" and list(held.scores) == [0, 4, 2, 0]
    assert list(held.texts) == [text for row in rows[::10] for text in row[:2]]
    assert task._train is not None and not task._train.scores
    assert set(task._train.texts) == {text for row in rows for text in row[:2]} - set(held.texts)


def test_lines_of_text_need_no_column(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\n".join(sentences(30)))
    with (tmp_path / "dev.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("a", "b", "like"), *PAIRS])
    task = Embedding(DataSettings(str(tmp_path), text=("a", "b"), label="like"))
    assert task.metric == "spearman" and task._train is not None and len(task._train) == 30


def test_a_score_needs_two_columns_of_sentences(tmp_path: Path) -> None:
    with (tmp_path / "mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("a", "b", "like"), *PAIRS])
    with pytest.raises(HeadcountError, match="has 1 column of sentences; name two with --text"):
        Embedding(DataSettings(str(tmp_path / "mine.csv"), text=("a",), label="like"))


def test_a_pruned_encoder_does_not_judge_itself(encoder: str, data: Path, tmp_path: Path) -> None:
    prune(settings_of(encoder, data), tmp_path / "out", speed=False)
    for options in ({}, {"reference": ""}):
        examples = ExampleSettings(options=options)
        with pytest.raises(HeadcountError, match="was pruned before, so its own vectors"):
            evaluate_model(
                settings_of(str(tmp_path / "out"), data, examples=examples), None, Silent()
            )


def test_vectors_of_another_size_are_no_reference(encoder: str, data: Path, tmp_path: Path) -> None:
    other = SentenceTransformer(encoder, device="cpu")
    other.truncate_dim = 5
    other.save(str(tmp_path / "other"))
    examples = ExampleSettings(options={"reference": str(tmp_path / "other")})
    with pytest.raises(HeadcountError, match="has vectors of 5 numbers, expected 6 as of the enc"):
        evaluate_model(settings_of(encoder, data, examples=examples), None, Silent())


def test_hidden_states_are_there_to_distil_from(encoder: str, data: Path, tmp_path: Path) -> None:
    model = load_sentence_encoder(encoder, None, 12)
    given = model(input_ids=torch.tensor([[2, 5, 6, 3]]), output_hidden_states=True)
    assert len(given.hidden_states) == 4  # the embeddings and three layers
    training = replace(BRIEF, distil=0.5)
    settings = replace(settings_of(encoder, data, "handover"), training=training)
    assert prune(settings, tmp_path / "out", speed=False).heads.after == 3


@pytest.mark.parametrize("recomputes", [False, True])
def test_dropout_is_never_drawn_while_vectors_are_learned(bare: str, recomputes: bool) -> None:
    """The vectors to be met were given without it, so it would only be noise."""
    model = load_sentence_encoder(bare, "mean", 16)
    if recomputes:
        model.gradient_checkpointing_enable()
    model.train()
    ids = torch.arange(5, 21)[None]
    first, second = (model(input_ids=ids).logits for _ in range(2))
    assert model.training
    assert torch.equal(first, second)
    assert recomputes == any(part.training for part in model.modules() if part is not model)
    model.eval()
    assert not any(part.training for part in model.modules())


def test_gates_learn_although_no_dropout_is_drawn(bare: str) -> None:
    """Without dropout, and yet not with the gates of an evaluation."""
    model = load_sentence_encoder(bare, "mean", 16).train()
    pruner = hc.JointDSP(keep=3)
    ids = torch.arange(5, 21)[None]
    with pruner.attached(model) as gated:
        gated.begin_step(0, 10)
        model(input_ids=ids, labels=torch.ones(1, model.vector_size)).loss.backward()
    (felt,) = [parameter.grad for parameter in pruner.parameters()]
    assert felt is not None and felt.abs().sum() > 0


@pytest.mark.parametrize("name", ["xlm", "t5"])
def test_nor_by_a_model_that_draws_it_without_a_module(name: str) -> None:
    torch.manual_seed(0)
    if name == "xlm":
        model: Any = XLMModel(XLMConfig(vocab_size=50, emb_dim=16, n_layers=2, n_heads=4))
    else:
        config = T5Config(d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4)
        model = T5EncoderModel(config)
        model.gradient_checkpointing_enable()
    model = as_sentence_encoder(model, [Pooling(16, "mean")], None, 16, 0).train()
    ids = torch.arange(5, 21)[None]
    first, second = (model(input_ids=ids).logits for _ in range(2))
    assert torch.equal(first, second)
    assert model.training


@pytest.mark.parametrize("changed", ["lower", "prompt", "length", "positions"])
def test_texts_go_in_as_sentence_transformers_gives_them(
    changed: str, encoder: str, data: Path, tmp_path: Path
) -> None:
    folder, long = Path(encoder), " ".join([*WORDS, *GOOD] * 4)
    texts = [text.upper() if changed == "lower" else text for text in sentences(30, 3)] + [long]
    if changed == "prompt":
        said = json.loads((folder / "config_sentence_transformers.json").read_text())
        said |= {"prompts": {"query": f"{GOOD[0]} {BAD[0]} "}, "default_prompt_name": "query"}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(said))
    elif changed != "positions":
        file = folder / "sentence_bert_config.json"
        said = {"lower": {"do_lower_case": True}, "length": {"max_seq_length": 7}}[changed]
        file.write_text(json.dumps(json.loads(file.read_text()) | said))
    (data / "dev.csv").unlink()
    (data / "dev.txt").write_text("\n".join(texts))
    task = Embedding(DataSettings(str(data)))
    processor = task.load_processor(task.model_folder(encoder))
    collate = task.collator(processor, task.load_model(encoder, processor))
    (found,) = task.evaluation_data(processor).values()
    rows = [dict(row) for row in found.remove_columns("length")]
    first = min(row["labels"] for row in rows)
    texts = [texts[row["labels"] - first] for row in rows]
    np.testing.assert_allclose(collate(rows)["labels"], vectors_of(encoder, texts), atol=1e-6)


def test_texts_that_are_too_long_for_the_model_are_refused(
    encoder: str, data: Path, tmp_path: Path
) -> None:
    settings = replace(settings_of(encoder, data), training=replace(BRIEF, max_length=300))
    with pytest.raises(HeadcountError, match="reads at most 128 tokens, but inputs may have 300"):
        prune(settings, tmp_path / "out", speed=False)


def test_pruning_again_leaves_nothing_of_the_first_run(
    encoder: str, data: Path, tmp_path: Path
) -> None:
    prune(settings_of(encoder, data, "handover"), tmp_path / "first", speed=False)
    examples = ExampleSettings(options={"reference": encoder})
    again = replace(settings_of(str(tmp_path / "first"), data, examples=examples), keep=2)
    prune(again, tmp_path / "second", speed=False)
    prune(settings_of(encoder, data), tmp_path / "fresh", speed=False)
    names = [{p.name for p in (tmp_path / run).iterdir()} for run in ("second", "fresh")]
    assert names[0] | {"train_script.py"} == names[1]  # the first output has none of its own


def test_a_file_called_train_can_be_evaluated_on(encoder: str, data: Path) -> None:
    settings = settings_of(encoder, data / "train.txt")
    _, found = evaluate_model(settings, None, Silent())
    assert found["train"].metrics["cosine"] == pytest.approx(1, abs=1e-6)
    assert "neighbours_in_old" in found["train"].metrics


def test_heads_are_scored_by_the_command_too(encoder: str, data: Path) -> None:
    _, scores = score_heads(settings_of(encoder, data), 1.0, "example", False, Silent())
    assert min(scores) > 1e-4


def test_ablations_of_pairs(encoder: str, data: Path) -> None:
    subject = TaskSubject(settings_of(encoder, data)).halved()
    everything = HeadMask.all(subject.heads)
    for split in subject.sets:
        (found,) = subject.evaluate(split, [everything])
        assert found.metrics["cosine"] == pytest.approx(1, abs=1e-6)
        assert found.gold is not None and len(found.gold) == len(found.predictions) == 6


def test_the_encoder_of_an_encoder_decoder(tmp_path: Path, bare: str, data: Path) -> None:
    build("t5").save_pretrained(tmp_path / "t5")
    load_tokenizer(bare).save_pretrained(tmp_path / "t5")
    options = ExampleSettings(options={"pooling": "mean"})
    settings = settings_of(str(tmp_path / "t5"), data, examples=options)
    result = prune(settings, tmp_path / "out", speed=False)
    assert result.heads.after == 3
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["T5EncoderModel"]
    again = {"pooling": "mean", "reference": str(tmp_path / "t5")}
    settings = settings_of(str(tmp_path / "out"), data, examples=ExampleSettings(options=again))
    _, evaluated = evaluate_model(settings, None, Silent())
    assert evaluated["dev"].metrics == pytest.approx(result.scores["dev"], abs=1e-6)


def test_numbers_of_other_tasks_are_no_scores(tmp_path: Path, data: Path) -> None:
    with (data / "dev.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "label"), *PAIRS])
    assert Embedding(DataSettings(str(data))).metric == "cosine"
    assert Embedding(DataSettings(str(data), label="label")).metric == "spearman"


def test_an_export_says_how_sentence_transformers_opens_it(
    encoder: str, data: Path, tmp_path: Path
) -> None:
    prune(settings_of(encoder, data), tmp_path / "small", speed=False)
    model = load_model(str(tmp_path / "small"))
    record = hc.export(model, "remote-code", tmp_path / "out", source=str(tmp_path / "small"))
    assert 'SentenceTransformer("FOLDER", trust_remote_code=True)' in record["load"]
    texts = sentences(6, seed=4)
    served = SentenceTransformer(str(tmp_path / "out"), trust_remote_code=True, device="cpu")
    np.testing.assert_allclose(
        served.encode(texts), vectors_of(tmp_path / "small", texts), atol=1e-6
    )
