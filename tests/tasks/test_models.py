from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    ResNetConfig,
    ResNetModel,
    RobertaConfig,
    RobertaModel,
)

import headcount as hc
from headcount.tasks.models import is_fine_tuned, load_classifier, load_for, load_tokenizer
from tests.tasks.tiny_text import bert_config, mistake, save_model, tiny_tokenizer

MNLI = ("entailment", "neutral", "contradiction")


def bert(folder: Path, names: tuple[str, ...] = (), **settings: Any) -> str:
    if names:
        settings["id2label"] = dict(enumerate(names))
        settings["label2id"] = {name: number for number, name in enumerate(names)}
    return save_model(
        folder, BertForSequenceClassification, bert_config(**settings), tiny_tokenizer()
    )


def saved_classifier(folder: str) -> torch.Tensor:
    return load_file(Path(folder) / "model.safetensors")["classifier.weight"]


@pytest.mark.parametrize("cls", [BertModel, BertForMaskedLM])
@pytest.mark.parametrize("labels", [MNLI, ("no", "yes"), ()])
def test_a_bare_encoder_gets_a_fresh_classifier(
    cls: Any, labels: tuple[str, ...], tmp_path: Path
) -> None:
    source = save_model(tmp_path / "m", cls, bert_config(), tiny_tokenizer())
    model, order = load_classifier(source, load_tokenizer(source), labels, 16)
    assert not is_fine_tuned(model)
    assert model.classifier.out_features == max(1, len(labels))
    assert order == list(range(max(1, len(labels))))
    if labels:
        assert model.config.id2label == dict(enumerate(labels))
        assert model.config.label2id == {name: place for place, name in enumerate(labels)}
    else:
        assert model.config.problem_type == "regression"


def test_a_fine_tuned_model_keeps_its_classifier(tmp_path: Path) -> None:
    source = bert(tmp_path / "m", MNLI)
    model, order = load_classifier(source, load_tokenizer(source), MNLI, 16)
    assert is_fine_tuned(model)
    assert order == [0, 1, 2]
    assert torch.equal(model.classifier.weight, saved_classifier(source))


def test_a_fine_tuned_model_keeps_the_order_of_its_labels(tmp_path: Path) -> None:
    own = ("CONTRADICTION", "Entailment", "neutral")
    source = bert(tmp_path / "m", own)
    model, order = load_classifier(source, load_tokenizer(source), MNLI, 16)
    assert is_fine_tuned(model)
    assert order == [2, 0, 1]
    assert model.config.id2label == dict(enumerate(own))
    assert torch.equal(model.classifier.weight, saved_classifier(source))


def test_labels_without_names_are_in_the_order_of_the_data(tmp_path: Path) -> None:
    source = bert(tmp_path / "m", num_labels=3)
    model, order = load_classifier(source, load_tokenizer(source), MNLI, 16)
    assert is_fine_tuned(model)
    assert order == [0, 1, 2]
    assert model.config.id2label == dict(enumerate(MNLI))


def test_numbers_in_the_data_are_the_models_own(tmp_path: Path) -> None:
    source = bert(tmp_path / "m", ("bad", "good"))
    model, order = load_classifier(source, load_tokenizer(source), ("0", "1"), 16)
    assert is_fine_tuned(model)
    assert order == [0, 1]
    assert model.config.id2label == {0: "bad", 1: "good"}


def test_a_classifier_for_more_labels_is_replaced(tmp_path: Path) -> None:
    source = bert(tmp_path / "m", MNLI)
    model, _ = load_classifier(source, load_tokenizer(source), ("no", "yes"), 16)
    assert not is_fine_tuned(model)
    assert model.classifier.out_features == model.config.num_labels == 2
    assert model.config.id2label == {0: "no", 1: "yes"}


def test_a_classifier_for_other_labels_does_not_count(tmp_path: Path) -> None:
    source = bert(tmp_path / "m", ("negative", "positive"))
    model, _ = load_classifier(source, load_tokenizer(source), ("duplicate", "other"), 16)
    assert not is_fine_tuned(model)
    assert model.config.id2label == {0: "duplicate", 1: "other"}


