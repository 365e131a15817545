"""What made papers print: words of a language, names, addresses, ids, dates and amounts, at random."""

from __future__ import annotations

import datetime
import random
import string
from collections.abc import Callable
from copy import copy
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from pathlib import Path

from stdnum import iban as iban_number
from stdnum import luhn
from stdnum.es import nif
from stdnum.eu import vat
from stdnum.fr import siren

LANGUAGES = ("es", "en", "ca", "gl", "pt", "fr", "de", "it")
_SHARES = (34, 27, 8, 7, 6, 7, 6, 5)
_CENT = Decimal("0.01")
_TRIES = 40  # until check digits are right
_NIF_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"


@lru_cache(maxsize=1)
def _lists() -> dict[tuple[str, str], list[str]]:
    """The lists of ``words.txt``."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in "\n".join(
        Path(__file__).with_name(name).read_text("utf-8") for name in ("words.txt", "names.txt", "parties.txt")
    ).splitlines():
        if line and not line.startswith("#"):
            head, _, words = line.partition(": ")
            key, language = head.split(" ")
            found.setdefault((key, language), []).extend(words.strip().split("|"))
    return found


def listed(key: str, *languages: str) -> list[str]:
    """The alternatives of a list of ``words.txt``, in the first of these languages that has them."""
    return next(words for language in (*languages, "*") if (words := _lists().get((key, language))))


def short_name(name: str) -> str:
    """A company's name without its legal form."""
    return name.split(",", maxsplit=1)[0].split(" S.", maxsplit=1)[0]


def cents(value: Decimal) -> Decimal:
    """The value rounded as invoices round."""
    return value.quantize(_CENT, ROUND_HALF_UP)


