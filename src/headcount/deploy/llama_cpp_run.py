"""Run a GGUF file in llama.cpp: tokens of texts, and log-probabilities of what follows.

This file runs in a process of its own, because llama.cpp ends the process on some errors. It
imports nothing of headcount, reads a request in JSON from its first argument, and writes the
answer, also in JSON, to its second.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


def run(request: Answer) -> Answer:
    """Answer a request.

    Args:
        request: `file`, the model; `texts`, to tokenize; `prompts`, lists of tokens; `stride`,
            after how many tokens of a prompt to ask; `steps`, how many tokens to append greedily;
            `top`, of how many tokens to give log-probabilities; `whole`, a token whose text is
            valid by itself; `context` and `threads`.

    Returns:
        `tokens` of each text, and for each prompt `asked`: pairs of the tokens so far and the
        log-probabilities of the next by its number.
    """
    server = _server(request)
    asked = [_ask(server, prompt, request) for prompt in request["prompts"]]
    tokens = [_tokens(server, text) for text in request["texts"]]
    return {"tokens": tokens, "asked": asked}


def _server(request: Answer) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = request["file"]
    params.n_ctx = request["context"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = request["threads"]
    # Keys and values in float32 and plain attention: what is compared is the file, and not
    # llama.cpp's own rounding, which its defaults add.
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.n_gpu_layers = 0
    params.fit_params = params.warmup = False
    params.verbosity = 1  # errors
    return xllamacpp.Server(params)


def _ask(server: Any, prompt: list[int], request: Answer) -> list[tuple[list[int], Answer]]:
    ends = [*range(request["stride"], len(prompt), request["stride"]), len(prompt)]
    asked = [(prompt[:end], _next(server, prompt[:end], request)) for end in ends]
    said = list(prompt)
    for _ in range(request["steps"]):
        found = asked[-1][1]
        said.append(int(max(found, key=lambda token: found[token])))
        asked.append((list(said), _next(server, said, request)))
    return asked


def _next(server: Any, tokens: list[int], request: Answer) -> dict[str, float]:
    """Log-probabilities of the most probable next tokens.

    A server that samples a part of a letter waits for the rest, and answers nothing. So it is made
    to sample a token that is whole; the log-probabilities are those from before.
    """
    given = {
        "prompt": tokens,
        "n_predict": 1,
        "n_probs": request["top"],
        "temperature": 0,
        "logit_bias": [[request["whole"], 1000.0]],
        "cache_prompt": True,
        "post_sampling_probs": False,
    }
    answer = server.handle_completions(given)
    found = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    return {str(one["id"]): one["logprob"] for one in found}


def _tokens(server: Any, text: str) -> list[int]:
    body = json.dumps({"content": text, "add_special": True, "parse_special": True})
    request = urllib.request.Request(
        f"{server.listening_address}/tokenize",
        data=body.encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is this computer
    with opener.open(request, timeout=60) as answer:
        found: list[int] = json.loads(answer.read())["tokens"]
    return found


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    answer = run(json.loads(source.read_text("utf-8")))
    target.write_text(json.dumps(answer), "utf-8")