@pytest.mark.parametrize("labels", [MNLI, ("no", "yes")])
def test_a_pruned_model_is_loaded(labels: tuple[str, ...], tmp_path: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(bert(tmp_path / "full", MNLI))
    hc.remove_heads(model, hc.HeadMask.random(hc.find_heads(model), keep=3, seed=1))
    model.save_pretrained(tmp_path / "small")
    tiny_tokenizer().save_pretrained(tmp_path / "small")
    source = str(tmp_path / "small")
    small, _ = load_classifier(source, load_tokenizer(source), labels, 16)
    assert len(hc.find_heads(small)) == 3
    assert is_fine_tuned(small) == (labels == MNLI)


def test_a_model_that_never_padded_learns_how(tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=120, n_embd=16, n_layer=1, n_head=4, n_positions=32,
                        bos_token_id=3, eos_token_id=3)  # fmt: skip
    tokenizer = tiny_tokenizer(eos_token="[SEP]", pad_token=None)
    source = save_model(tmp_path / "m", GPT2LMHeadModel, config, tokenizer)
    tokenizer = load_tokenizer(source)
    assert tokenizer.pad_token == "[SEP]"
    model, _ = load_classifier(source, tokenizer, MNLI, 16)
    assert model.config.pad_token_id == tokenizer.pad_token_id == 3
    ids = tokenizer(
        ["the rocks", "a horse jumps over the rocks"], padding=True, return_tensors="pt"
    )
    assert model(**{k: v for k, v in ids.items() if k != "token_type_ids"}).logits.shape == (2, 3)


def test_a_tokenizer_without_any_end_is_told(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(pad_token=None)
    source = save_model(tmp_path / "m", BertModel, bert_config(), tokenizer)
    with mistake("neither a padding token nor an end-of-text token"):
        load_tokenizer(source)


def test_a_model_without_tokenizer_is_told(tmp_path: Path) -> None:
    source = save_model(tmp_path / "m", BertModel, bert_config(), None)
    with mistake("has no tokenizer"):
        load_tokenizer(source)
    image = save_model(
        tmp_path / "i",
        ResNetModel,
        ResNetConfig(hidden_sizes=[8], depths=[1], embedding_size=8),
        None,
    )
    with mistake("has no tokenizer"):
        load_tokenizer(image)


def test_a_damaged_tokenizer_is_told(tmp_path: Path) -> None:
    source = save_model(tmp_path / "m", BertModel, bert_config(), tiny_tokenizer())
    (tmp_path / "m" / "tokenizer.json").write_text("{")
    with mistake("no tokenizer that can be loaded: .*save the tokenizer"):
        load_tokenizer(source)


def test_no_model_is_told(tmp_path: Path) -> None:
    for source in ("./nowhere", str(tmp_path)):
        with mistake("there is no folder|is not a model: it has no config.json"):
            load_tokenizer(source)
        with mistake("there is no folder|is not a model: it has no config.json"):
            load_classifier(source, None, MNLI, 16)


def test_a_model_of_images_is_told(tmp_path: Path) -> None:
    config = ResNetConfig(hidden_sizes=[8], depths=[1], embedding_size=8)
    source = save_model(tmp_path / "i", ResNetModel, config, None)
    with mistake("cannot load a model from .*: Unrecognized configuration class"):
        load_classifier(source, tiny_tokenizer(), MNLI, 16)


def test_missing_weights_of_the_encoder_are_told(tmp_path: Path) -> None:
    source = bert(tmp_path / "m", MNLI)
    path = tmp_path / "m" / "model.safetensors"
    weights = load_file(path)
    del weights["bert.encoder.layer.1.attention.self.query.weight"]
    save_file(weights, path, metadata={"format": "pt"})
    with mistake("has no weights for bert.encoder.layer.1.attention.self.query.weight"):
        load_classifier(source, load_tokenizer(source), MNLI, 16)


def test_a_file_cut_short_is_told(tmp_path: Path) -> None:
    source = bert(tmp_path / "m", MNLI)
    path = tmp_path / "m" / "model.safetensors"
    shutil.copyfile(path, tmp_path / "whole")
    path.write_bytes((tmp_path / "whole").read_bytes()[:-100])
    with mistake("cannot load a model from"):
        load_classifier(source, load_tokenizer(source), MNLI, 16)


def test_inputs_longer_than_the_model_reads_are_told(tmp_path: Path) -> None:
    source = bert(tmp_path / "m", MNLI)
    with mistake("reads at most 40 tokens, but inputs may have 41"):
        load_classifier(source, load_tokenizer(source), MNLI, 41)
    sizes = bert_config().to_dict()
    config = RobertaConfig(pad_token_id=1, **{
        key: sizes[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers",
        "num_attention_heads", "intermediate_size", "max_position_embeddings")})  # fmt: skip
    source = save_model(tmp_path / "r", RobertaModel, config, tiny_tokenizer())
    with mistake("reads at most 38 tokens"):
        load_classifier(source, load_tokenizer(source), MNLI, 39)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_that_were_saved_in_half_precision_are_trained_in_float32(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    """`transformers` would load them as they were saved."""
    source = save_model(tmp_path / "m", BertModel, bert_config(), tiny_tokenizer())
    BertModel.from_pretrained(source, dtype=dtype).save_pretrained(source)
    assert BertModel.from_pretrained(source).dtype == dtype
    classifier, _ = load_classifier(source, load_tokenizer(source), MNLI, 8)
    filler = load_for(AutoModelForMaskedLM, source, "a test", whole=False)
    for model in (classifier, filler):
        assert {p.dtype for p in model.parameters()} == {torch.float32}
