"""Words that several phenomena share."""

from __future__ import annotations

from headcount.inference.english import listed

NAMES = listed(
    "Adam Alice Anna Ben Carl Clara David Diana Emma Eric Frank Grace Helen Henry Ian Jack Jane "
    "Julia Kate Laura Leo Lisa Lucy Mark Mary Mike Nina Oliver Oscar Paul Peter Rachel Robert Rosa "
    "Ruth Sam Sarah Simon Sophie Thomas Tina Tom Victor Walter"
)

PEOPLE = [
    f"the {who}"
    for who in listed(
        "actor artist baker banker barber captain chef clerk coach dancer dentist doctor driver "
        "editor farmer gardener guard judge lawyer manager mechanic minister nurse painter pilot "
        "plumber poet reporter sailor singer soldier student teacher waiter writer"
    )
]

COLOURS = listed("black blue brown green grey orange pink purple red white yellow")

# What one can buy, carry and paint.
OBJECTS = listed(
    "bag basket bicycle bottle bowl box chair clock coat cup desk door fence hat jacket jar lamp "
    "pen plate scarf shelf shirt sofa table vase wall"
)
