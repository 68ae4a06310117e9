"""A new, untrained encoder-decoder: the architecture of the DSP paper for translation.

It is fairseq's `transformer_iwslt_de_en` as a Marian model: layer norm after each block, sinusoidal
positions, 6 + 6 layers with 4 heads in each of 18 blocks. One thing differs. In fairseq, the
encoder has its own embeddings; here encoder and decoder share them, as they share the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

from headcount.atomic import new_folder
from headcount.errors import HeadcountError

PREFIX = "scratch:"
RECIPE = 1  # part of the name of a kept folder; raise it when the same settings give another model
_PAD, _BOS, _EOS, _UNK = "<pad>", "<s>", "</s>", "<unk>"


@dataclass(frozen=True)
class ScratchSettings:
    """The size of a new encoder-decoder.

    Attributes:
        vocabulary: the largest number of subwords, for both languages together.
        layers: the number of layers in the encoder, and also in the decoder.
        heads: the number of heads in every attention block. An encoder layer has one block, a
            decoder layer has two.
        width: the size of the hidden states.
        feed_forward: the inner width of a feed-forward block.
        dropout: the dropout after every block and on the embeddings.
        positions: the longest sentence in subwords.
    """

    vocabulary: int = 10_000
    layers: int = 6
    heads: int = 4
    width: int = 512
    feed_forward: int = 1024
    dropout: float = 0.3
    positions: int = 512


# The paper's size, and one with the same number of heads that two cores can train.
SIZES = {
    "marian": ScratchSettings(),
    "marian-small": ScratchSettings(width=256, feed_forward=512, dropout=0.1),
}

# The paper's recipe as training arguments. `Translation` uses it for models made here.
TRAINING: dict[str, Any] = {
    "learning_rate": 5e-4,
    "label_smoothing_factor": 0.1,
    "lr_scheduler_type": "inverse_sqrt",
    "warmup_steps": 4000,
    "adam_beta1": 0.9,
    "adam_beta2": 0.98,
    "weight_decay": 1e-4,
    "max_grad_norm": 0.0,
}


def size_of(name: str) -> ScratchSettings:
    """The settings behind a name such as `scratch:marian`."""
    size = SIZES.get(name.removeprefix(PREFIX))
    if size is None:
        known = ", ".join(PREFIX + each for each in SIZES)
        raise HeadcountError(f"there is no model {name} to make from scratch; there are {known}")
    return size


def new_encoder_decoder(
    lines: Iterable[str], path: Path, settings: ScratchSettings | None = None, seed: int = 0
) -> Path:
    """Write a folder with an untrained encoder-decoder and a vocabulary made from the lines.

    `AutoTokenizer` and `AutoModelForSeq2SeqLM` load the folder, as any that `save_pretrained`
    writes. The same lines, settings and seed give the same folder.

    Args:
        lines: training sentences of both languages.
        path: the new folder, which must not exist yet; it appears when it is complete.
        settings: the size of the model; None for the paper's.
        seed: draws the first weights; change it for other ones.
    """
    settings = settings or ScratchSettings()
    _check(settings)
    tokenizer = train_tokenizer(lines, settings.vocabulary, settings.positions)
    config = MarianConfig(
        vocab_size=len(tokenizer), d_model=settings.width, activation_function="relu",
        encoder_layers=settings.layers, decoder_layers=settings.layers,
        encoder_attention_heads=settings.heads, decoder_attention_heads=settings.heads,
        encoder_ffn_dim=settings.feed_forward, decoder_ffn_dim=settings.feed_forward,
        dropout=settings.dropout, max_position_embeddings=settings.positions,
        # Marian's own small first weights. With fairseq's (Xavier, 1/√d) it learns much slower:
        # after 200 steps on captions with a width of 128, the loss was 4.9 instead of 3.0.
        scale_embedding=True, init_std=0.02,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id, decoder_start_token_id=tokenizer.pad_token_id,
        forced_eos_token_id=None, share_encoder_decoder_embeddings=True,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MarianMTModel(config)
    with new_folder(path) as scratch:
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
    return path


def train_tokenizer(
    lines: Iterable[str], vocabulary: int, longest: int = 512
) -> PreTrainedTokenizerFast:
    """A tokenizer with one vocabulary of subwords (BPE); it ends every sentence with `</s>`.

    Decoding gives back the text with its spaces. Punctuation is never merged with words. Marian's
    own tokenizer needs SentencePiece and a file for each language; this one is a single file. Its
    class is saved with it, so that `AutoTokenizer` does not choose Marian's.

    Args:
        lines: the text in which subwords are counted.
        vocabulary: the largest number of subwords, including four special ones.
        longest: the length to which longer sentences are cut, in subwords.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=_UNK))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation("isolated")]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=[_PAD, _BOS, _EOS, _UNK],
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    if not set(tokenizer.get_vocab()) - {_PAD, _BOS, _EOS, _UNK, "▁"}:
        raise HeadcountError("there is no text to make a vocabulary from; give training lines")
    end = (_EOS, tokenizer.token_to_id(_EOS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {_EOS}", pair=f"$A $B {_EOS}", special_tokens=[end]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=_PAD, bos_token=_BOS, eos_token=_EOS, unk_token=_UNK,
        model_max_length=longest, clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def _check(settings: ScratchSettings) -> None:
    for name in ("vocabulary", "layers", "heads", "width", "feed_forward", "positions"):
        if getattr(settings, name) < 1:
            raise HeadcountError(
                f"a new model with {name} {getattr(settings, name)}; give a whole number from 1"
            )
    if settings.width % settings.heads or settings.width % 2:
        raise HeadcountError(
            f"a width of {settings.width} cannot be shared by {settings.heads} heads; "
            "give an even width that is a multiple of the heads"
        )
    if not 0 <= settings.dropout < 1:
        raise HeadcountError(f"a dropout of {settings.dropout}; give a number from 0 to below 1")
