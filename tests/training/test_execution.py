"""Other ways to execute the same training: reentrant checkpointing, compilation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.test_trainer import PRUNERS, assert_same, make_trainer, state

pytestmark = [
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning"),
]


@pytest.mark.parametrize("name", ["joint", "pipelined"])
def test_reentrant_checkpointing_changes_nothing(name: str, tmp_path: Path) -> None:
    plain = make_trainer(tmp_path, PRUNERS[name]())
    twice = make_trainer(
        tmp_path, PRUNERS[name](), gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},
    )  # fmt: skip
    plain.train()
    twice.train()
    assert_same(state(plain), state(twice), 1e-7)
    losses = [[e["loss"] for e in t.state.log_history if "loss" in e] for t in (plain, twice)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


# torch looks at all attributes of what it compiles.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["joint", "pipelined"])
def test_compilation_changes_nothing(name: str, tmp_path: Path) -> None:
    plain = make_trainer(tmp_path, PRUNERS[name](), max_steps=3, adam_epsilon=1e-3)
    fast = make_trainer(
        tmp_path, PRUNERS[name](), max_steps=3, adam_epsilon=1e-3, torch_compile=True
    )
    plain.train()
    fast.train()
    assert_same(state(plain), state(fast), 1e-5)
    evaluated = [trainer.evaluate()["eval_loss"] for trainer in (plain, fast)]
    assert evaluated[0] == pytest.approx(evaluated[1], abs=1e-5)
    small = fast.pruned_model()
    assert fast.evaluate()["eval_loss"] == pytest.approx(evaluated[0], abs=1e-5)
    assert small is fast.pruned_model()
