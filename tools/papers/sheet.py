"""A sheet on which words are put; then what scanning does to them. Coordinates are points from the top left."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

_NARROW, _WIDE = set("ijltfrI.,:;'|!()[]-/ "), set("mwMW@%€")
_ADDRESSES = frozenset({"VendorAddress", "CustomerAddress"})  # a mark between their lines ends none
Piece = tuple[str, str]  # text and label; "" is no field
Line = list[tuple[float, str, list[Piece]]]  # cells of a line: where (0 to 1 of the block), how aligned, what


@dataclass(slots=True)
class MadeWord:
    """A word and what it is."""

    text: str
    box: tuple[float, float, float, float]
    label: str
    begins: bool  # the value's first word
    row: bool = False  # it stands on the first line of a line of goods

    def joined(self, text: str, box: tuple[float, float, float, float], other: MadeWord) -> MadeWord:
        """This word with another one behind it, which reads so and stands there."""
        label = other.label or self.label
        begins = self.begins if self.label == label else other.begins
        both = (self.box[0], min(self.box[1], box[1]), box[2], max(self.box[3], box[3]))
        return MadeWord(self.text + text, both, label, begins, self.row or other.row)


def text_width(text: str, size: float) -> float:
    """The width that a proportional font takes, roughly."""
    total = 0.0
    for c in text:
        total += 0.29 if c in _NARROW else 0.86 if c in _WIDE else 0.67 if c.isupper() else 0.54
    return total * size


@dataclass(slots=True)
class Sheet:
    """One page."""

    width: float
    height: float
    words: list[MadeWord] = field(default_factory=list)
    stretch: float = 1.0
    mono: bool = False

    def measure(self, pieces: list[Piece], size: float) -> float:
        """The width of pieces on a line."""
        return self._width(" ".join(text for text, _ in pieces if text), size)

    def _width(self, text: str, size: float) -> float:
        return (len(text) * 0.6 * size) if self.mono else text_width(text, size) * self.stretch

    def put(
        self, x: float, y: float, pieces: list[Piece], size: float, align: str = "l", continues: bool = False
    ) -> float:
        """Words of pieces on a line whose top is ``y``; the right end.

        Args:
            align: which end ``x`` is: "l", "r" or "c".
            continues: whether the first value began on a line above.
        """
        if align != "l":
            wide = self.measure(pieces, size)
            x -= wide if align == "r" else wide / 2
        space = 0.6 * size if self.mono else 0.29 * size * self.stretch
        before = pieces[0][1] if continues and pieces else ""
        for text, marked in pieces:
            label = marked.rstrip("!")  # marked: on the first line of a line of goods
            begins = label != before or not label
            for word in text.split():
                wide, starts = self._width(word, size), begins and bool(label)
                self.words.append(MadeWord(word, (x, y, x + wide, y + size), label, starts, marked != label))
                begins = False
                x += wide + space
            before = label if label in _ADDRESSES else before if not label and before in _ADDRESSES else ""
        return x - space


def scan(sheet: Sheet, rng: random.Random) -> None:
    """What scanning and OCR do: letters confused, words split, joined and lost, boxes shaken."""
    level = rng.choice((0.002, 0.006, 0.012, 0.02, 0.05))
    slope = rng.gauss(0, 0.003)
    even = rng.random() < 0.5  # boxes of a line are as high as the line, as some readers give them
    loose = rng.uniform(0, 0.35)
    capitals = rng.random() < 0.15
    join = rng.choice((0.0, 0.01, 0.03, 0.1))
    plain = rng.choice((0.0, 0.0, 0.3, 0.8))  # accents lost
    points = rng.choice((0.0, 0.0, 0.1, 0.5))  # commas read as points
    out: list[MadeWord] = []
    for word in sheet.words:
        if rng.random() < level * 0.4:
            continue
        text = word.text
        if rng.random() < level * len(text):
            text = misread(text, rng)
        if plain and rng.random() < plain:
            text = text.translate(_PLAIN)
        if points and "," in text and rng.random() < points:
            text = text.replace(",", ".")
        x0, y0, x1, y1 = word.box
        high = y1 - y0
        shift = slope * x0 + rng.gauss(0, 0.03) * high
        low = 0.0 if even or not text.islower() else rng.uniform(0, 0.25)
        box = (
            x0 + rng.gauss(0, 0.06) * high,
            y0 + shift + low * high - loose * high * 0.5,
            x1 + rng.gauss(0, 0.06) * high,
            y1 + shift - (0 if even else rng.uniform(0, 0.2) * high) + loose * high * 0.5,
        )
        last = out[-1] if out else None
        if (
            last is not None
            and abs(last.box[1] - y0) < high
            and 0 < x0 - last.box[2] < high * 0.6
            and not (word.begins and last.label)
            and rng.random() < (join if last.label == word.label else join * 0.3)
        ):
            out[-1] = last.joined(text, box, word)
        elif rng.random() < max(level, join) * 0.5 and len(text) > 4:
            cut = rng.randrange(1, len(text) - 1)
            middle = box[0] + (box[2] - box[0]) * cut / len(text)
            out.append(MadeWord(text[:cut], (box[0], box[1], middle - 0.5, box[3]), word.label, word.begins, word.row))
            out.append(MadeWord(text[cut:], (middle + 0.5, box[1], box[2], box[3]), word.label, False, word.row))
        else:
            out.append(MadeWord(text.upper() if capitals else text, box, word.label, word.begins, word.row))
    for _ in range(rng.randint(0, 5)):
        x, y = rng.uniform(0, sheet.width), rng.uniform(0, sheet.height)
        mark = rng.choice(("|", "-", ".", "_", "~", "ii", "—", "'", "l", "·", "1", "I", "=", "•"))
        out.append(MadeWord(mark, (x, y, x + 4, y + 6), "", False))
    sheet.words = out


@lru_cache(maxsize=1)
def _misread() -> dict[str, tuple[float, list[str], list[int]]]:
    """Of a letter: how often it is misread, and as what."""
    found = {}
    for line in Path(__file__).with_name("misread.txt").read_text("utf-8").splitlines()[1:]:
        letter, rate, *others = line.split("\t")
        pairs = [other.rpartition(":") for other in others]
        found[letter] = (float(rate), [text for text, _, _ in pairs], [int(count) for _, _, count in pairs])
    return found


def misread(text: str, rng: random.Random) -> str:
    """A word as OCR may misread it."""
    table = _misread()
    for _ in range(1 if rng.random() < 0.8 else 2):
        rates = [table[c][0] if c in table else 3.0 for c in text]
        place = rng.choices(range(len(text)), rates)[0]
        if text[place] in table and rng.random() < 0.8:
            _, others, counts = table[text[place]]
            other = rng.choices(others, counts)[0]
        else:
            other = rng.choice(("", "'", ".", "I", "l", "1", "a", "e", "t", "c", "o", "n"))
        text = text[:place] + other + text[place + 1 :] or text
    return text


_PLAIN = str.maketrans("áéíóúàèìòùâêîôûäëïöüñçÁÉÍÓÚÑÇ€º", "aeiouaeiouaeiouaeiouncAEIOUNCEo")