class Speaker:
    """Says everything in one language and one way of writing numbers and dates."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.language = rng.choices(LANGUAGES, _SHARES)[0]
        self.second = rng.choice(LANGUAGES) if rng.random() < 0.12 else self.language
        english = self.language == "en"
        self.region = rng.choices(("uk", "us", "my", "eu"), (30, 34, 18, 18))[0] if english else ""
        self.comma = rng.random() < ((0.25 if self.region == "eu" else 0.01) if english else 0.88)
        self.thousands = rng.choice((",", ",", "") if not self.comma else (".", ".", ".", "", " "))
        if self.language == "de" and not self.comma:
            self.thousands = "'"
        self.currency = {"uk": "GBP", "us": "USD", "my": "MYR", "eu": rng.choice(("EUR", "EUR", "CHF", "USD"))}[self.region] if english else (
            "EUR" if rng.random() < 0.95 else rng.choice(("CHF", "USD", "BRL", "PLN"))
        )  # fmt: skip
        sign = {"EUR": "€", "GBP": "£", "USD": "$", "MYR": "RM", "CHF": "CHF", "BRL": "R$", "PLN": "zł"}
        self.sign = rng.choice((sign[self.currency], self.currency, sign[self.currency]))
        before = rng.random() < (0.8 if english else 0.08)
        self.money_form = rng.choice(
            ("{n}", "{s}{n}", "{s}{n}", "{s} {n}") if before else ("{n}", "{n} {s}", "{n} {s}", "{n}{s}")
        )
        self.bare_money = rng.random() < 0.5  # the sign beside totals only
        self.rate_form = rng.choice(("{n}%", "{n} %", "{n}%", "{n},00%", "{n},00 %", "{n}", "{n}.00%"))
        self.minus = rng.choice(("-{n}", "-{n}", "({n})", "{n}-", "- {n}", "−{n}"))
        self.date_form = rng.choice(listed("dateform", "us" if self.region == "us" else "en" if english else "*"))
        self.colon = rng.choice((":", ":", "", "", " :", ".", ""))
        self.upper = rng.random() < 0.15

    def drawing_from(self, rng: random.Random) -> Speaker:
        """The same way of writing, with other words drawn."""
        self.rng = rng
        return self

    def abroad(self) -> Speaker:
        """Somebody of another country, who writes numbers and dates the same way."""
        other = copy(self)
        other.language = other.second = self.rng.choice(LANGUAGES)
        other.region = "uk" if other.language == "en" else ""
        return other

    def say(self, key: str) -> str:
        """One of the list's alternatives, in the paper's language."""
        language = self.second if self.second != self.language and self.rng.random() < 0.25 else self.language
        lists = _lists()
        words = lists.get((key, language)) or lists.get((key, self.language)) or []
        shared = lists.get((key, "*"), [])
        if shared and (not words or self.rng.random() < 0.35):
            words = shared
        if not words:
            words = lists.get((key, "es"), [""])
        text = self.rng.choice(words)
        return text.upper() if self.upper and "{" not in text and self.rng.random() < 0.7 else text

    def label(self, key: str, rate: Decimal | None = None) -> str:
        """A label, perhaps in capitals or with a colon, with its rate."""
        rng = self.rng
        text = self.say(key)
        if "{r}" in text:
            text = (
                text.replace("({r})", "").replace("{r}", "") if rate is None else text.replace("{r}", self.rate(rate))
            )
        elif rate is not None and rng.random() < 0.4:
            text = f"{text} {self.rate(rate)}"
        if rng.random() < 0.1:
            text = text.upper()
        text = " ".join(text.split())
        return text if text[-1:] in ":.%)" or rng.random() < 0.2 else text + self.colon

    def rate(self, rate: Decimal) -> str:
        """A percentage as the paper writes it."""
        plain = f"{rate.normalize():f}"
        form = self.rate_form if rate == rate.to_integral_value() else "{n}%"
        return form.format(n=plain.replace(".", ",") if self.comma else plain).replace(
            ",00", ",00" if self.comma else ".00"
        )

    def number(self, value: Decimal, places: int = 2) -> str:
        """A number as the paper writes it."""
        negative, value = value < 0, abs(value)
        whole, _, part = f"{value:.{places}f}".partition(".")
        if self.thousands:
            groups = []
            while len(whole) > 3:
                groups.append(whole[-3:])
                whole = whole[:-3]
            whole = self.thousands.join([whole, *reversed(groups)])
        text = whole + ("," if self.comma else ".") + part if places else whole
        return self.minus.format(n=text) if negative else text

    def money(self, value: Decimal, *, plain: bool = False) -> str:
        """An amount with its currency's sign, or without."""
        if plain and self.bare_money:
            return self.number(value)
        return self.money_form.format(n=self.number(value), s=self.sign)

    def date(self, day: datetime.date) -> str:
        """A date as the paper writes it."""
        months = _lists()[("month", self.language)]
        month = months[day.month - 1]
        text = day.strftime(self.date_form).format(
            m=month,
            M=month.capitalize(),
            s=month[:3],
            S=month[:3].capitalize(),
            U=month[:3].upper(),
            o=_ordinal(day.day),
        )
        if self.language == "ca" and " de " in text:
            text = text.replace(" de " + month, f" d'{month}" if month[0] in "ao" else " de " + month).replace(
                " de 20", self.rng.choice((" de 20", " del 20"))
            )
        if self.language == "fr" and text.startswith("1 "):
            text = "1er" + text[1:]
        return text

    def person(self) -> str:
        """A person's name."""
        first, last = self.say("given"), self.family()
        if self.rng.random() < 0.2:
            first = self.say("name")
        if self.language in ("es", "ca", "gl", "pt") and self.rng.random() < 0.92:
            last = f"{last} {self.family()}"
        if self.rng.random() < 0.06:
            first = f"{first[0]}."
        kind = self.rng.random()
        if kind < 0.12:
            return f"{last}, {first}"
        return f"{first} {last}"

    def family(self) -> str:
        """A family's name."""
        return self.say("name" if self.rng.random() < 0.4 else "family")

    def city(self) -> str:
        """A place."""
        return self.say("place" if self.rng.random() < 0.3 else "city")

    def company(self) -> str:
        """A company's name, with its legal form or without."""
        rng = self.rng
        made = rng.random()
        if rng.random() < 0.13:
            text = self.say("org")
            if rng.random() < 0.3:
                text = f"{text} {self.say('legal')}"
            return text.upper() if rng.random() < 0.3 else text
        if rng.random() < 0.1:
            text = self.say("body")
            makers: tuple[tuple[str, Callable[[], str]], ...] = (
                ("{a}", lambda: _invented(rng)),
                ("{c}", lambda: self.city().split(",")[0]),
                ("{f}", self.family),
                ("{t}", lambda: self.say("trade")),
                ("{s}", lambda: f"{self.say('street')} {self.say('sname')} {rng.randint(1, 90)}"),
            )
            for mark, maker in makers:
                while mark in text:
                    text = text.replace(mark, maker(), 1)
            return text.upper() if rng.random() < 0.3 else text
        if made < 0.3:
            core = f"{self.say('trade')} {self.family()}"
        elif made < 0.5:
            core = f"{_invented(rng)} {self.say('trade')}"
        elif made < 0.6:
            core = _invented(rng)
        elif made < 0.7:
            core = f"{self.family()} {rng.choice(('&', 'y', 'e', 'and', '-'))} {self.family()}"
        elif made < 0.8:
            core = f"{self.say('trade')} {rng.choice(('de', 'del', 'of', 'La', 'El', '&', 'y'))} {self.say('sname').strip()}"
        elif made < 0.9:
            core = f"{self.say('trade')} {self.say('trade')} {self.city().split(',')[0]}"
        else:
            core = f"{self.say('trade')} {_invented(rng)} {rng.choice(('de', 'y', 'del', ''))} {self.family()} {self.say('trade')}"
        if rng.random() < 0.68:
            core = f"{core}{rng.choice((' ', ', ', ' '))}{self.say('legal')}"
        core = " ".join(core.split())
        return core.upper() if rng.random() < 0.3 else core

    def address(self) -> list[str]:
        """An address on one to four lines."""
        rng = self.rng
        number = rng.randint(1, 240)
        language = self.language
        street, name = self.say("street"), (self.family() if rng.random() < 0.3 else self.say("sname"))
        if language in ("en", "fr"):
            first = f"{number} {name} {street}" if language == "en" else f"{number} {street} {name}"
        elif language == "de":
            first = f"{name}{street} {number}"
        else:
            first = f"{street} {name}{rng.choice((', ', ' ', ' nº ', ', nº '))}{number}"
            if rng.random() < 0.3:
                first += rng.choice((", 2º B", ", bajo", ", 1º izq.", " - Local 3", ", Nave 12", ", 3.º A", ", piso 4"))
        city = self.city()
        post = _postcode(rng, language, self.region)
        place = (
            f"{city} {post}"
            if language == "en" and rng.random() < 0.7
            else f"{post}{rng.choice((' ', ' ', ' - ', ', '))}{city}"
        )
        if self.region == "us":
            number = rng.randint(1, 19999)
            first = f"{number} {rng.choice(('', '', 'N ', 'S ', 'West ', 'E. '))}{name} {rng.choice(('Street', 'St', 'St.', 'Ave', 'Avenue', 'Blvd', 'Road', 'Rd', 'Drive', 'Dr', 'Lane', 'Ln', 'Way', 'Pkwy', 'Court', 'Hwy'))}"
            first += rng.choice(
                ("", "", "", ", Suite {0}", " Suite {0}", ", Ste. {0}", " Apt {0}", ", Unit {0}", " #{0}")
            ).format(rng.randint(1, 900))
            city = city.split(",")[0]
            place = f"{city}{rng.choice((', ', ', ', ' '))}{rng.choice(listed('state', 'us'))}{rng.choice((' ', ' ', ', ', '  '))}{post}"
            if rng.random() < 0.08:
                first = f"P.O. Box {number}"
        elif self.region == "my":
            first = rng.choice(listed("address.my")).format(n=rng.randint(1, 240), s=name, k=rng.randint(1, 12))
            place = f"{post} {city}{rng.choice(('', ', Selangor', ', Johor', ', Selangor Darul Ehsan', ', Wilayah Persekutuan', ', W.P.'))}"
        if language in ("es", "ca", "gl") and rng.random() < 0.4:
            place += f" ({self.city().split(',')[0]})"
        lines = [first, place]
        if rng.random() < 0.12:
            lines.insert(1, rng.choice(listed("park")))
        if rng.random() < 0.2:
            lines.append(self.say("country"))
        joined = rng.random()
        if self.region == "my" and rng.random() < 0.6:
            cut = rng.randint(12, 26)
            text, lines = ", ".join(lines) + rng.choice((".", "", "")), [""]
            for word in text.split():
                lines = [*lines, word] if len(lines[-1]) > cut else [*lines[:-1], f"{lines[-1]} {word}".strip()]
            return [line.upper() for line in lines] if rng.random() < 0.7 else lines
        if joined < 0.3:
            lines = [rng.choice((", ", " - ", " ", ", ", " · ")).join(lines)]
        elif joined < 0.4 and "," in lines[0]:
            lines = [*lines[0].split(", ", 1), *lines[1:]]
        return [line.upper() if self.upper else line for line in lines]

    def tax_id(self, person: bool) -> str:
        """A tax id with right check digits, mostly."""
        return tax_id(self.rng, self.language, person, self.region)

    def phone(self) -> str:
        """A telephone number."""
        rng = self.rng
        form = rng.choice(listed("phone"))
        return _digits(rng, form)

    def web(self, name: str) -> str:
        """A mail address or a site."""
        host = "".join(c for c in name.lower() if c.isascii() and c.isalnum())[:14] + self.rng.choice(
            (".com", ".es", ".net", ".co.uk", ".eu")
        )
        return self.rng.choice((f"info@{host}", f"www.{host}", f"admin@{host}", f"facturas@{host}", host))


