"""Run an exported model: one pass, or greedy decoding with the cache handed from step to step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    ForcedBOSTokenLogitsProcessor,
    ForcedEOSTokenLogitsProcessor,
    GenerationConfig,
    LogitsProcessorList,
    NoBadWordsLogitsProcessor,
)

from headcount.deploy.decoder import PAST, PRESENT, positions
from headcount.deploy.encoder_decoder import ENCODER, FIRST, NEXT
from headcount.deploy.graph import Runner, Shape, Tensors
from headcount.errors import HeadcountError

RECORD = "export.json"


class Exported:
    """The graphs of a folder that `headcount export` wrote.

    Args:
        folder: the folder of the export.
        int8: run the quantised graphs instead; the export must have been written with them.
    """

    def __init__(self, folder: str | Path, int8: bool = False) -> None:
        folder = Path(folder)
        try:
            record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise HeadcountError(
                f"{folder} is not an exported model: {error}; give what headcount export wrote"
            ) from error
        self.folder = folder
        self.inputs: dict[str, dict[str, Shape]] = {
            name: {key: tuple(shape) for key, shape in graph["inputs"].items()}
            for name, graph in record["graphs"].items()
        }
        self.graphs = {
            name: open_graph(folder, record["format"], name, graph, int8)
            for name, graph in record["graphs"].items()
        }

    def logits(self, batch: Tensors) -> Tensor:
        """The logits of one pass over a batch, as the model would give them."""
        if ENCODER in self.graphs:
            source = self._encode(batch["input_ids"], batch["attention_mask"])
            return self.graphs[FIRST]({**source, "input_ids": batch["decoder_input_ids"]})["logits"]
        inputs = self.inputs["model"]
        if any(name.startswith(PAST) for name in inputs):
            mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
            return self._read(batch["input_ids"], mask)["logits"]
        return self.graphs["model"](batch)["logits"]

    @torch.no_grad()
    def generate(self, input_ids: Tensor, attention_mask: Tensor, max_new_tokens: int) -> Tensor:
        """Greedy decoding: what `model.generate` gives without beams and without sampling.

        Of the settings in `generation_config.json`, this follows the end token, forced first and
        last tokens, and forbidden words.

        Args:
            input_ids: the prompt, padded on the left; for an encoder-decoder, the source.
            attention_mask: zero at the padding of the prompt or source.
            max_new_tokens: the largest number of tokens to add.
        """
        settings = GenerationConfig.from_pretrained(self.folder)
        ends = _as_list(settings.eos_token_id)
        pad = ends[0] if settings.pad_token_id is None else settings.pad_token_id
        if ENCODER in self.graphs:
            source = self._encode(input_ids, attention_mask)
            batch, start = len(input_ids), settings.decoder_start_token_id
            said = torch.full((batch, 1), start if start is not None else settings.bos_token_id)
            output = self.graphs[FIRST]({**source, "input_ids": said})
        else:
            source, said = {}, input_ids
            output = self._read(said, attention_mask)
        processors = _processors(settings, said.shape[1] + max_new_tokens)
        open_ended = torch.ones(len(said), dtype=torch.bool)
        while True:
            scores: Any = processors(said, output["logits"][:, -1])  # type: ignore[arg-type]
            token = torch.where(open_ended, scores.argmax(-1), pad)
            said = torch.cat([said, token[:, None]], -1)
            open_ended &= ~torch.isin(token, torch.tensor(ends, dtype=torch.long))
            max_new_tokens -= 1
            if not max_new_tokens or not open_ended.any():
                return said
            past = {**source, **_as_past(output)}
            if source:
                source = past  # only the first step gives the keys and values of the source
                output = self.graphs[NEXT]({**past, "input_ids": token[:, None]})
            else:
                one = attention_mask.new_ones(len(said), 1)
                attention_mask = torch.cat([attention_mask, one], -1)
                output = self._continue(token[:, None], attention_mask, past)

    def _encode(self, input_ids: Tensor, mask: Tensor) -> Tensors:
        encoded = self.graphs[ENCODER]({"input_ids": input_ids, "attention_mask": mask})
        return {
            "encoder_hidden_states": encoded["last_hidden_state"],
            "encoder_attention_mask": mask,
        }

    def _read(self, input_ids: Tensor, mask: Tensor) -> Tensors:
        """The first step of a decoder: read a prompt without a past."""
        nothing = {
            name: torch.zeros(len(input_ids), int(shape[1]), 0, int(shape[3]))
            for name, shape in self.inputs["model"].items()
            if name.startswith(PAST)
        }
        return self._continue(input_ids, mask, nothing)

    def _continue(self, input_ids: Tensor, mask: Tensor, past: Tensors) -> Tensors:
        places = positions(mask)[:, -input_ids.shape[1] :]
        plain = {"input_ids": input_ids, "attention_mask": mask, "position_ids": places}
        return self.graphs["model"]({**plain, **past})


def open_graph(
    folder: Path, form: str, name: str, graph: dict[str, Any], int8: bool = False
) -> Runner:
    """A function that runs one graph of an exported folder.

    Args:
        folder: the folder of the export.
        form: its format, `onnx` or `torch`.
        name: the name of the graph.
        graph: the entry of the graph in the record.
        int8: run the quantised graph.
    """
    if form == "torch":
        from headcount.deploy.torch_file import TorchRunner

        return TorchRunner(folder / graph["file"], list(graph["inputs"]), graph["outputs"])
    from headcount.deploy.onnx_file import OnnxRunner

    if int8 and "int8" not in graph:
        raise HeadcountError(
            f"{folder} has no quantised {name}; export the model with --precision int8"
        )
    return OnnxRunner(folder / (graph["int8"]["file"] if int8 else graph["file"]))


def _as_past(output: Tensors) -> Tensors:
    return {
        name.replace(PRESENT, PAST, 1): tensor
        for name, tensor in output.items()
        if name.startswith(PRESENT)
    }


def _processors(settings: GenerationConfig, length: int) -> LogitsProcessorList:
    made = LogitsProcessorList()
    ends = _as_list(settings.eos_token_id)
    if settings.bad_words_ids:
        made.append(NoBadWordsLogitsProcessor(settings.bad_words_ids, ends))
    if settings.forced_bos_token_id is not None:
        made.append(ForcedBOSTokenLogitsProcessor(settings.forced_bos_token_id))
    if settings.forced_eos_token_id is not None:
        made.append(ForcedEOSTokenLogitsProcessor(length, settings.forced_eos_token_id))
    return made


def _as_list(tokens: int | list[int] | None) -> list[int]:
    return [] if tokens is None else tokens if isinstance(tokens, list) else [tokens]
