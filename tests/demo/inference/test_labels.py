"""Labels decided a second time, from the English and with worlds of another make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest

from headcount.demo.inference import Pair, inference_pairs

NUMERALS = re.findall(r"\w+", "zero one two three four five six seven eight nine ten eleven twelve")
Test = Callable[[Any], bool]


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return inference_pairs(5000, seed=4)


def decide(premise: list[Test], hypothesis: Test, worlds: Iterable[Any]) -> str:
    outcomes = {hypothesis(world) for world in worlds if all(test(world) for test in premise)}
    return {(True,): "entailment", (False,): "contradiction"}.get(tuple(outcomes), "neutral")


def sentences(text: str) -> list[str]:
    """The clauses of a text; capitals only where names have them does not matter here."""
    return [part.lower() for part in re.split(r"\. |, and |\.$", text) if part]


def check(pairs: list[Pair], phenomenon: str, read: Callable[[str], Test], worlds: Any) -> None:
    chosen = [pair for pair in pairs if pair.phenomenon == phenomenon]
    assert len(chosen) > 50
    for pair in chosen:
        premise = [read(sentence) for sentence in sentences(pair.premise)]
        (hypothesis,) = [read(sentence) for sentence in sentences(pair.hypothesis)]
        assert decide(premise, hypothesis, worlds(pair)) == pair.label, pair


def people(pair: Pair) -> list[str]:
    return sorted(set(re.findall(r"the (\w+)", f"{pair.premise} {pair.hypothesis}".lower())))


def test_roles(pairs: list[Pair]) -> None:
    def worlds(pair: Pair) -> list[set[tuple[str, str]]]:
        edges = [edge for edge in product(people(pair), repeat=2) if edge[0] != edge[1]]
        return [
            {edge for edge, there in zip(edges, bits, strict=True) if there}
            for bits in product((0, 1), repeat=len(edges))
        ]

    def read(sentence: str) -> Test:
        one, two = re.findall(r"the (\w+)", sentence)
        edge = (two, one) if " by the " in sentence else (one, two)
        return lambda world: (edge in world) != (" not " in sentence)

    check(pairs, "roles", read, worlds)


def test_numbers(pairs: list[Pair]) -> None:
    compare: dict[str, Callable[[int, int], bool]] = {
        "exactly": lambda count, number: count == number,
        "at least": lambda count, number: count >= number,
        "at most": lambda count, number: count <= number,
        "more than": lambda count, number: count > number,
        "fewer than": lambda count, number: count < number,
    }

    def read(sentence: str) -> Test:
        found = re.match(r"(exactly|at least|at most|more than|fewer than) (\w+) (\w+) ", sentence)
        if found:
            how, number, who = found.groups()
            return lambda world: compare[how](world[who], NUMERALS.index(number))
        more, one, two = re.match(r"(more|fewer) (\w+) than (\w+) ", sentence).groups()  # type: ignore[union-attr]
        return lambda world: world[one] > world[two] if more == "more" else world[one] < world[two]

    def worlds(pair: Pair) -> list[dict[str, int]]:
        text = f"{pair.premise} {pair.hypothesis}".lower()
        numbered = re.findall(rf"(?:{'|'.join(NUMERALS)}) (\w+)", text)
        compared = [
            who for two in re.findall(r"(?:more|fewer) (\w+) than (\w+)", text) for who in two
        ]
        groups = sorted({*numbered, *compared})
        counts = product(range(30), repeat=len(groups))
        return [dict(zip(groups, count, strict=True)) for count in counts]

    check(pairs, "numbers", read, worlds)


def test_conditionals(pairs: list[Pair]) -> None:
    def literal(clause: str) -> tuple[str, bool]:
        return clause.replace(" not ", " "), " not " not in clause

    def read(sentence: str) -> Test:
        if not sentence.startswith("if "):
            fact, yes = literal(sentence)
            return lambda world: world[fact] == yes
        condition, then = sentence.removeprefix("if ").split(", then ")
        every = all if " and " in condition else any
        parts = [literal(part) for part in re.split(" and | or ", condition)]
        fact, yes = literal(then)
        return lambda world: (
            world[fact] == yes or not every(world[part] == so for part, so in parts)
        )

    def worlds(pair: Pair) -> list[dict[str, bool]]:
        text = ". ".join(sentences(pair.premise) + sentences(pair.hypothesis))
        parts = re.split(r"\. |, then | and | or ", text)
        facts = sorted({literal(part.removeprefix("if "))[0] for part in parts})
        bits = product((False, True), repeat=len(facts))
        return [dict(zip(facts, truth, strict=True)) for truth in bits]

    check(pairs, "conditionals", read, worlds)


def test_comparatives(pairs: list[Pair]) -> None:
    opposites = {
        "shorter": "taller",
        "younger": "older",
        "slower": "faster",
        "weaker": "stronger",
        "poorer": "richer",
        "lighter": "heavier",
        "sadder": "happier",
    }

    def read(sentence: str) -> Test:
        one, more, two = re.match(r"(\w+) is (\w+) than (\w+)$", sentence).groups()  # type: ignore[union-attr]
        if more in opposites:
            one, two, more = two, one, opposites[more]
        return lambda world: world[more, one] > world[more, two]

    def worlds(pair: Pair) -> list[dict[tuple[str, str], float]]:
        text = f"{pair.premise} {pair.hypothesis}".lower()
        found = re.findall(r"(\w+) is (\w+) than (\w+)", text)
        who = sorted({name for one, _, two in found for name in (one, two)})
        scales = sorted({opposites.get(more, more) for _, more, _ in found})
        keys = list(product(scales, who))
        sizes = product((0.1, 0.5, 0.7), repeat=len(keys))
        return [dict(zip(keys, size, strict=True)) for size in sizes]

    check(pairs[:2500], "comparatives", read, worlds)


def test_quantifiers(pairs: list[Pair]) -> None:
    true: dict[str, Callable[[int, int], bool]] = {
        "all of": lambda yes, no: not no,
        "each of": lambda yes, no: not no,
        "most of": lambda yes, no: yes > no,
        "some of": lambda yes, no: bool(yes),
        "at least one of": lambda yes, no: bool(yes),
        "none of": lambda yes, no: not yes,
        "not one of": lambda yes, no: not yes,
        "not all of": lambda yes, no: bool(no),
    }
    who = r"(.* of) the (\w+ )?(\w+) (?:at|in|on) the "

    def read(sentence: str) -> Test:
        how, special, group = re.match(who, sentence).groups()  # type: ignore[union-attr]

        def holds(world: dict[str, tuple[int, ...]]) -> bool:
            yes, no, special_yes, special_no = world[group]
            if special:
                return true[how](special_yes, special_no)
            return true[how](yes + special_yes, no + special_no)

        return holds

    def worlds(pair: Pair) -> list[dict[str, tuple[int, ...]]]:
        text = sentences(pair.premise) + sentences(pair.hypothesis)
        found = [re.match(who, sentence).groups()[1:] for sentence in text]  # type: ignore[union-attr]
        groups = sorted({group for _, group in found})
        divided = {group for special, group in found if special}
        some = [
            # The special ones exist where they are mentioned; elsewhere all are alike.
            [c for c in product(range(4), repeat=4) if any(c[2:])]
            if group in divided
            else [(yes, no, 0, 0) for yes, no in product(range(5), repeat=2) if yes or no]
            for group in groups
        ]
        return [dict(zip(groups, counts, strict=True)) for counts in product(*some)]

    check(pairs[:1500], "quantifiers", read, worlds)