def _ordinal(day: int) -> str:
    return f"{day}{'th' if 10 < day < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"


def _digits(rng: random.Random, form: str) -> str:
    return "".join(rng.choice(string.digits) if c == "#" else c for c in form)


def _invented(rng: random.Random) -> str:
    """A word that is in no list."""
    onset, vowel, coda = (
        ("b", "c", "d", "f", "gr", "l", "m", "n", "p", "qu", "r", "s", "t", "tr", "v", "x", "z", "pl", ""),
        "aeioua",
        ("", "", "n", "r", "l", "s", "x", ""),
    )
    word = "".join(rng.choice(onset) + rng.choice(vowel) + rng.choice(coda) for _ in range(rng.randint(2, 3)))
    return rng.choice((word.capitalize(), word.upper(), word.capitalize()))


def _postcode(rng: random.Random, language: str, region: str = "") -> str:
    if region == "us":
        return _digits(rng, rng.choice(("#####", "#####", "#####", "#####-####")))
    if region == "my":
        return _digits(rng, "#####")
    if language == "en":
        return rng.choice(
            (
                _digits(rng, "#####"),
                f"{rng.choice('BLMESWN')}{rng.randint(1, 30)} {rng.randint(1, 9)}{rng.choice('ABDEFGH')}{rng.choice('JLNPQRST')}",
            )
        )
    if language == "pt":
        return _digits(rng, "####-###")
    return f"{rng.randint(1, 52):02d}{rng.randint(1, 999):03d}"


