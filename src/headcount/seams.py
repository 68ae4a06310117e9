"""Everything private of transformers that headcount touches, in one place.

A seam is looked at when it is used, never when headcount is imported: on a version of transformers
that renamed it, or changed its arguments, what needs it is refused with the seam's name. A module
of transformers that is read by its source (`heads/after_projection.py`) needs no seam: code that is
not understood is refused there. Nor do class swaps (`surgery/class_swap.py`), which are plain
Python.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from headcount.errors import HeadcountError


@dataclass(frozen=True)
class Seam:
    """Something private that headcount overrides, replaces or calls.

    Attributes:
        module: where it is.
        name: in that module, with dots.
        takes: arguments that headcount relies on.
        why: what it is needed for.
    """

    module: str
    name: str
    takes: tuple[str, ...]
    why: str

    def find(self) -> Any:
        """The object itself.

        Raises:
            HeadcountError: this version of transformers has no such thing.
        """
        found: Any = import_module(self.module)
        try:
            for part in self.name.split("."):
                found = getattr(found, part)
            missing = set(self.takes) - {*inspect.signature(found).parameters}
        except (AttributeError, TypeError, ValueError):
            raise self._refusal("is not there") from None
        if missing:
            raise self._refusal(f"takes no {min(missing)}")
        return found

    def _refusal(self, problem: str) -> HeadcountError:
        import transformers

        return HeadcountError(
            f"{self.module}.{self.name} {problem} in transformers {transformers.__version__}, but "
            f"headcount needs it {self.why}; install a version that headcount supports"
        )


def _of_trainer(name: str, takes: tuple[str, ...], why: str) -> Seam:
    return Seam("transformers.trainer", f"Trainer.{name}", takes, why)


QUANTIZER = Seam(
    "transformers.modeling_utils",
    "get_hf_quantizer",
    ("config",),
    "to load models that transformers v4 pruned",
)
WEIGHTS = Seam(
    "transformers.modeling_utils",
    "LoadStateDictConfig.__init__",
    ("hf_quantizer",),
    "to check the shapes of a pruned model's weights",
)
LOADING = (QUANTIZER, WEIGHTS)
TRAINER = (
    _of_trainer("_save_checkpoint", ("model", "trial"), "to keep the pruner in checkpoints"),
    _of_trainer(
        "_load_from_checkpoint", ("resume_from_checkpoint",), "to resume a pruner with its model"
    ),
    _of_trainer("_load_best_model", (), "to take the pruner of the best checkpoint"),
    _of_trainer("_maybe_log_save_evaluate", (), "to pause a training for a cut"),
    _of_trainer("_get_output_dir", ("trial",), "to find the checkpoints"),
    _of_trainer("_move_model_to_device", ("model", "device"), "to look before it trains"),
    _of_trainer(
        "_save_optimizer_and_scheduler", ("output_dir",), "to save a pruner beside a sharded model"
    ),
    _of_trainer(
        "_load_optimizer_and_scheduler", ("checkpoint",), "to load a pruner beside a sharded model"
    ),
    _of_trainer("_remove_unused_columns", ("dataset",), "to sample the training data"),
    _of_trainer(
        "_get_collator_with_removed_columns", ("data_collator",), "to sample the training data"
    ),
    _of_trainer("_prepare_inputs", ("inputs",), "to put a sample where the model is"),
    _of_trainer("_get_train_sampler", (), "to batch examples of the same length"),
)


def require(*seams: Seam) -> None:
    """Refuse a version of transformers that lacks one of these."""
    for seam in seams:
        seam.find()


def forget_number_of_cpu(args: Any) -> None:
    """Let a process that trains on the CPU call its device `cpu`, and not `cpu:0`.

    Several processes get a number, with which early versions of transformers 5 cannot read the
    optimizer's state again: torch knows no such place. Where the device is not kept in the
    arguments under this name, nothing happens.
    """
    device = vars(args).get("_setup_devices")
    if getattr(device, "type", None) == "cpu" and device.index is not None:
        vars(args)["_setup_devices"] = type(device)("cpu")


def auto_classes(cls: type, config_class: type) -> tuple[str, ...]:
    """The names of transformers' auto classes that load a class for its configuration.

    Where the auto classes do not say what they load under this name, there are none.

    Args:
        cls: the class of a model.
        config_class: the class of its configuration.
    """
    module: Any = import_module("transformers.models.auto.modeling_auto")
    found = []
    for name, auto in vars(module).items():
        classes = getattr(auto, "_model_mapping", None)
        if not name.startswith("AutoModel") or classes is None or config_class not in classes:
            continue
        loaded = classes[config_class]
        if cls in (loaded if isinstance(loaded, tuple) else (loaded,)):
            found.append(name)
    return tuple(found)
