"""The model card of a pruned model."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import ModelCardData

from headcount.runs.result import RunResult
from headcount.runs.settings import RunSettings

CARD = "README.md"
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
from transformers import AutoTokenizer, {auto}

model = {auto}.from_pretrained("{title}")
```

How it was made: `settings.json`; which heads were kept: `mask.json`; all figures: `metrics.json`.
{signatures}
"""


def write_card(
    folder: Path, name: str, auto_class: str, settings: RunSettings, result: RunResult
) -> None:
    """Write the card.

    Args:
        folder: where to.
        name: of the model: its final folder's.
        auto_class: the class of transformers that loads it.
        settings: of the run.
        result: of the run.
    """
    local = Path(settings.model).exists()
    front = ModelCardData(
        library_name="transformers",
        tags=["headcount", "pruned", settings.task],
        base_model=None if local else settings.model,
    ).to_yaml()
    remarks = [f"Masked and cut outputs differ by at most {result.difference:.1e}."]
    if result.before is None:
        remarks.append("The unpruned model was not evaluated in this run.")
    (folder / CARD).write_text(
        _TEMPLATE.format(
            front=front,
            title=name,
            model=Path(settings.model).name if local else settings.model,
            kept=int(result.heads.after),
            born=int(result.heads.before),
            method=result.method,
            task=settings.task,
            rows="\n".join(f"| {' | '.join(row)} |" for row in result.rows()),
            remark=" ".join(remarks),
            auto=auto_class,
            signatures="".join(f"\n`{line}`\n" for line in result.signatures.values()),
        ),
        encoding="utf-8",
    )
