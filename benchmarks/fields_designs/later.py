"""Papers of small offices and common programs, made after the second round of the extraction."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from html import escape
from random import Random

from benchmarks.fields_designs import goods
from benchmarks.fields_designs.formats import SPANISH, long_date, short
from benchmarks.fields_designs.identities import cif, iban, in_fours
from benchmarks.fields_designs.invoice import Invoice, Line, Printed, Sheet, Terms, settle, truth_of
from benchmarks.fields_designs.markup import any_day, any_number, boxes, grid, sheet, sums
from benchmarks.fields_designs.parties import (
    Party,
    canary_company,
    spanish_company,
    spanish_person,
)
from benchmarks.fields_designs.spanish import eur, num, percent

_MONTHS = ["ene", "feb", "mar", "abr", "may", "jun", "jul", "ago", "sep", "oct", "nov", "dic"]


def accounting_program(random: Random) -> Sheet:
    """An old program on plain paper: unlabelled window of the buyer, his number in a strip, empty rows of rates."""
    bill = settle(
        random, goods.lines_of(random, goods.FARM, 5, discounted=True), Terms(surcharge=random.random() < 0.5)
    )
    day = any_day(random)
    due = day + timedelta(days=30)
    seller, buyer = spanish_company(random), spanish_person(random)
    invoice = Invoice(seller, buyer, f"{random.randrange(1, 9000):06d}", day, bill, due, iban(random))
    lines = [
        [line.code, line.description, num(line.quantity), num(line.unit_price, 3), num(line.discount), num(line.amount)]
        for line in bill.lines
    ]
    extra = {row.base: row for row in bill.taxes if row.kind == "RE"}
    rates = [
        [num(row.base), num(row.rate), num(row.amount)]
        + ([num(extra[row.base].rate), num(extra[row.base].amount)] if extra else ["", ""])
        for row in bill.taxes
        if row.kind == "IVA"
    ]
    rates += [["", "", "", "", ""]] * (3 - len(rates))
    strip = [
        ("FACTURA", invoice.number),
        ("FECHA", f"{day:%d/%m/%y}"),
        ("CLIENTE", f"4300{random.randrange(9999):05d}"),
    ]
    strip += [("N.I.F.", buyer.tax_id), ("AGENTE", f"{random.randrange(1, 9)}"), ("PÁG.", "1")]
    code, town = buyer.town.split(" ", 1)
    body = f"""<div class=two><div>{escape(seller.name)}<br>{escape(seller.street)}<br>{escape(seller.town)}<br>
    C.I.F.: {seller.tax_id[0]}-{seller.tax_id[1:]}<br>Telf. 9{random.randrange(10**7, 10**8)}</div>
    <div class=box>{escape(buyer.name.upper())}<br>{escape(buyer.street)}<br>{code} - {escape(town.upper())}</div></div>
    <br>{boxes(strip)}<br>
    {grid(lines, ["Artículo", "Descripción", "Cantidad", "Precio", "%Dto.", "Importe"], "shade", "llrrrr")}
    <br><br><br>{grid(rates, ["BASE", "% I.V.A.", "IMPORTE IVA", "% R.E.", "IMPORTE R.E."], "ruled", "rrrrr")}
    <div class="r b" style="font-size:120%">TOTAL FACTURA EUROS: {num(bill.total)}</div><br>
    <div>Forma de pago: RECIBO A 30 DÍAS<br>Vencimientos: {due:%d/%m/%y} ... {num(bill.total)}<br>
    Domiciliación: {invoice.account}</div>
    <p class="small c">Inscrita en el Registro Mercantil, tomo {random.randrange(900, 4000)}, folio 12, hoja 4531</p>"""
    optional = ("AmountDue", "SubTotal", "TotalTax") if len(bill.taxes) > 1 else ("AmountDue",)
    printed = Printed(optional=optional, accept={"CustomerName": [buyer.name.upper()]})
    return Sheet(sheet(body), truth_of(invoice, printed, language="es"))


def cloud_program(random: Random) -> Sheet:
    """A web program: much space, grey labels, a second line under each concept, the seller only beside the logo."""
    rate = Decimal(random.choice((15, 7)))
    bill = settle(
        random, goods.lines_of(random, goods.STUDIO, random.randrange(2, 5), most=6), Terms("IVA", False, rate)
    )
    day = any_day(random)
    due = day + timedelta(days=15)
    seller, buyer = spanish_person(random), spanish_company(random)
    invoice = Invoice(seller, buyer, f"F{day:%y}{random.randrange(1, 900):04d}", day, bill, due, iban(random))
    rows = "".join(
        f"<tr><td>{escape(line.description)}<div class=small style='color:#888'>Según presupuesto aceptado</div></td>"
        f"<td class=r>{eur(line.unit_price)}</td><td class=r>{line.quantity}</td>"
        f"<td class=r>{percent(line.rate)}</td><td class=r>{eur(line.amount)}</td></tr>"
        for line in bill.lines
    )
    totals = [("BASE IMPONIBLE", eur(bill.sub_total)), (f"IVA {percent(bill.taxes[0].rate)}", eur(bill.total_tax))]
    totals += [(f"IRPF -{percent(rate)}", eur(-bill.withholding)), ("TOTAL", eur(bill.payable))]
    body = f"""<div class=two><div style="font-size:30pt;color:#77a">{seller.name[0]}{seller.name.split()[1][0]}</div>
    <div class=r><b>{escape(seller.name)}</b><br>{escape(seller.street)}<br>{escape(seller.town)}, España<br>
    {seller.tax_id}<br>hola@estudio.example</div></div><br>
    <h1>Factura</h1><div class=two><div><span style="color:#888">Número #</span><br>{invoice.number}<br><br>
    <span style="color:#888">Fecha</span><br>{day:%d/%m/%Y}<br><br><span style="color:#888">Vence el</span><br>
    {due:%d/%m/%Y}</div><div><b>{escape(buyer.name)}</b><br>{buyer.tax_id}<br>{escape(buyer.street)}<br>
    {escape(buyer.town)}, España</div></div><br>
    <table class=lined><tr><th>CONCEPTO</th><th class=r>PRECIO</th><th class=r>UNIDADES</th><th class=r>IVA</th>
    <th class=r>SUBTOTAL</th></tr>{rows}</table><br>{sums(totals)}<br>
    <p><b>Condiciones de pago</b><br>
    Pagar por transferencia al siguiente número de cuenta: {in_fours(invoice.account)}</p>"""
    return Sheet(sheet(body, points=10), truth_of(invoice, Printed(optional=()), language="es"))


def filled_form(random: Random) -> Sheet:
    """A stationer's printed pad filled in by a typewriter: dotted lines, the date in three cells, empty rows."""
    bill = settle(random, goods.lines_of(random, goods.BUILDING, random.randrange(2, 5), most=9), Terms())
    day = any_day(random)
    seller, buyer = spanish_person(random), spanish_person(random)
    invoice = Invoice(seller, buyer, f"{random.randrange(4, 600):04d}", day, bill)
    code, town = buyer.town.split(" ", 1)
    lines = [[num(line.quantity), line.description, num(line.unit_price), num(line.amount)] for line in bill.lines] + [
        [""] * 4
    ] * 6
    facts = [("D./Dña.", buyer.name), ("Domicilio", buyer.street), ("Población", town), ("C.P.", code)]
    facts += [("N.I.F./C.I.F.", buyer.tax_id)]
    dotted = "".join(
        f'<div>{label} <span style="border-bottom:1px dotted #555">&nbsp;&nbsp;{escape(value)}&nbsp;&nbsp;</span></div>'
        for label, value in facts
    )
    date_cells = boxes([("Día", f"{day.day}"), ("Mes", f"{day.month}"), ("Año", f"{day.year}")])
    totals = [("SUMA", num(bill.sub_total)), (f"I.V.A. {short(bill.taxes[0].rate, SPANISH)} %", num(bill.total_tax))]
    body = f"""<div class=two><div class=box><b>{escape(seller.name)}</b><br>ALBAÑILERÍA EN GENERAL<br>
    {escape(seller.street)}<br>{escape(seller.town)}<br>N.I.F. {seller.tax_id}</div>
    <div><h1>FACTURA N.º {invoice.number}</h1><div style="width:60%">{date_cells}</div></div></div><br>
    <div class=box>{dotted}</div><br>
    {grid(lines, ["CANTIDAD", "CONCEPTO", "PRECIO", "IMPORTE"], "ruled", "rlrr")}
    {sums([*totals, ("TOTAL EUROS", num(bill.total))], "40%", "ruled")}<p>Recibí (firma y sello)</p>"""
    return Sheet(sheet(body, font=1, points=10), truth_of(invoice, Printed(), language="es"))


