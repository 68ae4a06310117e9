"""Folders for MLX: what is written, what mlx_lm answers, and what is refused."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from headcount import find_heads
from headcount.deploy import mlx_folder
from headcount.deploy.mlx_folder import held, write
from headcount.deploy.regular import NotHeldError
from headcount.errors import HeadcountError
from tests.deploy.pruned import LAYOUTS, cut, pruned

MODELS = Path(os.environ.get("HEADCOUNT_MODELS", "/nowhere"))
PLAIN = [
    "llama", "llama tied", "llama biased", "llama 3", "llama linear", "llama yarn", "mistral",
    "seed_oss", "qwen3", "qwen3 tied", "qwen3 tied yarn",
]  # fmt: skip
OPENELM = ["llama", "llama tied", "mistral", "qwen3", "qwen3 tied"]
FEW = [
    ("llama", "uneven groups"),
    ("llama 3", "even"),
    ("qwen2", "even"),
    ("qwen3", "first emptied"),
    ("qwen3 tied", "middle emptied"),
]


@pytest.fixture
def without_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlx_folder, "find_spec", lambda name: None)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, Path]:
    """An empty source, and a folder to write to."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    return str(source), target


# --- the writer, which needs nothing of MLX -----------------------------------------------------


@pytest.mark.usefixtures("without_mlx")
class TestWriting:
    def test_an_even_layout_is_a_plain_folder(self, folders: tuple[str, Path]) -> None:
        model = pruned("qwen2", "even")
        record = write(model, *folders)
        assert record["architecture"] == "seed_oss"  # mlx_lm's Qwen2 does not know the head size
        assert record["checked"] == "It was not run in MLX: mlx_lm is not installed here."
        again = AutoModelForCausalLM.from_pretrained(folders[1])
        ids = torch.tensor([[3, 14, 15, 92]])
        assert torch.equal(again(ids).logits, model(ids).logits)

    def test_the_rope_is_where_mlx_reads_it(self, folders: tuple[str, Path]) -> None:
        write(pruned("llama 3", "even"), *folders)
        config = json.loads((folders[1] / "config.json").read_text("utf-8"))
        assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 500000.0
        assert config["rope_scaling"]["rope_type"] == "llama3"

    def test_an_uneven_layout_is_openelm(self, folders: tuple[str, Path]) -> None:
        record = write(pruned("qwen3", "first emptied"), *folders)
        assert record["architecture"] == "openelm"
        config = json.loads((folders[1] / "config.json").read_text("utf-8"))
        assert config["num_query_heads"] == [1, 4, 2, 1]
        assert config["num_kv_heads"] == [1, 2, 2, 1]
        assert config["normalize_qk_projections"] and not config["share_input_output_layers"]
        weights = load_file(folders[1] / "model.safetensors")
        assert weights["transformer.layers.1.attn.qkv_proj.weight"].shape == (8 * 32, 64)
        assert not weights["transformer.layers.0.attn.out_proj.weight"].any()


@pytest.mark.parametrize(
    ("kind", "layout", "why"),
    [
        ("mistral windowed", "even", "does not look at the sliding window"),
        ("mistral windowed", "uneven", "does not look at the sliding window"),
        ("qwen3 biased", "even", "biases, norms of queries and keys at once"),
        ("llama biased", "uneven", "biases, layers with their own numbers of heads at once"),
        ("qwen2", "uneven", "biases, layers with their own numbers of heads at once"),
        ("llama 3", "uneven", "layers with their own numbers of heads, the rope of Llama 3"),
    ],
)
def test_what_mlx_does_not_have_is_refused(kind: str, layout: str, why: str) -> None:
    with pytest.raises(NotHeldError, match=why):
        held(pruned(kind, layout), "")


def test_held_says_the_form() -> None:
    assert held(pruned("llama", "even"), "") == "a plain folder"
    assert held(pruned("llama", "uneven"), "").startswith("as openelm")


# --- MLX ----------------------------------------------------------------------------------------


class TestRunning:
    @pytest.fixture(autouse=True)
    def _needs_mlx(self) -> None:
        pytest.importorskip("mlx_lm")

    @pytest.mark.parametrize(("kind", "layout"), FEW)
    def test_mlx_answers_as_the_model(
        self, kind: str, layout: str, folders: tuple[str, Path]
    ) -> None:
        self.answers_as_the_model(kind, layout, folders)

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", PLAIN)
    def test_every_kind_in_an_even_layout(self, kind: str, folders: tuple[str, Path]) -> None:
        self.answers_as_the_model(kind, "even", folders)

    @pytest.mark.slow
    @pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in ("whole", "even")])
    @pytest.mark.parametrize("kind", OPENELM)
    def test_every_uneven_layout(self, kind: str, layout: str, folders: tuple[str, Path]) -> None:
        self.answers_as_the_model(kind, layout, folders)

    def answers_as_the_model(self, kind: str, layout: str, folders: tuple[str, Path]) -> None:
        record = write(pruned(kind, layout), *folders)
        assert record["difference"] < 1e-5
        assert record["greedy"] == "34 of 34 greedy tokens are equal"
        assert record["checked"].startswith("It was run in mlx_lm ")

    @pytest.mark.parametrize("mistake", ["window", "rope"])
    def test_mistakes_are_seen(
        self, mistake: str, folders: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What mlx_lm loads without a word, and answers wrongly."""
        kind = "llama 3"
        if mistake == "window":
            kind = "mistral windowed"
            monkeypatch.setattr(mlx_folder, "WINDOW", "nothing of the kind")
        else:
            monkeypatch.setattr(mlx_folder, "_say_rope", lambda file, model: None)
        with pytest.raises(HeadcountError, match="answers something else in MLX"):
            write(pruned(kind, "even"), *folders)

    def test_a_folder_that_does_not_load_is_one_sentence(
        self, folders: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        weights = mlx_folder._openelm_weights

        def without_norm(*given: Any) -> list[tuple[str, torch.Tensor]]:
            return [row for row in weights(*given) if row[0] != "transformer.norm.weight"]

        monkeypatch.setattr(mlx_folder, "_openelm_weights", without_norm)
        with pytest.raises(HeadcountError, match=r"mlx_lm cannot run target: ValueError: .*exit"):
            write(pruned("llama", "uneven"), *folders)

    @pytest.mark.slow
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("name", ["stories", "smollm2"])
    def test_real_models(self, name: str, dtype: torch.dtype, tmp_path: Path) -> None:
        source = MODELS / name
        if not source.is_dir():
            pytest.skip(f"HEADCOUNT_MODELS has no {name}")
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
        drawn = random.Random(0)
        born = [block.born for block in find_heads(model).blocks]
        layout = [tuple(sorted(drawn.sample(range(n), drawn.randint(1, n)))) for n in born]
        layout[3] = ()
        cut(model, tuple(layout))
        record = write(model, str(source), tmp_path)
        assert record["greedy"] == "34 of 34 greedy tokens are equal"
        assert (tmp_path / "tokenizer.json").is_file()
