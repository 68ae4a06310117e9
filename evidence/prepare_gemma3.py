"""Write the tokenizer of a Gemma 3 folder that has only its vocabulary, `vocab.json`.

    python evidence/prepare_gemma3.py gemma3

The vocabulary is a list of pieces. Pieces after the bytes were learned by byte-pair encoding, the
first one first. So two pieces merge in the order of what they make, as in Gemma's own tokenizer.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
from transformers import PreTrainedTokenizerFast

SPACE = "▁"
FIRST_BYTE = "<0x00>"


def merges(pieces: list[str], index: dict[str, int], learned: int) -> list[tuple[str, str]]:
    """All pairs of pieces that make another one, the first learned first."""
    found = []
    for piece in pieces[learned:]:
        pairs = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        known = [(a, b) for a, b in pairs if a in index and b in index]
        found += sorted(known, key=lambda pair: (index[pair[0]], index[pair[1]]))
    return found


def tokenizer_of(pieces: list[str]) -> PreTrainedTokenizerFast:
    """The tokenizer of a vocabulary."""
    before = pieces.index(FIRST_BYTE)
    pieces = [piece.replace(" ", SPACE) for piece in pieces]
    index = {piece: place for place, piece in enumerate(pieces)}
    bpe = Tokenizer(
        models.BPE(
            vocab=index, merges=merges(pieces, index, before + 256), unk_token="<unk>",
            fuse_unk=True, byte_fallback=True,
        )
    )  # fmt: skip
    bpe.normalizer = normalizers.Replace(" ", SPACE)
    bpe.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    bpe.add_special_tokens([AddedToken(piece, special=True) for piece in special])
    own = [piece for piece in pieces[:before] if piece not in special]
    bpe.add_tokens([AddedToken(piece, normalized=False) for piece in own])
    bpe.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", index["<bos>"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>",
        unk_token="<unk>",
    )  # fmt: skip


def main() -> None:
    """Read the vocabulary, write the tokenizer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    pieces = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    tokenizer_of(pieces).save_pretrained(folder)


if __name__ == "__main__":
    main()