def notary(random: Random) -> Sheet:
    """Fees by the tariff: references of the deed, withholding, stamped paper beyond the invoice."""
    spent = Decimal(str(round(random.uniform(8, 90), 2)))
    terms = Terms(withholding_rate=Decimal(15), disbursements=spent, tax_rate=Decimal(21))
    bill = settle(random, goods.lines_of(random, goods.NOTARY, random.randrange(2, 5), most=1), terms)
    day = any_day(random)
    seller, buyer = spanish_person(random), spanish_company(random)
    invoice = Invoice(seller, buyer, f"{day.year}/{random.randrange(100, 4000)}", day, bill, None, iban(random))
    rows = [[line.description, num(line.amount)] for line in bill.lines]
    totals = [("Suma de derechos (base)", num(bill.sub_total)), ("21% I.V.A.", num(bill.total_tax))]
    totals += [("Total minuta", num(bill.total)), ("15% I.R.P.F. a deducir", num(-bill.withholding))]
    totals += [("Suplidos: papel timbrado", num(bill.disbursements)), ("Líquido a percibir", eur(bill.payable))]
    body = f"""<div class=c><b style="font-size:14pt">{escape(seller.name)}</b><br>NOTARIO<br>
    {escape(seller.street)} - {escape(seller.town)}<br>N.I.F. {seller.tax_id}</div><hr>
    <div class=two><div>MINUTA DE HONORARIOS<br>Real Decreto 1426/1989, de 17 de noviembre</div>
    <div>Factura: {invoice.number}<br>Fecha: {long_date(day, "es")}</div></div>
    <p>Protocolo n.º {random.randrange(100, 3000)} &nbsp; Asunto: compraventa &nbsp; Cuantía: {
        num(Decimal(random.randrange(50, 400)) * 1000)
    } €</p>
    <p>Obligado al pago: {escape(buyer.name)}, con C.I.F. {buyer.tax_id}, {escape(buyer.address)}</p><br>
    {grid(rows, ["Arancel", "Euros"], "lined", "lr")}<br>{sums(totals, "55%")}
    <p>Ingreso en {in_fours(invoice.account)}</p>"""
    before = [bill.payable, bill.total + bill.disbursements, bill.total - bill.withholding]
    printed = Printed(
        ("Description", "Amount"), (), one_total=False, accept={"InvoiceTotal": [str(value) for value in before]}
    )
    return Sheet(sheet(body, font=1, points=9.5), truth_of(invoice, printed, language="es"))


