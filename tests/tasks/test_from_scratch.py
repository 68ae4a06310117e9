from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel

import headcount as hc
from headcount.tasks.from_scratch import (
    TRAINING,
    ScratchSettings,
    new_encoder_decoder,
    size_of,
    train_tokenizer,
)
from tests.tasks.text_data import captions

LINES = [line for side in captions(60) for line in side]
TINY = ScratchSettings(vocabulary=120, layers=1, heads=2, width=16, feed_forward=32)


def test_the_papers_model_has_72_heads(tmp_path: Path) -> None:
    size = ScratchSettings(vocabulary=80, width=16, feed_forward=16)
    model = AutoModelForSeq2SeqLM.from_pretrained(new_encoder_decoder(LINES, tmp_path / "m", size))
    kinds = [block.kind for block in hc.find_heads(model).blocks for _ in block.heads]
    assert {k: kinds.count(k) for k in kinds} == {"encoder": 24, "decoder": 24, "cross": 24}


def test_the_papers_sizes() -> None:
    paper = size_of("scratch:marian")
    assert (paper.layers, paper.heads, paper.width, paper.feed_forward) == (6, 4, 512, 1024)
    assert (paper.dropout, paper.vocabulary) == (0.3, 10_000)
    assert TRAINING["label_smoothing_factor"] == 0.1
    assert TRAINING["lr_scheduler_type"] == "inverse_sqrt"
    small = size_of("scratch:marian-small")
    assert (small.layers, small.heads) == (6, 4)


def test_auto_classes_load_the_folder(tmp_path: Path) -> None:
    folder = new_encoder_decoder(LINES, tmp_path / "m", TINY)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "Ein rot hund. Ein mann  läuft."  # two spaces stay two
    made = tokenizer(text, text_target="A red dog.")
    assert tokenizer.decode(made["input_ids"], skip_special_tokens=True) == text
    assert made["input_ids"][-1] == made["labels"][-1] == tokenizer.eos_token_id
    assert set(made) == {"input_ids", "attention_mask", "labels"}
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert isinstance(model, MarianMTModel)
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.decoder_start_token_id == tokenizer.pad_token_id
    assert model.lm_head.weight is model.model.decoder.embed_tokens.weight
    tokens = model.generate(**tokenizer(["Ein Hund"], return_tensors="pt"), max_length=5)
    assert tokens.shape[0] == 1


def test_the_same_seed_gives_the_same_folder(tmp_path: Path) -> None:
    torch.manual_seed(1)
    first = new_encoder_decoder(LINES, tmp_path / "a", TINY, seed=3)
    state = torch.get_rng_state()
    second = new_encoder_decoder(LINES, tmp_path / "b", TINY, seed=3)
    other = new_encoder_decoder(LINES, tmp_path / "c", TINY, seed=4)
    assert torch.equal(state, torch.get_rng_state())
    weights = "model.safetensors"
    assert (first / weights).read_bytes() == (second / weights).read_bytes()
    assert (first / weights).read_bytes() != (other / weights).read_bytes()
    assert (first / "tokenizer.json").read_bytes() == (second / "tokenizer.json").read_bytes()


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(hc.HeadcountError, match="exists already"):
        new_encoder_decoder(LINES, tmp_path, TINY)


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(hc.HeadcountError, match="no text to make a vocabulary from"):
        new_encoder_decoder(["", " "], tmp_path / "m", TINY)
    assert not list(tmp_path.iterdir())


def test_punctuation_is_not_merged_with_words() -> None:
    tokenizer = train_tokenizer(["hund. hund. hund."] * 9, 60)
    assert tokenizer.tokenize("hund.") == ["▁hund", "."]


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (ScratchSettings(width=30, heads=4), "cannot be shared by 4 heads"),
        (ScratchSettings(layers=0), "layers 0"),
        (ScratchSettings(dropout=1.5), "dropout of 1.5"),
    ],
)
def test_impossible_sizes(tmp_path: Path, size: ScratchSettings, message: str) -> None:
    with pytest.raises(hc.HeadcountError, match=message):
        new_encoder_decoder(LINES, tmp_path / "m", size)


def test_an_unknown_name() -> None:
    with pytest.raises(hc.HeadcountError, match="scratch:marian-small"):
        size_of("scratch:bart")
