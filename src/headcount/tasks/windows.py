"""From a text to tokens, and from tokens to the windows that a language model reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headcount.tasks.base import Processor

_PIECE = 10_000  # how many characters of training text are tokenised at once, at least


@dataclass(frozen=True)
class Window:
    """Part of a text, in tokens.

    Attributes:
        begin: its first token.
        counted: its first token that is predicted and counted; all after it are, too.
        end: the token after its last.
    """

    begin: int
    counted: int
    end: int


def windows_of(length: int, size: int, stride: int, whole: bool = False) -> list[Window]:
    """The windows of a text of this many tokens; a token is counted in the first that predicts it.

    Args:
        length: the number of tokens.
        size: tokens of a window; the last one may have fewer.
        stride: tokens from the beginning of one window to that of the next.
        whole: leave out a last window that has fewer.
    """
    windows, done = [], 0  # the tokens before `done` were in a window
    for begin in range(0, length, stride):
        end = min(begin + size, length)
        counted = max(done, begin + 1)
        if counted < end and (end - begin == size or not whole):
            windows.append(Window(begin, counted, end))
        done = end
        if end == length:
            break
    return windows


def opening(processor: Processor) -> list[int]:
    """The tokens that a tokenizer puts before a text: one for its beginning, or none."""
    given, plain = (
        processor("a", add_special_tokens=special)["input_ids"] for special in (True, False)
    )
    for start in range(len(given) - len(plain) + 1):
        if given[start : start + len(plain)] == plain:
            return list(given[:start])
    return []


def tokens_and_bytes(text: str, processor: Processor) -> tuple[list[int], list[int]]:
    """The tokens of a text, and how many of its UTF-8 bytes each stands for; the sum is all bytes.

    Characters that no token covers belong to the token after them, those at the end to the last.
    Several tokens of one character share it: the first has all its bytes. A tokenizer that does not
    say where its tokens are gives each an equal share.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if not processor.is_fast:
        ids = processor(text, add_special_tokens=False, verbose=False)["input_ids"]
        ends = np.arange(1, len(ids) + 1) * size // max(len(ids), 1)
    else:
        found = processor(
            text, add_special_tokens=False, verbose=False, return_offsets_mapping=True
        )
        ids = found["input_ids"]
        signs = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        widths = 1 + (signs > 0x7F) + (signs > 0x7FF) + (signs > 0xFFFF).astype(np.int64)
        position = np.concatenate([[0], np.cumsum(widths)])  # of each character, in bytes
        last = np.asarray([end for _, end in found["offset_mapping"]], dtype=np.int64)
        ends = position[np.maximum.accumulate(last)] if len(ids) else last
    if len(ids):
        ends[-1] = size
    return list(ids), np.diff(ends, prepend=0).tolist()


def pieces_of(text: str) -> Iterator[str]:
    """Pieces of a text that a tokenizer like GPT-2's splits as it would split the whole text.

    A piece ends after a newline that a word follows. So no word and no white space is cut.
    """
    start = 0
    for end in re.finditer(r"\n(?=\S)", text):
        if end.end() - start >= _PIECE:
            yield text[start : end.end()]
            start = end.end()
    yield text[start:]