def garage(random: Random) -> Sheet:
    """A garage with a tax address and a workshop elsewhere; the car's data; work and parts added up apart."""
    bill = settle(random, goods.lines_of(random, goods.WORKSHOP, random.randrange(3, 6), most=3, halves=True), Terms())
    day = any_day(random)
    seller, buyer, other = spanish_company(random, "workshop"), spanish_person(random), spanish_person(random)
    invoice = Invoice(seller, buyer, f"TA{day:%y}-{random.randrange(20, 4000)}", day, bill)
    labour = sum((line.amount for line in bill.lines[:1]), Decimal(0))
    lines = [
        [line.description, short(line.quantity, SPANISH), num(line.unit_price), num(line.amount)] for line in bill.lines
    ]
    car = [
        ("Matrícula", f"{random.randrange(1000, 9999)} KLM"),
        ("Marca y modelo", "Seat León"),
        ("Bastidor", "VSSZZZ5FZHR012345"),
    ]
    car += [
        ("Km", num(Decimal(random.randrange(20000, 180000)), 0)),
        ("Entrada", f"{day - timedelta(days=2):%d/%m/%Y}"),
    ]
    totals = [("Total mano de obra", num(labour)), ("Total recambios", num(bill.gross - labour))]
    totals += [
        ("Base imponible", num(bill.sub_total)),
        ("21% IVA", num(bill.total_tax)),
        ("TOTAL A PAGAR", eur(bill.total)),
    ]
    body = f"""<h1>{escape(seller.name)}</h1><div class="two small"><div>Domicilio fiscal: {escape(seller.address)}<br>
    CIF {seller.tax_id}</div><div>Taller: {escape(other.address)}<br>Tel. cita previa 9{
        random.randrange(10**7, 10**8)
    }</div></div>
    <hr><div class=two><div>Cliente: {escape(buyer.name)}<br>DNI: {buyer.tax_id}<br>
    Dirección: {escape(buyer.address)}</div>
    <div>Factura nº: {invoice.number}<br>Fecha factura: {day:%d/%m/%Y}<br>
    Orden de reparación: OR-{random.randrange(99, 9999)}</div>
    </div><br>{boxes(car)}<br>{grid(lines, ["Operación / recambio", "Cant.", "Precio", "Importe"], "lined", "lrrr")}<br>
    {sums(totals)}<p class=small>Garantía de 3 meses o 2.000 km. Conforme el cliente:</p>"""
    accept = {"VendorAddress": [other.address]}
    return Sheet(sheet(body, points=8.5), truth_of(invoice, Printed(accept=accept), language="es"))