def tax_id(rng: random.Random, language: str, person: bool, region: str = "") -> str:
    """A tax id of a country, with right check digits but for a few."""
    if language in ("es", "ca", "gl"):
        number = _digits(rng, "########") if person else rng.choice("ABBBEFGHJNUV") + _digits(rng, "#######")
        if person:
            text = number + (_NIF_LETTERS[int(number) % 23] if rng.random() < 0.97 else rng.choice(_NIF_LETTERS))
        else:
            text = next((number + c for c in "0123456789" if nif.is_valid(number + c)), number + "0")
            text = text if rng.random() < 0.97 else number + rng.choice(string.digits)
        form = rng.random()
        if form < 0.15:
            text = rng.choice(("ES", "ES", "ES", "ES-", "ES ")) + text
        elif form < 0.25:
            text = f"{text[0]}-{text[1:]}" if text[0].isalpha() else f"{text[:-1]}-{text[-1]}"
        elif form < 0.3 and text[-1].isalpha() and text[0].isdigit():
            text = f"{text[:2]}.{text[2:5]}.{text[5:8]}-{text[8]}"
        elif form < 0.36:
            text = f"{text[0]} {text[1:]}" if text[0].isalpha() else f"{text[:-1]} {text[-1]}"
        elif form < 0.39 and text[0].isalpha():
            text = f"{text[0]}-{text[1:3]}.{text[3:6]}.{text[6:]}"
        return text
    if language == "en":
        if region == "us":
            return _digits(rng, rng.choice(("##-#######", "##-#######", "#########")))
        if region == "my":
            return _digits(rng, rng.choice(listed("taxid.my")))
        return _digits(rng, rng.choice(listed("taxid.en")))
    if language == "pt":
        number = _digits(rng, rng.choice("1235") + "#######")
        check = 11 - sum(int(d) * (9 - i) for i, d in enumerate(number)) % 11
        return rng.choice(("PT", "", "")) + number + str(check if check < 10 else 0)
    if language == "fr":
        number = next(n for n in (_digits(rng, "########") for _ in range(9)))
        number += luhn.calc_check_digit(number)
        return f"FR{(12 + 3 * (int(siren.compact(number)) % 97)) % 97:02d}" + rng.choice(
            (number, f" {number[:3]} {number[3:6]} {number[6:]}")
        )
    if language == "de":
        return "DE" + _digits(rng, "#########")
    number = _digits(rng, "##########")
    return rng.choice(("IT", "", "IT ")) + number + luhn.calc_check_digit(number)


