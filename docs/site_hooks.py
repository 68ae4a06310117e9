"""What mkdocs asks of this project while it builds the site.

Pages link to files of the repository outside of `docs/`: figures and tables of the evidence,
recipes, scripts. They become part of the site, below `repository/`; notebooks become pages there.
The page of commands is made from the command line itself.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")
REPOSITORY = "repository/"
NOTEBOOK = ".ipynb"
COMMANDS = "look-up/commands.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of commands, and what pages link to outside of `docs/`."""
    files.append(File.generated(config, COMMANDS, content="".join(page_of_commands())))
    for page in list(files.documentation_pages()):
        for link in LINK.finditer(page.content_string):
            path = meant(page.src_uri, link["target"])
            name = in_site(path)
            outside = not path.startswith("docs/") and (ROOT / path).is_file()
            if outside and files.get_file_from_path(name) is None:
                made: dict[str, Any] = {"inclusion": InclusionLevel.NOT_IN_NAV}
                if path.endswith(NOTEBOOK):
                    made["content"] = "\n\n".join(page_of_notebook(ROOT / path))
                else:
                    made["abs_src_path"] = str(ROOT / path)
                files.append(File.generated(config, name, **made))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to the repository go to its copy in the site; folders get no link."""
    here = page.file.src_uri
    if here.startswith(REPOSITORY):
        page.meta["search"] = {"exclude": True}

    def mend(link: re.Match[str]) -> str:
        path, text = meant(here, link["target"]), link["text"].strip("[]")
        of_site = in_site(path)
        if files.get_file_from_path(of_site):
            away = posixpath.relpath(of_site, posixpath.dirname(here))
            return f"{link['text']}({away}{link['anchor'] or ''})"
        if here.startswith(REPOSITORY):
            return text
        if path.startswith("docs/"):
            return link[0]  # mkdocs says what is wrong with it
        if (ROOT / path).is_dir():
            return f"`{path}`" if path.endswith(text) else f"{text} (`{path}`)"
        raise PluginError(f"{here} links to {path}, which is not in the repository")

    return LINK.sub(mend, markdown)


def meant(page: str, target: str) -> str:
    """The path in the repository that a link on a page of the site means."""
    folder = posixpath.dirname(page)
    of_repository = folder.startswith(REPOSITORY.rstrip("/"))
    start = folder[len(REPOSITORY) :] if of_repository else f"docs/{folder}"
    return posixpath.normpath(posixpath.join(start, target))


def in_site(path: str) -> str:
    """Where a file of the repository is in the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(NOTEBOOK):
        path = path.removesuffix(NOTEBOOK) + ".md"
    return REPOSITORY + path


def page_of_notebook(path: Path) -> Iterator[str]:
    """The cells of a notebook and what they printed and drew, as the parts of a page."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        shell = source.removeprefix("%%bash\n")
        yield f"```{'python' if shell == source else 'bash'}\n{shell}\n```"
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                image = "".join("".join(data["image/png"]).split())
                yield f"![what this cell draws](data:image/png;base64,{image})"
            else:
                text = "".join(output.get("text", data.get("text/plain", "")))
                yield f"```text\n{text.rstrip()}\n```"


def page_of_commands() -> Iterator[str]:
    """Every command with its examples and options, as its own help says them."""
    from headcount.cli import app

    group: Any = typer.main.get_command(app)
    yield "# Commands\n\nWhat `headcount COMMAND --help` says, on one page.\n\n"
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield f"## {name}\n\n{command.help}\n\n"
            for below, inner in command.commands.items():
                yield from _command(f"{name} {below}", inner, "###")
        else:
            yield from _command(name, command, "##")


def _command(name: str, command: Any, level: str) -> Iterator[str]:
    first, *more = re.split(r"\n\s*\n", (command.help or "").strip())
    yield f"{level} {name}\n\n{_plain(first)}\n\n"
    for text in more:
        example = re.sub(r"^Examples?:\s*", "", text.strip())
        shown = f"```bash\n{_plain(example)}\n```" if "headcount " in example else _plain(text)
        yield f"{shown}\n\n"
    panels: dict[str, list[Any]] = {}
    for option in command.params:
        if not option.hidden and option.name != "help":
            is_argument = option.param_type_name == "argument"
            panel = option.rich_help_panel or ("Arguments" if is_argument else "Options")
            panels.setdefault(panel, []).append(option)
    for panel, options in panels.items():
        yield f"| {panel} | |\n|---|---|\n"
        for option in options:
            is_argument = option.param_type_name == "argument"
            names = option.name.upper() if is_argument else "`, `".join(_names(option))
            need = " Required." if option.required else ""
            yield f"| `{names}` | {_plain(option.help or '').replace('|', '/')}{need} |\n"
        yield "\n"


def _names(option: Any) -> list[str]:
    return [*option.opts, *option.secondary_opts]


def _plain(text: str) -> str:
    """A help text without the marks of rich and the breaks of lines."""
    return " ".join(re.sub(r"\[/?[a-z ]+\]", "", text).split()).replace("<", "&lt;")
