"""`headcount roles`: what each head does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.console import Console

from headcount.cli import options
from headcount.cli.help import DATA, OUTPUT, WHAT, option
from headcount.cli.show import Bars, show_analysis, show_rows
from headcount.errors import HeadcountError


def roles(
    model: options.Model,
    text: Annotated[Path | None, option(DATA, "FILE", "Sentences, one in a line.")] = None,
    conllu: Annotated[
        Path | None, option(DATA, "FILE", "Sentences with trees, for syntactic heads.")
    ] = None,
    pair: Annotated[
        Path | None,
        option(DATA, "FILE", "Second sentences, one in a line, for a model that reads two."),
    ] = None,
    target: Annotated[
        Path | None,
        option(
            DATA, "FILE", "Translations, one in a line; without them, the model's own greedy ones."
        ),
    ] = None,
    frequencies: Annotated[
        Path | None, option(DATA, "FILE", "A larger text, to count which tokens are rare.")
    ] = None,
    mask: Annotated[
        Path | None, option(WHAT, "FILE", "A mask.json; the heads that it keeps are marked.")
    ] = None,
    study: Annotated[
        Path | None,
        option(WHAT, "FOLDER", "Output of headcount compare: roles of the heads kept at each K."),
    ] = None,
    pruned: Annotated[
        bool, option(WHAT, None, "With --study: measure each run's own pruned model.")
    ] = False,
    output: Annotated[
        Path | None, option(OUTPUT, "FOLDER", "A new folder; without it, analyses/ of the study.")
    ] = None,
    limit: Annotated[
        int | None, option(DATA, "N", "Read this many sentences of each file.", min=1)
    ] = None,
    max_length: options.MaxLength = None,
    as_json: options.AsJson = False,
) -> None:
    """Find out what each head does.

    Heads may be positional or syntactic, or look at rare tokens or at duplicates.

    Examples:
        # With the trees of a treebank
        headcount roles bert-base-uncased --conllu en_ewt-ud-dev.conllu.gz --output roles
        # Which roles are left at each K of a study?
        headcount roles my-model --text sentences.txt --study study
    """
    from headcount.analysis.base import FILE, FOLDER, Analysis, refuse_bad_place, save_analysis
    from headcount.analysis.roles import Roles, find_roles, read_sentences, roles_over_keep
    from headcount.analysis.roles.measure import MAX_LENGTH
    from headcount.analysis.roles.over_keep import RolesOverKeep
    from headcount.heads.mask import HeadMask
    from headcount.loading.folder import load_model
    from headcount.study.read import read_study
    from headcount.tasks.files import read_lines
    from headcount.tasks.models import load_tokenizer

    if study is None and output is None:
        raise HeadcountError("there is no place for the result; give a new folder as --output")
    if pruned and study is None:
        raise HeadcountError("--pruned is about the runs of a study; give its folder as --study")
    if mask is not None and study is not None:
        raise HeadcountError(
            "--mask and --study both say which heads are kept; give one of them, since a study's "
            "runs have their own masks"
        )
    folder = output or Path(str(study)) / FOLDER / RolesOverKeep.kind
    refuse_bad_place(folder)
    if study is not None:
        read_study(study)  # its errors come before the model is measured
    sentences = read_sentences(text, conllu, target, limit, pair)
    often = None if frequencies is None else read_lines(frequencies)
    data = ", ".join(path.name for path in (text, pair, conllu) if path is not None)
    console = Console(stderr=as_json)

    def measure(source: str, kept: HeadMask | None = None) -> Roles:
        return find_roles(
            load_model(source), load_tokenizer(source), sentences, name=Path(source).name,
            data=data, frequencies=often, mask=kept, max_length=max_length or MAX_LENGTH,
            progress=bars,
        )  # fmt: skip

    with Bars(console) as bars:
        whole = measure(model, None if mask is None else HeadMask.load(mask))
        found: Analysis = whole
        if study is not None:
            each = (lambda run: measure(str(run))) if pruned else None
            found = roles_over_keep(whole, study, each)
    save_analysis(found, folder)
    if as_json:
        print((folder / FILE).read_text(encoding="utf-8"), end="")
        return
    if study is None and whole.relations:
        rows = [
            (f"{r.relation} → {r.direction}", str(r.cases), f"{100 * r.baseline:.1f}", r.head,
             f"{100 * r.accuracy:.1f}", str(len(r.heads)))
            for r in whole.relations
        ]  # fmt: skip
        columns = ("cases", "best position, %", "best head", "it hits, %", "heads above")
        show_rows(console, "relations", columns, rows)
    show_analysis(console, found, folder)
