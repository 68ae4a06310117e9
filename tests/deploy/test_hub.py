"""A model folder goes to the hub whole, and what goes wrong there is one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard, constants

from headcount import HeadcountError
from headcount.deploy.hub import push, refuse_push
from tests.cli.conftest import headcount
from tests.deploy.test_plain import DECODER, keep_groups, random_model
from tests.hub_stand_in import OWNER, TOKEN, StandIn, stand_in

__all__ = ["headcount"]  # the fixture
# What the hub's library itself does with the plain protocol.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
UPLOADED = {
    "README.md", "config.json", "heads.png", "importance.json", "mask.json", "metrics.json",
    "model.safetensors", "selection_history.json", "tokenizer.json", "tokenizer_config.json",
}  # fmt: skip


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with stand_in() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        # Its chunks go through another protocol; the plain one carries the same bytes.
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    (folder / "predictions").mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 1000)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Größe\n", encoding="utf-8")
    (folder / "settings.json").write_text('{"data": "/home/me/secret"}')
    (folder / "predictions" / "validation.json").write_text("[]")
    return folder


def test_the_files_arrive(hub: StandIn, folder: Path) -> None:
    assert push(folder, "team/small") == f"{hub.address}/team/small"
    names = ("README.md", "config.json", "model.safetensors")
    assert hub.files == {"team/small": {name: (folder / name).read_bytes() for name in names}}
    assert not hub.private["team/small"]


def test_a_name_without_an_owner_is_the_users_own(hub: StandIn, folder: Path) -> None:
    assert push(folder, "small", private=True) == f"{hub.address}/{OWNER}/small"
    assert hub.private[f"{OWNER}/small"] and hub.files[f"{OWNER}/small"]


def test_a_model_that_is_there_gets_the_new_files(hub: StandIn, folder: Path) -> None:
    push(folder, "team/small")
    (folder / "config.json").write_text("{}")
    push(folder, "team/small")
    assert hub.files["team/small"]["config.json"] == b"{}"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "it does not know the token; log in again"),
        (403, "the token may not write there; use one that may"),
        (400, "it answered 400"),
    ],
)
def test_a_refusal_is_one_sentence(hub: StandIn, folder: Path, status: int, said: str) -> None:
    hub.refusal = status
    with pytest.raises(HeadcountError) as refused:
        push(folder, "team/small")
    sentence = str(refused.value)
    assert sentence.startswith(f"{folder} is complete, but was not pushed to team/small on the hub")
    assert said in sentence and "\n" not in sentence
    assert f"hf upload team/small {folder} . --exclude 'predictions/*'" in sentence


def test_a_hub_that_does_not_answer_is_one_sentence(
    hub: StandIn, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HeadcountError, match=r"it cannot be reached \(.*\); connect to it"):
        push(folder, "team/small")


@pytest.mark.parametrize("name", ["a/b/c", "me/small model", "-x", "me/", "", "x" * 200])
def test_a_wrong_name_is_refused_without_a_connection(name: str) -> None:
    with pytest.raises(HeadcountError, match="cannot be the name of a model on the hub"):
        refuse_push(name)


def test_a_missing_token_is_refused_without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headcount.deploy.hub.get_token", lambda: None)
    with pytest.raises(HeadcountError, match=r"no token to push to me/small .* hf auth login"):
        refuse_push("me/small")


def _brief(encoder: Path, tables: Path, out: Path) -> tuple[object, ...]:
    on = ("--task", "classification", "--data", tables, "--epochs", 1, "--no-speed")
    return ("prune", encoder, *on, "--output", out)


def test_prune_pushes_what_it_wrote(
    hub: StandIn, headcount: Any, encoder: Path, tables: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run = headcount(
        *_brief(encoder, tables, out), "--keep", 3, "--push-to-hub", "team/small", "--private"
    )
    assert run.code == 0, run.err
    assert f"pushed to {hub.address}/team/small" in run.out
    arrived = hub.files["team/small"]
    assert arrived.keys() == UPLOADED
    assert all(content == (out / name).read_bytes() for name, content in arrived.items())
    assert hub.private["team/small"]
    card = ModelCard(arrived["README.md"].decode())
    assert 'from_pretrained("team/small")' in card.text
    assert card.data.model_name == "team/small" and card.data.eval_results


def test_a_refused_push_leaves_the_result_whole(
    hub: StandIn, headcount: Any, encoder: Path, tables: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    hub.refusal = 403
    run = headcount(
        *_brief(encoder, tables, out), "--keep", 3, "--push-to-hub", "team/small", "--json"
    )
    assert run.code == 2
    assert f"{out} is complete, but was not pushed" in run.err
    assert json.loads(run.out)["heads"]["after"] == 3
    assert {file.name for file in out.iterdir()} >= UPLOADED


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--keep", 3, "--push-to-hub", "a/b/c"), "cannot be the name of a model on the hub"),
        (
            ("--keep", "4,2", "--method", "joint-dsp", "--push-to-hub", "me/small"),
            "one name, me/small, but --keep has several K",
        ),
    ],
)
def test_a_mistake_is_told_before_the_run(
    hub: StandIn,
    headcount: Any,
    encoder: Path,
    tables: Path,
    tmp_path: Path,
    arguments: tuple[object, ...],
    said: str,
) -> None:
    out = tmp_path / "out"
    run = headcount(*_brief(encoder, tables, out), *arguments)
    assert run.code == 2
    assert said in run.err
    assert not list(tmp_path.glob("out*"))


def test_an_export_is_pushed(hub: StandIn, tmp_path: Path, headcount: Any) -> None:
    model = random_model("LlamaForCausalLM", **DECODER)
    keep_groups(model, 3)
    model.save_pretrained(tmp_path / "small")
    to = ("--to", "plain", "--output", tmp_path / "plain", "--push-to-hub")
    done = headcount("export", tmp_path / "small", *to, "team/a name")
    assert done.code == 2 and "cannot be the name of a model" in done.err
    assert not (tmp_path / "plain").exists()
    done = headcount("export", tmp_path / "small", *to, "team/plain")
    assert done.code == 0 and f"pushed to {hub.address}/team/plain" in done.out.replace("\n", "")
    assert set(hub.files["team/plain"]) == {
        "README.md", "config.json", "export.json", "generation_config.json", "model.safetensors",
    }  # fmt: skip
