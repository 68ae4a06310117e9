from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
from typer.testing import CliRunner

import headcount as hc
from headcount.analysis.base import find_analyses, load_analysis, save_analysis
from headcount.analysis.roles import (
    Criteria,
    Roles,
    RolesOverKeep,
    Sentence,
    find_roles,
    roles_over_keep,
)
from headcount.analysis.roles.relations import word_weights
from headcount.analysis.roles.result import HeadRoles
from headcount.analysis.roles.sentences import Arc
from headcount.cli import app
from headcount.errors import HeadcountError

from ..report.synthetic import LAYOUT, Writer
from ..tiny import Family, build, families, mask_for

SPECIAL = {"<unk>": 0, "<pad>": 1, "<s>": 2, "</s>": 3, "<m>": 4}
VERBS, NOUNS = ["v5", "v6"], [f"n{i}" for i in range(7, 50)]
RULE = Criteria(cases=20, common=0)
POSITIONS = 16
KINDS = ("encoder", "decoder", "cross")


def tokenizer() -> PreTrainedTokenizerFast:
    words = SPECIAL | {word: int(word[1:]) for word in (*VERBS, *NOUNS)}
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> $B:1 </s>:1",
        special_tokens=[("<s>", 2), ("</s>", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", unk_token="<unk>", bos_token="<s>",
        eos_token="</s>",
    )  # fmt: skip


def sentences(count: int = 60) -> list[Sentence]:
    """One verb anywhere among nouns, all of which depend on it."""
    draw = random.Random(0)
    found = []
    for _ in range(count):
        words = [NOUNS[min(int(draw.expovariate(0.1)), 42)] for _ in range(draw.randint(2, 9))]
        place = draw.randrange(len(words) + 1)
        words.insert(place, draw.choice(VERBS))
        arcs = tuple(Arc(n, place, "obj") for n in range(len(words)) if n != place)
        found.append(Sentence(" ".join(words), tuple(words), arcs))
    return found


def planted(layers: int = 1) -> BertModel:
    """Heads 0 to 3 look at the previous token, a rare token, the verb, and everywhere."""
    size = 16
    config = BertConfig(
        vocab_size=50, hidden_size=4 * size, num_hidden_layers=layers, num_attention_heads=4,
        intermediate_size=8, max_position_embeddings=POSITIONS,
    )  # fmt: skip
    model = BertModel(config).eval()
    counts = Counter(word for sentence in sentences() for word in sentence.words)
    with torch.no_grad():
        for parameter in model.embeddings.parameters():
            parameter.zero_()
        model.embeddings.LayerNorm.weight.fill_(1.0)
        # Positions are told by 16 values, how rare a token is by another one, a verb by a third.
        model.embeddings.position_embeddings.weight[:, :size] = 10 * torch.eye(POSITIONS)
        for word, count in counts.items():
            token = int(word[1:])
            model.embeddings.word_embeddings.weight[token, 16] = 1 - count / 200
            model.embeddings.word_embeddings.weight[token, 17] = float(word in VERBS)
        for layer in model.encoder.layer:
            attention = layer.attention.self
            for projection in (attention.query, attention.key):
                projection.weight.zero_()
                projection.bias.zero_()
            attention.query.weight[: size - 1, 1:size] = 10 * torch.eye(size - 1)
            attention.key.weight[:size, :size] = 10 * torch.eye(size)
            for head, place in ((1, 16), (2, 17)):
                attention.query.bias[head * size] = 100.0
                attention.key.weight[head * size, place] = 100.0
    return model


@pytest.fixture(scope="module")
def found() -> Roles:
    return find_roles(planted(), tokenizer(), sentences(), criteria=RULE)


def test_planted_roles_are_found(found: Roles) -> None:
    previous, rare, verb, everywhere = found.heads
    assert previous.roles == ("positional",) and previous.offset == -1
    assert previous.offset_share == 1.0
    assert rare.roles == ("rare",)
    assert rare.rare is not None and rare.rare_by_chance is not None
    assert rare.rare > 0.95 > 0.5 > rare.rare_by_chance
    assert verb.roles == ("syntactic",) and verb.relations == ("obj: governor",)
    assert verb.accuracy == 1.0 and verb.baseline is not None and verb.baseline < 0.5
    assert everywhere.roles == () and everywhere.entropy == pytest.approx(1.0)
    assert found.counts == {"positional": 1, "syntactic": 1, "rare": 1, "duplicate": 0, "other": 1}


def matching() -> BertModel:
    """The one head looks where its own token stands a second time."""
    tokens, positions = 50, 2 * POSITIONS
    size = tokens + positions
    config = BertConfig(
        vocab_size=tokens, hidden_size=size, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=8, max_position_embeddings=positions,
    )  # fmt: skip
    model = BertModel(config).eval()
    with torch.no_grad():
        for parameter in model.embeddings.parameters():
            parameter.zero_()
        model.embeddings.LayerNorm.weight.fill_(1.0)
        model.embeddings.word_embeddings.weight[:, :tokens] = torch.eye(tokens)
        model.embeddings.position_embeddings.weight[:, tokens:] = torch.eye(positions)
        attention = model.encoder.layer[0].attention.self
        attention.key.weight.copy_(torch.eye(size))
        attention.query.weight.copy_(torch.eye(size))
        attention.query.weight[tokens:] *= -1.0  # not at itself
    return model


def pairs(shared: int) -> list[Sentence]:
    """Two sentences of six words, of which so many are in both; none is in one of them twice."""
    draw = random.Random(1)
    found = []
    for _ in range(30):
        words = draw.sample(NOUNS, 12 - shared)
        second = words[:shared] + words[6:]
        draw.shuffle(second)
        found.append(Sentence(" ".join(words[:6]), pair=" ".join(second)))
    return found


def test_a_head_that_finds_what_two_sentences_share_is_for_duplicates() -> None:
    (head,) = find_roles(matching(), tokenizer(), pairs(3), criteria=RULE).heads
    assert head.roles == ("duplicate",) and head.duplicate == 1.0
    assert head.duplicate_by_chance == pytest.approx(1 / 12)
    (other,) = find_roles(matching(), tokenizer(), pairs(0), criteria=RULE).heads
    assert other.duplicate is None and "duplicate" not in other.roles
    (planted_one, *_) = find_roles(planted(), tokenizer(), sentences(), criteria=RULE).heads
    assert planted_one.duplicate is not None and planted_one.duplicate < 0.5
    few = Criteria(cases=1000, common=0)  # 30 pairs with three words of two places each
    (head,) = find_roles(matching(), tokenizer(), pairs(3), criteria=few).heads
    assert head.duplicate == 1.0 and not head.roles


def test_a_model_is_told_which_of_two_sentences_is_which() -> None:
    words = tokenizer()
    words.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]  # as BERT's has
    found = find_roles(build("bert"), words, pairs(2)[:4], criteria=RULE)
    model, sums = build("bert", "eager"), 0.0
    with torch.no_grad():
        for one in pairs(2)[:4]:
            inputs = words(one.text, one.pair, return_tensors="pt")
            weights = model(**inputs, output_attentions=True).attentions[0][0, 0]
            real = inputs["input_ids"][0] > 4
            sums += float(weights[real][:, real].amax(-1).sum())
    assert inputs["token_type_ids"].sum() == 7
    assert found.heads[0].confidence == pytest.approx(sums / 48, abs=1e-6)


