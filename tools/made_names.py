"""Makes tagged sentences of business papers, which the public data sets lack: companies, people and places in them.

Spanish first: invoices, deeds, contracts, payrolls, letters and forms, with legal forms (S.L., S.A.U., S.Coop.), names
in capitals and surname first, places after "en". The same seed gives the same sentences. Names are put together from
the lists of ``made_names.toml`` and stand for nobody; the text is under the project's licence (MIT).
"""

import random
import re
import tomllib
import unicodedata
from pathlib import Path

from backend.models.words import word_places

SOURCE = """# Sentences of business papers, made by tools/made_names.py

## Source

this repository: tools/made_names.py

## Licence

MIT
"""
SEED = 15

Tagged = list[tuple[str, str]]  # tokens with their BIO tags

_SLOT = re.compile(r"\{([\w-]+)(!?)\}")
_LISTS: dict[str, list[str] | dict[str, int]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
_SENTENCES = {"deeds": 3, "forms": 4, "prose": 4, "english": 3}  # lists of them, with their weights
_TYPES = {  # of entities, by list
    **dict.fromkeys(("PER", "SURNAME_FIRST", "EN_PER"), "PER"),
    **dict.fromkeys(("ORG", "EN_ORG", "INST"), "ORG"),
    **dict.fromkeys(("LOC", "EN_LOC"), "LOC"),
}


def sentences(count: int, seed: int) -> list[Tagged]:
    """``count`` tagged sentences, the same for the same seed."""
    draw = random.Random(seed)
    return [_sentence(draw) for _ in range(count)]


def write(file: Path, count: int, seed: int) -> None:
    """Write a CoNLL file, with its SOURCE.md beside it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    blocks = ["\n".join(f"{word}\t{tag}" for word, tag in tagged) for tagged in sentences(count, seed)]
    file.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    (file.parent / "SOURCE.md").write_text(SOURCE, encoding="utf-8")


def _sentence(draw: random.Random) -> Tagged:
    [kind] = draw.choices(list(_SENTENCES), list(_SENTENCES.values()))
    template = draw.choice(list(_LISTS[kind]))
    names_in_capitals = draw.random() < (0.35 if kind in ("deeds", "forms") else 0.08)
    all_in_capitals = draw.random() < 0.08
    tagged: Tagged = []
    position = 0
    for slot in _SLOT.finditer(template):
        tagged += [(word, "O") for word in _tokens(template[position : slot.start()])]
        tagged += _fill(slot[1], draw, names_in_capitals)
        position = slot.end()
    tagged += [(word, "O") for word in _tokens(template[position:])]
    return [(word.upper(), tag) for word, tag in tagged] if all_in_capitals else tagged


def _fill(name: str, draw: random.Random, names_in_capitals: bool) -> Tagged:
    """The words of a slot; the first one of a name begins an entity."""
    words, type_ = _tokens(_entry(name, draw)), _TYPES.get(name)
    if type_ is None:
        return [(word, "O") for word in words]
    if names_in_capitals and type_ != "LOC":
        keep_accents = draw.random() < 0.5
        words = [word.upper() if keep_accents else _without_accents(word.upper()) for word in words]
    return [(word, f"{'I' if index else 'B'}-{type_}") for index, word in enumerate(words)]


def _entry(name: str, draw: random.Random) -> str:
    """One of a list's entries with its slots filled, or a number of a range."""
    first, _, last = name.partition("-")
    if last:
        return str(draw.randint(int(first), int(last))).zfill(len(first))
    entries = _LISTS[name]
    [entry] = draw.choices(list(entries), list(entries.values()) if isinstance(entries, dict) else None)

    def filled(slot: re.Match[str]) -> str:
        text = _entry(slot[1], draw)
        return text.upper() if slot[2] else text

    return _SLOT.sub(filled, entry)


def _tokens(text: str) -> list[str]:
    """The words as serving cuts them: the tagger learns their first tokens' labels."""
    return [text[start:end] for start, end in word_places(text).tolist()]


def _without_accents(text: str) -> str:
    """Capitals as typewriters and forms have them; "Ñ" stays."""
    return "".join(character if character in "ñÑ" else unicodedata.normalize("NFD", character)[0] for character in text)
