"""Spanish invoices of freelancers, landlords, advisers and carers: withholding, disbursements, exemption, sentences."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from html import escape
from random import Random

from benchmarks.fields_designs import goods
from benchmarks.fields_designs.formats import SPANISH, long_date, short
from benchmarks.fields_designs.identities import iban, in_fours
from benchmarks.fields_designs.invoice import Invoice, Line, Printed, Sheet, Terms, settle, truth_of
from benchmarks.fields_designs.markup import any_day, any_number, grid, sheet, stacked, sums
from benchmarks.fields_designs.parties import spanish_company, spanish_person
from benchmarks.fields_designs.spanish import eur, num, percent

_IRPF = "WithholdingRate", "WithholdingAmount"


def sentences(random: Random) -> Sheet:
    """A freelancer who writes the invoice as a letter: number, date and buyer in sentences."""
    lines = goods.lines_of(random, goods.WRITING, random.randrange(1, 4), most=1)
    bill = settle(random, lines, Terms(withholding_rate=Decimal(random.choice((7, 15)))))
    day = any_day(random)
    invoice = Invoice(
        spanish_person(random), spanish_company(random), any_number(random, day), day, bill, None, iban(random)
    )
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    rows = [[line.description, eur(line.amount)] for line in bill.lines]
    opening = (
        f"Factura núm. {invoice.number}, de fecha {long_date(day, 'es')}, que {vendor.name} presenta a "
        f"{customer.name}, con NIF {customer.tax_id} y domicilio en {customer.address}, por los trabajos siguientes:"
    )
    body = f"""<div class=c><b>{escape(vendor.name)}</b><br>{escape(vendor.street)}<br>{escape(vendor.town)}<br>
    NIF {vendor.tax_id}</div><br><br>
    <p>{escape(opening)}</p><br>{grid(rows, (), "", "lr")}<br>
    {
        sums(
            [
                ("Importe", eur(bill.sub_total)),
                ("+ IVA (21 %)", eur(bill.total_tax)),
                (f"- IRPF ({percent(bill.withholding_rate)})", eur(bill.withholding)),
                ("Líquido a percibir", eur(bill.payable)),
            ],
            "60%",
        )
    }
    <br><p>Les ruego ingresen la cantidad en mi cuenta {in_fours(invoice.account)}.</p><p>Atentamente,</p>"""
    return Sheet(
        sheet(body, points=10.5, font=1, margin="25mm"),
        truth_of(invoice, Printed(columns=("Description", "Amount"), optional=()), language="es"),
    )


def rent(random: Random) -> Sheet:
    """The rent of business premises with withholding of 19 %; due within the first days."""
    month = Decimal(random.randrange(450, 2400))
    line = Line(
        f"Renta mensual local comercial sito en {random.choice(('C/ Olivar 5', 'Pasaje Ibiza 2', 'Av. Puerto 71'))}",
        Decimal(1),
        month,
        Decimal(21),
    )
    extra = (
        [Line("Repercusión IBI", Decimal(1), Decimal(random.randrange(20, 90)), Decimal(21))]
        if random.random() < 0.5
        else []
    )
    bill = settle(random, [line, *extra], Terms(withholding_rate=Decimal(19)))
    day = any_day(random).replace(day=1)
    due = day + timedelta(days=6)
    invoice = Invoice(
        spanish_person(random), spanish_company(random), any_number(random, day), day, bill, due, iban(random)
    )
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    rows = [[line.description, num(line.amount)] for line in bill.lines]
    last = ("Total factura", eur(bill.payable))
    body = f"""<table class=ruled><tr><th>ARRENDADOR</th><th>ARRENDATARIO</th></tr>
    <tr><td>{escape(vendor.name)}<br>N.I.F. {vendor.tax_id}<br>{escape(vendor.street)}<br>{escape(vendor.town)}</td>
    <td>{escape(customer.name)}<br>C.I.F. {customer.tax_id}<br>{escape(customer.street)}<br>
    {escape(customer.town)}</td></tr></table><br>
    <table class=ruled><tr><td>RECIBO / FACTURA Nº <b>{invoice.number}</b></td><td>FECHA <b>{day:%d/%m/%Y}</b></td>
    <td>PAGADERO HASTA <b>{due:%d/%m/%Y}</b></td></tr></table><br>
    {grid(rows, ["CONCEPTO", "IMPORTE"], "ruled shade", "lr")}<br>
    {
        sums(
            [
                ("Base imponible", num(bill.sub_total)),
                ("21 % I.V.A.", num(bill.total_tax)),
                ("Retención IRPF 19 %", num(-bill.withholding)),
                last,
            ],
            "50%",
            "lined",
        )
    }
    <p>Transferencia a favor de {escape(vendor.name)}, IBAN {invoice.account}</p>"""
    return Sheet(sheet(body), truth_of(invoice, Printed(columns=("Description", "Amount"), optional=()), language="es"))


def adviser(random: Random) -> Sheet:
    """Fees and disbursements apart: total of the invoice, then what is to be paid."""
    lines = goods.lines_of(random, goods.ADVICE, random.randrange(1, 4), most=2)
    terms = Terms(withholding_rate=Decimal(15), disbursements=Decimal(str(round(random.uniform(20, 260), 2))))
    bill = settle(random, lines, terms)
    day = any_day(random)
    invoice = Invoice(
        spanish_company(random, "advisers"),
        spanish_company(random),
        any_number(random, day),
        day,
        bill,
        None,
        iban(random),
    )
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    rows = [
        [line.description, short(line.quantity, SPANISH), num(line.unit_price), num(line.amount)] for line in bill.lines
    ]
    totals = [
        ("Base sujeta", num(bill.sub_total)),
        (f"Cuota IVA al {percent(bill.taxes[0].rate)}", num(bill.total_tax)),
        ("Total factura", num(bill.total)),
        ("Retención a cuenta IRPF 15%", num(-bill.withholding)),
        ("Suplidos (tasas registrales)", num(bill.disbursements)),
        ("A ingresar", eur(bill.payable)),
    ]
    body = f"""<div class=two><div>{stacked(vendor.name, vendor.address, "NIF: " + vendor.tax_id)}</div>
    <div class="box c"><div class=small>FACTURA</div><b>{invoice.number}</b><div>{day:%d-%b-%y}</div></div></div>"""
    body = body.replace(f"{day:%d-%b-%y}", f"{day:%d/%m/%Y}")
    body += f"""<br><div class=box>Facturado a: {escape(customer.name)} &nbsp;&nbsp; CIF: {customer.tax_id}<br>
    {escape(customer.address)}</div><br>
    {grid(rows, ["Minuta de honorarios", "Nº", "Honorarios", "Importe"], "lined", "lrrr")}<br>{sums(totals, "55%")}
    <p class=small>Banco: {in_fours(invoice.account)}</p>"""
    before = bill.total + bill.disbursements
    printed = Printed(one_total=False, optional=(), accept={"InvoiceTotal": [str(before), str(bill.payable)]})
    return Sheet(sheet(body, font=2, points=9.5), truth_of(invoice, printed, language="es"))


def exempt(random: Random) -> Sheet:
    """Care or lessons without tax, by article 20; the patient is a person without a number, at times."""
    bill = settle(random, goods.lines_of(random, goods.CARE, random.randrange(1, 4), most=4), Terms())
    day = any_day(random)
    invoice = Invoice(spanish_company(random, "clinic"), spanish_person(random), any_number(random, day), day, bill)
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    has_id = random.random() < 0.5
    rows = [
        [f"{day:%d/%m/%y}", line.description, short(line.quantity, SPANISH), eur(line.unit_price), eur(line.amount)]
        for line in bill.lines
    ]
    body = f"""<h1>{escape(vendor.name)}</h1><div class=small>{escape(vendor.address)} | NIF {vendor.tax_id}</div>
    <hr><p class=r>{escape(vendor.town.split(" ", 1)[1].split(",")[0])}, a {long_date(day, "es")}</p>
    <p><b>FACTURA {invoice.number}</b></p>
    <p>Paciente / alumno: {escape(customer.name)}{" - DNI " + customer.tax_id if has_id else ""}</p><br>
    {grid(rows, ["Fecha", "Tratamiento o curso", "Sesiones", "Precio", "Importe"], "ruled", "llrrr")}<br>
    <p class=r style="font-size:13pt">TOTAL: {eur(bill.total)}</p>
    <p class=small>Operación exenta de IVA según el artículo 20.Uno de la Ley 37/1992.</p>"""
    printed = Printed(optional=("AmountDue", "SubTotal"), absent=() if has_id else ("CustomerTaxId",))
    return Sheet(sheet(body), truth_of(invoice, printed, language="es"))
