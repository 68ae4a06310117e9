"""How large and how fast models are: side by side, and over the number of kept heads."""

from headcount.analysis.speed.models import Bench, bench_models
from headcount.analysis.speed.over_keep import OverKeep, bench_over_keep

__all__ = ["Bench", "OverKeep", "bench_models", "bench_over_keep"]
