"""CUT: remove heads from a model, with one file for each thing that depends on them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "compensate": ["compensate"],
        "proof": ["prove_removal"],
        "remove": ["Removal", "remove_heads"],
    },
)
