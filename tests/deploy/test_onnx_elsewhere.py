"""ONNX folders in OpenVINO and in transformers.js, where these are installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from headcount import export
from tests.deploy.conftest import needs_onnx
from tests.deploy.test_export import small
from tests.small_task import save_encoder

pytestmark = needs_onnx
# A folder with node_modules/@huggingface/transformers; npm install --ignore-scripts makes one.
NODE = os.environ.get("HEADCOUNT_NODE")

_SCRIPT = """
import { env, AutoModelForSequenceClassification, AutoModelForCausalLM, AutoTokenizer, Tensor }
  from '@huggingface/transformers';
const job = JSON.parse(process.argv[2]);
env.allowRemoteModels = false;
env.localModelPath = job.parent;
const options = { dtype: 'fp32', device: 'cpu' };
const cls = job.generate ? AutoModelForCausalLM : AutoModelForSequenceClassification;
const model = await cls.from_pretrained(job.name, options);
const tensor = (rows) => new Tensor(
  'int64', BigInt64Array.from(rows.flat().map(BigInt)), [rows.length, rows[0].length]);
const inputs = { input_ids: tensor(job.ids), attention_mask: tensor(job.mask) };
if (job.generate) {
  const made = await model.generate({ ...inputs, max_new_tokens: job.generate, do_sample: false });
  console.log(JSON.stringify(made.tolist().map((row) => row.map(Number))));
} else {
  console.log(JSON.stringify((await model(inputs)).logits.tolist()));
}
"""


def classifier(folder: Path) -> tuple[PreTrainedModel, Path]:
    """An encoder with an emptied block, exported with its tokenizer."""
    source = save_encoder(folder / "source")
    model = small("bert")
    export(model, "onnx", folder / "exported", source=str(source))
    return model, folder / "exported"


def batch() -> dict[str, torch.Tensor]:
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def test_openvino(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    model, folder = classifier(tmp_path)
    core = openvino.Core()
    exact = {"INFERENCE_PRECISION_HINT": "f32"}  # it may take bfloat16 where that is quicker
    compiled = core.compile_model(core.read_model(folder / "onnx" / "model.onnx"), "CPU", exact)
    given = {name: value.numpy() for name, value in batch().items()}
    names = {port.any_name for port in compiled.inputs}
    given = {name: given.get(name, given["input_ids"] * 0) for name in names}
    with torch.no_grad():
        expected = model(**{name: torch.from_numpy(value) for name, value in given.items()})[0]
    made = torch.from_numpy(next(iter(compiled(given).values())))
    torch.testing.assert_close(made, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.skipif(NODE is None or shutil.which("node") is None, reason="HEADCOUNT_NODE not set")
@pytest.mark.parametrize("new_tokens", [0, 8])
def test_transformers_js(tmp_path: Path, new_tokens: int) -> None:
    given = batch()
    if new_tokens:
        model = small("llama")  # its first block is empty, and the other has uneven groups
        export(model, "onnx", tmp_path / "exported", source=str(save_encoder(tmp_path / "source")))
        given = {name: value[:1] for name, value in given.items()}
        expected: Any = model.generate(**given, max_new_tokens=new_tokens, do_sample=False).tolist()
    else:
        model, _ = classifier(tmp_path)
        with torch.no_grad():
            expected = model(**given).logits.tolist()
    job = {
        "parent": str(tmp_path), "name": "exported", "generate": new_tokens,
        "ids": given["input_ids"].tolist(), "mask": given["attention_mask"].tolist(),
    }  # fmt: skip
    script = Path(str(NODE)).resolve() / f"headcount-{tmp_path.name}.mjs"
    script.write_text(_SCRIPT)
    try:
        done = subprocess.run(
            ["node", script, json.dumps(job)], capture_output=True, text=True, cwd=NODE
        )
    finally:
        script.unlink()
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout.splitlines()[-1])
    torch.testing.assert_close(torch.tensor(made), torch.tensor(expected), atol=1e-4, rtol=1e-4)
