"""What choosing and fitting heads of a real decoder takes: time and memory, on a SmolLM2-135M.

Goals for time: the surgeon's scores at most 2.0 × a forward and backward pass over the same tokens
without gradients of weights, the least-squares fit at most 2.5 × two forward passes, an evaluation
at most 1.05 × a bare loop. For memory: at most 1.5 × the model and the hidden states of one layer
of the sample. All take turns on one thread, in processor time. Memory is the most that a process of
its own ever had (its resident set), without what it had once everything was imported.

glibc keeps freed memory of up to 32 MB a piece, and the resident set then includes it. So the
processes whose memory is measured return it at once (`MALLOC_MMAP_THRESHOLD_=65536`). What glibc's
own setting takes is printed with `--both`.

With the folder of the model in `HEADCOUNT_MODELS` (`smollm2`) its weights are taken, else random
ones of the same sizes, which are as fast; the evaluation needs its tokenizer. Tokens are random.
The goals are for `--tokens 32768`, which takes an hour. With fewer, the memory of the scores is
compared with less, because it does not grow with the tokens.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measuring.claims import say
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

import headcount as hc
from headcount.batch import loss_of
from headcount.bench.speed import in_turn, ratio, this_machine

LENGTH = 512
SCORES, FIT, EVALUATION, MEMORY = 2.0, 2.5, 1.05, 1.5
AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536"}

Job = Callable[[], object]


def folder() -> Path | None:
    models = os.environ.get("HEADCOUNT_MODELS")
    found = Path(models or "") / "smollm2"
    return found if models and found.is_dir() else None


def smollm2() -> PreTrainedModel:
    torch.manual_seed(0)
    if (found := folder()) is not None:
        model = LlamaForCausalLM.from_pretrained(found, dtype=torch.float32)
    else:
        config = LlamaConfig(
            hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
            num_key_value_heads=3, vocab_size=49152, tie_word_embeddings=True,
            max_position_embeddings=8192, rms_norm_eps=1e-5,
        )  # fmt: skip
        model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        parameter.detach().sum()  # a file that is mapped into memory is read now
    return model.eval()


def batches_of(model: PreTrainedModel, tokens: int) -> list[dict[str, torch.Tensor]]:
    drawn = torch.Generator().manual_seed(0)
    shape = (max(tokens // LENGTH, 1), LENGTH)
    ids = torch.randint(10, model.config.vocab_size, shape, generator=drawn)
    return [{"input_ids": row, "labels": row} for row in ids.split(1)]


def jobs(model: PreTrainedModel, tokens: int) -> dict[str, Job]:
    """What is measured, by name."""
    batches, heads = batches_of(model, tokens), hc.find_heads(model)
    half = hc.HeadMask.random(heads, keep=len(heads) // 2, seed=0)

    @torch.no_grad()
    def forward() -> None:
        for batch in batches:
            model(input_ids=batch["input_ids"], use_cache=False)

    def forward_backward() -> None:
        model.requires_grad_(False)
        embeddings: Any = model.get_input_embeddings()
        with embeddings.register_forward_hook(lambda _, __, out: out.detach().requires_grad_()):
            for batch in batches:
                loss_of(model, {**batch, "use_cache": False}).backward()

    def fit() -> None:
        hc.compensate(model, half, batches)

    return {
        "forward": forward,
        "forward and backward": forward_backward,
        "surgeon's scores": lambda: hc.Surgeon(len(heads) // 2, measured=False).fit(model, batches),
        "Michel's scores": lambda: hc.Michel(len(heads) // 2).fit(model, batches),
        "the fit": fit,
    }


def time_jobs(model: PreTrainedModel, tokens: int, rounds: int) -> None:
    named = jobs(model, tokens)
    times = dict(
        zip(named, in_turn([*named.values()], rounds, 0, clock=time.process_time), strict=True)
    )
    for name, spent in times.items():
        print(f"{name}: {min(spent):.1f} seconds", flush=True)
    back = times["forward and backward"]
    twice = [2 * seconds for seconds in times["forward"]]
    for name in ("surgeon's scores", "Michel's scores"):
        say(f"time of {name} / forward and backward pass", ratio(times[name], back), at_most=SCORES)
    say("time of the fit / two forward passes", ratio(times["the fit"], twice), at_most=FIT)


def time_evaluation(source: Path, tokens: int, rounds: int) -> None:
    from headcount.runs.progress import Silent
    from headcount.runs.run import Run
    from headcount.runs.settings import ExampleSettings, RunSettings, TrainingSettings
    from headcount.runs.trainer import evaluate

    words = ("the", "a", "head", "attends", "to", "some", "word", "that", "comes", "before", "it")
    drawn = random.Random(0)
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("train", "valid"):
            text = " ".join(drawn.choices(words, k=2 * tokens))
            (Path(scratch) / f"{name}.txt").write_text(text, encoding="utf-8")
        training = TrainingSettings(
            max_length=LENGTH, limit_eval=max(tokens // LENGTH, 1), eval_batch_size=4
        )
        examples = ExampleSettings(options={"block_size": LENGTH})
        settings = RunSettings(
            str(source), "language-modelling", scratch, training=training, examples=examples
        )
        run = Run.open(settings, Path(scratch), Silent())
        model, sets = run.load(), run.sets
        trainer = run.trainer(model)
        (data,) = sets.values()
        batches = run.batches(data, model)

        @torch.no_grad()
        def bare() -> None:
            for batch in batches:
                logits = model(input_ids=batch["input_ids"], use_cache=False).logits[:, :-1]
                F.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten())

        def ours() -> None:
            evaluate(trainer, run.task, run.processor, sets, Silent())

        loop, own = in_turn([bare, ours], rounds, 0, clock=time.process_time)
        say("time of an evaluation / a bare loop", ratio(own, loop), at_most=EVALUATION)


def resident(field: str) -> int:
    """Bytes of this process: `VmRSS` now, `VmHWM` at the worst moment."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024


