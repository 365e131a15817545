"""Names of months in Spanish and English, without accents."""

from __future__ import annotations

_NAMES = (
    "enero ene january jan",
    "febrero feb february",
    "marzo mar march",
    "abril abr april apr",
    "mayo may",
    "junio jun june",
    "julio jul july",
    "agosto ago august aug",
    "septiembre setiembre sept sep set september",
    "octubre oct october",
    "noviembre nov november",
    "diciembre dic december dec",
)
MONTHS = {name: number for number, names in enumerate(_NAMES, 1) for name in names.split()}
SPANISH = frozenset(name for names in _NAMES for name in names.split()[:1]) | {"setiembre"}
# Short forms, and "march", a word: they need more around them than a name does.
SHORT = frozenset(name for name in MONTHS if len(name) <= 4) - {"july", "june", "mayo"} | {"march"}
WORDS = frozenset({"may", "mar", "set", "march", "ago"})  # also verbs, the sea, "long ago"


def _either(names: set[str]) -> str:
    return "|".join(sorted(names, key=len, reverse=True))


MONTH = _either(set(MONTHS))
FIRST_LETTERS = "".join(sorted({letter for name in MONTHS for letter in (name[0], name[0].upper())}))
REST = _either({name[1:] for name in MONTHS})  # what follows the first letter; not every pair is a month
