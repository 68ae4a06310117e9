"""The model card of a pruned model: what the hub reads in its first lines, and people below.

The metadata is what https://huggingface.co/docs/hub/model-cards describes.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from headcount.loading.module_list import has_modules
from headcount.loading.origin import CARD, TAGS, Origin, copy_licence, is_hub_name, origin_of
from headcount.runs.escape import markdown, markdown_code, markdown_row, write_names
from headcount.runs.result import RunResult
from headcount.runs.settings import RunSettings
from headcount.tasks.registry import GLUE_NAMES

# The hub's name for what a model does, by the class that loads it.
PIPELINES = {
    "AutoModel": "feature-extraction",
    "AutoModelForCausalLM": "text-generation",
    "AutoModelForImageClassification": "image-classification",
    "AutoModelForMaskedLM": "fill-mask",
    "AutoModelForQuestionAnswering": "question-answering",
    "AutoModelForSeq2SeqLM": "translation",
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForTokenClassification": "token-classification",
}
# The hub's names of metrics; the others have the same there. The mean that GLUE takes has none.
METRICS = {
    "bleu": "sacrebleu", "bleu_tokenised": "sacrebleu", "macro_f1": "f1", "pearson": "pearsonr",
    "spearman": "spearmanr", "combined": None,
}  # fmt: skip
GLUE = "nyu-mll/glue"
OWN_DATA = ("custom", "own data")  # type and name of a data set that is not on the hub
_TEMPLATE = """---
{front}
---

# {title}

{model}, pruned to **{kept} of {born} attention heads** with [headcount](https://pypi.org/project/headcount/)
({method}) on {task}. The other heads are cut out of the weights.

| | before | after | ratio |
|---|---:|---:|---:|
{rows}

{remark}

```python
import headcount  # teaches transformers to load models with fewer heads
{load}
```

{files}
{signatures}
"""
_LOAD = """from transformers import AutoTokenizer, {auto}

model = {auto}.from_pretrained({quoted})"""
_LOAD_SENTENCES = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer({quoted})"""
_FILES = "Which heads were kept: `mask.json`; all figures: `metrics.json`"


def write_card(
    folder: Path,
    name: str,
    auto_class: str,
    settings: RunSettings,
    result: RunResult,
    on_hub: bool = False,
) -> None:
    """Write the model card into a folder, and beside it the licence of the model it was made from.

    Args:
        folder: the folder to write to.
        name: the model's name: that of its final folder, or its name on the hub.
        auto_class: the class of transformers that loads the model.
        settings: everything that decided the run.
        result: the figures.
        on_hub: whether the card is for the hub, where the settings of the run are not.
    """
    origin = origin_of(settings.model)
    copy_licence(origin, folder)
    remarks = [f"Masked and cut outputs differ by at most {result.difference:.1e}."]
    if result.before is None:
        remarks.append("The unpruned model was not evaluated in this run.")
    local = Path(settings.model).exists()
    # A folder says what its model was made from. What was pruned is the folder's model itself.
    shown = f"A model made from {origin.name}" if local and origin.name else settings.model
    shown = Path(settings.model).name if local and not origin.name else shown
    if pooling := settings.examples.options.get("pooling"):
        remarks.append(f"The vector of a text is pooled from those of its tokens: {pooling}.")
    of_sentences = has_modules(folder)
    quoted = json.dumps(name, ensure_ascii=False)  # also how Python quotes a text
    load = _LOAD_SENTENCES if of_sentences else _LOAD
    front = metadata(name, auto_class, settings, result, origin)
    if of_sentences:
        front.library_name, front.pipeline_tag = "sentence-transformers", "sentence-similarity"
    text = _TEMPLATE.format(
        front=front.to_yaml(),
        title=markdown(name),
        model=markdown(shown),
        kept=int(result.heads.after),
        born=int(result.heads.before),
        method=markdown(result.method),
        task=markdown(settings.task),
        rows="\n".join(markdown_row([markdown(cell) for cell in row]) for row in result.rows()),
        remark=" ".join(remarks),
        load=load.format(auto=auto_class, quoted=quoted),
        files=f"{_FILES}." if on_hub else f"{_FILES}; how it was made: `settings.json`.",
        signatures="".join(f"\n{markdown_code(line)}\n" for line in result.signatures.values()),
    )
    write_names(folder / CARD, text)


def metadata(
    name: str, auto_class: str, settings: RunSettings, result: RunResult, origin: Origin
) -> ModelCardData:
    """What the hub reads; what is not known is left out."""
    pipeline = PIPELINES.get(auto_class)
    data = _data_set(settings)
    results = _evaluations(settings, result, pipeline or settings.task, data)
    found = [METRICS.get(metric, metric) for scores in result.scores.values() for metric in scores]
    # The hub knows no closer relation than finetune: the others are adapter, merge, quantized.
    relation: dict[str, Any] = {"base_model_relation": "finetune"} if origin.name else {}
    return ModelCardData(
        library_name="transformers",
        pipeline_tag=pipeline,
        base_model=origin.name,
        license=origin.licence,
        license_name=origin.licence_name,
        license_link=origin.licence_link,
        language=origin.language,
        datasets=None if data is None else [data],
        metrics=[metric for metric in dict.fromkeys(found) if metric is not None],
        tags=list(TAGS),
        model_name=name if results else None,
        eval_results=results or None,
        **relation,
    )


def _data_set(settings: RunSettings) -> str | None:
    """The name of the data on the hub; None for files of the user's own."""
    if not settings.data:
        return None
    if not Path(settings.data).exists():
        return settings.data if is_hub_name(settings.data) else None
    own_files = settings.examples.train or settings.examples.evaluate
    return GLUE if settings.task in GLUE_NAMES and not own_files else None


def _evaluations(
    settings: RunSettings, result: RunResult, task: str, data: str | None
) -> list[EvalResult]:
    """The measured figures of the pruned model, for the hub's table of results."""
    kind, name = OWN_DATA if data is None else (data, data)
    config = None
    if data is not None and settings.task in GLUE_NAMES:
        config, name = settings.task, f"GLUE {settings.task}"
    return [
        EvalResult(
            task_type=task,
            dataset_type=kind,
            dataset_name=name,
            dataset_config=config,
            dataset_split=split,
            metric_type=METRICS.get(metric) or metric,
            metric_name=metric,
            metric_value=round(value, 6),
        )
        for split, scores in result.scores.items()
        for metric, value in scores.items()
        if math.isfinite(value)
    ]
