"""Seams: what is private of transformers is named once, and refused where a version changed it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import transformers
from transformers import TrainingArguments

import headcount as hc
from headcount import HeadcountError, seams
from tests.tiny import build

ALL = (*seams.LOADING, *seams.TRAINER)


@pytest.mark.parametrize("seam", ALL, ids=lambda seam: seam.name)
def test_a_seam_is_there_in_the_versions_that_are_supported(seam: seams.Seam) -> None:
    assert seam.find() is not None


@pytest.mark.parametrize("seam", seams.TRAINER, ids=lambda seam: seam.name)
def test_a_trainer_is_refused_where_a_seam_is_gone(
    seam: seams.Seam, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(transformers.Trainer, seam.name.rpartition(".")[2])
    with pytest.raises(HeadcountError, match=rf"{re.escape(seam.name)} is not there in transf"):
        hc.PruningTrainer(
            model=build("bert"), pruner=hc.Handover(2), args=TrainingArguments(str(tmp_path))
        )


def test_a_seam_that_takes_other_arguments_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers.Trainer, "_save_checkpoint", lambda self, model: None)
    with pytest.raises(HeadcountError, match="_save_checkpoint takes no trial in transformers"):
        seams.require(*seams.TRAINER)


LOADS = """
import sys
from transformers import modeling_utils
{change}
import headcount
from transformers import AutoModel
try:
    AutoModel.from_pretrained(sys.argv[1])
except headcount.HeadcountError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("del modeling_utils.LoadStateDictConfig.__init__", "__init__ takes no hf_quantizer"),
        (
            "modeling_utils.LoadStateDictConfig.__init__ = lambda self: None",
            "takes no hf_quantizer",
        ),
        (
            "theirs = modeling_utils.get_hf_quantizer\n"
            "modeling_utils.get_hf_quantizer = lambda *args, **kwargs: theirs(*args, **kwargs)",
            "get_hf_quantizer takes no config",
        ),
    ],
)
def test_importing_headcount_never_fails_but_loading_a_pruned_model_says_why(
    tmp_path: Path, change: str, said: str
) -> None:
    model = build("bert")
    hc.remove_heads(model, hc.HeadMask.random(hc.find_heads(model), keep=5, seed=0))
    model.save_pretrained(tmp_path / "small")
    done = subprocess.run(
        [sys.executable, "-c", LOADS.format(change=change), str(tmp_path / "small")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said in done.stdout, done.stderr


def test_no_other_private_name_of_the_trainer_is_used() -> None:
    known = {seam.name.rpartition(".")[2] for seam in seams.TRAINER}
    source = Path(hc.__file__).parent
    used = set()
    for path in (*source.glob("training/*.py"), *source.glob("runs/*.py")):
        text = path.read_text(encoding="utf-8")
        called = re.findall(r"(?:trainer|super\(\)|self)\.(_[a-z]\w+)\(", text)
        overridden = re.findall(r"def (_[a-z]\w+)\(self", text) if "Trainer):" in text else []
        used |= {name for name in (*called, *overridden) if hasattr(transformers.Trainer, name)}
    assert used - known == set()
