"""Designs that were made after the extraction was: nobody who wrote it had a report on them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from html import escape
from random import Random

from benchmarks.fields_designs import goods
from benchmarks.fields_designs.formats import BRITISH, SPANISH, long_date, money, number, short
from benchmarks.fields_designs.identities import iban, in_fours
from benchmarks.fields_designs.invoice import Invoice, Printed, Sheet, Terms, settle, truth_of
from benchmarks.fields_designs.markup import any_day, any_number, grid, sheet, sums
from benchmarks.fields_designs.parties import foreign_pair, spanish_company, spanish_person
from benchmarks.fields_designs.spanish import eur, num, percent


def side_bar(random: Random) -> Sheet:
    """A narrow column at the left has all data, labels in small capitals above values; goods at the right."""
    bill = settle(random, goods.lines_of(random, goods.WORKSHOP, random.randrange(3, 7), most=5), Terms())
    day = any_day(random)
    due = day + timedelta(days=30)
    seller, buyer = spanish_company(random), spanish_company(random)
    invoice = Invoice(seller, buyer, any_number(random, day), day, bill, due, iban(random))
    facts = [("NÚMERO", invoice.number), ("EMITIDA", long_date(day, "es")), ("PAGAR ANTES DE", long_date(due, "es"))]
    facts += [("PARA", buyer.name), ("", buyer.street), ("", buyer.town), ("", buyer.tax_id)]
    facts += [("DE", seller.name), ("", seller.street), ("", seller.town), ("", seller.tax_id)]
    facts += [("CUENTA", in_fours(invoice.account))]
    column = "".join(f"<div class=small>{label}</div><div>{escape(value)}</div>" for label, value in facts)
    lines = [
        [line.description, f"{short(line.quantity, SPANISH)} x {num(line.unit_price)}", num(line.amount)]
        for line in bill.lines
    ]
    totals = [("Subtotal", eur(bill.sub_total)), (f"IVA {percent(bill.taxes[0].rate)}", eur(bill.total_tax))]
    body = f"""<div class=two><div style="flex:none;width:32%">{column}</div>
    <div><h1>Factura</h1>{grid(lines, (), "lined", "lrr")}<br>{
        sums([*totals, ("Total", eur(bill.total))], "60%")
    }</div></div>"""
    return Sheet(sheet(body, font=2, points=9.5), truth_of(invoice, Printed(), language="es"))


def table_only(random: Random) -> Sheet:
    """A spreadsheet printed: every datum a cell of one grid, labels left, dates with month names, RE."""
    terms = Terms(surcharge=random.random() < 0.5, tax_rate=Decimal(21))
    bill = settle(random, goods.lines_of(random, goods.FARM, random.randrange(2, 6), most=9), terms)
    day = any_day(random)
    seller, buyer = spanish_person(random), spanish_person(random)
    invoice = Invoice(seller, buyer, any_number(random, day), day, bill)
    rows = [["EMISOR", seller.name, "NIF", seller.tax_id, "", ""], ["Domicilio", seller.address, "", "", "", ""]]
    rows += [["RECEPTOR", buyer.name, "NIF", buyer.tax_id, "", ""], ["Domicilio", buyer.address, "", "", "", ""]]
    rows += [["Nº FRA.", invoice.number, "F. EXPED.", f"{day:%d.%m.%Y}", "", ""], [""] * 6]
    rows += [["Cód.", "Denominación", "Kg/Ud", "Pr. ud.", "", "Valor"]]
    rows += [
        [line.code, line.description, short(line.quantity, SPANISH), num(line.unit_price), "", num(line.amount)]
        for line in bill.lines
    ]
    rows += [["", "", "", "", "B. imponible", num(bill.sub_total)]]
    rows += [["", "", "", "", f"{row.kind} {percent(row.rate)}", num(row.amount)] for row in bill.taxes]
    rows += [["", "", "", "", "A PAGAR", eur(bill.total)]]
    printed = Printed(optional=("AmountDue", "TotalTax") if len(bill.taxes) > 1 else ("AmountDue",))
    return Sheet(sheet(grid(rows, (), "ruled", "llrrrr")), truth_of(invoice, printed, language="es"))


def agency(random: Random) -> Sheet:
    """A British agency: a headline with the sum, dates with ordinals, details at the foot in three columns."""
    bill = settle(
        random,
        goods.lines_of(random, goods.BRITISH, random.randrange(2, 5), most=4),
        Terms(tax="VAT", tax_rate=Decimal(20)),
    )
    day = any_day(random)
    due = day + timedelta(days=28)
    seller, buyer = foreign_pair(random, "GB")
    invoice = Invoice(seller, buyer, any_number(random, day), day, bill, due, iban(random, "GB"), "GBP")
    rows = [[line.description, money(line.amount, BRITISH)] for line in bill.lines]
    totals = [("Net", number(bill.sub_total, BRITISH)), ("VAT (20%)", number(bill.total_tax, BRITISH))]
    body = f"""<div style="font-size:24pt">{escape(seller.name.rsplit(" ", 1)[0].lower())}</div><br>
    <p>Hello {escape(buyer.name)},</p>
    <p>here is our invoice {escape(invoice.number)} of {day.day}{_ordinal(day.day)} {day:%B %Y}
    for the work listed below. Please settle it by {due.day}{_ordinal(due.day)} {due:%B %Y}.</p><br>
    {grid(rows, (), "lined", "lr")}<br>{sums([*totals, ("To pay", money(bill.total, BRITISH))])}<br><br><hr>
    <div class=two style="font-size:80%"><div>{escape(seller.name)}<br>{escape(seller.street)}<br>
    {escape(seller.town)}</div>
    <div>Company no. {random.randrange(10**6, 10**7):08d}<br>VAT no. {seller.tax_id}</div>
    <div>IBAN {in_fours(invoice.account)}<br>hello@agency.example</div></div>"""
    printed = Printed(columns=("Description", "Amount"), absent=("CustomerTaxId",))
    return Sheet(sheet(body, points=10.5), truth_of(invoice, printed, language="en"))


def clinic_receipt(random: Random) -> Sheet:
    """A private clinic: capitals, the patient first, the sign before the amounts, the issuer at the foot."""
    bill = settle(random, goods.lines_of(random, goods.CARE, random.randrange(1, 4), most=2), Terms())
    day = any_day(random)
    seller, buyer = spanish_company(random, "clinic"), spanish_person(random)
    invoice = Invoice(seller, buyer, f"{day.year}{random.randrange(10**4):05d}", day, bill)
    surname, given = buyer.name.split(" ", 1)[1].upper(), buyer.name.split(" ", 1)[0].upper()
    rows = [[str(line.quantity), line.description, f"€ {num(line.amount)}"] for line in bill.lines]
    body = f"""<div class=c><b>FACTURA</b></div><p>{surname}, {given}<br>D.N.I. {buyer.tax_id}<br>
    {escape(buyer.address)}</p>
    <p class=r>Ref. factura: {invoice.number}<br>Expedida: {day:%d/%m/%Y}</p>{
        grid(rows, ("Nº", "Acto", "Honorarios"), "lined", "llr")
    }
    <p class=r>Suma total: € {num(bill.total)}</p><p class=small>IVA exento, art. 20.1.3 LIVA.</p><br><br><hr>
    <div class="c small">{escape(seller.name)}<br>
    {escape(seller.street)} | {escape(seller.town)} | CIF {seller.tax_id} | www.clinica.example</div>"""
    printed = Printed(
        columns=("Description", "Quantity", "Amount"),
        optional=("AmountDue", "SubTotal"),
        accept={"CustomerName": [f"{surname}, {given}", f"{surname} {given}"]},
    )
    return Sheet(sheet(body, font=1, points=10), truth_of(invoice, printed, language="es"))


def _ordinal(day: int) -> str:
    return "th" if 10 < day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