def test_the_best_head_of_a_relation_is_told_with_all_that_are_good_enough(found: Roles) -> None:
    governor, dependent = found.relations
    assert (governor.direction, governor.head, governor.heads) == (
        "governor", "encoder.0.2", ("encoder.0.2",),
    )  # fmt: skip
    assert dependent.direction == "dependent" and not dependent.heads
    assert governor.cases == dependent.cases == sum(len(one.arcs) for one in sentences())


def test_a_pruned_model_keeps_the_names_and_roles_of_its_heads() -> None:
    model = planted(layers=2)
    heads = hc.find_heads(model)
    hc.remove_heads(model, hc.HeadMask.from_names(heads, ["encoder.1.0", "encoder.1.2"]))
    pruned = find_roles(model, tokenizer(), sentences(), criteria=RULE)
    assert [head.name for head in pruned.heads] == ["encoder.1.0", "encoder.1.2"]
    assert pruned.layout == heads.layout
    assert pruned.heads[0].roles == ("positional",)


def naive(model: Any, name: str, offset: int, causal: bool) -> dict[str, float]:
    """The same numbers for one head, a sentence and a query at a time."""
    _, layer, number = name.split(".")
    ids = [tokenizer()(one.text)["input_ids"] for one in sentences(12)]
    counts = Counter(token for row in ids for token in row if token > 4)
    sums: Counter[str] = Counter()
    for sentence, row in zip(sentences(12), ids, strict=True):
        with torch.no_grad():
            output = model(torch.tensor([row]), output_attentions=True)
        weights = output.attentions[int(layer)][0, int(number)]
        for query in range(1, len(row) - 1):
            seen = range(0, query + 1) if causal else range(len(row))
            real = [key for key in seen if row[key] > 4]
            best = max(real, key=lambda key: float(weights[query, key]))
            for arc in sentence.arcs:
                if arc.dependent + 1 == query and (not causal or arc.governor < arc.dependent):
                    sums["arcs"] += 1
                    sums["hits"] += best == arc.governor + 1
            if len(real) < 2:
                continue
            sums["queries"] += 1
            sums["places"] += query + offset in real
            sums["at offset"] += best == query + offset
            sums["confidence"] += float(weights[query, best])
            sums["special"] += float(weights[query].max()) > float(weights[query, best])
            told = -sum(w * math.log(w) for w in weights[query].tolist() if w)
            sums["entropy"] += told / math.log(len(seen))
            rare = sorted(counts[row[key]] for key in real)[1]
            sums["rare"] += counts[row[best]] <= rare
            sums["rare_by_chance"] += sum(counts[row[k]] <= rare for k in real) / len(real)
            if again := [key for key in real if row[key] == row[query] and key != query]:
                sums["doubled"] += 1
                sums["duplicate"] += best in again
                sums["duplicate_by_chance"] += len(again) / len(real)
    shares = {key: sums[key] / sums["queries"] for key in sums}
    for key in ("duplicate", "duplicate_by_chance"):
        shares[key] = sums[key] / sums["doubled"]
    shares["offset_share"] = sums["at offset"] / sums["places"]
    return shares | {"hits": sums["hits"] / sums["arcs"]}


