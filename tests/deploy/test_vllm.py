"""vLLM generates the tokens of the pruned model, without headcount.

The Python that has vLLM is named by HEADCOUNT_VLLM, since vLLM insists on its own versions of
torch and transformers. Without it, the tests need vLLM in their own environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from headcount import HeadMask, find_heads, remove_heads
from headcount.deploy import plain, remote_code
from tests.deploy import run_vllm

PYTHON = os.environ.get("HEADCOUNT_VLLM") or (sys.executable if find_spec("vllm") else "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="HEADCOUNT_VLLM names no Python that has vLLM"),
]
PROMPT = [5, 9, 13, 21, 34]
EVERY = tuple(range(8))
# The kept heads of each layer; two queries share a key-value head.
LAYOUTS = {
    "even": ((0, 1, 2, 3, 4, 5), (2, 3, 4, 5, 6, 7), (0, 1, 4, 5, 6, 7), (0, 1, 2, 3, 6, 7)),
    "uneven": ((0, 1, 2, 3), (0, 1, 4, 5, 6, 7), (2, 3), EVERY),
    "emptied": ((0, 1, 2, 3), (), (2, 3), (0, 2, 4, 6)),
    "uneven groups": ((0, 1, 2), (0, 2, 3, 4), (1, 4, 5), EVERY),
}


def pruned(layout: str) -> PreTrainedModel:
    """A Llama whose heads are as large as vLLM needs them on the CPU."""
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=128,
        max_position_embeddings=128,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    draw = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data = 0.15 * torch.randn(parameter.shape, generator=draw)
    heads = find_heads(model)
    kept = zip(heads.blocks, LAYOUTS[layout], strict=True)
    indices = [block.offset + head for block, of_layer in kept for head in of_layer]
    remove_heads(model, HeadMask.from_indices(heads, indices))
    return model


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("vllm")
    for layout in LAYOUTS:
        model, folder = pruned(layout), root / layout.replace(" ", "_")
        folder.mkdir()
        if layout == "even":
            plain.write(model, "", folder)
        else:
            remote_code.write(model, "nowhere", folder)
        asked = {"prompt": PROMPT, "model_impl": "vllm" if layout == "even" else "transformers"}
        (folder / "prompt.json").write_text(json.dumps(asked))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"HF_HOME": str(root / "hub")}
    command = [PYTHON, run_vllm.__file__, str(root)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return root


@pytest.mark.parametrize("layout", LAYOUTS)
def test_vllm_generates_the_same_tokens(root: Path, layout: str) -> None:
    found = json.loads((root / layout.replace(" ", "_") / "tokens.json").read_text())
    prompt = torch.tensor([PROMPT])
    expected = pruned(layout).generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24, do_sample=False
    )
    assert found == expected[0, len(PROMPT) :].tolist()
    assert len(set(found)) > 5
