"""What tasks of language models have in common: the model, its limit, and small batches."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from datasets import Dataset
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    DataCollatorForSeq2Seq,
    PreTrainedModel,
)

from headcount.batch import evaluating
from headcount.errors import HeadcountError
from headcount.loading.folder import NO_CODE, loading
from headcount.tasks.base import FEWEST_FITTED, Collator, DataSettings, Processor, Task
from headcount.tasks.models import load_for, load_tokenizer

WINDOW = 2048  # tokens of an evaluation window, as in the papers of GPTQ, SparseGPT and Wanda
_AT_ONCE = 2048  # tokens of a batch whose size is not given: 50,000 words make 400 MB of logits


class CausalTask(Task):
    """What tasks of language models have in common: the model, its limit, and small batches.

    Args:
        settings: which data, and how much of it.
    """

    auto_class: ClassVar[str] = "AutoModelForCausalLM"
    scores_logits: ClassVar[bool] = True
    trained_at_once: ClassVar[int] = 8

    def __init__(self, settings: DataSettings) -> None:
        super().__init__(settings)
        self.limit: int | None = None  # what the model reads, in tokens

    def load_processor(self, model: str) -> Processor:
        """The model's tokenizer. It pads on the right, so that positions start at 0."""
        tokenizer = load_tokenizer(model)
        tokenizer.padding_side = "right"
        with loading(model):
            config = AutoConfig.from_pretrained(model, **NO_CODE)
        said = getattr(config.get_text_config(), "max_position_embeddings", None)
        positions = said if isinstance(said, int) and said > 0 else WINDOW
        # A tokenizer that knows no limit says 10 ** 30.
        self.limit = min(positions, tokenizer.model_max_length)
        return tokenizer

    def load_model(self, model: str, processor: Processor) -> PreTrainedModel:
        """The model, if it reads from left to right."""
        loaded = load_for(AutoModelForCausalLM, model, self.name, whole=True)
        if sees_what_comes(loaded):
            raise HeadcountError(
                f"{model} is a {type(loaded).__name__} that sees the words it has to predict; give "
                "a model that reads from left to right"
            )
        return loaded

    def collator(self, processor: Processor, model: PreTrainedModel) -> Collator:
        """A function that pads a short example, and its labels with -100."""
        return DataCollatorForSeq2Seq(processor, label_pad_token_id=-100)

    def examples_at_once(self, data: Dataset | None = None) -> int:
        """As many examples as have 2,048 tokens together, so that their logits fit into memory."""
        longest = self.longest if data is None or not len(data) else max(data["length"])
        return max(1, _AT_ONCE // longest)

    def fitted_on(self, data: Dataset) -> int:
        """A few hundred examples: blocks are long, and models large."""
        return FEWEST_FITTED

    @property
    def longest(self) -> int:
        """How many tokens an evaluation example has at most."""
        return min(WINDOW, self.limit or WINDOW)


def sees_what_comes(model: PreTrainedModel) -> bool:
    """Whether a token changes the model's output before it, as in a bidirectional encoder."""
    ids = torch.tensor([[5, 6, 7, 8], [5, 6, 7, 9]], device=model.device)
    embeddings: Any = model.get_input_embeddings()
    ids %= embeddings.weight.shape[0]
    with torch.no_grad(), evaluating(model):
        one, other = model(input_ids=ids).logits[:, 0].float()
    return not torch.allclose(one, other, rtol=1e-4, atol=1e-4)