@families("bert", "gpt2")
def test_batches_count_as_one_sentence_at_a_time_does(family: Family) -> None:
    model = build(family)
    before = model.config._attn_implementation
    found = find_roles(model, tokenizer(), sentences(12), criteria=Criteria(common=0, cases=1))
    assert model.config._attn_implementation == before
    (relation,) = (r for r in found.relations if r.direction == "governor")
    ours = next(head for head in found.heads if head.name == relation.head)
    assert ours.offset is not None
    expected = naive(build(family, "eager"), ours.name, ours.offset, family.name == "gpt2")
    assert relation.accuracy == pytest.approx(expected["hits"])
    for name in (
        "confidence", "entropy", "special", "rare", "rare_by_chance", "offset_share", "duplicate",
        "duplicate_by_chance",
    ):  # fmt: skip
        assert getattr(ours, name) == pytest.approx(expected[name], abs=1e-5), name


def test_a_decoder_looks_back_only() -> None:
    found = find_roles(build("llama"), tokenizer(), sentences(), criteria=RULE)
    assert all(head.offset is not None and head.offset <= 0 for head in found.heads)
    by_direction = {r.direction: r for r in found.relations}
    arcs = [arc for one in sentences() for arc in one.arcs]
    assert by_direction["governor"].cases == sum(a.governor < a.dependent for a in arcs)
    assert by_direction["dependent"].cases == sum(a.governor > a.dependent for a in arcs)
    assert all(r.offset < 0 for r in found.relations)