def restaurant(random: Random) -> Sheet:
    """A restaurant's slip in capitals with the company's data that wants the tax back."""
    bill = settle(random, goods.lines_of(random, goods.MEALS, random.randrange(3, 7), most=4), Terms(tax_included=True))
    day = any_day(random)
    seller, buyer = spanish_company(random, "bar"), spanish_company(random)
    invoice = Invoice(seller, buyer, f"{random.choice('AFT')}-{day:%y}-{random.randrange(100, 30000)}", day, bill)
    row = bill.taxes[0]
    lines = [[str(line.quantity), line.description, num(line.unit_price), num(line.amount)] for line in bill.lines]
    body = f"""<div class=c>*** {escape(seller.name.upper())} ***<br>{escape(seller.street)}<br>
    {escape(seller.town)}<br>
    CIF: {seller.tax_id}  TLF: 9{random.randrange(10**7, 10**8)}</div><hr>FACTURA SIMPLIF. {invoice.number}<br>
    FECHA {day:%d-%m-%Y} HORA 15:{random.randrange(10, 59)}<br>MESA {random.randrange(1, 40)} COMENSALES {
        random.randrange(1, 9)
    }
    CAMARERO: NEREA<hr>{grid(lines, ["UDS", "DESCRIPCION", "PVP", "IMPTE"], "", "rlrr")}<hr>
    <div class="r b">TOTAL EUR {num(bill.total)}</div>
    <div class=r>BASE {num(row.base)} + IVA {percent(row.rate)} {num(row.amount)}</div>
    <div class=r>TARJETA {num(bill.total)}</div><hr>FACTURAR A:<br>{escape(buyer.name)}<br>{buyer.tax_id}<br>
    {escape(buyer.street)}<br>{escape(buyer.town)}<div class=c>GRACIAS POR SU VISITA</div>"""
    accept = {"VendorName": [seller.name.upper()]}
    truth = truth_of(invoice, Printed(accept=accept), language="es", doc_type="receipt")
    return Sheet(sheet(body, size="80mm 190mm", margin="4mm", points=7.5), truth)


