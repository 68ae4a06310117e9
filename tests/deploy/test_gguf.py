"""GGUF files of pruned decoders: what is written, what llama.cpp answers, and what is refused."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma2Config,
    Gemma2ForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from headcount import find_heads
from headcount.deploy import gguf_file, gguf_weights, llama_cpp
from headcount.deploy.gguf_architecture import Holding
from headcount.deploy.gguf_file import held, write
from headcount.deploy.gguf_tokenizer import SPLITS, vocabulary
from headcount.deploy.gguf_weights import halves, neighbours
from headcount.deploy.regular import NotHeldError
from headcount.errors import HeadcountError
from tests.deploy.pruned import KINDS, LAYOUTS, cut, pruned, tiny

gguf = pytest.importorskip("gguf")
tokenizers = pytest.importorskip("tokenizers")

MODELS = Path(os.environ.get("HEADCOUNT_MODELS", "/nowhere"))
EVEN = ("whole", "even")
HELD = [name for name in KINDS if name not in ("qwen3 biased", "qwen3 yarn")]
# Some of each, for the tests that run every time.
FEW = [
    ("llama", "whole"),
    ("llama tied", "uneven groups"),
    ("llama biased", "middle emptied"),
    ("llama 3", "first emptied"),
    ("llama yarn", "uneven"),
    ("llama linear", "even"),
    ("mistral", "last emptied"),
    ("mistral windowed", "even"),
    ("mistral windowed tied", "uneven groups"),
    ("qwen2", "even"),
    ("qwen2", "first emptied"),
    ("seed_oss", "uneven"),
    ("qwen3", "even"),
    ("qwen3", "uneven groups"),
    ("qwen3", "last emptied"),
    ("qwen3 tied", "uneven"),
    ("qwen3 tied yarn", "first emptied"),
]


def read(file: Path) -> Any:
    return gguf.GGUFReader(file)


def entry(file: Path, key: str) -> Any:
    return read(file).fields[key].contents()


def architecture_of(kind: str, layout: str) -> str:
    """The architecture that was measured to hold a model."""
    if kind.startswith("mistral windowed"):
        return "mimo2"
    if kind.startswith("qwen3"):
        return "qwen3" if layout in EVEN else "openelm" if "tied" in kind else "step35"
    return "llama" if layout in EVEN else "deci"


@pytest.fixture
def without_llama_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_file, "find_spec", lambda name: None)


# --- the writer, which needs gguf alone ---------------------------------------------------------


@pytest.mark.usefixtures("without_llama_cpp")
class TestWriting:
    @pytest.mark.parametrize("precision", ["f32", "f16", "q8_0"])
    @pytest.mark.parametrize(("kind", "layout"), FEW)
    def test_the_file_has_the_weights(
        self, kind: str, layout: str, precision: str, tmp_path: Path
    ) -> None:
        model = pruned(kind, layout)
        record = write(model, str(tmp_path), tmp_path, precision)
        assert record["architecture"] == architecture_of(kind, layout)
        assert record["difference"] == 0
        assert record["checked"].startswith("It was not run in llama.cpp")
        assert record["file"] == f"model-{precision.upper()}.gguf"
        assert record["bytes"] == (tmp_path / record["file"]).stat().st_size

    def test_layers_have_their_own_numbers_of_heads(self, tmp_path: Path) -> None:
        write(pruned("llama", "uneven groups"), str(tmp_path), tmp_path, "f32")
        file = tmp_path / "model-F32.gguf"
        assert entry(file, "deci.attention.head_count") == [3, 4, 5, 1]
        # Groups of 2 and 1 need 3 key-value heads, groups of 1 and 3 need 4, and so on.
        assert entry(file, "deci.attention.head_count_kv") == [3, 4, 5, 1]
        assert entry(file, "deci.attention.key_length") == 32

    def test_an_emptied_layer_is_left_out_or_has_a_head_of_zeros(self, tmp_path: Path) -> None:
        for kind, layout, layer, there in (
            ("llama", "middle emptied", 1, False),
            ("llama", "last emptied", 3, False),
            ("llama", "first emptied", 0, True),
            ("llama biased", "middle emptied", 1, True),
            ("qwen3", "middle emptied", 1, True),
        ):
            write(pruned(kind, layout), str(tmp_path), tmp_path, "f32")
            file = read(tmp_path / "model-F32.gguf")
            found = {
                tensor.name: tensor
                for tensor in file.tensors
                if tensor.name.startswith(f"blk.{layer}.attn_")
            }
            assert bool(found) == there, (kind, layout)
            if there:
                assert not np.any(found[f"blk.{layer}.attn_output.weight"].data)

    def test_a_row_that_8_bits_cannot_hold_gets_16(self, tmp_path: Path) -> None:
        model = tiny("llama", head_dim=16)
        cut(model, ((0,), (0, 1), (4,), (5, 6)))
        write(model, str(tmp_path), tmp_path, "q8_0")
        types = {t.name: t.tensor_type.name for t in read(tmp_path / "model-Q8_0.gguf").tensors}
        assert types["blk.0.attn_output.weight"] == "F16"
        assert types["blk.1.attn_output.weight"] == "Q8_0"
        assert types["blk.0.attn_q.weight"] == "Q8_0"
        assert types["output_norm.weight"] == "F32"

    def test_damage_is_seen(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gguf_weights, "neighbours", lambda tensor, size: tensor)
        with pytest.raises(HeadcountError, match=r"written wrongly: .*[qk]_proj.weight differs"):
            write(pruned("llama", "uneven"), str(tmp_path), tmp_path, "f32")

    def test_weights_beyond_float16_are_refused(self, tmp_path: Path) -> None:
        model = pruned("llama", "even")
        with torch.no_grad():
            model.lm_head.weight[0, 0] = 1e6
        with pytest.raises(HeadcountError, match="too large for F16; write the file with f32"):
            write(model, str(tmp_path), tmp_path, "f16")

    def test_the_precision_is_one_of_three(self, tmp_path: Path) -> None:
        with pytest.raises(HeadcountError, match="'q4', expected f32, f16, q8_0"):
            write(pruned("llama", "even"), str(tmp_path), tmp_path, "q4")


def test_the_order_of_rows_can_be_undone() -> None:
    rows = torch.arange(24.0).reshape(12, 2)
    assert neighbours(rows, 6)[:6, 0].tolist() == [0, 6, 2, 8, 4, 10]
    assert torch.equal(halves(neighbours(rows, 6), 6), rows)
    bias = torch.arange(12.0)
    assert torch.equal(halves(neighbours(bias, 4), 4), bias)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "layout", "settings", "why"),
    [
        ("qwen3 biased", "even", {}, "biases, norms of queries and keys"),
        ("qwen3 yarn", "uneven", {}, "norms of queries and keys, yarn rope scaling"),
        ("llama", "even", {"hidden_act": "gelu"}, "activation is gelu"),
        (
            "llama",
            "even",
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "rope scaling dynamic",
        ),
        (
            "qwen3",
            "even",
            {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2},
            "some of its layers have a sliding window",
        ),
        (
            "qwen2",
            "even",
            {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0},
            "a sliding window, biases at once",
        ),
    ],
)
def test_what_llama_cpp_does_not_have_is_refused(
    kind: str, layout: str, settings: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(NotHeldError, match=why):
        held(pruned(kind, layout, **settings), str(tmp_path))


def test_other_families_are_refused_by_name(tmp_path: Path) -> None:
    config = Gemma2Config(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, head_dim=16,
        num_attention_heads=2, num_key_value_heads=1,
    )  # fmt: skip
    with pytest.raises(NotHeldError, match="Gemma2ForCausalLM is not among the models"):
        held(Gemma2ForCausalLM(config), str(tmp_path))


def test_held_says_the_architecture(tmp_path: Path) -> None:
    uneven = "architecture deci, layers with their own numbers of heads"
    assert held(pruned("llama", "uneven"), str(tmp_path)) == uneven
    assert held(pruned("qwen2", "even"), str(tmp_path)) == "architecture llama, biases"


# --- tokenizers ---------------------------------------------------------------------------------


def byte_level(folder: Path, **changes: Any) -> None:
    """Train a byte-level BPE on our own texts and save it, with a part of its JSON changed."""
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(
        llama_cpp.TEXTS * 3, vocab_size=380, show_progress=False, special_tokens=["<s>", "</s>"]
    )
    inside = json.loads(made._tokenizer.to_str())
    inside["pre_tokenizer"] = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
    }  # fmt: skip
    inside["model"] |= changes.pop("model", {})
    inside |= changes
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(inside)),
        bos_token="<s>",
        eos_token="</s>",
    )
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    fast.save_pretrained(folder)


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
DIGITS = [{"type": "Digits", "individual_digits": True}, {**BYTES, "use_regex": True}]


def split_by(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    return {"type": "Sequence", "pretokenizers": [{**split, "invert": False}, BYTES]}


def ways() -> list[Any]:
    """Every way to split text that has a name: the JSON of a tokenizer that does so."""
    known = [
        pytest.param(
            {"pre_tokenizer": split_by(pattern), "model": {"ignore_merges": skips}}, name, id=name
        )
        for (pattern, skips), name in SPLITS.items()
    ]
    digits = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": DIGITS}}
    return [
        pytest.param({}, "gpt-2", id="gpt-2"),
        pytest.param(digits, "smollm", id="smollm"),
        *known,
    ]


@pytest.mark.parametrize(("changes", "name"), ways())
def test_ways_to_split_have_their_names(changes: dict[str, Any], name: str, tmp_path: Path) -> None:
    byte_level(tmp_path, **changes)
    words = vocabulary(str(tmp_path), tiny("llama", vocab_size=400))
    assert words.keys["add_tokenizer_pre"] == name
    assert words.words == f"byte-level BPE, {name}"
    assert len(words.texts) == len(words.types) == 400
    types = gguf.TokenType
    assert words.types[0] == types.CONTROL and words.types[300] == types.NORMAL
    assert words.texts[399] == "[PAD399]" and words.types[399] == types.UNUSED
    assert words.keys["add_eos_token_id"] == 1 and not words.keys["add_add_bos_token"]
    assert "messages" in words.keys["add_chat_template"]


def sentencepiece(folder: Path, leave_out: int = 0) -> None:
    """Save a BPE as transformers makes it of SentencePiece's: all ways to make a token are merges.

    Args:
        folder: where to save it.
        leave_out: how many of the last merges to leave out.
    """
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    texts += sorted({letter for text in llama_cpp.TEXTS[0] for letter in text if letter != " "})
    texts += ["▁", "▁t", "he", "▁the", "re", "in", "er", "▁a", "▁th", "ing", "ld", "uil", "▁an"]
    known = {text: number for number, text in enumerate(texts)}
    merges = [
        [text[:cut_at], text[cut_at:]]
        for text in texts[259:]
        for cut_at in range(1, len(text))
        if text[:cut_at] in known and text[cut_at:] in known
    ]
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    begin = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    inside = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": n, "content": texts[n], **special, "special": True} for n in range(3)
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "Prepend", "prepend": "▁"}, space],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, text],
            "pair": [begin, text],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": None,
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": known,
            "merges": merges[: len(merges) - leave_out],
        },
    }
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(inside)),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    ).save_pretrained(folder)


def test_the_bpe_of_sentencepiece_has_scores(tmp_path: Path) -> None:
    sentencepiece(tmp_path)
    words = vocabulary(str(tmp_path), tiny("llama", vocab_size=320))
    assert words.words == "SentencePiece BPE"
    scores = dict(zip(words.texts, words.keys["add_token_scores"], strict=True))
    assert scores["▁t"] == 0 and scores["▁t"] > scores["he"] > scores["▁the"] > scores["▁an"]
    assert words.keys["add_add_space_prefix"] and words.keys["add_add_bos_token"]
    types = gguf.TokenType
    assert list(words.types[:4]) == [types.UNKNOWN, types.CONTROL, types.CONTROL, types.BYTE]


def test_merges_that_scores_cannot_say_are_refused(tmp_path: Path) -> None:
    sentencepiece(tmp_path, leave_out=1)
    with pytest.raises(NotHeldError, match="'▁an' in fewer ways than exist"):
        held(tiny("llama", vocab_size=320), str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"pre_tokenizer": split_by("[0-9]+")}, "no name here"),
        ({"pre_tokenizer": {**BYTES, "use_regex": True, "add_prefix_space": True}}, "no name here"),
        ({"normalizer": {"type": "Lowercase"}}, "normalises text"),
    ],
)
def test_other_tokenizers_are_refused(changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    byte_level(tmp_path, **changes)
    with pytest.raises(NotHeldError, match=why):
        held(tiny("llama", vocab_size=400), str(tmp_path))


def test_a_tokenizer_that_is_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    byte_level(tmp_path)
    with pytest.raises(NotHeldError, match=r"has a token \d+, and the model 128"):
        held(tiny("llama"), str(tmp_path))


def test_a_tokenizer_without_an_end_is_refused(tmp_path: Path) -> None:
    byte_level(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    config = json.loads(file.read_text("utf-8"))
    config.pop("eos_token")
    file.write_text(json.dumps(config), "utf-8")
    with pytest.raises(NotHeldError, match="no token that ends a text"):
        held(tiny("llama", vocab_size=400, eos_token_id=None), str(tmp_path))


# --- llama.cpp ----------------------------------------------------------------------------------


class TestRunning:
    @pytest.fixture(autouse=True)
    def _needs_llama_cpp(self) -> None:
        pytest.importorskip("xllamacpp")

    @pytest.mark.parametrize(("kind", "layout"), FEW)
    def test_llama_cpp_answers_as_the_model(self, kind: str, layout: str, tmp_path: Path) -> None:
        self.answers_as_the_model(kind, layout, tmp_path)

    @pytest.mark.slow
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("kind", HELD)
    def test_every_kind_in_every_layout(self, kind: str, layout: str, tmp_path: Path) -> None:
        self.answers_as_the_model(kind, layout, tmp_path)

    def answers_as_the_model(self, kind: str, layout: str, folder: Path) -> None:
        record = write(pruned(kind, layout), str(folder), folder, "f32")
        assert record["architecture"] == architecture_of(kind, layout)
        assert record["difference"] < 1e-4
        assert record["greedy"] == "34 of 34 greedy tokens are equal"
        assert record["checked"].startswith("It was run in llama.cpp (xllamacpp ")

    @pytest.mark.parametrize("kind", ["llama biased", "qwen3", "qwen3 tied", "mistral windowed"])
    @pytest.mark.parametrize(("precision", "mean"), [("f16", 5e-3), ("q8_0", 1e-1)])
    def test_other_precisions(self, kind: str, precision: str, mean: float, tmp_path: Path) -> None:
        record = write(pruned(kind, "uneven groups"), str(tmp_path), tmp_path, precision)
        assert record["mean_difference"] < mean
        assert [file.name for file in tmp_path.iterdir()] == [record["file"]]

    @pytest.mark.parametrize("precision", ["f32", "f16", "q8_0"])
    @pytest.mark.parametrize("mistake", ["rows", "window", "bias", "rope"])
    def test_mistakes_are_seen(
        self, mistake: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What llama.cpp loads without a word, and answers wrongly."""
        kind, layout = "llama", "uneven"
        if mistake == "rows":
            monkeypatch.setattr(gguf_weights, "neighbours", lambda tensor, size: tensor)
        elif mistake == "window":
            kind = "mistral windowed"
            monkeypatch.setattr(gguf_file, "window_of", lambda model: None)
        elif mistake == "bias":
            kind, layout = "llama biased", "middle emptied"
            skipped = Holding.is_skipped
            monkeypatch.setattr(
                Holding, "is_skipped", lambda self, layer, out_bias: skipped(self, layer, False)
            )
        else:
            kind = "llama 3"
            monkeypatch.setattr(gguf_weights, "_rope_factors", lambda model: torch.ones(16))
        with pytest.raises(HeadcountError, match=r"answers something else in llama.cpp"):
            write(pruned(kind, layout), str(tmp_path), tmp_path, precision)

    def test_a_crash_is_one_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a head of zeros in the first layer, llama.cpp ends its process."""
        monkeypatch.setattr(
            Holding, "is_skipped", lambda self, layer, out_bias: self.blocks[layer].is_emptied
        )
        with pytest.raises(HeadcountError, match=r"cannot run model-F32.gguf: .*exit code"):
            write(pruned("llama", "first emptied"), str(tmp_path), tmp_path, "f32")

    @pytest.mark.parametrize(("changes", "name"), ways())
    def test_texts_are_the_same_tokens(
        self, changes: dict[str, Any], name: str, tmp_path: Path
    ) -> None:
        byte_level(tmp_path, **changes)
        model = tiny("llama", vocab_size=400)
        record = write(model, str(tmp_path), tmp_path, "f32")
        assert record["tokenizer"] == f"byte-level BPE, {name}"
        assert record["greedy"] == "51 of 51 greedy tokens are equal"

    def test_sentencepiece_gives_the_same_tokens(self, tmp_path: Path) -> None:
        sentencepiece(tmp_path)
        record = write(tiny("llama", vocab_size=320), str(tmp_path), tmp_path, "f32")
        assert record["tokenizer"] == "SentencePiece BPE"
        assert record["greedy"] == "51 of 51 greedy tokens are equal"

    def test_other_tokens_are_seen(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        byte_level(tmp_path)
        from headcount.deploy import gguf_tokenizer

        monkeypatch.setattr(gguf_tokenizer, "_split_name", lambda inside: "llama-bpe")
        with pytest.raises(HeadcountError, match=r"splits text into other tokens in llama.cpp"):
            write(tiny("llama", vocab_size=400), str(tmp_path), tmp_path, "f32")


# --- real models --------------------------------------------------------------------------------


def real(name: str) -> tuple[PreTrainedModel, str]:
    """A real model without some heads: uneven groups, and one layer without any."""
    folder = MODELS / name
    if not folder.is_dir():
        pytest.skip(f"HEADCOUNT_MODELS has no {name}")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    drawn = random.Random(0)
    born = [block.born for block in find_heads(model).blocks]
    layout = [tuple(sorted(drawn.sample(range(n), drawn.randint(1, n)))) for n in born]
    layout[3] = ()
    cut(model, tuple(layout))
    return model, str(folder)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("name", ["stories", "smollm2"])
def test_real_models(name: str, precision: str, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    model, source = real(name)
    record = write(model, source, tmp_path, precision)
    assert record["architecture"] == "deci"
    assert (
        record["tokenizer"]
        == {
            "stories": "SentencePiece BPE",
            "smollm2": "byte-level BPE, smollm",
        }[name]
    )
    if precision == "f32":
        assert record["difference"] < 1e-4
        assert record["greedy"] == "51 of 51 greedy tokens are equal"


@pytest.mark.slow
def test_real_chat_templates() -> None:
    if not (MODELS / "smollm2").is_dir():
        pytest.skip("HEADCOUNT_MODELS has no smollm2")
    source = str(MODELS / "smollm2")
    words = vocabulary(source, AutoModelForCausalLM.from_pretrained(source))
    tokenizer = AutoTokenizer.from_pretrained(source)
    assert words.keys["add_chat_template"] == tokenizer.chat_template
    assert words.keys["add_eos_token_id"] == tokenizer.eos_token_id
