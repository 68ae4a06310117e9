"""How much faster a pruned SmolLM2-135M is served in torch and llama.cpp: prompt, tokens, cache.

Whole groups of heads go, equally many in every layer: 180 and 90 of 270 heads are left. Each is a
plain folder and a GGUF file in float16. The unpruned model and both pruned ones take turns on one
thread. Reading a prompt is bound by operations, so its ideal is the ratio of the operations of
matrix products. Generating is bound by memory: its ideal is the ratio of the bytes that one token
reads, weights and cache. llama.cpp is not bound by memory alone on one thread, and gains more.

With the folder of the model in `HEADCOUNT_MODELS` (`smollm2`) its weights are taken, else random
ones of the same sizes, which are as fast. llama.cpp is measured where `xllamacpp` is installed.
"""

from __future__ import annotations

import argparse
import copy
import os
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from measuring.claims import say
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

import headcount as hc
from headcount.bench.size import count_flops
from headcount.bench.speed import Spread, in_turn, this_machine

PROMPT, NEW = 512, 64
GROUPS = (2, 1)  # of 3 that every layer keeps
REACHED = 0.9


class Times(NamedTuple):
    """Seconds of one turn."""

    prompt: float
    tokens: float


Turn = Callable[[], Times]


def smollm2() -> tuple[PreTrainedModel, str, str]:
    folder = Path(os.environ.get("HEADCOUNT_MODELS", "")) / "smollm2"
    if os.environ.get("HEADCOUNT_MODELS") and folder.is_dir():
        return (
            LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(),
            "its weights",
            str(folder),
        )
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, vocab_size=49152, tie_word_embeddings=True,
        max_position_embeddings=8192, rms_norm_eps=1e-5,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval(), "random weights of its sizes", ""


def keep_groups(model: PreTrainedModel, number: int) -> PreTrainedModel:
    small = copy.deepcopy(model)
    heads = hc.find_heads(small)
    kept = [
        block.offset + head
        for block in heads.blocks
        for group in block.key_value_groups[:number]
        for head in group
    ]
    hc.remove_heads(small, hc.HeadMask.from_indices(heads, kept))
    return small


def cache_bytes(model: PreTrainedModel) -> int:
    """Bytes of the cache per token, in float32."""
    blocks = hc.find_heads(model).blocks
    return sum(4 * b.num_key_value_heads * (b.anatomy.key_size + b.head_size) for b in blocks)


def bytes_per_token(model: PreTrainedModel, size: int) -> float:
    """What one new token reads: every weight once, and the cache of the tokens before it."""
    weights = sum(parameter.numel() for parameter in model.parameters())
    return size * weights + size / 4 * cache_bytes(model) * (PROMPT + NEW / 2)


def in_torch(model: PreTrainedModel, ids: torch.Tensor) -> Turn:
    import time

    @torch.inference_mode()
    def turn() -> Times:
        began = time.process_time()
        output = model(ids, use_cache=True, logits_to_keep=1)
        read = time.process_time()
        token = output.logits[:, -1:].argmax(-1)
        past = output.past_key_values
        for _ in range(NEW):
            output = model(token, past_key_values=past, use_cache=True)
            token = output.logits[:, -1:].argmax(-1)
        return Times(read - began, time.process_time() - read)

    return turn


def in_llama_cpp(file: Path, ids: torch.Tensor) -> Turn:
    import xllamacpp

    given = xllamacpp.CommonParams()
    given.model.path = str(file)
    given.n_ctx, given.n_parallel, given.warmup = PROMPT + NEW + 8, 1, True
    given.verbosity = 0
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(given)
    job = {
        "prompt": ids[0].tolist(), "n_predict": NEW, "temperature": 0, "cache_prompt": False,
        "ignore_eos": True,
    }  # fmt: skip

    def turn() -> Times:
        said: Any = server.handle_completions(job)
        spent = said["timings"]
        return Times(spent["prompt_ms"] / 1e3, spent["predicted_ms"] / 1e3)

    return turn


def gains(names: Sequence[str], turns: Sequence[Turn], rounds: int) -> list[dict[str, Spread]]:
    """How many times as fast as the first each of the others is; says how fast all are."""
    spent: list[list[Times]] = [[] for _ in turns]
    in_turn(
        [lambda of=of, turn=turn: of.append(turn()) for of, turn in zip(spent, turns, strict=True)],
        rounds,
        warm_up=1,
    )
    first, *others = measured = [of[1:] for of in spent]  # without the warm-up
    for name, times in zip(names, measured, strict=True):
        prompt = PROMPT / median(one.prompt for one in times)
        tokens = NEW / median(one.tokens for one in times)
        print(f"{name}: {prompt:.0f} tokens/s of a prompt, {tokens:.1f} new tokens/s", flush=True)
    return [
        {
            part: Spread.of([
                getattr(a, part) / getattr(b, part) for a, b in zip(first, other, strict=True)
            ])
            for part in Times._fields
        }
        for other in others
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(this_machine())
    whole, weights, source = smollm2()
    print(f"SmolLM2-135M, {weights}; prompt {PROMPT}, {NEW} new tokens")
    models = [whole, *(keep_groups(whole, number) for number in GROUPS)]
    names = [f"{len(hc.find_heads(model))} heads" for model in models]
    ids = torch.randint(0, 49152, (1, PROMPT), generator=torch.Generator().manual_seed(0))

    def reads(model: PreTrainedModel) -> int:
        return count_flops(lambda: model(ids, logits_to_keep=1))

    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        engines: dict[str, tuple[int, list[Turn]]] = {}
        plain = []
        for name, model in zip(names, models, strict=True):
            place = Path(folder) / name
            hc.export(model, "plain", place, source=source)
            plain.append(in_torch(whole if model is whole else load(place), ids))
        engines["torch"] = (4, plain)
        if find_spec("xllamacpp"):
            files = []
            for name, model in zip(names, models, strict=True):
                place = Path(folder) / f"{name} gguf"
                record = hc.export(model, "gguf", place, source=source, precision="f16")
                files.append(in_llama_cpp(place / record["file"], ids))
            engines["llama.cpp"] = (2, files)
        else:
            print("xllamacpp is not installed, and llama.cpp is not measured")
        for name, model in zip(names[1:], models[1:], strict=True):
            share = cache_bytes(model) / cache_bytes(whole)
            kept = len(hc.find_heads(model)) / len(hc.find_heads(whole))
            say(f"cache bytes / unpruned, {name}", share, at_most=round(kept, 3) + 0.001)
        for engine, (size, turns) in engines.items():
            print(engine)
            found = gains(names, turns, chosen.rounds)
            for name, model, gain in zip(names[1:], models[1:], found, strict=True):
                ideal = {
                    "prompt": reads(whole) / reads(model),
                    "tokens": bytes_per_token(whole, size) / bytes_per_token(model, size),
                }
                for part, spread in gain.items():
                    what = f"{engine}, {part}, {name}"
                    say(f"speed / unpruned, {what}", spread, at_least=1)
                    reached = Spread(*(value / ideal[part] for value in vars(spread).values()))
                    print(f"ideal: {ideal[part]:.3f}")
                    say(f"share of the ideal, {what}", reached, at_least=REACHED)


def load(folder: Path) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


if __name__ == "__main__":
    main()
