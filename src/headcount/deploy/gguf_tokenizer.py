"""Tokenizers in GGUF: the vocabulary of a model, as llama.cpp splits text with it.

llama.cpp has its own code for tokenizers. It knows byte-level BPE with a list of ways to split text
before the merges, each under a name, and the BPE of SentencePiece with scores. What is not one of
them is refused: a file with a wrong name there loads, and reads every text a little wrongly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedModel

from headcount.deploy.regular import NotHeldError
from headcount.loading.folder import NO_CODE, first_line

FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
SPACE = "▁"  # SentencePiece writes spaces so
# What a token is, in the numbers of GGUF; `held` asks before its package is needed.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
Json = dict[str, Any]

# The ways to split text that llama.cpp knows, by their regular expressions in `tokenizer.json`;
# with them, whether a word that is a token as it is skips the merges.
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_END = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SPLITS: Mapping[tuple[str, bool], str] = {
    (_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _END, True): "llama-bpe",
    (_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _END, False): "qwen2",
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
        + _END.replace(r"[\r\n]*", r"[\r\n/]*", 1),
        True,
    ): "tekken",
}


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of a model, as GGUF has it.

    Attributes:
        tokenizer: the tokenizer of transformers; None for a model without one, whose tokens are
            named by their numbers.
        model: the name of llama.cpp's code, `gpt2` for byte-level BPE or `llama`.
        texts: the texts of all tokens, as many as the model has embeddings.
        types: what each token is, in the numbers of GGUF.
        keys: the further entries of GGUF, by the method of its writer that adds them.
    """

    tokenizer: Any
    model: str
    texts: Sequence[str]
    types: Sequence[int]
    keys: Mapping[str, Any]

    @property
    def words(self) -> str:
        """What kind of tokenizer the file has."""
        if self.tokenizer is None:
            return "none: the tokens are named by their numbers"
        split = self.keys["add_tokenizer_pre"]
        return "SentencePiece BPE" if self.model == "llama" else f"byte-level BPE, {split}"

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text, with those that begin and end it."""
        found: list[int] = self.tokenizer(text)["input_ids"]
        return found

    def add_to(self, writer: Any) -> None:
        """Write everything into a GGUF file."""
        writer.add_tokenizer_model(self.model)
        writer.add_token_list(self.texts)
        writer.add_token_types(self.types)
        for method, value in self.keys.items():
            getattr(writer, method)(value)


def vocabulary(source: str, model: PreTrainedModel) -> Vocabulary:
    """The vocabulary of a model.

    Args:
        source: the model's folder or hub name.
        model: the model, for the number of its embeddings and its special tokens.

    Raises:
        NotHeldError: llama.cpp does not split text as its tokenizer does.
    """
    folder = Path(source)
    if not source or (folder.is_dir() and not any((folder / name).is_file() for name in FILES)):
        return _numbers(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **NO_CODE)
    except Exception as error:  # folders can hold anything, and so do their errors
        raise NotHeldError(f"its tokenizer does not load: {first_line(error)}") from error
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise NotHeldError("its tokenizer has no form as tokenizer.json")
    inside: Json = json.loads(tokenizer.backend_tokenizer.to_str())
    if inside["model"].get("type") != "BPE":
        raise NotHeldError(f"its tokenizer is {inside['model'].get('type')}, and not BPE")
    _refuse_unusual(inside)
    special = _special(tokenizer, model)
    if inside["model"].get("byte_fallback"):
        kind, keys = "llama", _sentencepiece(inside, model)
    else:
        kind, keys = "gpt2", _byte_level(inside)
    texts, types = _texts(inside, tokenizer, model, kind)
    return Vocabulary(tokenizer, kind, texts, types, {**keys, **special})


def _numbers(model: PreTrainedModel) -> Vocabulary:
    """A vocabulary for a model without a tokenizer.

    GGUF also knows files without any vocabulary. llama.cpp loads them, and ends its process as
    soon as it wants to print a token.
    """
    count = model.config.vocab_size
    keys: Json = {"add_token_scores": [0.0] * count, **_ids(None, model)}
    keys |= {"add_add_bos_token": False, "add_add_eos_token": False}
    return Vocabulary(None, "llama", [f"[{i}]" for i in range(count)], [NORMAL] * count, keys)


def _refuse_unusual(inside: Json) -> None:
    model = inside["model"]
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise NotHeldError(f"its tokenizer has a {key}, which llama.cpp does not know")
    for token in inside["added_tokens"]:
        if token["lstrip"] or token["rstrip"] or token["single_word"]:
            raise NotHeldError(
                f"its token {token['content']} takes spaces around it away, which llama.cpp does "
                "not do"
            )


# --- byte-level BPE -----------------------------------------------------------------------------


def _byte_level(inside: Json) -> Json:
    normal = inside.get("normalizer")
    # Qwen composes letters and accents first. llama.cpp does not; most text is composed already.
    if normal is not None and normal != {"type": "NFC"}:
        raise NotHeldError(f"its tokenizer normalises text ({normal['type']}) before it splits it")
    merges = [f"{left} {right}" for left, right in _merges(inside)]
    return {"add_tokenizer_pre": _split_name(inside), "add_token_merges": merges}


def _merges(inside: Json) -> list[tuple[str, str]]:
    """The merges of a tokenizer; older files have each as one string."""
    pairs = (
        merge.split(" ") if isinstance(merge, str) else merge for merge in inside["model"]["merges"]
    )
    return [(left, right) for left, right in pairs]


def _split_name(inside: Json) -> str:
    """The name that llama.cpp has for how a tokenizer splits text before its merges."""
    steps = inside.get("pre_tokenizer") or {"type": "no pre-tokenizer"}
    steps = steps["pretokenizers"] if steps["type"] == "Sequence" else [steps]
    kinds = [step["type"] for step in steps]
    skips = bool(inside["model"].get("ignore_merges"))
    last = steps[-1]
    if kinds[-1] == "ByteLevel" and not last["add_prefix_space"]:
        if last["use_regex"] and not skips:
            if kinds == ["ByteLevel"]:
                return "gpt-2"
            if kinds == ["Digits", "ByteLevel"] and steps[0]["individual_digits"]:
                return "smollm"
        if not last["use_regex"] and kinds == ["Split", "ByteLevel"] and _isolates(steps[0]):
            pattern = steps[0]["pattern"].get("Regex", "")
            if (pattern, skips) in SPLITS:
                return SPLITS[pattern, skips]
    raise NotHeldError(
        f"its tokenizer splits text in a way that has no name here ({', '.join(kinds)})"
    )


def _isolates(step: Json) -> bool:
    return step["behavior"] == "Isolated" and not step["invert"]


# --- the BPE of SentencePiece -------------------------------------------------------------------


def _sentencepiece(inside: Json, model: PreTrainedModel) -> Json:
    pairs = _merges(inside)
    ranks = _ranks(pairs, inside)
    scores = [-float(len(pairs) + 1)] * model.config.vocab_size
    for text, number in inside["model"]["vocab"].items():
        scores[number] = -float(ranks.get(text, len(pairs)))
    return {
        "add_tokenizer_pre": "default",
        "add_token_scores": scores,
        "add_add_space_prefix": _space_prefix(inside),
    }


def _ranks(pairs: Sequence[tuple[str, str]], inside: Json) -> dict[str, int]:
    """For every token that merges make, when they make it.

    llama.cpp merges whatever gives the token with the best score, and knows no pairs. That is the
    same if all pairs that give a token are merges, one after another.

    Raises:
        NotHeldError: it is not the same.
    """
    added = {token["content"] for token in inside["added_tokens"]}
    known = inside["model"]["vocab"]
    ranks: dict[str, int] = {}
    made: dict[str, int] = {}
    latest = ""
    for rank, (left, right) in enumerate(pairs):
        text = left + right
        if text != latest and text in ranks:
            raise NotHeldError(f"its merges come back to the token {text!r}, which no score says")
        latest = text
        ranks.setdefault(text, rank)
        made[text] = made.get(text, 0) + 1
    for text in known.keys() - added:
        if len(text) > 1 and not _is_byte(text):
            ways = sum(text[:i] in known and text[i:] in known for i in range(1, len(text)))
            if ways != made.get(text, 0):
                raise NotHeldError(f"its merges make the token {text!r} in fewer ways than exist")
    return ranks


def _is_byte(text: str) -> bool:
    return len(text) == 6 and text.startswith("<0x") and text.endswith(">")


def _space_prefix(inside: Json) -> bool:
    """Whether a text gets a space before it.

    Raises:
        NotHeldError: text is changed in ways that llama.cpp does not know.
    """
    normal, before = inside.get("normalizer"), inside.get("pre_tokenizer")
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    if before is None and normal is not None:
        steps = normal["normalizers"] if normal["type"] == "Sequence" else [normal]
        if steps == [{"type": "Prepend", "prepend": SPACE}, replaced]:
            return True
        if steps == [replaced]:
            return False
    if normal is None and before is not None and before["type"] == "Metaspace":
        whole = not before.get("split", True)  # llama.cpp also merges across spaces
        if whole and before["replacement"] == SPACE:
            return bool(before["prepend_scheme"] != "never")
    raise NotHeldError("its tokenizer changes text in a way that llama.cpp does not know")


# --- tokens -------------------------------------------------------------------------------------


def _texts(
    inside: Json, tokenizer: Any, model: PreTrainedModel, kind: str
) -> tuple[list[str], list[int]]:
    """Text and type of every token, with placeholders up to the number of embeddings."""
    count = model.config.vocab_size
    texts = [f"[PAD{number}]" for number in range(count)]
    kinds = [UNUSED] * count
    for text, number in inside["model"]["vocab"].items():
        if number >= count:
            raise NotHeldError(f"its tokenizer has a token {number}, and the model {count}")
        texts[number] = text
        is_byte = kind == "llama" and _is_byte(text)
        kinds[number] = BYTE if is_byte else NORMAL
    for token in inside["added_tokens"]:
        number = token["id"]
        if number >= count:
            raise NotHeldError(f"its tokenizer has a token {number}, and the model {count}")
        texts[number] = token["content"]
        kinds[number] = CONTROL if token["special"] else USER_DEFINED
    unknown = tokenizer.unk_token_id
    if kind == "llama" and unknown is not None and unknown < count:
        kinds[unknown] = UNKNOWN
    return texts, kinds


def _special(tokenizer: Any, model: PreTrainedModel) -> Json:
    """Special tokens, which of them every text gets, and the chat template."""
    keys = _ids(tokenizer, model)
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    start = next((i for i in range(len(whole)) if whole[i : i + len(bare)] == bare), len(whole))
    begin, end = whole[:start], whole[start + len(bare) :]
    if begin not in ([], [tokenizer.bos_token_id]) or end not in ([], [tokenizer.eos_token_id]):
        raise NotHeldError("its tokenizer adds other tokens to a text than those of begin and end")
    keys |= {"add_add_bos_token": bool(begin), "add_add_eos_token": bool(end)}
    if isinstance(tokenizer.chat_template, str):
        keys["add_chat_template"] = tokenizer.chat_template
    elif tokenizer.chat_template:
        named = tokenizer.chat_template.items()
        keys["add_chat_template"] = [{"name": n, "template": text} for n, text in named]
    return keys


def _ids(tokenizer: Any, model: PreTrainedModel) -> Json:
    """The numbers of special tokens: the tokenizer's, or else those of the configuration.

    Raises:
        NotHeldError: nothing ends a text; llama.cpp would then take some token for it.
    """
    found: Json = {}
    for kind in ("bos", "eos", "pad", "unk"):
        number = getattr(tokenizer, f"{kind}_token_id", None)
        if number is None:
            number = getattr(model.config, f"{kind}_token_id", None)
        if isinstance(number, list):
            number = number[0]
        if isinstance(number, int) and 0 <= number < model.config.vocab_size:
            found[f"add_{kind}_token_id"] = number
    if tokenizer is not None and "add_eos_token_id" not in found:
        raise NotHeldError("its tokenizer has no token that ends a text")
    return found
