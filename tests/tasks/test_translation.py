from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from sacrebleu.metrics.bleu import BLEU
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    BartForConditionalGeneration,
    EvalPrediction,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
)

import headcount as hc
from headcount.tasks.base import DataSettings
from headcount.tasks.from_scratch import train_tokenizer
from headcount.tasks.metrics import Scorer
from headcount.tasks.translation import Translation, begin_with_language, set_languages
from tests.tasks.text_data import captions, write, write_pairs

SCRATCH = "scratch:marian-small"
SIZE = {"vocabulary": 100, "layers": 1, "heads": 2, "width": 32, "feed_forward": 64, "dropout": 0}
# What a tokenizer for many languages knows besides the codes of its languages.
PIECES = ["<s>", "<pad>", "</s>", "<unk>", *"▁abcdefgh"]
SCORED = [(piece, -2.0) for piece in PIECES]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    write_pairs(folder, "train", 120)
    write_pairs(folder, "val", 12, seed=1)
    return folder


def make(data: Path, **others: Any) -> Translation:
    options = {**SIZE, **others.pop("options", {})}
    cache = data.parent / "cache"
    return Translation(
        DataSettings(str(data), source="de", target="en", cache=cache, options=options, **others)
    )


def test_a_new_model_learns_to_translate(data: Path, tmp_path: Path) -> None:
    task = make(data, options={"num_beams": 2})
    tokenizer = task.load_processor(SCRATCH)
    model = task.load_model(SCRATCH, tokenizer)
    train, evaluation = task.train_data(tokenizer), task.evaluation_data(tokenizer)
    training = {**task.training, "learning_rate": 1e-2, "warmup_steps": 40}
    args = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path / "out"), per_device_train_batch_size=30, max_steps=220,
        per_device_eval_batch_size=4, logging_strategy="no", save_strategy="no", report_to=[],
        disable_tqdm=True, use_cpu=True, **training,
    )  # fmt: skip
    trainer = Seq2SeqTrainer(
        model=model, args=args, train_dataset=train, processing_class=tokenizer,
        data_collator=task.collator(tokenizer, model),
    )  # fmt: skip
    trainer.train()
    output = trainer.predict(evaluation["val"])
    prediction = EvalPrediction(output.predictions, output.label_ids)
    scores = task.scores(prediction, tokenizer, "val")
    texts = task.predictions(prediction, tokenizer, "val")
    assert scores["bleu"] == sacrebleu.corpus_bleu(texts, [task.references("val")]).score
    assert scores["chrf"] == sacrebleu.corpus_chrf(texts, [task.references("val")]).score
    assert scores["bleu"] > 60

    # The search is part of the model folder, and a pruned model is one for this task as well.
    heads = hc.find_heads(model)
    hc.remove_heads(model, hc.HeadMask.from_names(heads, ["encoder.0.0", "cross.0.0", "cross.0.1"]))
    model.save_pretrained(tmp_path / "small")
    tokenizer.save_pretrained(tmp_path / "small")
    small = task.load_model(str(tmp_path / "small"), task.load_processor(str(tmp_path / "small")))
    assert len(hc.find_heads(small)) == 3
    assert (
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "small").generation_config.num_beams == 2
    )


def test_data_is_in_order_of_length_with_its_references(data: Path) -> None:
    lines, _ = captions(3)
    write(data / "val.de", [lines[0], "", lines[1] + " " + lines[2]])
    write(data / "val.en", ["first", "second", "third"])
    task = make(data)
    tokenizer = task.load_processor(SCRATCH)
    found = task.evaluation_data(tokenizer)["val"]
    assert task.references("val") == ["third", "first", "second"]  # an empty side is kept here
    assert found["row"][:] == [2, 0, 1]
    assert sorted(found["length"], reverse=True) == list(found["length"])
    assert found["length"][2] == 1  # the end of the sentence


def test_outputs_in_another_order_are_refused(data: Path) -> None:
    task = make(data)
    tokenizer = task.load_processor(SCRATCH)
    labels = list(task.evaluation_data(tokenizer)["val"]["labels"])
    width = max(map(len, labels))
    padded = np.array([label + [-100] * (width - len(label)) for label in labels])
    texts = task.predictions(EvalPrediction(padded, padded), tokenizer, "val")
    assert texts == task.references("val")
    scores = task.scores(EvalPrediction(padded, padded), tokenizer, "val")
    assert scores["bleu"] == pytest.approx(100)
    with pytest.raises(hc.HeadcountError, match="not in the order of its data"):
        task.scores(EvalPrediction(padded[::-1], padded[::-1]), tokenizer, "val")
    with pytest.raises(hc.HeadcountError, match="call evaluation_data first"):
        task.references("test")


def test_limits_and_dropped_pairs(data: Path) -> None:
    sources, targets = captions(50)
    write(data / "train.de", ["", *sources])
    write(data / "train.en", ["x", *targets])
    task = make(data, limit_train=20, limit_eval=5)
    tokenizer = task.load_processor(SCRATCH)
    assert task.dropped == {"train": 1}
    assert len(task.train_data(tokenizer)) == 20
    assert len(task.evaluation_data(tokenizer)["val"]) == 5