def tax_id_abroad(rng: random.Random) -> str:
    """A tax id of one of many countries, its check digits right where luck has it."""
    form = rng.choice(listed("taxid.abroad"))
    tried = (_digits(rng, form) for _ in range(_TRIES))
    last = ""
    for last in tried:
        if vat.is_valid(last):
            break
    return last


def iban(rng: random.Random, language: str) -> str:
    """An IBAN, in groups or joined."""
    country, form = {
        "en": ("GB", "NWBK##############"),
        "pt": ("PT", "#####################"),
        "fr": ("FR", "#######################"),
        "de": ("DE", "##################"),
        "it": ("IT", "X######################"),
    }.get(language, ("ES", "####################"))
    number = _digits(rng, form)
    check = iban_number.calc_check_digits(f"{country}00{number}")
    text = f"{country}{check}{number}"
    return (
        text
        if rng.random() < 0.3
        else rng.choice((" ", " ", " ", " ", "-", " - ")).join(text[i : i + 4] for i in range(0, len(text), 4))
    )


def document_id(rng: random.Random, year: int, digits: random.Random | None = None) -> str:
    """A document's number in one of many forms.

    Args:
        digits: draws them, where ``rng`` draws the same form again.
    """
    form = rng.choice(listed("idform"))
    text = form.replace("{y}", str(year)).replace("{y2}", str(year)[2:])
    while "{L}" in text:
        text = text.replace("{L}", rng.choice("ABCDEFGIKMNPRSTVX"), 1)
    return _digits(digits or rng, text)
