"""How currencies are written, Spanish and English, and their codes of ISO 4217."""

from __future__ import annotations

import re
from functools import lru_cache

# Form -> code; "" where the word alone does not name one country's money ("pesos"). The first that fits counts.
_FORMS: tuple[tuple[str, str], ...] = (
    (r"€|&euro;|eur(?:os?)?", "EUR"),
    (r"u\.?s\.? ?\$|\$ ?u\.?s\.?d?|usd", "USD"),
    (r"dolares canadienses|canadian dollars?|c\$|cad", "CAD"),
    (r"dolares australianos|australian dollars?|a\$|aud", "AUD"),
    (r"pesos mexicanos|mexican pesos|mx\$|mxn", "MXN"),
    (r"pesos argentinos|ar\$|ars", "ARS"),
    (r"pesos colombianos|cop", "COP"),
    (r"pesos chilenos|clp", "CLP"),
    (r"r\$|brl", "BRL"),
    (r"hk\$|hkd", "HKD"),
    (r"\$|(?:u\.?s\.? )?dollars?|dolar(?:es)?(?: estadounidenses)?", "USD"),
    (r"£|&pound;|gbp|pounds? sterling|libras? esterlinas?|pounds?|libras?", "GBP"),
    (r"swiss francs?|francos? suizos?|chf|sfr\.?", "CHF"),
    (r"¥|jpy|yen(?:es)?", "JPY"),
    (r"rmb|cny|yuan(?:es)?", "CNY"),
    (r"₹|inr|rs\.?|rupees?|rupias?", "INR"),
    (r"pesetas?|ptas?\.?|pts\.?", "ESP"),
    (r"sek|swedish kron(?:a|or)|coronas suecas", "SEK"),
    (r"nok|norwegian kroner?|coronas noruegas", "NOK"),
    (r"dkk|danish kroner?|coronas danesas", "DKK"),
    (r"pln|zlotys?", "PLN"),
    (r"pesos?|francos?|francs|coronas?|bolivares|lempiras", ""),
)
_COMPILED = [(re.compile(form, re.IGNORECASE), code) for form, code in _FORMS]
# Weights, things on heads: "25 de peso", "5 pounds of apples", "3 coronas".
_DOUBTFUL = re.compile(r"pounds?|libras?|coronas?|peso|franco", re.IGNORECASE)

NAMED = "|".join(form for form, _ in _FORMS)  # after a number, in any case of letters
PREFIX = (  # before a number: symbols, and codes in capitals, for "all" and "cop" are words
    r"(?:U\.?S\.? ?\$|MX\$|AR\$|HK\$|[CAR]\$|\$|€|£|¥|₹|&euro;|&pound;"
    r"|EUR|USD|GBP|CHF|JPY|MXN|ARS|COP|CLP|BRL|CAD|AUD|INR|CNY|RMB|HKD|SEK|NOK|DKK|PLN|Rs\.?|eur|usd|gbp)"
)
# What a text must hold, in small letters, to name a currency in words.
STEMS = (
    "eur",
    "€",
    "$",
    "dol",
    "pound",
    "libra",
    "peset",
    "pts",
    "pta",
    "yen",
    "yuan",
    "peso",
    "franc",
    "rup",
    "kron",
    "coron",
)


@lru_cache(maxsize=256)
def code_of(written: str) -> str:
    """The ISO 4217 code of a form that `NAMED` or `PREFIX` found; empty where the word names several currencies."""
    return next(code for form, code in _COMPILED if form.fullmatch(written))


def is_doubtful(written: str) -> bool:
    """Whether the word means something else as often as money."""
    return _DOUBTFUL.fullmatch(written) is not None
