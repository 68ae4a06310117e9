from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from transformers import (
    BertForSequenceClassification,
    BertModel,
    EvalPrediction,
    Trainer,
    TrainingArguments,
    set_seed,
)

from headcount.tasks.base import DataSettings
from headcount.tasks.classification import Classification, GlueTask, TextClassification
from headcount.tasks.examples import Examples
from tests.tasks.tiny_text import (
    SENTENCES,
    bert_config,
    mistake,
    save_model,
    tiny_tokenizer,
    write_table,
)

ROWS = {"text": [*SENTENCES, "the horse"], "label": ["sea", "land", "land", "law", "land"]}
FORMATS = [f"{ending}{gz}" for ending in ("csv", "tsv", "jsonl", "parquet") for gz in ("", ".gz")]


def settings(folder: Path, **kwargs: Any) -> DataSettings:
    return DataSettings(str(folder), max_length=16, cache=folder / "cache", **kwargs)


def table_folder(folder: Path, ending: str = "csv") -> Path:
    write_table(folder / f"train.{ending}", ROWS)
    write_table(folder / f"dev.{ending}", ROWS)
    return folder


@pytest.mark.parametrize("ending", FORMATS)
def test_any_table_is_a_task(ending: str, tmp_path: Path) -> None:
    task = Classification(settings(table_folder(tmp_path, ending)))
    assert task.labels == ("land", "law", "sea")
    assert list(task.evaluation) == ["dev"]
    tokenizer = tiny_tokenizer()
    train = task.train_data(tokenizer)
    assert train["labels"][:] == [2, 0, 0, 1, 0]
    assert train["length"][:] == [len(tokenizer(text)["input_ids"][:16]) for text in ROWS["text"]]
    assert sorted(train.column_names) == ["input_ids", "labels", "length", "row", "token_type_ids"]


@pytest.mark.parametrize(("length", "examples"), [(10, 4096), (160, 1000), (5000, 512)])
def test_a_fit_sees_as_many_tokens_as_it_can(length: int, examples: int, tmp_path: Path) -> None:
    task = Classification(settings(table_folder(tmp_path)))
    assert task.fitted_on(Dataset.from_dict({"length": [length] * 3})) == examples


def test_evaluation_is_longest_first_and_knows_its_rows(tmp_path: Path) -> None:
    task = Classification(settings(table_folder(tmp_path)))
    data = task.evaluation_data(tiny_tokenizer())["dev"]
    lengths = data["length"][:]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1]
    labels = [task.labels[number] for number in data["labels"]]
    assert labels == [ROWS["label"][row] for row in data["row"]]


def test_pairs_have_two_token_types(tmp_path: Path) -> None:
    rows = {"premise": ["the rocks", "a horse"], "hypothesis": ["rocks", "no"], "class": ["1", "0"]}
    write_table(tmp_path / "train.csv", rows)
    task = Classification(settings(tmp_path, evaluate=("train.csv",)))
    data = task.train_data(tiny_tokenizer())
    assert set(data[0]["token_type_ids"]) == {0, 1}
    assert data[0]["input_ids"] == tiny_tokenizer()("the rocks", "rocks")["input_ids"]


def test_limits_are_drawn_before_tokenising(tmp_path: Path) -> None:
    folder = table_folder(tmp_path)
    task = Classification(settings(folder, limit_train=3, limit_eval=2, seed=5))
    train, dev = task.train_data(tiny_tokenizer()), task.evaluation_data(tiny_tokenizer())["dev"]
    assert (len(train), len(dev)) == (3, 2)
    again = Classification(settings(folder, limit_train=3, seed=5)).train_data(tiny_tokenizer())
    assert train[:] == again[:]
    rows = [Classification(settings(folder, limit_train=3, seed=seed)) for seed in range(9)]
    assert len({tuple(task.train_data(tiny_tokenizer())["row"]) for task in rows}) > 1


def test_the_labels_order_is_the_models(tmp_path: Path) -> None:
    task = Classification(settings(table_folder(tmp_path)))
    config = bert_config(id2label={0: "sea", 1: "land", 2: "law"}, label2id={})
    config.label2id = {name: place for place, name in config.id2label.items()}
    model = save_model(tmp_path / "m", BertForSequenceClassification, config, tiny_tokenizer())
    tokenizer = task.load_processor(model)
    loaded = task.load_model(model, tokenizer)
    assert loaded.config.id2label == {0: "sea", 1: "land", 2: "law"}
    assert task.train_data(tokenizer)["labels"][:] == [0, 1, 1, 2, 1]
    predicted = EvalPrediction(predictions=np.eye(3), label_ids=np.arange(3))
    assert task.predictions(predicted, tokenizer, "dev") == ["sea", "land", "law"]


def test_a_model_of_another_order_after_the_data_is_told(tmp_path: Path) -> None:
    task = Classification(settings(table_folder(tmp_path)))
    task.train_data(tiny_tokenizer())
    config = bert_config(id2label={0: "sea", 1: "land", 2: "law"})
    model = save_model(tmp_path / "m", BertForSequenceClassification, config, tiny_tokenizer())
    with mistake("labels in another order than the data that was prepared before"):
        task.load_model(model, tiny_tokenizer())


