"""Models beside one another, and one model over the number of kept heads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from transformers import PreTrainedModel

import headcount as hc
from headcount import HeadcountError, HeadMask
from headcount.analysis import bench_models
from headcount.analysis.speed.over_keep import bench_over_keep, random_masks
from headcount.analysis.speed.work import FORWARD, NEW_TOKENS, SENTENCES, random_work
from headcount.loading.folder import random_model
from headcount.runs.progress import Silent
from tests.tiny import build


def pruned(name: str, keep: int) -> PreTrainedModel:
    model = build(name)
    hc.remove_heads(model, HeadMask.random(hc.find_heads(model), keep))
    return model


def test_models_are_measured_beside_one_another() -> None:
    models = {"whole": build("gpt2"), "small": pruned("gpt2", 3)}
    work = random_work(models["whole"], [1, 2], [5, 7], beams=2)
    assert [(w.name, w.batch, w.length, w.items) for w in work] == [
        (FORWARD, 1, 5, 1),
        (FORWARD, 2, 5, 2),
        (FORWARD, 1, 7, 1),
        (FORWARD, 2, 7, 2),
        ("greedy", SENTENCES, 5, SENTENCES * NEW_TOKENS),
        ("2 beams", SENTENCES, 5, SENTENCES * NEW_TOKENS),
    ]
    some = [work[0], work[3], replace(work[5], tokens=2)]
    found = bench_models(models, some, Silent(), rounds=3)
    whole, small = found.sizes
    assert (whole.heads, small.heads, small.born) == (12, 3, 12)
    assert small.parameters < whole.parameters
    assert small.cache_bytes is not None and whole.cache_bytes is not None
    assert small.cache_bytes < whole.cache_bytes
    table = found.table()
    assert list(table["model"]) == ["whole", "small"] * 3
    first, second = table.iloc[0::2], table.iloc[1::2]
    assert (first["speed_up"] == 1).all() and (first["reached"] == 1).all()
    operations = first["flops"].to_numpy() / second["flops"].to_numpy()
    assert second["ideal_speed_up"].to_numpy() == pytest.approx(operations)
    assert (operations > 1).all()
    shares = second["speed_up"] / second["ideal_speed_up"]
    assert second["reached"].to_numpy() == pytest.approx(shares.to_numpy())
    assert (table["peak_bytes"] > 0).all()


def test_models_without_generation_only_pass_forward() -> None:
    assert {w.name for w in random_work(build("bert"), [2], [5], beams=5)} == {FORWARD}
    images = random_work(build("vit"), [1, 2], [5, 7], beams=5)
    assert [(w.batch, w.length) for w in images] == [(1, None), (2, None)]


def test_no_mask_is_drawn_twice() -> None:
    heads = hc.find_heads(build("bert"))
    assert len({mask for _, mask in random_masks(heads, 11, 12)}) == 12
    assert len(random_masks(heads, 12, 5)) == 1
    assert all(HeadMask.random(heads, 4, seed) == m for seed, m in random_masks(heads, 4, 3))


def test_over_keep_removes_heads_for_real_and_spares_the_model() -> None:
    model = build("bert")
    work = random_work(model, [2], [5], beams=0)
    found = bench_over_keep("bert", model, work, [0.5, 0, 3], 2, Silent(), rounds=3)
    assert [(one.keep, one.parameters) for one in found.cut] == [
        (len(mask), sum(p.numel() for p in small.parameters()))
        for keep in (6, 3, 0)
        for _, mask in random_masks(hc.find_heads(model), keep, 2)
        for small in [build("bert")]
        for _ in [hc.remove_heads(small, mask)]
    ]
    assert len(hc.find_heads(model)) == 12
    assert found.cut[-1].ideal > found.cut[0].ideal > 1


def test_random_weights_follow_the_configuration(tmp_path: Path) -> None:
    small = pruned("gpt2", 5)
    small.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    model = random_model(str(tmp_path))
    assert type(model) is type(small)
    assert {n: p.shape for n, p in model.named_parameters()} == {
        n: p.shape for n, p in small.named_parameters()
    }
    assert hc.find_heads(model).names == hc.find_heads(small).names


def test_models_of_other_inputs_are_refused() -> None:
    whole = build("bert")
    work = random_work(whole, [1], [5], beams=0)
    with pytest.raises(HeadcountError, match="images cannot be timed beside whole: its class"):
        bench_models({"whole": whole, "images": build("vit")}, work, Silent(), rounds=3)
