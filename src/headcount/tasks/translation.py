"""Translation: sentence pairs in, BLEU out.

At the end: how to tell a tokenizer for many languages which two these are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from datasets import Dataset
from pyarrow import compute
from transformers import (
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    EvalPrediction,
    PreTrainedModel,
)

from headcount.errors import HeadcountError
from headcount.tasks import from_scratch
from headcount.tasks.base import Collator, DataSettings, Processor, Task, read_options
from headcount.tasks.metrics import Scorer
from headcount.tasks.models import load_for, load_tokenizer
from headcount.tasks.pairs import HELD_OUT, Pairs, read_pairs
from headcount.tasks.prepared import cache_folder, fingerprint, prepared, with_columns

_MARGIN = 10  # how many tokens longer a translation may be than the longest training target


@dataclass(frozen=True)
class TranslationOptions:
    """The options of translation; those of `ScratchSettings` may be given along with them.

    Attributes:
        num_beams: the number of beams of the search; 1 for greedy search.
        length_penalty: above 0 favours longer translations; see `GenerationConfig`.
        max_generated: the longest translation in tokens; 0 for a little more than the longest of
            the training data.
        prefix: text before every source sentence; T5 needs "translate German to English: ".
        source_code: the tokenizer's code for the source language, such as deu_Latn; empty if it
            is the same as `source`.
        target_code: the tokenizer's code for the target language; empty if it is the same as
            `target`.
        tokenize: how sentences are split into words; see `Scorer`.
        lowercase: whether BLEU ignores case; see `Scorer`.
        tokenised: set it if the data is tokenised: then a BLEU that splits words only at spaces
            decides.
        columns: names of the columns of a table without a header, in their order.
        hold_out: how many training pairs to set aside as the evaluation set `held_out`, if there
            is no other; 0 for none.
        config: the configuration of a data set on the hub; None for its only one.
    """

    num_beams: int = 5
    length_penalty: float = 1.0
    max_generated: int = 0
    prefix: str = ""
    source_code: str = ""
    target_code: str = ""
    tokenize: str = "13a"
    lowercase: bool = False
    tokenised: bool = False
    columns: tuple[str, ...] = ()
    hold_out: int = 0
    config: str | None = None


class Translation(Task):
    """Sentence pairs from files or the hub, an encoder-decoder, beam search, BLEU.

    Data is a folder with line-aligned files (`train.de`, `train.en`, `val.de`, …, plain or gzip), a
    table with tabs, or a data set on the hub. A data set has a column `translation`, or one for
    each language. The references are the lines of the data, before any tokenizer.

    The model is a folder, a hub name, or `scratch:marian`, which makes a new model: see
    `from_scratch`. A new model needs other training arguments, which are then in `training`.

    Args:
        settings: which data. `source` and `target` give the direction; for `options` see
            `TranslationOptions`.
    """

    name = "translation"
    auto_class: ClassVar[str] = "AutoModelForSeq2SeqLM"
    generates: ClassVar[bool] = True

    def __init__(self, settings: DataSettings) -> None:
        super().__init__(settings)
        sizes = {field.name for field in fields(from_scratch.ScratchSettings)}
        self._sizes = {key: val for key, val in settings.options.items() if key in sizes}
        others = {key: val for key, val in settings.options.items() if key not in sizes}
        self.options = read_options(TranslationOptions(), others, self.name)
        self.scorer = Scorer(
            self.options.tokenize, self.options.lowercase, self.options.tokenised
        )  # fmt: skip
        self.metric = "bleu_tokenised" if self.options.tokenised else "bleu"
        self.training = {"predict_with_generate": True}
        self._sets = self._read()
        self._expected: dict[str, tuple[list[list[int]], list[str]]] = {}
        self._made: dict[str, str] = {}

    @property
    def dropped(self) -> dict[str, int]:
        """How many training pairs were left out because one side is empty."""
        return {"train": self._sets["train"].dropped}

    def model_folder(self, model: str) -> str:
        """The model itself; for `scratch:…` a folder that is made once from the training data."""
        if not model.startswith(from_scratch.PREFIX):
            return model
        self.training |= from_scratch.TRAINING
        if model not in self._made:
            self._made[model] = self._make(model)
        return self._made[model]

    def load_processor(self, model: str) -> Processor:
        """The model's tokenizer, with the two languages set if it needs them."""
        tokenizer = load_tokenizer(self.model_folder(model))
        source, target = str(self.settings.source), str(self.settings.target)
        set_languages(
            tokenizer, self.options.source_code or source, self.options.target_code or target
        )
        return tokenizer

    def load_model(self, model: str, processor: Processor) -> PreTrainedModel:
        """The model with this task's beam search in its generation settings."""
        loaded = load_for(
            AutoModelForSeq2SeqLM, self.model_folder(model), self.name, whole=True
        )  # fmt: skip
        generation = loaded.generation_config
        generation.num_beams = self.options.num_beams
        generation.length_penalty = self.options.length_penalty
        generation.max_new_tokens = None
        generation.max_length = self._longest(loaded, processor)
        if self.options.num_beams == 1:
            generation.length_penalty = generation.early_stopping = None
        begin_with_language(loaded, processor)
        return loaded

    def is_trained(self, model: PreTrainedModel) -> bool:
        """Whether the model is not a new one that was made from scratch."""
        return model.name_or_path not in self._made.values()

    def train_data(self, processor: Processor) -> Dataset:
        """Tokens of the training pairs within the limit; `length` is that of the source."""
        return self._tokenise(self._sets["train"], processor)

    def evaluation_data(self, processor: Processor) -> dict[str, Dataset]:
        """Tokens of every evaluation set, longest source first; keeps their references too."""
        found = {}
        for split, pairs in self._sets.items():
            if split == "train":
                continue
            data = self._tokenise(pairs, processor)
            order = np.argsort(-np.asarray(data["length"]), kind="stable").tolist()
            found[split] = data.select(order)
            references = pairs.select(order).targets
            self._expected[split] = (list(found[split]["labels"]), references)
        return found

    def half(self, split: str, data: Dataset, start: int, name: str) -> Dataset:
        """Every other pair of an evaluation set; keeps their references too."""
        labels, references = self._expected[split]
        self._expected[name] = (labels[start::2], references[start::2])
        return super().half(split, data, start, name)

    def collator(self, processor: Processor, model: PreTrainedModel) -> Collator:
        """A function that pads sources, and targets with -100; the model shifts the targets."""
        return DataCollatorForSeq2Seq(processor, model=model, label_pad_token_id=-100)

    def predictions(
        self, output: EvalPrediction, processor: Processor, split: str
    ) -> Sequence[str]:
        """The translations as text."""
        self._check_order(output, split)
        tokens = output.predictions[0] if isinstance(output.predictions, tuple) else None
        tokens = np.asarray(output.predictions if tokens is None else tokens)
        tokens = np.where(tokens < 0, processor.pad_token_id, tokens)
        texts = processor.batch_decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return [text.strip() for text in texts]

    def scores(self, output: EvalPrediction, processor: Processor, split: str) -> dict[str, float]:
        """BLEU, chrF and the length ratio against the lines of the data."""
        translations = self.predictions(output, processor, split)
        return self.scorer.scores(translations, self.references(split))

    def references(self, split: str) -> list[str]:
        """The target lines of an evaluation set exactly as in the data, in its order."""
        if split not in self._expected:
            raise HeadcountError(
                f"there are no references for {split} yet; call evaluation_data first, which "
                f"prepares {', '.join(list(self._sets)[1:])}"
            )
        return self._expected[split][1]

    def gold(self, output: EvalPrediction, split: str) -> Sequence[str]:
        """The references."""
        return self.references(split)

    def signature(self, split: str) -> str:
        """Data, direction, search and sacrebleu's signature."""
        data, options = self.settings.data_name, self.options
        direction = f"{self.settings.source}-{self.settings.target}"
        return (
            f"data:{data}-{split}|lang:{direction}|beam:{options.num_beams}"
            f"|lenpen:{options.length_penalty}|{self.scorer.signature()}"
        )

    def read_columns(self) -> dict[str, Sequence[str]]:
        """Both sides of every set."""
        columns: dict[str, Sequence[str]] = {}
        for name, pairs in self._sets.items():
            columns |= {f"{name} source": pairs.sources, f"{name} target": pairs.targets}
        return columns

    def training_lines(self) -> list[str]:
        """The training sentences of both languages, for a vocabulary."""
        return self._sets["train"].sources + self._sets["train"].targets

    def _read(self) -> dict[str, Pairs]:
        settings, options = self.settings, self.options
        sets = read_pairs(settings, options.columns, options.config)
        train = sets["train"].complete()
        if len(sets) == 1 and options.hold_out:
            if options.hold_out >= len(train):
                raise HeadcountError(
                    f"cannot hold out {options.hold_out} of {len(train)} pairs; give fewer"
                )
            train, sets[HELD_OUT] = train.hold_out(options.hold_out, settings.seed)
        if len(sets) == 1:
            raise HeadcountError(
                f"{settings.data_name} has no validation set; name one in evaluate, or give the "
                "option hold_out to take some training pairs for it"
            )
        if not len(train):
            raise HeadcountError(f"{settings.data_name} has no training pair with both sides")
        limit, seed = settings.limit_eval, settings.seed
        drawn = {name: pairs.draw(limit, seed) for name, pairs in sets.items()}
        return drawn | {"train": train.draw(settings.limit_train, seed)}

    def _make(self, model: str) -> str:
        size = read_options(from_scratch.size_of(model), self._sizes, model)
        recipe = [from_scratch.RECIPE, asdict(size), self.settings.weights_seed]
        key = json.dumps([recipe, self.training_lines()])
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        path = cache_folder(self.settings) / f"{model.replace(':', '-')}-{digest}"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            lines, seed = self.training_lines(), self.settings.weights_seed
            from_scratch.new_encoder_decoder(lines, path, size, seed)
        return str(path)

    def _tokenise(self, pairs: Pairs, processor: Processor) -> Dataset:
        def tokens(batch: dict[str, list[str]]) -> dict[str, Any]:
            sources = [self.options.prefix + source for source in batch["source"]]
            found = processor(
                sources, text_target=batch["target"], truncation=True,
                max_length=self.max_length,
            )  # fmt: skip
            return {name: found[name] for name in ("input_ids", "attention_mask", "labels")}

        columns = {"source": pairs.sources, "target": pairs.targets}
        languages = [str(getattr(processor, side, "")) for side in ("src_lang", "tgt_lang")]
        depends_on = [
            fingerprint(processor), str(self.max_length), self.options.prefix, *languages
        ]  # fmt: skip
        data = prepared(columns, tokens, depends_on, cache_folder(self.settings))
        return with_columns(data, {"row": pairs.rows})

    def _longest(self, model: PreTrainedModel, processor: Processor) -> int:
        longest = self.options.max_generated
        if not longest:
            labels = self.train_data(processor).data.column("labels")
            longest = compute.max(compute.list_value_length(labels)).as_py() + _MARGIN
        positions = getattr(model.config, "max_position_embeddings", None)
        return min(longest, positions) if positions else longest

    def _check_order(self, output: EvalPrediction, split: str) -> None:
        """Refuse outputs in another order than the references: their scores would be nonsense."""
        self.references(split)
        labels, given = self._expected[split][0], output.label_ids
        rows = [] if given is None else list(np.asarray(given))
        same = len(rows) in (0, len(labels)) and all(
            list(row[: len(label)]) == list(label) for row, label in zip(rows, labels, strict=False)
        )
        if not same:
            raise HeadcountError(
                f"the outputs for {split} are not in the order of its data; evaluate the data set "
                "that evaluation_data gives, and do not group it by length again"
            )