def test_f1_follows_the_models_order(tmp_path: Path) -> None:
    examples = Examples("t", (["a", "b"],), ["no", "yes"])
    plain = TextClassification(settings(tmp_path), examples, {}, ("no", "yes"), ("accuracy", "f1"))
    config = bert_config(id2label={0: "yes", 1: "no"}, label2id={"yes": 0, "no": 1})
    model = save_model(tmp_path / "m", BertForSequenceClassification, config, tiny_tokenizer())
    plain.load_model(model, tiny_tokenizer())
    # "yes" is output 0: predicted three times, right once.
    logits = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    got = plain.scores(EvalPrediction(logits, np.array([0, 1, 1])), None, "dev")
    assert got["f1"] == pytest.approx(1 / 2)


def test_a_whole_training(tmp_path: Path) -> None:
    task = Classification(settings(table_folder(tmp_path)))
    # The usual initialisation is too small for so narrow a model to tell the texts apart.
    config = bert_config(hidden_dropout_prob=0.0, initializer_range=0.2)
    model = save_model(tmp_path / "m", BertModel, config, tiny_tokenizer())
    processor = task.load_processor(model)
    set_seed(1)
    loaded = task.load_model(model, processor)
    arguments = TrainingArguments(
        str(tmp_path / "out"), max_steps=30, learning_rate=1e-2, per_device_train_batch_size=5,
        report_to=[], save_strategy="no", logging_steps=100, seed=1, use_cpu=True,
        disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = Trainer(
        model=loaded,
        args=arguments,
        train_dataset=task.train_data(processor),
        data_collator=task.collator(processor, loaded),
        preprocess_logits_for_metrics=task.reduce,
    )
    trainer.train()
    data = task.evaluation_data(processor)["dev"]
    result = EvalPrediction(*trainer.predict(data)[:2])
    assert task.scores(result, processor, "dev")["accuracy"] == 1
    said = task.predictions(result, processor, "dev")
    assert said == [ROWS["label"][row] for row in data["row"]]


def test_a_regression(tmp_path: Path) -> None:
    rows = {"sentence1": list(SENTENCES), "sentence2": list(SENTENCES), "score": [5, 0.5, 2, 3]}
    for name in ("train", "dev"):
        write_table(tmp_path / f"{name}.tsv", rows)
    task = GlueTask("stsb", settings(tmp_path))
    model = save_model(tmp_path / "m", BertModel, bert_config(), tiny_tokenizer())
    processor = task.load_processor(model)
    loaded = task.load_model(model, processor)
    batch = task.collator(processor, loaded)(
        [
            {k: row[k] for k in ("input_ids", "token_type_ids", "labels")}
            for row in task.train_data(processor)
        ]
    )
    assert batch["labels"].tolist() == [5, 0.5, 2, 3]
    result = loaded(**batch)
    assert result.loss.isfinite()
    predicted = EvalPrediction(np.array([[5.0], [0.0], [2.0], [3.0]]), batch["labels"].numpy())
    assert task.predictions(predicted, processor, "validation") == [5.0, 0.0, 2.0, 3.0]
    assert task.scores(predicted, processor, "validation")["spearman"] == pytest.approx(1)


def test_collators_can_be_pickled(tmp_path: Path) -> None:
    task = Classification(settings(table_folder(tmp_path)))
    pickle.loads(pickle.dumps(task.collator(tiny_tokenizer(), None)))  # type: ignore[arg-type]


def test_no_data_for_evaluation_is_told(tmp_path: Path) -> None:
    path = write_table(tmp_path / "train.csv", ROWS)
    write_table(tmp_path / "test.csv", ROWS)  # not to be tuned on unless asked for
    for data in (tmp_path, path):
        with mistake("no data for evaluation was named, .*; name the file for evaluation"):
            Classification(settings(data))
    task = Classification(settings(tmp_path, evaluate=("test",)))
    assert list(task.evaluation) == ["test"]


def test_no_data_for_training_is_told(tmp_path: Path) -> None:
    write_table(tmp_path / "a.csv", ROWS)
    write_table(tmp_path / "b.csv", ROWS)
    with mistake("no data for training was named, .* which has a, b; name the file for training"):
        Classification(settings(tmp_path))


def test_unknown_labels_in_evaluation_are_told(tmp_path: Path) -> None:
    folder = table_folder(tmp_path)
    write_table(folder / "dev.csv", {"text": ["a"], "label": ["air"]})
    with mistake("dev.csv has the label 'air', but the labels are land, law, sea"):
        Classification(settings(folder))
    task = Classification(settings(folder, labels=("air", "land", "law", "sea")))
    assert task.train_data(tiny_tokenizer())["labels"][:] == [3, 1, 1, 2, 1]


def test_two_columns_are_a_text_and_a_label(tmp_path: Path) -> None:
    rows = {"tone": ["good", "bad"] * 4, "phrase": [*SENTENCES, "one", "two", "three", "four"]}
    write_table(tmp_path / "train.tsv", rows)
    write_table(tmp_path / "dev.tsv", {"tone": ["bad"], "phrase": ["by itself it tells nothing"]})
    task = Classification(settings(tmp_path))
    assert task.labels == ("bad", "good")
    assert task.evaluation["dev"].texts == (["by itself it tells nothing"],)
    (said,) = task.remarks
    assert "train.tsv" in said and "'phrase' is taken for the text and 'tone' for the label" in said
    named = Classification(settings(tmp_path, text=("phrase",), label="tone"))
    assert named.train == task.train and not named.remarks


def test_a_text_and_a_pair_do_not_mix(tmp_path: Path) -> None:
    write_table(tmp_path / "train.csv", ROWS)
    write_table(tmp_path / "dev.csv", {"sentence1": ["a"], "sentence2": ["b"], "label": ["sea"]})
    with mistake("has 2 text columns, but .*train.csv has 1"):
        Classification(settings(tmp_path))
