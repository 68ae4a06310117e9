"""How much of the speed-up that operations allow a pruned BERT-base reaches: 12 of 144 heads.

The ideal is the ratio of the operations of matrix products, before and after. What is missing to it
is time that no removal of heads saves: activations and normalisation, mostly of the feed-forward
part. Each pruned model, the unpruned one, and one that torch-pruning has pruned to the same heads
take turns on one thread, in processor time.

torch-pruning cuts by its graph of dependencies, and must be told the new number of heads. Its own
check refuses to empty a block; it is emptied all the same, which BERT's code happens to survive.
The others of its methods keep equally many heads in every layer, or at least one.
"""

from __future__ import annotations

import argparse
import copy
import time
from importlib.util import find_spec

import torch
from measuring.claims import say
from torch import Tensor
from transformers import BertConfig, BertModel

import headcount as hc
from headcount.bench.size import count_flops
from headcount.bench.speed import Job, Spread, in_turn, this_machine

BATCH, KEEP = 8, 12
REACHED = 0.95
AS_FAST = 0.98  # as fast, to within what timing can tell
PLACEMENTS = 4  # where a copy's weights lie in memory alone makes some per cent


def masks(heads: hc.HeadMap) -> dict[str, hc.HeadMask]:
    """Ways in which 12 heads may lie: typical, spread evenly, and in as few layers as can be."""
    blocks = heads.blocks
    return {
        "random": hc.HeadMask.random(heads, KEEP, seed=0),
        "one of each layer": hc.HeadMask.from_indices(heads, [b.indices[0] for b in blocks]),
        "all of one layer": hc.HeadMask.from_indices(heads, blocks[5].indices),
    }


def by_torch_pruning(model: BertModel, mask: hc.HeadMask, example: dict[str, Tensor]) -> BertModel:
    """A copy that torch-pruning has cut down to the heads of the mask."""
    import torch_pruning

    model = copy.deepcopy(model)
    graph = torch_pruning.DependencyGraph().build_dependency(model, example_inputs=example)
    size = model.config.hidden_size // model.config.num_attention_heads
    for layer, kept in zip(model.encoder.layer, mask.by_block().values(), strict=True):
        attention = layer.attention.self
        gone = [h for h in range(model.config.num_attention_heads) if h not in kept]
        rows = [size * head + row for head in gone for row in range(size)]
        cut = torch_pruning.prune_linear_out_channels
        graph.get_pruning_group(attention.query, cut, idxs=rows).prune()
        attention.num_attention_heads, attention.all_head_size = len(kept), size * len(kept)
    return model


def job(model: BertModel, batch: dict[str, Tensor]) -> Job:
    @torch.inference_mode()
    def run() -> Tensor:
        return model(**batch).last_hidden_state

    return run


def compare(whole: BertModel, name: str, mask: hc.HeadMask, length: int, rounds: int) -> None:
    generator = torch.Generator().manual_seed(0)
    batch = {"input_ids": torch.randint(1000, 30_000, (BATCH, length), generator=generator)}
    ours = copy.deepcopy(whole)
    hc.remove_heads(ours, mask)
    models = [whole, ours]
    if find_spec("torch_pruning"):
        models.append(by_torch_pruning(whole, mask, batch))
        difference = (job(ours, batch)() - job(models[2], batch)()).abs().max()  # type: ignore[operator]
        assert difference < 1e-5, "both must have pruned the same heads"
    ideal = count_flops(job(whole, batch)) / count_flops(job(ours, batch))
    gains: list[float] = []
    than: list[float] = []
    for _ in range(PLACEMENTS):
        jobs = [job(copy.deepcopy(model), batch) for model in models]
        before, after, *others = in_turn(jobs, rounds, warm_up=1, clock=time.process_time)
        gains += [a / b for a, b in zip(before, after, strict=True)]
        than += [b / a for other in others for a, b in zip(after, other, strict=True)]
    print(f"{name}: {Spread.of(gains).median:.3f} × as fast, ideal {ideal:.3f}", flush=True)
    say(f"share of the ideal, {name}", Spread.of([g / ideal for g in gains]), at_least=REACHED)
    if than:
        say(f"speed / that of torch-pruning, {name}", Spread.of(than), at_least=AS_FAST)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--rounds", type=int, default=2, help="of each copy")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(this_machine())
    if not find_spec("torch_pruning"):
        print("torch-pruning is not installed, and not compared with")
    for attention in ("sdpa", "eager"):
        torch.manual_seed(0)
        whole = BertModel(BertConfig(attn_implementation=attention)).eval()
        for length in chosen.lengths if attention == "sdpa" else chosen.lengths[:1]:
            every = attention == "sdpa" and length == chosen.lengths[0]
            for name, mask in masks(hc.find_heads(whole)).items():
                if every or name == "random":
                    full = f"{attention}, length {length}, {name}"
                    compare(whole, full, mask, length, chosen.rounds)


if __name__ == "__main__":
    main()