def test_the_batch(data: Path) -> None:
    task = make(data, max_length=6)
    tokenizer = task.load_processor(SCRATCH)
    model = task.load_model(SCRATCH, tokenizer)
    train = task.train_data(tokenizer)
    assert max(train["length"]) <= 6
    names = ("input_ids", "attention_mask", "labels")
    rows = [{name: row[name] for name in names} for row in train.select(range(8))]
    rows[0]["labels"] = rows[0]["labels"][:2]
    batch = task.collator(tokenizer, model)(rows)
    assert batch["labels"][0].tolist()[2:] == [-100] * (batch["labels"].shape[1] - 2)
    assert (batch["decoder_input_ids"][:, 0] == tokenizer.pad_token_id).all()
    assert model.generation_config.max_length <= 6 + 10
    assert not model.model.encoder.embed_positions.weight.requires_grad  # sines are not learnt
    assert model(**batch).loss.isfinite()


def test_signatures_and_scores() -> None:
    hypotheses = ["The cat sat, on the mat .", "a b c d e f"]
    references = ["the cat sat , on a mat .", "a b c d e g"]
    plain = Scorer()
    bleu = BLEU()
    assert plain.scores(hypotheses, references)["bleu"] == (
        bleu.corpus_score(hypotheses, [references]).score
    )
    assert str(bleu.get_signature()) in plain.signature()
    words = Scorer(tokenised=True, lowercase=True)
    direct = BLEU(tokenize="none", lowercase=True, force=True)
    assert words.scores(hypotheses, references)["bleu_tokenised"] == (
        direct.corpus_score(hypotheses, [references]).score
    )
    assert "tok:none" in words.signature() and "case:lc" in words.signature()
    with pytest.raises(hc.HeadcountError, match="cannot tokenize by 'moses'"):
        Scorer(tokenize="moses")


def test_the_signature_says_what_was_done(data: Path) -> None:
    task = make(data, options={"num_beams": 3, "length_penalty": 0.6, "tokenised": "yes"})
    assert task.metric == "bleu_tokenised"
    for part in ("data:data-val", "lang:de-en", "beam:3", "lenpen:0.6", "tok:13a", "tok:none"):
        assert part in task.signature("val")


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_other_families(data: Path, tmp_path: Path, family: str) -> None:
    tokenizer = train_tokenizer([line for side in captions(60) for line in side], 100)
    ids = {
        "pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.eos_token_id, "vocab_size": len(tokenizer),
    }  # fmt: skip
    if family == "bart":
        model: Any = BartForConditionalGeneration(
            BartConfig(
                d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
                decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
                max_position_embeddings=32, forced_eos_token_id=tokenizer.eos_token_id,
                bos_token_id=tokenizer.bos_token_id, **ids,
            )
        )  # fmt: skip
    else:
        model = T5ForConditionalGeneration(
            T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, **ids)
        )
    folder = str(tmp_path / family)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    task = make(data, options={"prefix": "Ein kind. ", "max_generated": 9})
    processor = task.load_processor(folder)
    loaded = task.load_model(folder, processor)
    found = task.evaluation_data(processor)["val"]
    assert processor.decode(found[0]["input_ids"]).startswith("Ein kind. Ein ")
    names = ("input_ids", "attention_mask", "labels")
    rows = [{name: row[name] for name in names} for row in found]
    batch = task.collator(processor, loaded)(rows)
    with torch.no_grad():
        tokens = loaded.generate(input_ids=batch["input_ids"])
    # transformers 5.0 does not count the first token.
    assert tokens.shape[0] == 12 and tokens.shape[1] <= 10
    output = EvalPrediction(tokens.numpy(), batch["labels"].numpy())
    assert 0 <= task.scores(output, processor, "val")["bleu"] < 100


def test_models_that_do_not_translate(data: Path, tmp_path: Path) -> None:
    task = make(data)
    tokenizer = task.load_processor(SCRATCH)
    GPT2LMHeadModel(
        GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=20, bos_token_id=0, eos_token_id=0)
    ).save_pretrained(tmp_path / "gpt2")
    with pytest.raises(hc.HeadcountError, match="a gpt2 model, which cannot be used for transl"):
        task.load_model(str(tmp_path / "gpt2"), tokenizer)
    with pytest.raises(hc.HeadcountError, match="no folder"):
        task.load_model(str(tmp_path / "absent"), tokenizer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": 3}, "has no option 'beams'; it has columns"),
        ({"num_beams": "many"}, "num_beams is 'many', expected a whole number such as 5"),
        ({"tokenised": "maybe"}, "expected true or false"),
        ({"prefix": {"translate": None}}, "prefix is {'translate': None}, expected a text"),
        ({"config": False}, "config is False, expected a text"),
        ({"columns": 3}, "columns is 3, expected texts with commas between them"),
    ],
)
def test_bad_options(data: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(hc.HeadcountError, match=message):
        make(data, options=options)


def tokenizer_for(kind: str) -> Any:
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
    tokenizer = tokenizer_for(kind)
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
    with pytest.raises(hc.HeadcountError, match="option source_code"):
        set_languages(tokenizer_for("nllb"), "de", "en")


def test_a_tokenizer_for_one_direction_is_left_alone() -> None:
    tokenizer = train_tokenizer(["a b"] * 3, 20)
    before = tokenizer("a", text_target="b")
    set_languages(tokenizer, "de", "en")
    assert tokenizer("a", text_target="b") == before
    model: Any = type("Model", (), {"config": MarianConfig(), "generation_config": None})
    begin_with_language(model, tokenizer)
