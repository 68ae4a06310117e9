from typing import Any

import pytest
from transformers import (
    MarianConfig,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
)

from headcount import HeadcountError
from headcount.tasks.from_scratch import train_tokenizer
from headcount.tasks.translation import begin_with_language, set_languages

PIECES = ["<s>", "<pad>", "</s>", "<unk>", *"▁abcdefgh"]
SCORED = [(piece, -2.0) for piece in PIECES]


def make(kind: str) -> Any:
    if kind == "nllb":
        return NllbTokenizer(vocab={piece: i for i, piece in enumerate(PIECES)}, merges=[])
    return (MBartTokenizer if kind == "mbart" else MBart50Tokenizer)(vocab=SCORED)


def model_for(tokenizer: Any) -> MBartForConditionalGeneration:
    return MBartForConditionalGeneration(
        MBartConfig(
            vocab_size=len(tokenizer), d_model=8, encoder_layers=1, decoder_layers=1,
            encoder_attention_heads=1, decoder_attention_heads=1, encoder_ffn_dim=8,
            decoder_ffn_dim=8, max_position_embeddings=16,
        )
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["nllb", "mbart", "mbart50"])
def test_sentences_and_translations_are_marked(kind: str) -> None:
    tokenizer = make(kind)
    languages = ("deu_Latn", "eng_Latn") if kind == "nllb" else ("de", "en")
    codes = languages if kind == "nllb" else ("de_DE", "en_XX")
    set_languages(tokenizer, *languages)
    made = tokenizer("a b", text_target="c")
    marks = [tokenizer.convert_tokens_to_ids(code) for code in codes]
    assert marks[0] in made["input_ids"] and marks[1] in made["labels"]
    model = model_for(tokenizer)
    begin_with_language(model, tokenizer)
    tokens = model.generate(
        **tokenizer(["a b"], return_tensors="pt"), max_length=4, num_beams=1, do_sample=False
    )
    assert tokens[0, 0 if kind == "mbart" else 1] == marks[1]


def test_a_language_that_is_not_known() -> None:
    with pytest.raises(HeadcountError, match="option source_code"):
        set_languages(make("nllb"), "de", "en")


def test_a_tokenizer_for_one_direction_is_left_alone() -> None:
    tokenizer = train_tokenizer(["a b"] * 3, 20)
    before = tokenizer("a", text_target="b")
    set_languages(tokenizer, "de", "en")
    assert tokenizer("a", text_target="b") == before
    model: Any = type("Model", (), {"config": MarianConfig(), "generation_config": None})
    begin_with_language(model, tokenizer)