def set_languages(tokenizer: Any, source: str, target: str) -> None:
    """Set the two languages of a tokenizer for many languages; leave any other as it is."""
    if hasattr(tokenizer, "src_lang") and hasattr(tokenizer, "tgt_lang"):
        tokenizer.src_lang = _code(tokenizer, source, "source_code")
        tokenizer.tgt_lang = _code(tokenizer, target, "target_code")


def begin_with_language(model: PreTrainedModel, tokenizer: Any) -> None:
    """Let translations begin with the token of the target language, if there is one."""
    language = getattr(tokenizer, "tgt_lang", None)
    if language is None or not hasattr(tokenizer, "src_lang"):
        return
    token = _codes(tokenizer)[language]
    if tokenizer(text_target="")["input_ids"][0] == token:
        model.generation_config.forced_bos_token_id = token
    else:
        # The first mBART puts the language after a sentence, and the decoder begins with it.
        model.config.decoder_start_token_id = token
        model.generation_config.decoder_start_token_id = token


def _code(tokenizer: Any, language: str, option: str) -> str:
    """The tokenizer's code for a language. `de` finds de or de_DE, but not deu_Latn."""
    codes = _codes(tokenizer)
    if language in codes:
        return language
    near = [code for code in codes if code.startswith(f"{language}_")]
    if len(near) == 1:
        return near[0]
    some = ", ".join(sorted(near or codes)[:6])
    raise HeadcountError(
        f"the tokenizer has no single language {language}; give its code as the option {option}, "
        f"for example one of {some}"
    )


def _codes(tokenizer: Any) -> dict[str, int]:
    """The tokens of the languages, by code."""
    known = getattr(tokenizer, "lang_code_to_id", None)
    if known:
        return dict(known)
    # NLLB has its codes only as special tokens, such as deu_Latn.
    tokens = [str(token) for token in tokenizer.get_added_vocab() if "_" in str(token)]
    return {token: tokenizer.convert_tokens_to_ids(token) for token in tokens}
