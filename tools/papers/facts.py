"""What papers say: parties, dates, goods and sums, at random."""

from __future__ import annotations

import datetime
import random
from dataclasses import dataclass, field
from decimal import Decimal

from tools.papers.values import Speaker, cents, document_id, iban, listed, tax_id_abroad

_SURCHARGE = {Decimal(21): Decimal("5.2"), Decimal(10): Decimal("1.4"), Decimal(4): Decimal("0.5")}
_ABROAD = 0.06  # of buyers, and of sellers


@dataclass(slots=True)
class Goods:
    """One line of a table."""

    description: str
    code: str
    quantity: Decimal
    unit: str
    price: Decimal
    discount: Decimal
    rate: Decimal
    amount: Decimal
    extra: str = ""


@dataclass(slots=True)
class Facts:
    """What a paper says."""

    kind: str
    vendor: str = ""
    customer: str = ""
    vendor_address: list[str] = field(default_factory=list)
    customer_address: list[str] = field(default_factory=list)
    vendor_id: str = ""
    customer_id: str = ""
    number: str = ""
    day: datetime.date = datetime.date(2026, 1, 1)
    due: datetime.date | None = None
    goods: list[Goods] = field(default_factory=list)
    taxes: list[tuple[Decimal, Decimal, Decimal]] = field(default_factory=list)  # rate, base, amount
    surcharges: list[tuple[Decimal, Decimal]] = field(default_factory=list)
    igic: bool = False
    gross: Decimal = Decimal(0)
    discount: Decimal = Decimal(0)
    discount_rate: Decimal = Decimal(0)
    base: Decimal = Decimal(0)
    tax: Decimal = Decimal(0)
    withheld_rate: Decimal = Decimal(0)
    withheld: Decimal = Decimal(0)
    total: Decimal = Decimal(0)
    paid: Decimal = Decimal(0)
    older: Decimal = Decimal(0)
    iban: str = ""


def facts_of(kind: str, say: Speaker) -> Facts:
    """Everything a paper says, its sums right but for a few."""
    rng = say.rng
    facts = Facts(kind)
    person = rng.random() < 0.2
    facts.vendor = say.person() if person else say.company()
    buyer = rng.random() < (0.7 if kind == "utility" else 0.3)
    facts.customer = say.person() if buyer else say.company()
    facts.vendor_address, facts.customer_address = say.address(), say.address()
    facts.vendor_id, facts.customer_id = say.tax_id(person), say.tax_id(buyer)
    if rng.random() < _ABROAD:
        other = say.abroad()
        facts.customer, facts.customer_address, facts.customer_id = other.company(), other.address(), tax_id_abroad(rng)
    elif rng.random() < _ABROAD:
        other = say.abroad()
        facts.vendor, facts.vendor_address, facts.vendor_id = other.company(), other.address(), tax_id_abroad(rng)
    facts.day = datetime.date(2015, 1, 1) + datetime.timedelta(days=rng.randrange(4600))
    facts.number = document_id(rng, facts.day.year)
    if rng.random() < 0.55:
        facts.due = facts.day + datetime.timedelta(days=rng.choice((0, 7, 14, 15, 20, 30, 30, 45, 60, 90)))
    facts.iban = iban(rng, say.language)
    facts.igic = say.language == "es" and rng.random() < 0.05
    keys = ("igic",) if facts.igic else (say.region, say.language, "es")
    rates = [Decimal(rate) for rate in listed("rate", *keys)]
    if say.region == "us":
        rates = [rng.choice(rates)]
    chosen = rng.sample(rates, min(len(rates), rng.choices((1, 2, 3, 4), (68, 20, 9, 3))[0]))
    count = min(
        rng.choices((1, 2, 3, 5, 8, 12, 18, 26), (20, 18, 18, 16, 12, 8, 5, 3))[0], 8 if kind == "simplified" else 26
    )
    large = rng.choice((8, 60, 400, 3000))
    if kind == "simplified" and rng.random() < 0.7:
        large = rng.choice((2, 5, 12))
    included = kind == "simplified" and rng.random() < 0.75
    for _ in range(count):
        facts.goods.append(_goods(say, rng, rng.choice(chosen), large))
    for goods in facts.goods[: len(set(chosen))]:  # each rate is on a line
        goods.rate = chosen[facts.goods.index(goods) % len(chosen)]
    _sums(facts, rng, included)
    if kind == "credit" and rng.random() < 0.5:
        _negative(facts)
    if rng.random() < 0.05:
        wrong = rng.choice(("total", "tax", "base"))
        by = rng.choice((Decimal("0.10"), Decimal(9), Decimal("-1.00"), Decimal(90)))
        setattr(facts, wrong, getattr(facts, wrong) + by)
    return facts


