"""Save and load pruned models; read and write model folders."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["checkpoint", "folder"])
