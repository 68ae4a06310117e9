"""Words that several phenomena share."""

from __future__ import annotations

from headcount.demo.inference.english import listed

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

# What one can own, paint and move.
OBJECTS = listed(
    "bag basket bed bicycle blanket book bottle bowl box bucket candle carpet chair clock coat cup "
    "curtain cushion desk drum flag guitar hat jacket jar kite ladder lamp mirror mug pen piano "
    "pillow plate radio scarf shelf shirt sofa stool suitcase table towel trunk umbrella vase"
)
