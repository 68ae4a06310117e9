"""headcount keeps exactly K attention heads of a Transformer and cuts the rest out.

Importing headcount loads almost nothing: what is asked for is loaded then, from the places that
`__init__.pyi` names. transformers learns to load pruned models as soon as both are imported.
"""

import lazy_loader

from headcount.loading.door import teach_transformers

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

teach_transformers()
