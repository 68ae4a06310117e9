"""What README and the pages of `docs/learn` show runs as it stands, block after block.

Models and data have the names that the pages give them, and are small and made here. Programs that
are not headcount's are not run; what they are given is there. Commands on all other pages are read,
so that each has the options that it is shown with.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    set_seed,
)

from headcount.cli import _completed, app, main
from tests.small_task import save_encoder, save_tables
from tests.tasks.text_data import captions, write

tokenizers = pytest.importorskip("tokenizers")

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "learn").glob("*.md"))]
ALL_PAGES = [*PAGES, *sorted(set((ROOT / "docs").rglob("*.md")) - set(PAGES))]
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TREES = """# text = the film was good
1\tthe\t_\t_\t_\t_\t2\tdet\t_\t_
2\tfilm\t_\t_\t_\t_\t4\tnsubj\t_\t_
3\twas\t_\t_\t_\t_\t4\tcop\t_\t_
4\tgood\t_\t_\t_\t_\t0\troot\t_\t_

"""


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield block["language"], block["text"]


def commands(text: str) -> Iterator[list[str]]:
    for line in text.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the pages begin with."""
    folder = tmp_path_factory.mktemp("reader")
    bert = save_encoder(folder / "bert-base-uncased")
    size = {"hidden_size": 48, "num_hidden_layers": 12, "num_attention_heads": 12}
    words = len(AutoTokenizer.from_pretrained(bert))
    set_seed(0)
    config = BertConfig(vocab_size=words, intermediate_size=20, **size)
    BertModel(config).save_pretrained(bert)
    save_tables(folder / "reviews")
    write(folder / "en_ewt-ud-dev.conllu", [TREES * 20])
    lines = captions(700)[1]
    write(folder / "notes.txt", lines)
    (folder / "wikitext2").mkdir()
    write(folder / "wikitext2" / "train.txt", lines)
    write(folder / "wikitext2" / "test.txt", lines[::3])
    save_decoder(folder / "HuggingFaceTB" / "SmolLM2-135M-Instruct", lines)
    return folder


def save_decoder(folder: Path, lines: list[str]) -> None:
    """A decoder of SmolLM2's layout: 30 layers of 9 heads, three of which share keys and values."""
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(lines, 300, show_progress=False, special_tokens=["<s>", "</s>"])
    inside = json.loads(made._tokenizer.to_str())
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    inside["pre_tokenizer"] = {**split, "use_regex": True}
    raw = tokenizers.Tokenizer.from_str(json.dumps(inside))
    fast = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(folder)
    set_seed(0)
    config = LlamaConfig(
        vocab_size=len(fast), hidden_size=36, intermediate_size=40, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=2048,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)


def run_headcount(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["headcount", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code, arguments


def check_other_program(words: list[str], folder: Path) -> None:
    """A command that is not headcount's: what it names is there."""
    program, *arguments = words
    if program == "pip":
        offered = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for extras in re.findall(r"\[(.*)\]", " ".join(arguments)):
            assert set(extras.split(",")) <= set(offered["optional-dependencies"]), words
    elif program == "make":
        assert f"\n{arguments[0]}:" in (ROOT / "Makefile").read_text(encoding="utf-8"), words
    else:
        assert program == "llama-cli", words
        assert (folder / arguments[arguments.index("-m") + 1]).is_file(), words


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of onnx's exporter
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_runs(
    page: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in prepared.iterdir():
        (tmp_path / source.name).symlink_to(source)
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, f"{page.name}, a block", "exec"), known)
        elif language == "yaml":
            (tmp_path / text.split()[1]).write_text(text, encoding="utf-8")
        elif language == "bash":
            for words in commands(text):
                if words[0] == "headcount":
                    run_headcount(words[1:], monkeypatch)
                else:
                    check_other_program(words, tmp_path)
        else:
            pytest.fail(f"{page.name} shows a block of {language}, which no test runs")


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_commands_have_the_options_that_they_are_shown_with(page: Path) -> None:
    for language, text in blocks(page):
        for words in commands(text) if language == "bash" else ():
            if "headcount" in words and "…" not in words:
                read_command(words[words.index("headcount") + 1 :])


def read_command(arguments: list[str]) -> None:
    """Parse a command as the command line does, and stop there."""
    command: Any = typer.main.get_command(app)
    left = _completed(arguments)
    while hasattr(command, "commands"):
        name, *left = left
        assert name in command.commands, arguments
        command = command.commands[name]
    command.make_context(command.name, left)


def test_no_page_is_without_code() -> None:
    assert all(list(blocks(page)) for page in PAGES)