@pytest.mark.parametrize("given", [True, False])
def test_cross_attention_has_neither_positions_nor_syntax(given: bool) -> None:
    ours = [Sentence(s.text, s.words, s.arcs, s.text if given else None) for s in sentences(20)]
    found = find_roles(build("marian"), tokenizer(), ours, criteria=RULE, max_length=12)
    kinds = {kind: [h for h in found.heads if h.kind == kind] for kind in KINDS}
    assert [len(heads) for heads in kinds.values()] == [8, 8, 8]
    assert all(h.offset is None and h.relation is None for h in kinds["cross"])
    assert all(h.rare is not None and h.confidence is not None for h in kinds["cross"])
    assert all(h.duplicate is None for h in kinds["cross"])
    assert all(h.relation == "obj" and h.offset is not None for h in kinds["encoder"])
    assert all(h.relation is None and (h.offset or 0) <= 0 for h in kinds["decoder"])


@families("albert", "deberta-v2", "t5", "mistral")
def test_other_families_tell_too_when_a_block_is_empty(family: Family) -> None:
    model = build(family)
    mask = mask_for(model, "half" if family.name == "albert" else "empty_first_block")
    hc.remove_heads(model, mask)
    found = find_roles(model, tokenizer(), sentences(6), criteria=RULE, max_length=8)
    assert tuple(head.name for head in found.heads) == mask.names
    for head in found.heads:  # shares, though ALBERT's block serves three layers
        shares = (head.offset_share, head.accuracy, head.rare, head.confidence, head.special)
        assert all(share is None or 0 <= share <= 1 for share in shares)


@families("vit", "clip", "whisper")
def test_a_model_that_reads_no_text_is_refused(family: Family) -> None:
    with pytest.raises(HeadcountError, match="does not read text alone"):
        find_roles(build(family), tokenizer(), sentences(2))


def test_attention_to_a_word_is_the_sum_and_from_it_the_mean() -> None:
    weights = torch.tensor([[[[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]] * 2]])
    words = torch.tensor([[-1, 0, 0, 1]])  # a special token, a word of two pieces, another word
    expected = torch.tensor([[[[0.5, 0.25], [0.5, 0.1]]]])
    torch.testing.assert_close(word_weights(weights, words), expected)


def head(name: str, number: int) -> HeadRoles:
    roles: Any = [(), ("positional",), ("syntactic",), ("positional", "rare")][number % 4]
    relations = ("obj: governor", "nsubj: governor") if "syntactic" in roles else ()
    return HeadRoles(
        name, "encoder", roles, -1, 0.9, None, None, None, None, relations, 0.5, 0.1, 0.3, 0.1,
        0.4, 0.5, 0.6,
    )  # fmt: skip


def test_roles_of_kept_heads_are_counted_by_number_of_heads(tmp_path: Path) -> None:
    names = [f"{block}.{number}" for block, count in LAYOUT for number in range(count)]
    heads = tuple(head(name, number) for number, name in enumerate(names))
    whole = Roles("bert", "text", 9, LAYOUT, heads, ())
    writer = Writer(tmp_path / "study")
    for keep in (12, 2):
        writer.run("joint-dsp", keep, 0, {}, {"matched": 0.7 + keep / 100})
    over = roles_over_keep(whole, writer.finish())
    table = over.table().set_index(["method", "keep"])
    assert table.loc[("unpruned", 48), "positional"] == 24
    assert table.loc[("unpruned", 48), "rare kept"] == 1.0
    row = table.loc[("joint-dsp", 12)]
    assert row["all kept"] == 0.25
    assert row["syntactic"] + row["positional"] + row["other"] == 12
    save_analysis(over, tmp_path / "out")
    assert load_analysis(tmp_path / "out") == over
    with pytest.raises(HeadcountError, match="no model to measure"):
        roles_over_keep(whole, tmp_path / "study", lambda folder: whole)
    other = Roles("small", "text", 9, LAYOUT[:2], heads[:24], ())
    with pytest.raises(HeadcountError, match="does not have"):
        roles_over_keep(other, tmp_path / "study")