def measure_one(name: str, tokens: int) -> None:
    """In a process of its own: print the bytes that a job takes, the model included."""
    imported = resident("VmRSS")
    jobs(smollm2(), tokens)[name]()
    print(resident("VmHWM") - imported)


def memory_of(name: str, tokens: int, environment: dict[str, str]) -> int:
    command = [sys.executable, __file__, "--tokens", str(tokens), "--memory", name]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[-1])


def measure_memory(model: PreTrainedModel, tokens: int, both: bool) -> None:
    weights = sum(parameter.nbytes for parameter in model.parameters())
    held = weights + tokens * model.config.hidden_size * 4
    print(f"model {weights / 1e6:.0f} MB, with one layer's hidden states {held / 1e6:.0f} MB")
    for name in ("surgeon's scores", "Michel's scores", "the fit"):
        lean = memory_of(name, tokens, AT_ONCE)
        print(f"{name}: {lean / 1e6:.0f} MB", flush=True)
        if both:
            print(f"with glibc's own setting: {memory_of(name, tokens, {}) / 1e6:.0f} MB")
        say(f"memory of {name} / model and hidden states", lean / held, at_most=MEMORY)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    parser.add_argument("--both", action="store_true", help="also with glibc's own setting")
    parser.add_argument("--skip-memory", action="store_true", help="measure time alone")
    parser.add_argument("--skip-time", action="store_true", help="measure memory alone")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.memory:
        measure_one(given.memory, given.tokens)
        return
    print(this_machine())
    model = smollm2()
    print("its weights" if folder() else "random weights of its sizes", flush=True)
    if not given.skip_time:
        time_jobs(model, given.tokens, given.rounds)
        if (source := folder()) is not None:
            time_evaluation(source, given.tokens, given.rounds)
    if not given.skip_memory:
        measure_memory(model, given.tokens, given.both)


if __name__ == "__main__":
    main()
