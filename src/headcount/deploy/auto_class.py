"""Which auto class of transformers loads a model's class, and the lines that load a folder."""

from __future__ import annotations

from transformers import PreTrainedModel

from headcount import seams

FOLDER = "FOLDER"  # what the lines that load a model call its place
# Auto classes that load a model as people use it, before others that load the same class.
_USUAL = ("AutoModelForSeq2SeqLM", "AutoModelForCausalLM", "AutoModelForMaskedLM")
_UNUSUAL = ("AutoModelForPreTraining", "AutoModel", "AutoModelWithLMHead")


def auto_classes(cls: type[PreTrainedModel]) -> tuple[str, ...]:
    """The auto classes that load a class for its task, the one that people use first."""
    known = seams.auto_classes(cls, cls.config_class) if cls.config_class else ()
    found = [name for name in known if name not in _UNUSUAL]
    found = found or [name for name in _UNUSUAL[:1] if name in known]
    return tuple(
        sorted(found, key=lambda name: _USUAL.index(name) if name in _USUAL else len(_USUAL))
    )


def auto_class(cls: type[PreTrainedModel]) -> str:
    """The auto class that loads a class; the class's own name if there is none."""
    if found := auto_classes(cls):
        return found[0]
    known = seams.auto_classes(cls, cls.config_class) if cls.config_class else ()
    return "AutoModel" if "AutoModel" in known else cls.__name__


def loading_lines(auto: str, *arguments: str) -> str:
    """Lines of Python that load a folder.

    Args:
        auto: the auto class.
        *arguments: more arguments of `from_pretrained`, as Python has them.
    """
    given = ", ".join((f'"{FOLDER}"', *arguments))
    return f"from transformers import {auto}\n\nmodel = {auto}.from_pretrained({given})"


def sentence_lines(*arguments: str) -> str:
    """Lines of Python that load a folder of sentence-transformers; see `loading_lines`."""
    given = ", ".join((f'"{FOLDER}"', *arguments))
    load = f"model = SentenceTransformer({given})"
    return f"from sentence_transformers import SentenceTransformer\n\n{load}"
