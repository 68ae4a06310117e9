"""A folder with a modelling file runs without headcount, and answers as the pruned model does."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, PreTrainedModel

from headcount import HeadMask, find_heads, remove_heads
from headcount.deploy import modeling_design, remote_code
from headcount.deploy.regular import NotHeldError
from tests.deploy import elsewhere
from tests.small_task import save_encoder
from tests.tiny import (
    _redraw,
    _without_dropout,
    build,
    difference,
    family_named,
    mask_for,
    run,
)

FAMILIES = (
    "llama", "mistral", "qwen2", "qwen3", "gemma3", "phi3", "gpt2", "bert", "roberta", "distilbert",
    "mpnet", "t5", "bart", "marian", "vit",
)  # fmt: skip
MORE_FAMILIES = (
    "xlm-roberta", "electra", "albert", "deberta-v2", "modernbert", "gpt-neo", "gpt-neox", "opt",
    "bloom", "gemma2", "mt5", "mbart", "pegasus", "m2m-100", "whisper", "deit", "wav2vec2",
    "hubert", "clip",
)  # fmt: skip
LAYOUTS = (
    "uneven", "empty_first_block", "empty_middle_block", "empty_last_block", "three_heads_each",
)  # fmt: skip
BIASES = {"attention_bias": True, "mlp_bias": True}


@dataclass(frozen=True)
class Case:
    """A pruned model to write.

    Attributes:
        family: the row of `tests/tiny.py`.
        layout: which heads are removed.
        architecture: the class, if it is not the row's.
        settings: settings of the configuration that differ from the row's.
        dtype: the type of the weights.
    """

    family: str
    layout: str = "uneven"
    architecture: str = ""
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    dtype: torch.dtype = torch.float32

    @property
    def name(self) -> str:
        more = [self.architecture, *self.settings, str(self.dtype).removeprefix("torch.")]
        return "-".join([self.family, self.layout, *filter(None, more)])

    @property
    def thorough(self) -> bool:
        """Whether to try all that one does with a model, which takes longer."""
        return self.dtype == torch.float32 and (
            self.layout == "uneven" or self.family in ("llama", "t5")
        )

    def model(self) -> PreTrainedModel:
        family = family_named(self.family)
        if not self.architecture and not self.settings:
            model = build(family)
        else:
            config = getattr(transformers, family.config)(**family.settings | self.settings)
            _without_dropout(config)
            with torch.random.fork_rng():
                torch.manual_seed(0)
                cls = getattr(transformers, self.architecture or family.architecture)
                model = cls(config).eval()
            _redraw(model)
            model.tie_weights()
        for parameter in model.parameters():  # the angles of rotations are not weights
            parameter.data = parameter.data.to(self.dtype)
        heads = find_heads(model)
        if self.layout == "empty_last_block":
            mask = HeadMask.all(heads) - HeadMask.from_indices(heads, heads.blocks[-1].indices)
        else:
            mask = mask_for(model, self.layout)
        remove_heads(model, mask)
        return model

    def inputs(self, model: PreTrainedModel) -> dict[str, torch.Tensor]:
        made = family_named(self.family).inputs()
        return {k: v.to(self.dtype) if v.is_floating_point() else v for k, v in made.items()}


FAST = [
    *(Case(family, layout) for family in FAMILIES for layout in ("uneven", "empty_first_block")),
    *(Case(f, "three_heads_each") for f in ("llama", "qwen3", "phi3", "mpnet")),
    *(Case(f, "empty_middle_block") for f in ("llama", "bert", "t5", "bart")),
    *(Case(f, "empty_last_block") for f in ("llama", "bert", "t5", "bart")),
    Case("llama", "uneven", settings=BIASES),
    Case("llama", "empty_first_block", settings=BIASES),
    Case("llama", "uneven", settings={"tie_word_embeddings": True}),
    Case("gemma3", "uneven", settings={"tie_word_embeddings": False}),
    Case("llama", "uneven", "LlamaForSequenceClassification"),
    Case("llama", "uneven", "LlamaForQuestionAnswering"),
    Case("llama", "uneven", "LlamaModel"),
    Case("bert", "uneven", "BertModel"),
    Case("bert", "uneven", "BertForTokenClassification"),
    Case("bert", "uneven", "BertForPreTraining"),
    Case("distilbert", "uneven", "DistilBertForQuestionAnswering"),
    Case("roberta", "uneven", "RobertaForSequenceClassification"),
    Case("t5", "uneven", "T5Model"),
    Case("vit", "uneven", "ViTModel"),
    Case("llama", "uneven", dtype=torch.bfloat16),
    Case("bert", "empty_first_block", dtype=torch.float16),
]
_FAST_NAMES = {case.name for case in FAST}
ALL = [Case(family, layout) for family in (*FAMILIES, *MORE_FAMILIES) for layout in LAYOUTS]
SLOW = [case for case in ALL if case.name not in _FAST_NAMES]


@dataclass
class Sent:
    """What was written, and what the other computer said about it."""

    root: Path
    models: dict[str, PreTrainedModel]
    records: dict[str, dict[str, Any]]
    said: dict[str, dict[str, Any]]


def send(root: Path, cases: list[Case]) -> Sent:
    """Write all cases, and load them in one process that has no headcount."""
    sent = Sent(root, {}, {}, {})
    for case in cases:
        folder = root / case.name
        folder.mkdir()
        model = sent.models[case.name] = case.model()
        record = sent.records[case.name] = remote_code.write(model, "nowhere", folder)
        save_file(case.inputs(model), folder / "inputs.safetensors")
        wanted = {
            "auto": record["load"].split()[3],
            "generates": model.can_generate() and "input_ids" in case.inputs(model),
            "thorough": case.thorough,
        }
        (folder / "wanted.json").write_text(json.dumps(wanted))
    sent.said = ask(root)
    return sent


def ask(root: Path) -> dict[str, dict[str, Any]]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"HF_HOME": str(root / "hub"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("HF_MODULES_CACHE", None)
    command = [sys.executable, elsewhere.__file__, str(root)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((root / "answers.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Sent:
    return send(tmp_path_factory.mktemp("fast"), FAST)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Sent:
    return send(tmp_path_factory.mktemp("slow"), SLOW)


def named(cases: list[Case]) -> Any:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases])


@named(FAST)
def test_answers_without_headcount(fast: Sent, case: Case) -> None:
    check(fast, case)


@pytest.mark.slow
@named(SLOW)
def test_answers_without_headcount_slow(slow: Sent, case: Case) -> None:
    check(slow, case)


def check(sent: Sent, case: Case) -> None:
    model, said = sent.models[case.name], sent.said[case.name]
    record = sent.records[case.name]
    assert "error" not in said, said["error"]
    assert record["difference"] <= (
        1e-6 if case.family == "clip" else 0.0
    )  # a sum in another order
    assert said["class"] == record["class"] == f"Pruned{type(model).__name__}"
    assert said["dtype"] == str(case.dtype)
    inputs = load_file(sent.root / case.name / "inputs.safetensors")
    outputs = load_file(sent.root / case.name / "outputs.safetensors")
    outputs = {n: t for n, t in outputs.items() if "past_key_values" not in n}
    assert difference(run(model, inputs), outputs) <= 1e-6
    assert said["without the flag"] != "loaded"
    assert said.get("base gap", 0.0) == 0.0
    if "tokens" in said:
        prompt = {name: value for name, value in inputs.items() if name != "decoder_input_ids"}
        for how, tokens in zip(({}, elsewhere.STATIC), said["tokens"], strict=True):
            made = model.generate(**prompt, max_new_tokens=12, do_sample=False, num_beams=1, **how)
            assert tokens == made.tolist()
    if case.thorough:
        assert said["saved again"] == 0.0
        assert said["same config"]
        assert said["copied"] == 0.0
        assert said["eager"] <= 1e-5
        counts = [max(block.num_heads, 1) for block in find_heads(model).blocks]
        found = list(chain.from_iterable(said["heads"].values()))
        assert sorted(found) == sorted(counts * (len(found) // len(counts)))  # ALBERT repeats one
        assert not [name for name in said["without gradient"] if attends(model, name)]


def attends(model: PreTrainedModel, name: str) -> bool:
    return any(name.startswith(f"{block.path}.") for block in find_heads(model).blocks)


def test_a_pipeline_classifies_as_before(tmp_path: Path) -> None:
    source = save_encoder(tmp_path / "source")
    config = transformers.BertConfig.from_pretrained(source)
    config.id2label = {0: "bad", 1: "good"}
    model = transformers.BertForSequenceClassification.from_pretrained(source, config=config)
    heads = find_heads(model)
    remove_heads(model, HeadMask.from_indices(heads, heads.indices[1:4]))
    root = tmp_path / "sent"
    folder = root / "pipeline"
    folder.mkdir(parents=True)
    record = remote_code.write(model, str(source), folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    sentences = ["the film was good", "a rather dull play"]
    tokens = AutoTokenizer.from_pretrained(source)(sentences[0], return_tensors="pt")
    save_file(dict(tokens), folder / "inputs.safetensors")
    (folder / "sentences.json").write_text(json.dumps(sentences))
    wanted = {"auto": record["load"].split()[3], "generates": False, "thorough": False}
    (folder / "wanted.json").write_text(json.dumps(wanted))
    said = ask(root)["pipeline"]["pipeline"]
    before = transformers.pipeline(
        "text-classification", model=model, tokenizer=AutoTokenizer.from_pretrained(source)
    )(sentences)
    assert [row["label"] for row in said] == [row["label"] for row in before]
    assert [row["score"] for row in said] == pytest.approx([row["score"] for row in before])


def test_the_modelling_file_is_clean(fast: Sent) -> None:
    files = [str(fast.root / case.name / "modeling_pruned.py") for case in FAST]
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--config", str(Path(__file__).parents[2] / "pyproject.toml"), "--no-cache"]
    for command in (["format", "--check"], ["check"]):
        done = subprocess.run(
            [*ruff, *command, *config, *files], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


def test_no_path_of_this_computer_is_written(fast: Sent) -> None:
    for file in texts(fast.root):
        text = file.read_text(encoding="utf-8")
        assert str(fast.root.parent) not in text, file
        assert "/tmp" not in text and "headcount_export" not in text, file


def texts(root: Path) -> Iterator[Path]:
    for case in FAST:
        for ending in ("*.py", "*config.json"):
            yield from (root / case.name).glob(ending)


def test_what_it_says_about_itself() -> None:
    assert remote_code.held(Case("llama").model(), "x") == (
        "PrunedLlamaForCausalLM, built block by block"
    )


def test_a_layout_in_the_words_of_transformers(fast: Sent) -> None:
    """vLLM and static caches read the numbers of heads of every layer there."""
    model = fast.models[Case("llama").name]
    config = json.loads((fast.root / Case("llama").name / "config.json").read_text())
    assert config["model_type"] == "llama"
    assert config["num_attention_heads"] == 4
    own = config["per_layer_config"]
    kept = [own[str(b.layer)]["num_attention_heads"] for b in find_heads(model).blocks]
    assert kept == [block.num_heads for block in find_heads(model).blocks]


def test_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(NotHeldError, match="normalises over all its heads"):
        remote_code.held(Case("olmo2").model(), "x")


def test_a_model_with_all_its_heads_needs_no_code(tmp_path: Path) -> None:
    model = build("llama")
    assert remote_code.held(model, "x") == "LlamaForCausalLM, as it was: no heads were removed"
    record = remote_code.write(model, "x", tmp_path)
    assert record["difference"] == 0.0 and not list(tmp_path.glob("*.py"))


def test_a_file_that_answers_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Case("mpnet").model()
    written = modeling_design._heads_by_block

    def other_heads(lost: Any) -> Any:
        entries = copy.deepcopy(written(lost))
        for entry in entries.values():
            entry["kept"] = [(head + 1) % entry["out_of"] for head in entry["kept"]]
        return entries

    monkeypatch.setattr(modeling_design, "_heads_by_block", other_heads)
    with pytest.raises(remote_code.HeadcountError, match="answers something else"):
        remote_code.write(model, "x", tmp_path)


def test_the_model_is_not_changed(tmp_path: Path) -> None:
    case = Case("t5", "empty_first_block")
    model = case.model()
    before, state = run(model, case.inputs(model)), copy.deepcopy(model.state_dict())
    config = model.config.to_dict()
    remote_code.write(model, "x", tmp_path)
    assert difference(before, run(model, case.inputs(model))) == 0.0
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert model.config.to_dict() == config


def test_a_tokenizer_loads_without_the_flag(tmp_path: Path) -> None:
    model = Case("llama").model()
    save_encoder(tmp_path)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).unlink(missing_ok=True)
    remote_code.write(model, "", tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)("good")["input_ids"]
    with pytest.raises(RuntimeError, match="mismatch"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
