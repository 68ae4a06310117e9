"""Whether a pruned BERT-base gains as much in ONNX Runtime as it does in torch.

Random weights, 12 of 144 heads kept, 4 sentences of 128 tokens. All four are timed in turn, so
that they see the same machine. Claim: ONNX Runtime's speed-up is at least 0.9 of torch's, and no
answer differs from the model's by more than 1e-4.
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification

import headcount as hc
from headcount.bench.speed import Job, side_by_side
from headcount.deploy.graph import Tensors, largest_difference
from headcount.deploy.graph_folder import graphs_of, plain_attention
from headcount.deploy.onnx_file import OnnxRunner, write_onnx

BATCH, LENGTH = 4, 128
BUDGET = 20.0  # seconds


def torch_job(model: BertForSequenceClassification, batch: Tensors) -> Job:
    @torch.inference_mode()
    def job() -> None:
        model(**batch)

    return job


def onnx_job(runner: OnnxRunner, batch: Tensors) -> Job:
    return lambda: runner(batch)


def main() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    torch.manual_seed(0)
    whole = BertForSequenceClassification(BertConfig()).eval()
    ids = torch.randint(1000, 30000, (BATCH, LENGTH))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    batch["token_type_ids"] = torch.zeros_like(ids)
    small = copy.deepcopy(whole)
    hc.remove_heads(small, hc.HeadMask.random(hc.find_heads(small), keep=12, seed=0))
    runners, difference, sizes = [], 0.0, []
    with tempfile.TemporaryDirectory() as folder:
        for model in (whole, small):
            (graph,) = graphs_of(model)
            file = Path(folder) / "model.onnx"
            with plain_attention(model):
                write_onnx(graph, file)
            sizes.append(file.stat().st_size)
            runners.append(OnnxRunner(file))
            difference = max(difference, largest_difference(graph, runners[-1], graph.sizes))
    jobs = [torch_job(whole, batch), torch_job(small, batch)]
    jobs += [onnx_job(runner, batch) for runner in runners]
    in_torch, small_in_torch, in_onnx, small_in_onnx = side_by_side(jobs, budget=BUDGET)
    of_torch, of_onnx = in_torch / small_in_torch, in_onnx / small_in_onnx
    print(f"torch: {BATCH / in_torch:.1f} → {BATCH / small_in_torch:.1f} examples/s")
    print(f"ONNX Runtime: {BATCH / in_onnx:.1f} → {BATCH / small_in_onnx:.1f} examples/s")
    print(f"size: {sizes[0] / 1e6:.0f} → {sizes[1] / 1e6:.0f} MB")
    print(f"speed-up in torch: {of_torch:.2f}")
    print(f"speed-up in ONNX Runtime: {of_onnx:.2f}")
    print(f"ONNX Runtime's speed-up / torch's: {of_onnx / of_torch:.2f} (at least 0.9)")
    print(f"largest difference: {difference:.1e} (at most 1e-4)")


if __name__ == "__main__":
    main()
