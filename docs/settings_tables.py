"""Write the tables of settings in these pages, from the dataclasses that the pruners have.

A table stands between `<!-- settings: NAME -->` and `<!-- end -->`. The settings that all pruners
share have a table of their own, NAME `all`; those that fit what is lost, `post-hoc`.

    python docs/settings_tables.py            # renew them
    python docs/settings_tables.py --check    # say which are out of date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from headcount.pruners.methods import find_pruner, recipe_keys
from headcount.pruners.settings import Key, PostHocSettings, PrunerSettings

FOLDER = Path(__file__).parent
TABLE = re.compile(r"(<!-- settings: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def keys_of(name: str) -> list[Key]:
    """The settings of a method that are its own, or those that many have."""
    shared = {key.name for key in PrunerSettings.described()}
    if name == "all":
        return PrunerSettings.described()
    fitted = [key for key in PostHocSettings.described() if key.name not in shared]
    if name == "post-hoc":
        return fitted
    common = shared | {key.name for key in fitted}
    return [key for key in recipe_keys(find_pruner(name)).values() if key.name not in common]


def table(name: str) -> str:
    """The settings as a table in Markdown, with a column for each preset."""
    keys = keys_of(name)
    presets = [preset for preset in next(iter(reversed(keys))).presets if preset != "default"]
    rows = [["setting", "default", *(f"`{preset}`" for preset in presets), "meaning"]]
    rows.append(["---"] * len(rows[0]))
    for key in keys:
        own = [key.presets.get(preset, "") for preset in presets]
        meaning = key.meaning[:1].upper() + key.meaning[1:]
        rows.append([f"`{key.name}`", key.default, *own, meaning])
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in rows)


def renewed(text: str) -> str:
    """A page with its tables as they are now."""
    return TABLE.sub(lambda found: f"{found[1]}{table(found['name'])}{found[3]}", text)


def main() -> None:
    """Renew the tables of every page, or say which are out of date."""
    stale = []
    for page in sorted(FOLDER.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (now := renewed(text)) != text:
            stale.append(str(page.relative_to(FOLDER)))
            if "--check" not in sys.argv:
                page.write_text(now, encoding="utf-8")
    print(f"{'out of date' if '--check' in sys.argv else 'renewed'}: {', '.join(stale) or 'none'}")


if __name__ == "__main__":
    main()
