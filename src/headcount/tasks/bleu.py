"""BLEU and chrF of a set of translations, by sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from headcount.errors import HeadcountError


@dataclass(frozen=True)
class Scorer:
    """Scores of translations against one reference each.

    Attributes:
        tokenize: sacrebleu's name for how sentences are split into words.
        lowercase: whether case is ignored.
        tokenised: whether to add a BLEU of the words as they stand, separated by spaces. It is
            what `multi-bleu.perl` gives, and right for data that was tokenised beforehand, and
            for nothing else.
    """

    tokenize: str = "13a"
    lowercase: bool = False
    tokenised: bool = False

    def __post_init__(self) -> None:
        if self.tokenize not in BLEU.TOKENIZERS:
            known = ", ".join(BLEU.TOKENIZERS)
            raise HeadcountError(f"sacrebleu cannot tokenize by {self.tokenize!r}; it has {known}")

    def scores(self, translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """BLEU and chrF from 0 to 100, and how long the translations are against the references."""
        bleu = self._bleu().corpus_score(translations, [references])
        scores = {
            "bleu": bleu.score,
            "chrf": CHRF().corpus_score(translations, [references]).score,
            "length_ratio": bleu.sys_len / max(bleu.ref_len, 1),
        }
        if self.tokenised:
            words = self._words().corpus_score(translations, [references])
            scores["bleu_tokenised"] = words.score
        return scores

    def signature(self) -> str:
        """The one of sacrebleu, without which a BLEU cannot be compared."""
        parts = [f"bleu:{_signature(self._bleu())}"]
        if self.tokenised:
            parts.append(f"bleu_tokenised:{_signature(self._words())}")
        return " ".join(parts)

    def _bleu(self) -> BLEU:
        return BLEU(tokenize=self.tokenize, lowercase=self.lowercase)

    def _words(self) -> BLEU:
        # "force": sacrebleu would warn that this looks tokenised, which is the point of it.
        return BLEU(tokenize="none", lowercase=self.lowercase, force=True)


def _signature(metric: BLEU) -> str:
    metric.corpus_score(["a"], [["a"]])  # the number of references is known only then
    return str(metric.get_signature())