def _goods(say: Speaker, rng: random.Random, rate: Decimal, large: int) -> Goods:
    quantity = (
        Decimal(rng.choice((1, 1, 1, 2, 3, 4, 5, 10, 12, 25, 100) if large > 12 else (1, 1, 1, 1, 2, 2, 3, 6)))
        if rng.random() < 0.85
        else Decimal(rng.randint(5, 900)) / 10
    )
    price = cents(Decimal(rng.lognormvariate(0, 0.9) * large)) + (Decimal(0) if rng.random() < 0.6 else Decimal("0.5"))
    price = max(price, Decimal("0.05"))
    discount = Decimal(rng.choice((5, 10, 15, 20, 50))) if rng.random() < 0.12 else Decimal(0)
    description = say.say("goods")
    if rng.random() < 0.35:
        description += " " + say.say("extra")
    if rng.random() < 0.15:
        description += f" {rng.choice('ABXZ')}{rng.randint(10, 999)}"
    code = document_id(rng, 2026).replace(" ", "")[:9]
    extra = (
        say.say("extra") + (" " + say.say("prose")[:40] if rng.random() < 0.4 else "") if rng.random() < 0.15 else ""
    )
    amount = cents(quantity * price * (100 - discount) / 100)
    return Goods(description, code, quantity, say.say("units"), price, discount, rate, amount, extra)


def sum_up(facts: Facts, rng: random.Random, *, plain: bool = False) -> None:
    """Make the sums anew, after goods were changed.

    Args:
        plain: without discount, surcharge, withholding, payment and older balance.
    """
    facts.taxes, facts.surcharges = [], []
    for name in ("discount", "discount_rate", "withheld_rate", "withheld", "paid", "older"):
        setattr(facts, name, Decimal(0))
    _sums(facts, _Never(rng) if plain else rng, included=False)


class _Never(random.Random):
    """Chances that never come; choices as another draws them."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.getrandbits = rng.getrandbits  # type: ignore[method-assign]

    def random(self) -> float:
        """Beyond every share."""
        return 1.0


def _sums(facts: Facts, rng: random.Random, included: bool) -> None:
    by_rate: dict[Decimal, Decimal] = {}
    for goods in facts.goods:
        by_rate[goods.rate] = by_rate.get(goods.rate, Decimal(0)) + goods.amount
    facts.gross = sum(by_rate.values(), Decimal(0))
    if rng.random() < 0.1:
        facts.discount_rate = Decimal(rng.choice((2, 3, 5, 10, 20)))
        by_rate = {rate: amount - cents(amount * facts.discount_rate / 100) for rate, amount in by_rate.items()}
        facts.discount = facts.gross - sum(by_rate.values())
    for rate, amount in by_rate.items():
        base = cents(amount * 100 / (100 + rate)) if included else amount
        facts.taxes.append((rate, base, amount - base if included else cents(base * rate / 100)))
    facts.base = sum((base for _, base, _ in facts.taxes), Decimal(0))
    facts.tax = sum((tax for _, _, tax in facts.taxes), Decimal(0))
    if (
        not facts.igic
        and facts.kind == "invoice"
        and rng.random() < 0.05
        and all(rate in _SURCHARGE for rate, _, _ in facts.taxes)
    ):
        facts.surcharges = [(_SURCHARGE[rate], cents(base * _SURCHARGE[rate] / 100)) for rate, base, _ in facts.taxes]
    if facts.kind in ("invoice", "credit", "proforma", "quote") and rng.random() < 0.16:
        facts.withheld_rate = Decimal(rng.choice((15, 15, 7, 19, 24, 2, 1, 20)))
        facts.withheld = cents(facts.base * facts.withheld_rate / 100)
    facts.total = facts.base + facts.tax + sum((amount for _, amount in facts.surcharges), Decimal(0))
    if rng.random() < 0.07:
        facts.paid = cents(facts.total * Decimal(rng.choice((10, 20, 25, 30, 50, 100))) / 100)
    if rng.random() < (0.15 if facts.kind == "utility" else 0.02):
        facts.older = cents(facts.total * Decimal(rng.randint(20, 150)) / 100)


def _negative(facts: Facts) -> None:
    for goods in facts.goods:
        goods.amount, goods.quantity = -goods.amount, -goods.quantity
    facts.taxes = [(rate, -base, -tax) for rate, base, tax in facts.taxes]
    facts.surcharges = [(rate, -amount) for rate, amount in facts.surcharges]
    for name in ("gross", "discount", "base", "tax", "withheld", "total", "paid", "older"):
        setattr(facts, name, -getattr(facts, name))
