"""Another computer: it has transformers and not headcount, and loads the folders it is given.

Run as a script with a folder of model folders. Beside each model there is `inputs.safetensors`,
and `answers.json` is written for all of them.
"""

from __future__ import annotations

import copy
import json
import sys
import traceback
from pathlib import Path
from typing import Any

LAST = "last_hidden_state"  # which every base model has; some have a pooler that others leave out
STATIC = {"cache_implementation": "static", "disable_compile": True}


class Missing:
    """Whoever imports headcount here gets the error of a computer that does not have it."""

    def find_spec(self, name: str, *args: Any) -> None:
        if name.partition(".")[0] == "headcount":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main(root: Path) -> None:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()

    def floats(name: str, value: Any) -> dict[str, torch.Tensor]:
        if isinstance(value, torch.Tensor):
            return {name: value.contiguous()} if value.is_floating_point() else {}
        if isinstance(value, dict | tuple):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            found = {}
            for key, inner in items:
                found |= floats(f"{name}.{key}".strip("."), inner)
            return found
        return {}

    def answers(model: Any, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            return floats("", model(**inputs, output_hidden_states=True))

    def gap(some: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> float:
        assert some.keys() == others.keys()
        return max(float((some[name] - others[name]).abs().max()) for name in some)

    def check(folder: Path, wanted: dict[str, Any]) -> dict[str, Any]:
        inputs = load_file(folder / "inputs.safetensors")
        auto = getattr(transformers, wanted["auto"])
        model = auto.from_pretrained(folder, trust_remote_code=True)
        found = answers(model, inputs)
        save_file(
            {name: value.clone() for name, value in found.items()}, folder / "outputs.safetensors"
        )
        said: dict[str, Any] = {"class": type(model).__name__, "dtype": str(model.dtype)}
        try:
            auto.from_pretrained(folder)
            said["without the flag"] = "loaded"
        except Exception as error:
            said["without the flag"] = type(error).__name__
        base = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True)
        said["base"] = type(base).__name__
        if type(base) is not type(model) and model.base_model is not model:
            inside, alone = answers(model.base_model, inputs), answers(base, inputs)
            said["base gap"] = gap({n: inside[n] for n in [LAST]}, {n: alone[n] for n in [LAST]})
        if wanted["generates"]:
            said["tokens"] = [generated(model, inputs, **how) for how in ({}, STATIC)]
        if wanted["thorough"]:
            said |= thorough(folder, auto, model, inputs, found)
        return said

    def generated(model: Any, inputs: dict[str, Any], **how: Any) -> list[list[int]]:
        prompt = {name: value for name, value in inputs.items() if name != "decoder_input_ids"}
        made = model.generate(**prompt, max_new_tokens=12, do_sample=False, num_beams=1, **how)
        return made.tolist()  # type: ignore[no-any-return]

    def thorough(
        folder: Path, auto: Any, model: Any, inputs: dict[str, Any], found: dict[str, Any]
    ) -> dict[str, Any]:
        said: dict[str, Any] = {}
        model.save_pretrained(folder / "again")
        again = auto.from_pretrained(folder / "again", trust_remote_code=True)
        said["saved again"] = gap(found, answers(again, inputs))
        configs = [json.loads((f / "config.json").read_text()) for f in (folder, folder / "again")]
        said["same config"] = configs[0] == configs[1]
        said["copied"] = gap(found, answers(copy.deepcopy(model), inputs))
        # At positions of padding that see nothing, implementations differ.
        whole = {name: value for name, value in inputs.items() if name != "attention_mask"}
        before, usual = answers(model, whole), model.config._attn_implementation
        model.set_attn_implementation("eager")
        said["eager"] = gap(before, answers(model, whole))
        with torch.no_grad():
            output = model(**inputs, output_attentions=True)
        said["heads"] = {
            name: [weights.shape[1] for weights in value]
            for name, value in output.items()
            if "attentions" in name and value is not None
        }
        model.set_attn_implementation(usual)
        if model.supports_gradient_checkpointing:
            model.gradient_checkpointing_enable()
        model.train()
        loss = sum(v.square().mean() for v in floats("", model(**inputs)).values())
        loss.backward()
        lacking = [name for name, p in model.named_parameters() if p.grad is None]
        said["without gradient"] = lacking
        return said

    folders = {path.parent: json.loads(path.read_text()) for path in root.glob("*/wanted.json")}
    report = {}
    for folder, wanted in folders.items():
        try:
            report[folder.name] = check(folder, wanted)
        except Exception:
            report[folder.name] = {"error": traceback.format_exc()}
    for folder in root.glob("*/sentences.json"):
        classify = transformers.pipeline(
            "text-classification", model=str(folder.parent), trust_remote_code=True
        )
        report[folder.parent.name]["pipeline"] = classify(json.loads(folder.read_text()))
    assert "headcount" not in sys.modules
    (root / "answers.json").write_text(json.dumps(report))


if __name__ == "__main__":
    sys.meta_path.insert(0, Missing())  # type: ignore[arg-type]
    main(Path(sys.argv[1]))