def community(random: Random) -> Sheet:
    """A lift firm bills an owners' community, in the care of its administrator; direct debit."""
    bill = settle(random, goods.lines_of(random, goods.LIFT, random.randrange(1, 4), most=1), Terms())
    day = any_day(random)
    due = day + timedelta(days=random.randrange(3, 20))
    seller, agent, base = (
        spanish_company(random, "builders"),
        spanish_company(random, "advisers"),
        spanish_person(random),
    )
    street = " ".join(base.street.split(",")[0].split())
    buyer = Party(f"Comunidad de Propietarios {street}", cif(random, "H"), True, base.street, base.town)
    invoice = Invoice(seller, buyer, any_number(random, day), day, bill, due)
    rows = [[line.description, f"{_MONTHS[day.month - 1]}-{day:%y}", eur(line.amount)] for line in bill.lines]
    totals = [
        ("Importe neto", eur(bill.sub_total)),
        ("IVA (21%)", eur(bill.total_tax)),
        ("Importe total", eur(bill.total)),
    ]
    body = f"""<div class=two><div><b>{escape(seller.name)}</b><br>
    <span class=small>{escape(seller.address)}</span></div>
    <div class=r>Factura<br><b>{invoice.number}</b></div></div><br><br>
    <div style="margin-left:50%">{escape(buyer.name.upper())}<br>A/A {escape(agent.name)} (Administrador)<br>
    {escape(agent.street)}<br>
    {escape(agent.town)}</div><br>
    <table class=small><tr><td>Titular: {escape(buyer.name)}</td><td>NIF titular: {buyer.tax_id}</td></tr>
    <tr><td>Emplazamiento: {escape(buyer.address)}</td><td>Contrato: M{random.randrange(10**5, 10**6)}</td></tr>
    <tr><td>Fecha de la factura: {day:%d.%m.%Y}</td><td>Fecha de cargo: {due:%d.%m.%Y}</td></tr>
    <tr><td>Periodo: {day.replace(day=1):%d.%m.%Y} a {day:%d.%m.%Y}</td>
    <td>Cuenta de cargo: ES82 2085 **** **** **** 1234</td></tr>
    </table><br>{grid(rows, ["Servicio", "Mes", "Importe"], "lined", "lrr")}<br>{sums(totals)}<br><br><br><hr>
    <div class="small c">{escape(seller.name)} - NIF {seller.tax_id} - Inscrita en el R.M., hoja M-{
        random.randrange(9999)
    }</div>"""
    printed = Printed(("Description", "Amount"), accept={"CustomerName": [buyer.name.upper()]})
    return Sheet(sheet(body), truth_of(invoice, printed, language="es"))


