"""Makes tagged sentences of business papers, which the public data sets lack: companies, people and places in them.

    python -m tools.made_names --output build/made/es_made_train.conll

Spanish first: invoices, deeds, contracts, payrolls, letters and forms, with legal forms (S.L., S.A.U., S.Coop.), names
in capitals and surname first, places after "en". The same seed gives the same file. Names are put together from lists
and stand for nobody; the text is under the project's licence (MIT).
"""

import argparse
import random
import re
import sys
import tomllib
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

from backend.models.words import word_places

SOURCE = """# Sentences of business papers, made by tools/made_names.py

## Source

this repository: tools/made_names.py

## Licence

MIT
"""
SENTENCES = 3600
SEED = 15

Tagged = list[tuple[str, str]]  # tokens with their BIO tags
Maker = Callable[[random.Random], str]

_SLOT = re.compile(r"\{(\w+)\}")
_WORDS: dict[str, list[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def sentences(count: int, seed: int) -> list[Tagged]:
    """``count`` tagged sentences, the same for the same seed."""
    draw = random.Random(seed)
    return [_sentence(draw) for _ in range(count)]


def write(file: Path, count: int = SENTENCES, seed: int = SEED) -> None:
    """Write a CoNLL file, with its SOURCE.md beside it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    blocks = ["\n".join(f"{word}\t{tag}" for word, tag in tagged) for tagged in sentences(count, seed)]
    file.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    (file.parent / "SOURCE.md").write_text(SOURCE, encoding="utf-8")


def _sentence(draw: random.Random) -> Tagged:
    templates = draw.choices((_WORDS["deeds"], _WORDS["forms"], _WORDS["prose"], _WORDS["english"]), (3, 4, 4, 3))[0]
    template = draw.choice(templates)
    names_in_capitals = draw.random() < (0.35 if templates in (_WORDS["deeds"], _WORDS["forms"]) else 0.08)
    all_in_capitals = draw.random() < 0.08
    tagged: Tagged = []
    position = 0
    for slot in _SLOT.finditer(template):
        tagged += [(word, "O") for word in _tokens(template[position : slot.start()])]
        tagged += _fill(slot[1], draw, names_in_capitals)
        position = slot.end()
    tagged += [(word, "O") for word in _tokens(template[position:])]
    return [(word.upper(), tag) for word, tag in tagged] if all_in_capitals else tagged


def _fill(slot: str, draw: random.Random, names_in_capitals: bool) -> Tagged:
    """The words of a slot; the first one of a name begins an entity."""
    make, kind = _SLOTS[slot]
    words = _tokens(make(draw))
    if kind is None:
        return [(word, "O") for word in words]
    if names_in_capitals and kind != "LOC":
        keep_accents = draw.random() < 0.5
        words = [word.upper() if keep_accents else _without_accents(word.upper()) for word in words]
    return [(word, f"{'I' if index else 'B'}-{kind}") for index, word in enumerate(words)]


def _tokens(text: str) -> list[str]:
    """The words as serving cuts them: the tagger learns their first tokens' labels."""
    return [text[start:end] for start, end in word_places(text).tolist()]


def _without_accents(text: str) -> str:
    """Capitals as typewriters and forms have them; "Ñ" stays."""
    return "".join(character if character in "ñÑ" else unicodedata.normalize("NFD", character)[0] for character in text)


def _person(draw: random.Random) -> str:
    first = draw.choice(_WORDS["first"])
    first += f" {draw.choice(_WORDS['second'])}" if draw.random() < 0.3 else ""
    particle = draw.choice(("de ", "de la ", "del ")) if draw.random() < 0.04 else ""
    second = f" {draw.choice(_WORDS['surnames'])}" if draw.random() < 0.75 else ""
    return f"{first} {particle}{draw.choice(_WORDS['surnames'])}{second}"


def _surname_first(draw: random.Random) -> str:
    first = draw.choice(_WORDS["first"]) + (f" {draw.choice(_WORDS['second'])}" if draw.random() < 0.4 else "")
    comma = "," if draw.random() < 0.5 else ""
    name = f"{draw.choice(_WORDS['surnames'])} {draw.choice(_WORDS['surnames'])}{comma} {first}"
    return name.upper() if draw.random() < 0.6 else name


def _english_person(draw: random.Random) -> str:
    middle = f"{draw.choice('ABCDEJLMPRTW')}. " if draw.random() < 0.25 else ""
    return f"{draw.choice(_WORDS['english_first'])} {middle}{draw.choice(_WORDS['english_surnames'])}"


def _company(draw: random.Random) -> str:
    surname, other, place = (
        draw.choice(_WORDS["surnames"]),
        draw.choice(_WORDS["surnames"]),
        draw.choice(_WORDS["places"]),
    )
    trade, coined = draw.choice(_WORDS["trades"]), _coined(draw)
    name = draw.choice(
        (
            f"{trade} {surname}",
            f"{trade} {surname} e Hijos",
            f"{trade} {surname} y {other}",
            f"{trade} {place}",
            f"{trade} {coined}",
            f"{trade} del {draw.choice(('Norte', 'Sur', 'Levante', 'Duero', 'Ebro', 'Mediterráneo', 'Cantábrico'))}",
            f"Hermanos {surname}",
            f"{draw.choice(('Hijos', 'Viuda', 'Sucesores', 'Herederos'))} de {draw.choice(_WORDS['first'])} {surname}",
            f"{surname} y {other} {draw.choice(('Abogados', 'Asociados', 'Asesores', 'Arquitectos'))}",
            f"Grupo {draw.choice((coined, surname))}",
            f"{coined} {draw.choice(('Ibérica', 'España', 'Consultores', 'Servicios', 'Soluciones', 'Energía'))}",
            coined,
            f"{coined} {draw.randint(1990, 2024)}",
            f"{draw.choice(_WORDS['first'])} {surname}",
        )
    )
    form = draw.choices(_WORDS["legal_forms"], _LEGAL_FORM_WEIGHTS)[0]
    return f"{name}{draw.choice((',', ',', ''))} {form}"


def _foreign_company(draw: random.Random) -> str:
    surname, other = draw.choice(_WORDS["english_surnames"]), draw.choice(_WORDS["english_surnames"])
    name = draw.choice(
        (
            f"{surname} & {other}",
            f"{surname} Holdings",
            f"{surname} {draw.choice(_WORDS['english_trades'])}",
            f"{_coined(draw)} {draw.choice(_WORDS['english_trades'])}",
            f"{draw.choice(_WORDS['english_places'])} {draw.choice(_WORDS['english_trades'])}",
            _coined(draw),
        )
    )
    form = draw.choice(_WORDS["foreign_forms"])
    return f"{name}{draw.choice((',', ''))} {form}"


def _coined(draw: random.Random) -> str:
    name = draw.choice(_WORDS["starts"]) + draw.choice(_WORDS["ends"])
    return name.upper() if draw.random() < 0.15 else name.capitalize()


def _institution(draw: random.Random) -> str:
    return draw.choice(_WORDS["institutions"]).replace("@", draw.choice(_WORDS["places"]))


def _place(draw: random.Random) -> str:
    return draw.choice(_WORDS["places"] if draw.random() < 0.8 else _WORDS["countries"])


def _english_place(draw: random.Random) -> str:
    return draw.choice(_WORDS["english_places"])


def _date(draw: random.Random) -> str:
    day, month, year = draw.randint(1, 28), draw.choice(_WORDS["months"]), draw.randint(1995, 2026)
    return draw.choice((f"{day} de {month} de {year}", f"{day:02}/{draw.randint(1, 12):02}/{year}"))


def _english_date(draw: random.Random) -> str:
    return f"{draw.randint(1, 28)} {draw.choice(_WORDS['english_months'])} {draw.randint(1995, 2026)}"


def _amount(draw: random.Random) -> str:
    return (
        f"{draw.randint(1, 99)}.{draw.randint(0, 999):03},{draw.randint(0, 99):02} {draw.choice(('€', 'euros', 'EUR'))}"
    )


def _number(draw: random.Random) -> str:
    return draw.choice((f"{draw.randint(1, 9999)}", f"{draw.randint(2019, 2026)}/{draw.randint(1, 9999):04}"))


def _tax_number(draw: random.Random) -> str:
    return draw.choice("ABGJ") + f"{draw.randint(10**7, 10**8 - 1)}"


def _personal_number(draw: random.Random) -> str:
    return f"{draw.randint(10**7, 10**8 - 1)}{draw.choice(('', '-'))}{draw.choice('TRWAGMYFPDXBNJZSQVHLCKE')}"


def _street(draw: random.Random) -> str:
    way = draw.choice(("Calle", "C/", "Avenida", "Avda.", "Plaza", "Paseo", "Polígono Industrial", "Camino"))
    return f"{way} {draw.choice(_WORDS['streets'])}, {draw.randint(1, 180)}"


def _postcode(draw: random.Random) -> str:
    return f"{draw.randint(1000, 52999):05}"


def _one_of(choices: Sequence[str]) -> Maker:
    return lambda draw: draw.choice(choices)


_LEGAL_FORM_WEIGHTS = (30, 18, 10, 5, 8, 6, 4, 3, 4, 3, 3, 1, 1, 2, 2, 1, 1, 1, 2)
_SLOTS: dict[str, tuple[Maker, str | None]] = {
    "PER": (_person, "PER"), "SURNAME_FIRST": (_surname_first, "PER"), "EN_PER": (_english_person, "PER"),
    "ORG": (_company, "ORG"), "EN_ORG": (_foreign_company, "ORG"), "INST": (_institution, "ORG"),
    "LOC": (_place, "LOC"), "EN_LOC": (_english_place, "LOC"), "date": (_date, None),
    "en_date": (_english_date, None), "amount": (_amount, None), "number": (_number, None),
    "cif": (_tax_number, None), "dni": (_personal_number, None), "street": (_street, None), "cp": (_postcode, None),
    "item": (_one_of(_WORDS["items"]), None), "job": (_one_of(_WORDS["jobs"]), None),
    "law": (_one_of(_WORDS["laws"]), None), "title": (_one_of(_WORDS["titles"]), None),
    "mister": (_one_of(("D.", "Don", "Dña.", "Doña", "Sr.", "Sra.", "señor", "señora")), None),
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="python -m tools.made_names", description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=SENTENCES)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(arguments)
    write(options.output, options.sentences, options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
