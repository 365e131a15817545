"""Pages whose parties stand beside the names of laws, or in a sentence at the foot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.files.pages import Box
from backend.files.visual_rows import rows_of
from backend.invoices.parties.find import find_parties
from tests.invoices.rows import document_of_rows, rows_of_text

_GOODS = """
Descripción            Cantidad    Precio    Importe
Tornillos                  10       2,00       20,00
Base imponible                                 20,00
IVA 21%                                         4,20
TOTAL                                          24,20
"""


def values(text: str) -> dict[str, str]:
    return {field.name: field.value for field in find_parties(rows_of_text(text))}


@pytest.mark.parametrize(
    "law", ["Real Decreto 1426/1989, de 17 de noviembre", "Ley 37/1992 del Impuesto", "R.D. 1619/2012"]
)
def test_a_law_is_nobodys_name(law: str) -> None:
    """The one who has to pay is said below it."""
    head = "María Pérez Soto\nCalle Larios 4\n29005 Málaga\nN.I.F. 12345678Z\n\n"
    found = values(
        f"{head}{law}\nMINUTA Nº 233         10/03/2026\n"
        f"El obligado al pago: Inmobiliaria Caleta, S.L., con C.I.F. B29123457\n{_GOODS}"
    )
    assert found["VendorName"] == "María Pérez Soto"
    assert (found["CustomerName"], found["CustomerTaxId"]) == ("Inmobiliaria Caleta, S.L.", "B29123457")


_BILL = """\
Tu factura                                   Número de factura   F26-123
                                             Fecha de factura    05/03/2026
Luis Paz Gil
Plaza Mayor 3, 2º
37001 Salamanca
NIF número 12345678Z

Resumen de tu factura
Cuotas de tus líneas                            25,00 €
IVA (21%)                                        5,25 €
Total a pagar                                   30,25 €

"""


@pytest.mark.parametrize(
    "foot",
    [
        "Cable Charro, S.L., C/ Toro 20,\n37002 Salamanca. CIF B37123459.",
        "Cable Charro, S.L.\nC/ Toro 20, 37002 Salamanca\nCIF B37123459",
        "Factura emitida por Cable Charro, S.L., con domicilio en C/ Toro 20, 37002 Salamanca y CIF B37123459.",
        "Servicio prestado por Cable Charro, S.L., C/ Toro 20, 37002 Salamanca. CIF B37123459.",
        "Teléfonos: averías 923 555 300\nCable Charro, S.L., C/ Toro 20, 37002 Salamanca. CIF B37123459.",
        "Puedes reclamar en el 1470. Cable Charro, S.L., C/ Toro 20, 37002 Salamanca. CIF B37123459.",
    ],
)
def test_a_company_in_a_sentence_at_the_foot_bills_the_person_above(foot: str) -> None:
    """The person's box at the top has no label."""
    assert values(f"{_BILL}{foot}\n") == {
        "VendorName": "Cable Charro, S.L.",
        "VendorAddress": "C/ Toro 20, 37002 Salamanca",
        "VendorTaxId": "B37123459",
        "CustomerName": "Luis Paz Gil",
        "CustomerAddress": "Plaza Mayor 3, 2º, 37001 Salamanca",
        "CustomerTaxId": "12345678Z",
    }


@pytest.mark.parametrize(
    ("heading", "vat"),
    [
        pytest.param("LIEFERANT DER WARE (VENDEDOR)", "N.I.F.", id="role-in-brackets"),
        pytest.param("Letrada", "P. IVA e C.F.", id="profession"),
        pytest.param("Rechtsanwalt", "C.F. e P. IVA", id="profession-de"),
    ],
)
def test_a_heading_says_who_sells(heading: str, vat: str) -> None:
    """The last words of a heading, or what the seller is, above the name."""
    found = values(
        f"Destinatario                          {heading}\n"
        "Conservas Goikoa, S.A.                Leire Montoya Gil\n"
        "Muelle Erroxape, 3                    Alameda de Recalde, 61\n"
        "48370 Bermeo                          48010 Bilbao\n"
        f"                                      {vat} 02645053378\n\n{_GOODS}"
    )
    assert (found["VendorName"], found["VendorTaxId"]) == ("Leire Montoya Gil", "02645053378")
    assert found["CustomerName"] == "Conservas Goikoa, S.A."


@pytest.mark.parametrize("runs_up", [True, False])
def test_a_seller_in_the_margin(runs_up: bool) -> None:
    """A line that runs up or down the page is read as one, below the others; its words stay where they stand."""
    margin = "Luz Charra, S.L. · CIF B37123459 · Calle Toro 20, 37002 Salamanca"
    document = document_of_rows("\n".join((_BILL, margin)))
    page = document.pages[0]
    last = page.words[-1].line

    def turned(box: Box) -> Box:
        return Box(2.0, 900 - box.right, 10.0, 900 - box.left) if runs_up else Box(2.0, box.left, 10.0, box.right)

    words = tuple(replace(word, box=turned(word.box)) if word.line == last else word for word in page.words)
    pages = rows_of(replace(document, pages=(replace(page, words=words),)))
    fields = {field.name: field for field in find_parties(pages)}

    assert pages[0].rows[-1].text.replace("\t", " ") == margin
    assert fields["VendorName"].value == "Luz Charra, S.L."
    assert fields["VendorTaxId"].value == "B37123459"
    assert fields["CustomerName"].value == "Luis Paz Gil"
    assert fields["VendorName"].places[0].box.right == 10.0
