"""CHOOSE: one file per method, one small interface.

`base.py` is the interface, `settings.py` what the settings of all pruners share, and `methods.py`
the table of names.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "ablation": ["Ablation"],
        "attrition": ["Attrition"],
        "base": ["Pruner"],
        "dsp": ["JointDSP", "PipelinedDSP"],
        "dsp_settings": ["DSPSettings"],
        "fisher": ["Fisher"],
        "fixed": ["Fixed", "Random", "Unpruned"],
        "flap": ["Flap"],
        "handover": ["Handover"],
        "hard_concrete": ["HardConcrete"],
        "magnitude": ["Magnitude"],
        "michel": ["Michel"],
        "osscar": ["Osscar"],
        "schedule": ["Annealing", "Countdown"],
        "ste": ["STE"],
        "surgeon": ["Surgeon"],
        "taylor": ["Taylor"],
        "top_k": ["gumbel_noise", "hard_top_k", "soft_top_k"],
        "wanda": ["Wanda"],
    },
)
