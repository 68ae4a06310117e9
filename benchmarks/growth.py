"""How time and memory of scores and fit grow with width, depth and tokens: three sizes of each.

Small decoders with random weights, in float32, next to the formulae of
`docs/look-up/scale.md`. Time is in
forward passes over the same tokens, in processor time on one thread. Memory is that of tensors at
the worst moment, without the weights. It takes a few minutes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from language_models import LENGTH, jobs
from measuring.claims import say
from transformers import LlamaConfig, LlamaForCausalLM

from headcount.bench.size import peak_memory
from headcount.bench.speed import in_turn, this_machine

ROUNDS = 3
HEAD, VOCABULARY, BYTES = 32, 8192, 4  # head size, tokens, bytes per number
NAMES = ("surgeon's scores", "Michel's scores", "the fit")
NEAR = 1.05  # memory / what the formula says


@dataclass(frozen=True)
class Size:
    """A decoder and a sample of texts of 512 tokens, each a batch."""

    width: int = 256
    layers: int = 8
    tokens: int = 2048

    def model(self) -> LlamaForCausalLM:
        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=self.width, intermediate_size=8 * self.width // 3,
            num_hidden_layers=self.layers, num_attention_heads=self.width // HEAD,
            vocab_size=VOCABULARY, tie_word_embeddings=True,
        )  # fmt: skip
        return LlamaForCausalLM(config).eval()

    def formulae(self, weights: int) -> dict[str, float]:
        """What `docs/look-up/scale.md` says of memory, in bytes."""
        square = self.width**2
        states = self.width * BYTES * LENGTH  # of one layer, for one part
        logits = min(weights / 32, BYTES * LENGTH * VOCABULARY)
        passes = self.layers * states + max(36 * states, 4 * logits)
        rotary = 4 * HEAD / self.width
        fit = (3 + rotary) * self.width * BYTES * self.tokens + 22 * states
        sums = 16 * self.layers * square
        return {
            "surgeon's scores": max(max(sums, 0.4 * weights) + passes, sums + 92 * square),
            "Michel's scores": 0.4 * weights + passes,
            "the fit": fit + BYTES * self.layers * square + 24 * square,
        }


SERIES = (
    *(Size(width=width) for width in (128, 256, 512)),
    *(Size(layers=layers) for layers in (4, 8, 16)),
    *(Size(tokens=tokens) for tokens in (1024, 2048, 4096)),
)


def measure(size: Size) -> list[tuple[float, float, float]]:
    """Of each job: forward passes, bytes, and the bytes that its formula says."""
    model = size.model()
    formulae = size.formulae(sum(parameter.nbytes for parameter in model.parameters()))
    named = jobs(model, size.tokens)
    taken = [peak_memory(named[name]) for name in NAMES]
    timed = [named["forward"], *(named[name] for name in NAMES)]
    forward, *spent = map(min, in_turn(timed, ROUNDS, 0, clock=time.process_time))
    return [
        (seconds / forward, memory, formulae[name])
        for name, seconds, memory in zip(NAMES, spent, taken, strict=True)
    ]


def main() -> None:
    torch.set_num_threads(1)
    print(this_machine())
    print("| width | layers | tokens |", " | ".join(NAMES), "|")
    print("| ---: | ---: | ---: |", " | ".join("---:" for _ in NAMES), "|")
    ratios: dict[str, list[float]] = {name: [] for name in NAMES}
    for size in dict.fromkeys(SERIES):  # the middle ones are the same
        cells = []
        for name, (passes, memory, formula) in zip(NAMES, measure(size), strict=True):
            cells.append(f"{passes:.1f}, {memory / 1e6:.0f} MB of {formula / 1e6:.0f}")
            ratios[name].append(memory / formula)
        print("|", size.width, "|", size.layers, "|", f"{size.tokens:,}", "|", end=" ")
        print(" | ".join(cells), "|", flush=True)
    for name, found in ratios.items():
        say(f"most memory of {name} / its formula", max(found), at_most=NEAR)
        say(f"least memory of {name} / its formula", min(found), at_least=0.7)


if __name__ == "__main__":
    main()
