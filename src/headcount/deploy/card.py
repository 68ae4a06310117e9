"""The card of an exported folder: what it is, where it comes from, and how to load it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto

from headcount.atomic import write_text
from headcount.loading.origin import CARD, TAGS, origin_of

FOLDER = "FOLDER"  # what the lines that load a model call its place
# Auto classes by what their models do, the most telling first: a class may be in several.
_AUTO = (
    ("AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"),
    ("AutoModelForSeq2SeqLM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES"),
    ("AutoModelForSequenceClassification", "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES"),
    ("AutoModelForTokenClassification", "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES"),
    ("AutoModelForQuestionAnswering", "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES"),
    ("AutoModelForMultipleChoice", "MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES"),
    ("AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING_NAMES"),
    ("AutoModelForImageClassification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES"),
    ("AutoModelForImageTextToText", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES"),
    ("AutoModelForSpeechSeq2Seq", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES"),
    ("AutoModelForCTC", "MODEL_FOR_CTC_MAPPING_NAMES"),
    ("AutoModelForAudioClassification", "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES"),
)


def auto_class(cls: type[PreTrainedModel]) -> str:
    """The auto class of transformers that loads a model's class."""
    for name, mapping in _AUTO:
        known: dict[str, Any] = getattr(modeling_auto, mapping, {})
        if any(cls.__name__ in ([v] if isinstance(v, str) else v) for v in known.values()):
            return name
    return "AutoModel"


def loading_lines(cls: type[PreTrainedModel], *arguments: str) -> str:
    """Lines of Python that load a folder with the auto class of `cls`.

    Args:
        cls: the class that transformers has, or the one that the model's class is derived from.
        *arguments: more arguments of `from_pretrained`, as Python has them.
    """
    auto = auto_class(cls)
    given = ", ".join((f'"{FOLDER}"', *arguments))
    return f"from transformers import {auto}\n\nmodel = {auto}.from_pretrained({given})"


def write_card(folder: Path, source: str, runs_in: str, record: dict[str, Any]) -> None:
    """Write the card of an exported folder.

    Args:
        folder: the folder.
        source: the model's folder or hub name; what its own card says for the hub is kept.
        runs_in: the programs that load the folder.
        record: what was written and checked.
    """
    data = _hub_data(source)
    write_text(folder / CARD, f"---\n{data}\n---\n\n{_text(runs_in, record)}")


def _hub_data(source: str) -> str:
    """The hub's metadata: what the model's own card says, or where the model comes from."""
    if not source:
        return ModelCardData(library_name="transformers", tags=list(TAGS)).to_yaml()
    try:
        return str(ModelCard.load(Path(source) / CARD).data.to_yaml())
    except Exception:  # no card, or a damaged one: of no common type
        origin = origin_of(source)
    return ModelCardData(
        base_model=origin.name,
        library_name="transformers",
        license=origin.licence,
        license_name=origin.licence_name,
        license_link=origin.licence_link,
        language=origin.language,
        tags=list(TAGS),
    ).to_yaml()


def _text(runs_in: str, record: dict[str, Any]) -> str:
    lines = [
        "# A model with fewer attention heads",
        "",
        f"Written by headcount for {runs_in}.",
        "headcount is not needed to run it.",
        "",
    ]
    if "why" in record:
        lines += [f"It is a {record['why']}.", ""]
    if "load" in record:
        language = "python" if "(" in record["load"] else "sh"
        lines += ["## How to load it", "", f"```{language}", record["load"], "```", ""]
    if "flag" in record:
        lines += [record["flag"], ""]
    checked = record.get("checked", "It was compared with the model that it was written from.")
    lines += ["## What was checked", "", checked]
    if record.get("difference") is not None:
        lines += [f"The largest difference between their outputs is {record['difference']:.1e}."]
    return "\n".join(lines) + "\n"
