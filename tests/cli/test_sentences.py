"""Sentence encoders and label-free scores on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headcount.heads.mask import HeadMask
from tests.runs.test_other_tasks import language_modelling
from tests.small_task import save_encoder
from tests.tasks.test_embedding import sentences
from tests.tasks.text_data import captions, write


def test_an_encoder_from_a_file_of_sentences(headcount: Any, tmp_path: Path) -> None:
    model, out = save_encoder(tmp_path / "bare", spread=0.4), tmp_path / "small"
    write(tmp_path / "mine.txt", sentences(600))
    ran = headcount(
        "prune", model, "--task", "embedding", "--data", tmp_path / "mine.txt", "--keep", 3,
        "--method", "surgeon", "--option", "pooling=mean", "--option", "prompt=good: ",
        "--no-speed", "--output", out,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "of the training sentences are held out" in " ".join((ran.out + ran.err).split())
    for row in ("cosine", "similarities", "neighbours", "neighbours in old"):
        assert f"{row}, held-out" in ran.out
    assert "pooled from those of its tokens: mean" in (out / "README.md").read_text()
    asked = json.loads((out / "settings.json").read_text())["examples"]["options"]
    assert asked == {"pooling": "mean", "prompt": "good: "}


def test_a_damaged_encoder_is_one_sentence(headcount: Any, tmp_path: Path) -> None:
    model, out = save_encoder(tmp_path / "encoder"), tmp_path / "small"
    (model / "modules.json").write_text("[")
    write(tmp_path / "mine.txt", sentences(60))
    for command in (
        ("prune", model, "--keep", 3, "--output", out, "--method", "random"),
        ("evaluate", model), ("export", model, "--to", "onnx", "--output", out),
    ):  # fmt: skip
        data = ("--task", "embedding", "--data", tmp_path / "mine.txt")
        ran = headcount(*command, *data)
        assert ran.code == 2, ran.err
        assert "modules.json does not list the modules of an encoder" in " ".join(ran.err.split())
        assert "Traceback" not in ran.err and not out.exists()


def test_scores_without_labels_are_told_apart(headcount: Any, tmp_path: Path) -> None:
    model, out = language_modelling(tmp_path).model, {}
    write(tmp_path / "text.txt", captions(300)[1])
    for labels in ("given", "none"):
        out[labels] = tmp_path / labels
        ran = headcount(
            "prune", model, "--data", tmp_path / "text.txt", "--method", "surgeon", "--keep", 2,
            "--labels", labels, "--no-speed", "--output", out[labels],
        )  # fmt: skip
        assert ran.code == 0, ran.err
        assert len(HeadMask.load(out[labels] / "mask.json")) == 2
    scores = [json.loads((out[k] / "importance.json").read_text())["heads"] for k in out]
    assert scores[0] != scores[1]
    said = [json.loads((out[k] / "metrics.json").read_text())["signatures"] for k in out]
    assert ["labels:none" in next(iter(line.values())) for line in said] == [False, True]
