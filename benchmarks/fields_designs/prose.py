"""Pages without fields: contracts, letters, minutes, news, a report, a curriculum. Whatever is answered is invented."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from html import escape
from random import Random

from benchmarks.fields_designs.formats import BRITISH, SPANISH, long_date, number
from benchmarks.fields_designs.invoice import LABELLED, Sheet
from benchmarks.fields_designs.markup import any_day, grid, sheet
from benchmarks.fields_designs.parties import foreign_pair, spanish_company, spanish_person


def lease(random: Random) -> Sheet:
    """A Spanish lease: two parties with numbers, a rent, dates."""
    owner, tenant, day = spanish_person(random), spanish_company(random), any_day(random)
    rent = number(Decimal(random.randrange(500, 2400)), SPANISH)
    return _plain(
        random,
        "es",
        "CONTRATO DE ARRENDAMIENTO DE LOCAL",
        f"En {tenant.town.split(' ', 1)[1]}, a {long_date(day, 'es')}.",
        f"REUNIDOS. De una parte, D.ª {owner.name}, mayor de edad, con N.I.F. {owner.tax_id} y domicilio en "
        f"{owner.address}, en adelante la arrendadora. De otra, {tenant.name}, con C.I.F. {tenant.tax_id}, en "
        "adelante la arrendataria.",
        f"PRIMERA. La renta mensual se fija en {rent} euros, más el IVA correspondiente y menos la retención "
        "vigente, pagadera dentro de los siete primeros días de cada mes mediante transferencia.",
        f"SEGUNDA. El plazo será de cinco años, desde el {day:%d/%m/%Y}. Vencido el plazo, se prorrogará por "
        "anualidades.",
        f"TERCERA. En concepto de fianza se entrega la cantidad de {rent} euros, cuyo total importe será devuelto "
        "al término del contrato.",
    )


def english_agreement(random: Random) -> Sheet:
    """A services agreement that speaks of invoices and payment."""
    day = any_day(random)
    seller, buyer = foreign_pair(random, "GB")
    fee = number(Decimal(random.randrange(4000, 90000)), BRITISH)
    return _plain(
        random,
        "en",
        "SERVICES AGREEMENT",
        f"This agreement is made on {long_date(day, 'en')} between {seller.name}, whose registered office is at "
        f"{seller.address}, and {buyer.name} of {buyer.address}.",
        f"1. Fees. The Customer shall pay the Supplier a total of £{fee} in four instalments. The Supplier shall "
        "invoice the Customer quarterly and invoices are due within 30 days. VAT is payable in addition.",
        "2. Term. This agreement begins on the date above and continues until terminated by either party with 90 "
        "days' written notice.",
        "3. Liability. Neither party's total liability shall exceed the amount paid in the preceding year.",
    )


def reminder(random: Random) -> Sheet:
    """A letter to a neighbour; amounts and dates, no invoice."""
    sender, receiver, day = spanish_person(random), spanish_person(random), any_day(random)
    return _plain(
        random,
        "es",
        "",
        f"{sender.name}",
        sender.address,
        f"{receiver.name}",
        receiver.address,
        long_date(day, "es"),
        "Estimado vecino:",
        "Le escribo para informarle de que la junta acordó repartir entre todos el arreglo del tejado, que "
        f"asciende a {number(Decimal(random.randrange(3000, 20000)), SPANISH)} euros. A cada vivienda le "
        f"corresponden {random.randrange(100, 600)} euros, que podrán abonarse antes del "
        f"{day + timedelta(days=40):%d/%m/%Y}.",
        "Quedo a su disposición para cualquier duda. Un cordial saludo,",
    )


def minutes(random: Random) -> Sheet:
    """Minutes of a meeting."""
    company, day = spanish_company(random), any_day(random)
    return _plain(
        random,
        "es",
        "ACTA DE LA JUNTA GENERAL ORDINARIA",
        f"Sociedad: {company.name}. Fecha: {day:%d/%m/%Y}. Hora: 10:30. Lugar: {company.address}.",
        "Orden del día: 1. Examen y aprobación de las cuentas anuales. 2. Aplicación del resultado. 3. Ruegos y "
        "preguntas.",
        "Se aprueban por unanimidad las cuentas, con un resultado de "
        f"{number(Decimal(random.randrange(10**4, 10**6)), SPANISH)} "
        "euros, que se destina a reservas.",
        "Sin más asuntos que tratar, se levanta la sesión a las 11:45 horas.",
    )


def news(random: Random) -> Sheet:
    """A newspaper's page in two columns."""
    day = any_day(random)
    return _plain(
        random,
        "en",
        "Harbour bridge to close for repairs",
        f"{long_date(day, 'en')}. The bridge over the harbour will close for eleven weeks, the council said on "
        f"Tuesday. Work worth £{random.randrange(2, 9)}.{random.randrange(1, 9)} million will begin after Easter.",
        'Traders fear for their summer. "We lose a tenth of our customers each time," said the owner of a bakery on '
        "Mill Lane. Some 14,500 vehicles cross every day.",
        "A ferry for pedestrians is to run every twenty minutes; a ticket will cost £2.40, children travel free. "
        "The contract went to a firm from Leeds after three bids.",
        columns=2,
    )


def report(random: Random) -> Sheet:
    """A report with a small table of figures."""
    rows = [
        [name, *(number(Decimal(random.randrange(200, 9000)), BRITISH, 0) for _ in range(3))]
        for name in ("Visitors", "Loans", "Events", "New members")
    ]
    table = grid(rows, ["", "2022", "2023", "2024"], "lined", "lrrr")
    return _plain(
        random,
        "en",
        "Annual report of the town library",
        "The year saw more visitors than any before it. The reading room was open on 301 days, and the new "
        "catalogue went into use in June.",
        "Donations were used for shelves and a ramp. The committee thanks all volunteers.",
        after=table,
    )


def curriculum(random: Random) -> Sheet:
    """A curriculum with dates and an address."""
    person = spanish_person(random)
    return _plain(
        random,
        "es",
        person.name,
        f"{person.address} · Tel. 6{random.randrange(10**7, 10**8)} · DNI {person.tax_id}",
        "EXPERIENCIA. 2019-2024: jefa de administración en una empresa de transportes; facturación, cobros y "
        "declaraciones de IVA e IRPF. 2014-2019: auxiliar contable.",
        "FORMACIÓN. Grado en Administración y Dirección de Empresas, Universidad de Salamanca, 2013. Inglés C1.",
    )


def _plain(random: Random, language: str, title: str, *paragraphs: str, columns: int = 1, after: str = "") -> Sheet:
    body = "".join(f"<p>{escape(text)}</p>" for text in paragraphs)
    head = f"<h1>{escape(title)}</h1>" if title else ""
    html = sheet(
        f'{head}<div style="columns:{columns};text-align:justify">{body}</div>{after}',
        "p { margin: 9pt 0 }",
        points=10.5,
        font=random.randrange(2),
        margin="24mm",
    )
    truth = {
        "lang": language,
        "medium": "digital",
        "source": "generated",
        "doc_type": "other",
        "fields": {},
        "optional": {},
        "accept": {},
        "tax_details": [],
        "items": [],
        "valid": {},
        "labelled": [name for name in LABELLED if name != "valid"],
    }
    return Sheet(html, truth)
