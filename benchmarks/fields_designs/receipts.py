"""Receipts on narrow paper: a bar and a shop in Spain, a diner in the United States."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from html import escape
from random import Random

from benchmarks.fields_designs import goods
from benchmarks.fields_designs.formats import AMERICAN, cents, money, short
from benchmarks.fields_designs.invoice import Invoice, Printed, Sheet, Terms, settle, truth_of
from benchmarks.fields_designs.markup import any_day, grid, sheet
from benchmarks.fields_designs.parties import foreign_company, spanish_company
from benchmarks.fields_designs.spanish import eur, num, percent

_LINES = ("Description", "Amount")


def _clock(random: Random) -> str:
    return f"{random.randrange(8, 23):02d}:{random.randrange(60):02d}"


def bar(random: Random) -> Sheet:
    """58 mm: quantity in front, unit price, tax included, one rate in one line."""
    bill = settle(random, goods.lines_of(random, goods.BAR, random.randrange(2, 7), most=4), Terms(tax_included=True))
    day = any_day(random)
    invoice = Invoice(
        spanish_company(random, "bar"), None, f"{random.randrange(1, 5)}-{random.randrange(1000, 99999)}", day, bill
    )
    vendor, row = invoice.vendor, bill.taxes[0]
    rows = [[str(line.quantity), line.description, num(line.unit_price), num(line.amount)] for line in bill.lines]
    body = f"""<div class=c><b>{escape(vendor.name)}</b><br>{escape(vendor.street)}<br>{escape(vendor.town)}<br>
    N.I.F. {vendor.tax_id}</div>
    <p>Fra. simplificada: {invoice.number}<br>{day:%d/%m/%Y} {_clock(random)}  Mesa {random.randrange(1, 30)}</p>
    {grid(rows, ["Ud", "Artículo", "PVP", "Total"], "", "llrr")}
    <p class=r style="font-size:11pt"><b>TOTAL {eur(bill.total)}</b></p>
    <p class=small>Base {num(row.base)}  IVA {percent(row.rate)} {num(row.amount)}</p>
    <p class=c>¡Hasta pronto!</p>"""
    return Sheet(
        sheet(body, size="58mm 150mm", margin="3mm", points=7),
        truth_of(invoice, Printed(), language="es", doc_type="receipt"),
    )


def shop(random: Random) -> Sheet:
    """80 mm: two lines an article in places, a table of rates, cash and change."""
    bill = settle(random, goods.lines_of(random, goods.SHOP, random.randrange(3, 8), most=3), Terms(tax_included=True))
    day = any_day(random)
    invoice = Invoice(spanish_company(random, "shop"), None, f"T{random.randrange(10**5, 10**6)}", day, bill)
    vendor = invoice.vendor
    paid = (bill.total // 20 + 1) * 20
    lines = "".join(
        f"<tr><td colspan=2>{escape(line.description)}</td></tr>"
        f"<tr><td>&nbsp; {line.quantity} x {num(line.unit_price)}</td><td class=r>{num(line.amount)}</td></tr>"
        if line.quantity > 1
        else f"<tr><td>{escape(line.description)}</td><td class=r>{num(line.amount)}</td></tr>"
        for line in bill.lines
    )
    rates = [[percent(row.rate), num(row.base), num(row.amount)] for row in bill.taxes]
    body = f"""<p><b>{escape(vendor.name)}</b><br>CIF/NIF: {vendor.tax_id}<br>
    {escape(vendor.street)}, {escape(vendor.town)}</p><hr>
    <p>FACTURA SIMPLIFICADA {invoice.number}<br>
    FECHA {day:%d-%m-%Y} HORA {_clock(random)} LE ATENDIÓ: {random.randrange(1, 9)}</p><hr><table>{lines}</table>
    <hr>
    <table><tr><td><b>TOTAL EUROS</b></td><td class=r><b>{num(bill.total)}</b></td></tr><tr><td>EFECTIVO</td>
    <td class=r>{num(paid)}</td></tr><tr><td>CAMBIO</td><td class=r>{num(paid - bill.total)}</td></tr></table><br>
    {grid(rates, ["IVA", "Base imp.", "Cuota"], "", "rrr")}
    <p class=small>Precios con IVA incluido. Conserve este tique.</p>"""
    printed = Printed(
        columns=_LINES, optional=("AmountDue", "SubTotal", "TotalTax") if len(rates) > 1 else ("AmountDue",)
    )
    return Sheet(
        sheet(body, size="80mm 190mm", margin="4mm", points=8, font=2),
        truth_of(invoice, printed, language="es", doc_type="receipt"),
    )


def diner(random: Random) -> Sheet:
    """80 mm: American, sales tax on top, tip lines left blank or filled."""
    rate = Decimal(random.choice(("6.5", "8", "7.25")))
    bill = settle(
        random,
        goods.lines_of(random, goods.DINER, random.randrange(2, 6), most=3),
        Terms(tax="Sales tax", tax_rate=rate),
    )
    day = any_day(random)
    invoice = Invoice(
        replace(
            foreign_company(random, "US"),
            name=random.choice(("The Brass Kettle", "Luanne's Diner", "Cedar Grill & Tap")),
        ),
        None,
        str(random.randrange(100, 9999)),
        day,
        bill,
        currency="USD",
    )
    vendor = invoice.vendor
    rows = [[f"{line.quantity} {line.description}", money(line.amount, AMERICAN)] for line in bill.lines]
    tip = cents(bill.sub_total * Decimal("0.18"))
    body = f"""<div class=c><h1>{escape(vendor.name)}</h1>{escape(vendor.street)}<br>{escape(vendor.town)}</div>
    <p>Server: {random.choice(("Amy", "Joel", "Tess"))} &nbsp; Check #{invoice.number}<br>
    {day:%m/%d/%Y} {random.randrange(1, 12)}:{random.randrange(10, 60)} PM</p>
    {grid(rows, (), "", "lr")}<hr><table><tr><td>Subtotal</td><td class=r>{
        money(bill.sub_total, AMERICAN)
    }</td></tr><tr><td>Tax {short(rate, AMERICAN)}%</td><td class=r>{money(bill.total_tax, AMERICAN)}</td></tr>
    <tr><td><b>Total</b></td><td class=r><b>{money(bill.total, AMERICAN)}</b></td></tr></table>
    <p class=small>Suggested gratuity 18%: {money(tip, AMERICAN)}<br>Tip ________ Signature ____________</p>"""
    printed = Printed(columns=("Description", "Quantity", "Amount"))
    return Sheet(
        sheet(body, size="80mm 170mm", margin="5mm", points=8.5),
        truth_of(invoice, printed, language="en", doc_type="receipt"),
    )