def phone_bill(random: Random) -> Sheet:
    """A first page with the sums, then pages of calls whose figures are no lines of the bill."""
    bill = settle(random, goods.lines_of(random, goods.TELECOM, random.randrange(3, 6), most=1), Terms())
    day = any_day(random)
    due = day + timedelta(days=random.randrange(5, 15))
    seller, buyer = spanish_company(random, "telecom"), spanish_person(random)
    invoice = Invoice(seller, buyer, f"{random.choice('KQ')}I{day:%y}-{random.randrange(10**6, 10**7)}", day, bill, due)
    rows = [(line.description, eur(line.amount)) for line in bill.lines]
    calls = [
        [f"{day - timedelta(days=random.randrange(1, 30)):%d/%m}", f"6{random.randrange(10**7, 10**8)}",
         f"0:{random.randrange(10, 59)}:{random.randrange(10, 59)}", num(Decimal(random.randrange(0, 40)) / 100)]
        for _ in range(60)
    ]  # fmt: skip
    start = day - timedelta(days=30)
    body = f"""<div class=two><div><h1>{escape(seller.name.split()[0].lower())}</h1></div>
    <div class=r>Esta es tu factura<br>
    <span style="font-size:22pt">{eur(bill.total)}</span><br>Se cargará en tu banco el {
        long_date(due, "es")
    }</div></div><br>
    <div class=two><div class=box>{escape(buyer.name)}<br>{escape(buyer.street)}<br>{escape(buyer.town)}<br>
    NIF {buyer.tax_id}</div>
    <div>Nº factura: {invoice.number}<br>Fecha emisión: {day:%d/%m/%Y}<br>
    Periodo de facturación: {start:%d/%m/%Y} - {day:%d/%m/%Y}<br>
    Nº cliente: {random.randrange(10**6, 10**7)}</div></div><br><b>Resumen</b>
    {
        sums(
            [
                *rows,
                ("Total (base imponible)", eur(bill.sub_total)),
                ("IVA 21%", eur(bill.total_tax)),
                ("Total a pagar", eur(bill.total)),
            ],
            "100%",
            "lined",
        )
    }
    <p class=small>{escape(seller.name)}, {escape(seller.address)}. CIF {seller.tax_id}. Atención al cliente 1{
        random.randrange(100, 999)
    }.</p>
    <div style="break-before:page"><b>Detalle del 6{random.randrange(10**7, 10**8)}</b>
    {grid(calls, ["Día", "Destino", "Duración", "Importe"], "", "lllr")}</div>"""
    truth = truth_of(invoice, Printed(), language="es")
    return Sheet(sheet(body), {**truth, "labelled": [name for name in truth["labelled"] if name != "Items"]})


def by_difference(random: Random) -> Sheet:
    """A correction by differences: what was billed, what is right, and the difference, which alone counts."""
    bill = settle(random, goods.lines_of(random, goods.FARM, 1, most=3), Terms(tax_rate=Decimal(21)))
    day = any_day(random)
    seller, buyer = spanish_company(random), spanish_company(random)
    invoice = Invoice(seller, buyer, f"RECT{day:%y}/{random.randrange(1, 60):03d}", day, bill)
    old = settle(random, [Line("", Decimal(1), Decimal(random.randrange(200, 900)), Decimal(21))], Terms())
    pairs = [
        ("Base imponible", old.sub_total, bill.sub_total),
        ("Cuota IVA 21%", old.sub_total * Decimal("0.21"), bill.total_tax),
    ]
    pairs += [("Total factura", old.sub_total * Decimal("1.21"), bill.total)]
    rows = [[name, num(before), num(before + change), num(change)] for name, before, change in pairs]
    original = any_number(random, day)
    body = f"""<h1>Factura rectificativa (por diferencias)</h1>
    <p>Núm. {invoice.number} &nbsp;&nbsp; Expedida el {long_date(day, "es")}</p>
    <p>Rectifica la factura {original} de {day - timedelta(days=50):%d/%m/%Y} por error en el
    precio (art. 15 RD 1619/2012).</p>
    <table class=ruled><tr><th>Obligado a expedir</th><th>Destinatario de la operación</th></tr>
    <tr><td>{escape(seller.name)}</td><td>{escape(buyer.name)}</td></tr><tr><td>{seller.tax_id}</td>
    <td>{buyer.tax_id}</td></tr>
    <tr><td>{escape(seller.address)}</td><td>{escape(buyer.address)}</td></tr></table><br>
    {grid(rows, ["", "Importe facturado", "Importe correcto", "Diferencia"], "ruled", "lrrr")}
    <p>Importe a abonar por el cliente: <b>{eur(bill.total)}</b></p>"""
    truth = truth_of(invoice, Printed(), language="es", doc_type="credit_note")
    return Sheet(
        sheet(body), {**truth, "items": [], "labelled": [name for name in truth["labelled"] if name != "Items"]}
    )


