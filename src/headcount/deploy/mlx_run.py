"""Run a model folder in MLX: logits after every token of some prompts, and of what it appends.

This file runs in a process of its own. It imports nothing of headcount, reads a request in JSON
from its first argument, and writes the answer, also in JSON, to its second.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


def run(request: Answer) -> Answer:
    """Answer a request.

    Args:
        request: `folder`, the model; `prompts`, lists of tokens; `steps`, how many tokens to append
            greedily to each; `arrays`, a folder for the logits, which are many.

    Returns:
        `tokens`: each prompt with what was appended. The logits after each are in `N.npy`.
    """
    import mlx.core as mx
    import numpy as np
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import load_model

    mx.set_default_device(mx.cpu)
    model, _ = load_model(Path(request["folder"]))
    model.set_dtype(mx.float32)  # compared are the weights, and not how half precision rounds
    tokens = []
    for number, prompt in enumerate(request["prompts"]):
        cache = make_prompt_cache(model)  # as mlx_lm generates: the prompt at once, then one by one
        said, given, rows = list(prompt), list(prompt), []
        for _ in range(request["steps"]):
            rows.append(np.array(model(mx.array([given]), cache=cache)[0]))
            given = [int(rows[-1][-1].argmax())]
            said += given
        tokens.append(said)
        np.save(Path(request["arrays"], f"{number}.npy"), np.concatenate(rows))
    return {"tokens": tokens}


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    answer = run(json.loads(source.read_text("utf-8")))
    target.write_text(json.dumps(answer), "utf-8")
