"""Teach transformers to load pruned models, as soon as it can load any.

`from_pretrained` is in `transformers.modeling_utils`. Importing that module takes seconds, and
`headcount --help` and a bare `import headcount` must be quick. So headcount does not import it. If
it is there already, transformers is taught at once, otherwise right after somebody imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

MODELS = "transformers.modeling_utils"


def teach_transformers() -> None:
    """Let transformers load pruned models, now or as soon as it is imported."""
    if MODELS in sys.modules:
        _teach()
    else:
        sys.meta_path.insert(0, _WhenLoaded())


def _teach() -> None:
    # If transformers lacks what this imports, it refuses to load a pruned folder by itself, and
    # everything else works.
    with suppress(ImportError):
        import_module("headcount.loading.checkpoint")


class _WhenLoaded(MetaPathFinder):
    """Finds one module as Python would, and teaches transformers once it is loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Python's own answer, with a loader that teaches."""
        if name != MODELS:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _TeachingLoader(spec.loader)
        return spec


class _TeachingLoader(Loader):
    """Loads a module as its own loader does, and teaches transformers after that."""

    def __init__(self, own: Loader) -> None:
        self.own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the module's own loader does."""
        return self.own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Load the module, then teach."""
        spec = module.__spec__
        assert spec is not None
        spec.loader = module.__loader__ = self.own  # so that `inspect` finds the source
        self.own.exec_module(module)
        _teach()
