"""The door: importing headcount and asking for help cost little, and pruned models load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from transformers import BertModel

import headcount as hc
from tests.tiny import build

HEAVY = ("torch", "transformers", "numba", "greenlet", "pandas", "matplotlib", "datasets")
USED = ("transformers.trainer", *HEAVY[2:])


def python(code: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(code: str, asked: tuple[str, ...]) -> list[str]:
    return python(f"{code}\nimport sys\nprint(*[n for n in {asked!r} if n in sys.modules])").split()


def test_importing_headcount_loads_nothing_heavy() -> None:
    assert not loaded("import headcount", HEAVY)
    assert not loaded("import headcount.cli", HEAVY)


def test_finding_and_cutting_heads_load_no_trainer_and_no_compiler() -> None:
    code = "import headcount as hc; hc.find_heads, hc.remove_heads, hc.masked, hc.HeadMask"
    # Early versions of transformers load some of it by themselves, with the names of its models.
    beside = "import transformers.models.auto.modeling_auto"
    assert set(loaded(code, USED)) <= set(loaded(beside, USED))


def test_asking_for_help_or_mistyping_loads_nothing_heavy() -> None:
    for words in (
        ["--help"], ["--version"], ["prune", "--help"], ["ablate", "one", "--help"],
        ["prune", "--nonsense"], ["prune", "m", "--epochs", "three", "--output", "o"],
    ):  # fmt: skip
        code = (
            f"import sys; sys.argv = ['headcount', *{words!r}]\n"
            "from headcount.cli import main\n"
            "try:\n    main()\nexcept SystemExit:\n    pass\n"
            f"print('loaded', [n for n in {HEAVY!r} if n in sys.modules])"
        )
        assert python(code).splitlines()[-1] == "loaded []", words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pruned") / "small"
    model = BertModel(build("bert").config)
    hc.remove_heads(model, hc.HeadMask.random(hc.find_heads(model), keep=5, seed=0))
    model.save_pretrained(place)
    return place


@pytest.mark.parametrize(
    "imports",
    [
        "import headcount; from transformers import AutoModel",
        "from transformers import AutoModel; import headcount",
        "import transformers.modeling_utils, headcount; from transformers import AutoModel",
        "import headcount; headcount.find_heads; from transformers import AutoModel",
        "import headcount; headcount.checkpoint; from transformers import AutoModel",
        "import headcount.cli; from transformers import BertModel as AutoModel",
    ],
)
def test_pruned_models_load_whatever_was_imported_first(folder: Path, imports: str) -> None:
    said = python(
        f"{imports}\nimport sys\nmodel = AutoModel.from_pretrained(sys.argv[1])\n"
        "import headcount\nprint(len(headcount.find_heads(model)))",
        str(folder),
    )
    assert said.split()[-1] == "5"


def test_everything_public_is_there() -> None:
    for name in hc.__all__:
        assert getattr(hc, name) is not None
    with pytest.raises(AttributeError):
        _ = hc.nonsense  # type: ignore[attr-defined]