def course(random: Random) -> Sheet:
    """An academy in the Canaries or the mainland, exempt; the invoice's data in one line of text, company first."""
    bill = settle(
        random, goods.lines_of(random, goods.COURSES, random.randrange(1, 4), most=3), Terms(tax_rate=Decimal(0))
    )
    day = any_day(random)
    due = day + timedelta(days=20)
    seller, buyer = canary_company(random), spanish_company(random)
    invoice = Invoice(seller, buyer, any_number(random, day), day, bill, due, iban(random))
    lines = [[line.description, str(line.quantity), eur(line.unit_price), eur(line.amount)] for line in bill.lines]
    body = f"""<div class=box><b>Cliente</b>: {escape(buyer.name)} · CIF {buyer.tax_id} · {
        escape(buyer.address)
    }</div><br>
    <p><b>FACTURA {invoice.number}</b> | Fecha: {day:%d/%m/%Y} | Vencimiento: {
        due:%d/%m/%Y} | Forma de pago: transferencia</p>
    <p>Acción formativa bonificable, grupo {random.randrange(2, 90)}, alumnos: {random.randrange(1, 14)}</p><br>
    {grid(lines, ["Acción formativa", "Alumnos", "Precio alumno", "Total"], "ruled shade", "lrrr")}<br>
    {
        sums(
            [
                ("Importe", eur(bill.sub_total)),
                ("Impuestos (exento)", eur(Decimal(0))),
                ("Total factura", eur(bill.total)),
            ]
        )
    }
    <p class=small>Exenta de IGIC/IVA: enseñanza, art. 20.Uno.9.º Ley 37/1992.</p><br><hr>
    <div class="two small"><div>{escape(seller.name)}<br>CIF: {seller.tax_id}</div><div>{escape(seller.street)}<br>
    {escape(seller.town)}</div>
    <div>Banco: {in_fours(invoice.account)}</div></div>"""
    truth = truth_of(invoice, Printed(), language="es")
    truth["optional"]["TotalTax"] = "0.00"
    return Sheet(sheet(body, points=9.5), truth)


def lawyer(random: Random) -> Sheet:
    """A lawyer's note of fees in paragraphs: money on account already paid, the buyer by "a cargo de"."""
    terms = Terms(withholding_rate=Decimal(15), prepaid_share=Decimal("0.4"), tax_rate=Decimal(21))
    bill = settle(random, goods.lines_of(random, goods.ADVICE, random.randrange(1, 4), most=1), terms)
    day = any_day(random)
    seller, buyer = spanish_person(random), spanish_company(random)
    invoice = Invoice(seller, buyer, f"{random.randrange(3, 400)}-{day:%y}", day, bill, None, iban(random))
    rows = [(f"{index}. {line.description}", eur(line.amount)) for index, line in enumerate(bill.lines, 1)]
    totals = [("Honorarios", eur(bill.sub_total)), ("I.V.A. 21 %", eur(bill.total_tax)), ("Suma", eur(bill.total))]
    totals += [("Retención I.R.P.F. 15 %", eur(-bill.withholding)), ("Provisión de fondos", eur(-bill.prepaid))]
    body = f"""<div class=two><div><b>{escape(seller.name)}</b><br>Abogado. Col. 4.{random.randrange(100, 999)}<br>
    N.I.F.: {seller.tax_id}</div><div class=r>{escape(seller.street)}<br>{escape(seller.town)}</div></div><br><br>
    <p class=r>{escape(seller.town.split(" ", 1)[1].split(" (")[0])}, {long_date(day, "es")}</p>
    <p><b>Nota de honorarios n.º {invoice.number}</b> a cargo de <b>{escape(buyer.name)}</b>, N.I.F. {buyer.tax_id},
    domicilio en {escape(buyer.address)}.</p><p>Por los trabajos siguientes:</p>{sums(rows, "95%")}<br>
    {sums([*totals, ("Saldo a su cargo", eur(bill.payable))], "60%", "lined")}<br>
    <p>El saldo puede ingresarse en {in_fours(invoice.account)}.</p>"""
    accept = {"InvoiceTotal": [str(bill.total - bill.withholding)]}
    printed = Printed(("Description", "Amount"), (), one_total=False, accept=accept)
    return Sheet(sheet(body, font=1, points=11), truth_of(invoice, printed, language="es"))