def test_the_command_writes_map_table_and_relations(encoder: Path, tmp_path: Path) -> None:
    line = "{}\t{}\t_\t_\t_\t_\t{}\t{}\t_\t_\n"
    tree = line.format(1, "film", 2, "nsubj") + line.format(2, "seems", 0, "root")
    (tmp_path / "trees.conllu").write_text(f"{tree}{line.format(3, 'good', 2, 'xcomp')}\n" * 120)
    heads = hc.find_heads(BertModel.from_pretrained(encoder))
    hc.HeadMask.random(heads, 2).save(tmp_path / "mask.json")
    out = tmp_path / "roles"
    command = [
        "roles", str(encoder), "--conllu", str(tmp_path / "trees.conllu"), "--limit", "110",
        "--mask", str(tmp_path / "mask.json"), "--output", str(out), "--json",
    ]  # fmt: skip
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["result"]["sentences"] == 110
    assert {p.name for p in out.iterdir()} >= {"table.csv", "roles.png", "relations.svg"}
    read = load_analysis(out)
    assert isinstance(read, Roles)
    assert len(read.heads) == 6 and read.table()["kept"].sum() == 2
    assert {r.relation for r in read.relations} == {"nsubj", "xcomp"}
    again = CliRunner().invoke(app, command)
    assert "exists already" in str(again.exception)


def test_the_command_refuses_what_it_cannot_use_before_the_model_is_read(tmp_path: Path) -> None:
    def said(*more: str) -> str:
        command = ["roles", str(tmp_path / "no-model"), "--text", str(tmp_path / "text"), *more]
        return str(CliRunner().invoke(app, command).exception)

    (tmp_path / "text").write_text("a film\n")
    study = str(tmp_path / "study")
    assert "is no study" in said("--study", study)
    assert "give one of them" in said("--study", study, "--mask", str(tmp_path / "mask.json"))
    assert "is not a folder" in said("--output", str(tmp_path / "text" / "out"))


def test_the_command_measures_each_pruned_model_of_a_study(encoder: Path, tmp_path: Path) -> None:
    config = BertConfig(
        vocab_size=29, hidden_size=24, num_hidden_layers=4, num_attention_heads=12,
        intermediate_size=8, max_position_embeddings=16,
    )  # fmt: skip
    words, model = PreTrainedTokenizerFast.from_pretrained(encoder), BertModel(config)
    model.save_pretrained(tmp_path / "whole")
    words.save_pretrained(tmp_path / "whole")
    writer = Writer(tmp_path / "study")
    run = writer.run("joint-dsp", 6, 0, {}, {"matched": 0.7})
    writer.finish()
    mask = hc.HeadMask.load(run / "mask.json")
    hc.remove_heads(model, mask)
    model.save_pretrained(run)
    words.save_pretrained(run)
    (tmp_path / "text").write_text("the film was good\na play so dull\n")
    done = CliRunner().invoke(app, [
        "roles", str(tmp_path / "whole"), "--text", str(tmp_path / "text"), "--pruned",
        "--study", str(tmp_path / "study"),
    ])  # fmt: skip
    assert done.exit_code == 0, done.output
    (over,) = find_analyses(tmp_path / "study")[0].values()
    assert isinstance(over, RolesOverKeep) and over.pruned
    assert over.whole.keep == 48
    assert {head.name for head in over.sets[0].heads} == set(mask.names)
