"""A tiny tokenizer, tiny classifiers, and tables of every format, as files."""

from __future__ import annotations

import csv
import gzip
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerFast, set_seed

from headcount import HeadcountError

Columns = dict[str, list[Any]]

SENTENCES = (
    "the sailors rode the breeze clear of the rocks",
    "a person on a horse jumps over a broken down airplane",
    "two women are embracing while holding packages",
    "the new rights are nice enough",
)
INPUTS = ["input_ids", "token_type_ids", "attention_mask"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def mistake(says: str) -> Any:
    return pytest.raises(HeadcountError, match=says)


@cache
def _written() -> str:
    """A WordPiece tokenizer of words and letters; trained ones differ from run to run."""
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    letters = sorted({letter for word in words for letter in word} - {*words})
    pieces = [*SPECIAL, *words, *letters, "##s", "!"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    return str(tokenizer.to_str())


def tiny_tokenizer(**settings: Any) -> PreTrainedTokenizerFast:
    names = {
        "pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]",
        "mask_token": "[MASK]", "model_input_names": INPUTS,
    }  # fmt: skip
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(_written()), **(names | settings)
    )


def bert_config(**settings: Any) -> BertConfig:
    sizes = {
        "vocab_size": 120, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 16, "max_position_embeddings": 40,
    }  # fmt: skip
    return BertConfig(**(sizes | settings))


def save_model(folder: Path, model: type[PreTrainedModel], config: Any, tokenizer: Any) -> str:
    set_seed(0)
    model(config).save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return str(folder)


def write_table(path: Path, columns: Columns) -> Path:
    """Write a table in the format that the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ending = path.name.removesuffix(".gz").rsplit(".", maxsplit=1)[-1]
    rows = list(zip(*columns.values(), strict=True))
    if ending in ("tsv", "txt"):
        lines = ["\t".join(columns), *("\t".join(map(str, row)) for row in rows)]
        data = ("\n".join(lines) + "\n").encode()
    elif ending == "csv":
        text = io.StringIO(newline="")
        csv.writer(text).writerows([list(columns), *rows])
        data = text.getvalue().encode()
    elif ending == "jsonl":
        objects = (dict(zip(columns, row, strict=True)) for row in rows)
        data = "".join(json.dumps(row) + "\n" for row in objects).encode()
    else:
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
        data = buffer.getvalue()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
