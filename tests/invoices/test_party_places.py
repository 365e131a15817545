"""Pages whose parties stand in strips of boxes and columns at the foot, or beside the names of laws."""

from __future__ import annotations

import pytest

from backend.invoices.parties.find import find_parties
from tests.invoices.rows import rows_of_text

_GOODS = """
Descripción            Cantidad    Precio    Importe
Tornillos                  10       2,00       20,00
Base imponible                                 20,00
IVA 21%                                         4,20
TOTAL                                          24,20
"""
_SELLER = "Comercial Lozano, S.L.\nPol. Ind. Sur, nave 4\n14013 Córdoba\nC.I.F. B14123452\n\n"
_BUYER = "Talleres Romero Hnos.\nC/ Ancha 5\n14001 Córdoba\n\n"


def values(text: str) -> dict[str, str]:
    return {field.name: field.value for field in find_parties(rows_of_text(text))}


@pytest.mark.parametrize(
    "strip",
    [
        """\
FACTURA      FECHA         CLIENTE     N.I.F.        FORMA DE PAGO
2026/118     12/03/2026    430015      B14765432     Transferencia
""",
        """\
FACTURA      FECHA         N.I.F.        FORMA DE PAGO
2026/118     12/03/2026    B14765432     Transferencia
""",
    ],
)
def test_a_tax_number_in_a_strip_of_boxes_is_the_customers(strip: str) -> None:
    """The seller's own stands in his block."""
    found = values(_SELLER + _BUYER + strip + _GOODS)
    assert (found["VendorTaxId"], found["CustomerTaxId"]) == ("B14123452", "B14765432")
    assert (found["VendorName"], found["CustomerName"]) == ("Comercial Lozano, S.L.", "Talleres Romero Hnos.")


def test_the_sellers_number_printed_again_is_not_the_customers() -> None:
    """With the prefix of its country it is the same number."""
    strip = "FACTURA      FECHA         N.I.F.\n2026/118     12/03/2026    ESB14123452\n"
    found = values(_SELLER + _BUYER + strip + _GOODS)
    assert found["VendorTaxId"] == "B14123452"
    assert "CustomerTaxId" not in found


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


def test_an_address_in_a_column_of_the_foot_is_the_vendors() -> None:
    """Name and tax number, street and town, and the bank stand side by side."""
    found = values(
        "FACTURA A-33             12/03/2026\n\nCliente: Talleres Romero, S.L.\nC/ Ancha 5, 14001 Córdoba\n"
        f"NIF B14765432\n{_GOODS}\n"
        "Comercial Lozano, S.L.     Polígono Sur, nave 4     Caja Rural\n"
        "CIF B14123452              14013 Córdoba            ES91 2100 0418 4502 0005 1332\n"
    )
    assert found["VendorAddress"] == "Polígono Sur, nave 4, 14013 Córdoba"
    assert found["CustomerAddress"] == "C/ Ancha 5, 14001 Córdoba"


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
