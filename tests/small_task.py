"""A model folder with a real tokenizer, and tables to classify: small, but read from disk."""

from __future__ import annotations

import random
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

WORDS = [
    "the", "a", "one", "that", "this", "film", "play", "song", "book", "was", "is", "seems", "so",
    "very", "rather", "quite",
]  # fmt: skip
GOOD, BAD = ["good", "great", "fine", "lovely"], ["bad", "poor", "dull", "awful"]
HEADS = 6  # of 3 layers × 2


def save_encoder(folder: Path, seed: int = 0, spread: float = 0.02) -> Path:
    """A bare encoder: it has no classifier. With a larger spread of its weights, heads matter."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: i for i, word in enumerate([*special, *WORDS, *GOOD, *BAD])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    tokenizer.save_pretrained(folder)
    set_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=128,
        initializer_range=spread,
    )
    BertModel(config).save_pretrained(folder)
    return folder


def save_tables(folder: Path, train: int = 96, evaluate: int = 40) -> Path:
    """Sentences that are good or bad, in two CSV files."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    for name, size in (("train", train), ("validation", evaluate)):
        rows = ["text,label"]
        for number in range(size):
            words = draw.choices(WORDS, k=draw.randint(3, 9))
            good = number % 2
            words.insert(draw.randrange(len(words) + 1), draw.choice(GOOD if good else BAD))
            rows.append(f"{' '.join(words)},{'good' if good else 'bad'}")
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder
