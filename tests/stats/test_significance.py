from __future__ import annotations

import math
import random

import numpy as np
import pytest

from headcount.errors import HeadcountError
from headcount.stats import resampling
from headcount.stats.significance import Predictions, compare, holm, mcnemar, paired_bootstrap
from headcount.tasks import metrics


def said(predicted: list[object], references: list[object]) -> Predictions:
    return Predictions(tuple(predicted), tuple(references))


def test_mcnemar_is_the_binomial_of_the_differing_answers() -> None:
    # 9 answers that only the first has right, 2 that only the second has; the rest agree.
    first = np.array([True] * 9 + [False] * 2 + [True] * 30 + [False] * 10)
    second = np.array([False] * 9 + [True] * 2 + [True] * 30 + [False] * 10)
    by_hand = 2 * sum(math.comb(11, k) for k in (0, 1, 2)) / 2**11
    found = mcnemar(first, second)
    assert found.p_value == pytest.approx(by_hand)
    assert (found.test, found.n) == ("McNemar, exact", 51)


def test_mcnemar_of_many_differing_answers_is_chi_squared() -> None:
    first = np.array([True] * 560 + [False] * 540)
    found = mcnemar(first, ~first)
    by_hand = math.erfc(math.sqrt((20 - 1) ** 2 / 1100 / 2))  # chi-squared of one degree
    assert found.p_value == pytest.approx(by_hand)
    assert found.test == "McNemar, chi-squared"


def test_seeds_that_answer_alike_are_no_more_evidence() -> None:
    # Five answers differ. If 4 seeds were counted as more examples, p would be 2 · (1/2)²⁰.
    references: list[object] = ["a"] * 200
    right, wrong = said(["a"] * 200, references), said(["a"] * 195 + ["b"] * 5, references)
    one = compare("accuracy", [right], [wrong])
    assert one.test == "McNemar, exact"
    assert one.p_value == pytest.approx(2 * 0.5**5)
    two, four = (compare("accuracy", [right] * n, [wrong] * n) for n in (2, 4))
    assert (two.test, two.n, four.n) == ("paired bootstrap", 400, 800)
    assert two.p_value == four.p_value == paired_bootstrap("accuracy", [right], [wrong]).p_value
    assert two.p_value > 0.01


def test_accuracy_of_several_seeds_tells_a_difference_from_none() -> None:
    draw = random.Random(0)
    references: list[object] = [draw.choice("ab") for _ in range(300)]

    def seeds(share: float, first: int) -> list[Predictions]:
        sides = []
        for seed in range(first, first + 3):
            noise = random.Random(seed)
            sides.append(
                said([r if noise.random() > share else "c" for r in references], references)
            )
        return sides

    assert compare("accuracy", seeds(0.1, 0), seeds(0.25, 10)).p_value < 0.01
    assert compare("accuracy", seeds(0.1, 0), seeds(0.1, 20)).p_value > 0.1


def test_translations_of_seeds_that_are_alike_are_no_more_evidence() -> None:
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "slept", "all", "day"]
    draw = random.Random(4)
    references: list[object] = [" ".join(draw.choices(words, k=9)) for _ in range(40)]

    def harmed(sentences: int) -> Predictions:
        texts = [str(r) for r in references]
        for i in range(sentences):
            texts[i] = texts[i].replace(" ", " x ", 1)
        return said([*texts], references)

    # A few sentences of each are wrong, not the same ones: hardly more than chance.
    first, second = harmed(5), said([*harmed(0).predicted[:-2], "x", "y"], references)
    one = compare("bleu", [first], [second]).p_value
    assert one > 0.02
    several = compare("bleu", [first] * 5, [second] * 5)
    assert several.p_value == pytest.approx(min(1.0, 2 * one))
    assert several.n == 200 and "twice the median" in several.test
    # Seeds that disagree about who is ahead show no difference, however sure each is.
    good, bad = harmed(0), harmed(30)
    assert compare("bleu", [good, bad], [bad, good]).p_value == 1.0
    assert compare("bleu", [good, good, good], [bad, bad, bad]).p_value < 0.01


@pytest.mark.parametrize("name", ["macro_f1", "matthews_correlation", "f1", "pearson", "spearman"])
def test_resampled_metrics_are_those_of_the_tasks(name: str) -> None:
    draw = np.random.default_rng(3)
    if name in ("pearson", "spearman"):
        predicted, references = draw.normal(size=(2, 40)), draw.integers(0, 5, (2, 40))
        score = getattr(resampling, name)
        references = references.astype(float)
    else:
        labels = 2 if name == "f1" else 3
        predicted, references = draw.integers(0, labels, (2, 2, 40))
        score = {
            "macro_f1": lambda p, r: resampling.macro_f1(p, r, 3),
            "matthews_correlation": lambda p, r: resampling.matthews(p, r, 3),
            "f1": lambda p, r: resampling.f1(p, r, 1),
        }[name]
    expected = [metrics.METRICS[name](p, r) for p, r in zip(predicted, references, strict=True)]
    np.testing.assert_allclose(score(predicted, references), expected)


def test_bootstrap_tells_a_large_difference_from_none() -> None:
    draw = random.Random(0)
    references: list[object] = [draw.choice(["yes", "no"]) for _ in range(300)]
    flip = {"yes": "no", "no": "yes"}

    def noisy(share: float, seed: int) -> Predictions:
        noise = random.Random(seed)
        return said([flip[str(r)] if noise.random() < share else r for r in references], references)

    better, alike, worse = noisy(0.1, 1), noisy(0.1, 2), noisy(0.3, 3)
    assert compare("matthews_correlation", [better], [worse]).p_value < 0.01
    assert compare("matthews_correlation", [better], [alike]).p_value > 0.1
    assert compare("combined", [better], [worse], positive="yes").p_value < 0.01
    again = [paired_bootstrap("macro_f1", [better], [worse]) for _ in range(2)]
    assert again[0] == again[1]
    assert compare("matthews_correlation", [better], [better]).p_value == 1.0
    finer = [compare("matthews_correlation", [better], [s], resamples=5000) for s in (worse, alike)]
    assert finer[0].p_value < 1 / 1001 and finer[0].least == 1 / 5001
    assert finer[1].p_value > 0.1


def test_bootstrap_of_values_and_losses() -> None:
    draw = np.random.default_rng(0)
    truth = draw.normal(size=200)
    good, bad = truth + 0.1 * draw.normal(size=200), draw.normal(size=200)
    sides = [[said(list(map(float, side)), list(map(float, truth)))] for side in (good, bad)]
    assert compare("combined", *sides).p_value < 0.01
    losses = [[said([*map(float, side)], [None] * 200)] for side in (good, good + 0.5)]
    assert compare("perplexity", *losses).p_value < 0.01
    assert compare("perplexity", losses[0], losses[0]).p_value == 1.0


def test_translations_are_compared_by_sacrebleu() -> None:
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "slept", "all", "day"]
    draw = random.Random(1)
    references: list[object] = [" ".join(draw.choices(words, k=9)) for _ in range(60)]
    worse: list[object] = [" ".join(draw.sample(str(r).split(), 9)) for r in references]
    found = compare("bleu", [said(references, references)], [said(worse, references)], "tok:13a")
    assert found.p_value < 0.01
    assert found.test == "paired bootstrap of sacrebleu"
    same = compare("bleu", [said(worse, references)], [said(worse, references)])
    assert same.p_value == 1.0


def test_what_is_not_paired_is_refused() -> None:
    with pytest.raises(HeadcountError, match="different examples"):
        compare("accuracy", [said(["a"], ["a"])], [said(["a", "b"], ["a", "b"])])
    with pytest.raises(HeadcountError, match="no seed in common"):
        compare("accuracy", [], [])
    with pytest.raises(HeadcountError, match="how to test f1"):
        compare("f1", [said(["a"], ["a"])], [said(["b"], ["a"])])


def test_holm_raises_p_values_in_their_order() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []
