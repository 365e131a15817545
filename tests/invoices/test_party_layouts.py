"""Who sells and who buys on Spanish pages of many layouts; none is a page of the development set."""

from __future__ import annotations

import pytest

from backend.invoices.parties.find import find_parties
from tests.invoices.rows import rows_of_text

LAYOUTS = [
    pytest.param(
        """\
                          FACTURA

Muebles Ortega e Hijos, S.L.               Nº factura:  2024/0115
C/ Industria, 45                           Fecha:       12/03/2024
08025 Barcelona
NIF: B62345678
Tel. 93 456 78 90    info@mueblesortega.es

                                           Cliente
                                           Hotel Miramar, S.A.
                                           Passeig Marítim, 112
                                           43840 Salou (Tarragona)
                                           CIF A43123456

Descripción              Cantidad    Precio    Importe
Mesa de roble            2           150,00    300,00
Base imponible                                 300,00
""",
        {
            "VendorName": "Muebles Ortega e Hijos, S.L.",
            "VendorAddress": "C/ Industria, 45, 08025 Barcelona",
            "VendorTaxId": "B62345678",
            "CustomerName": "Hotel Miramar, S.A.",
            "CustomerAddress": "Passeig Marítim, 112, 43840 Salou (Tarragona)",
            "CustomerTaxId": "A43123456",
        },
        id="letterhead-and-box",
    ),
    pytest.param(
        """\
DATOS DEL EMISOR                           DATOS DEL CLIENTE
Nombre:     Marta Ruiz Calvo               Nombre:     Clínica Dental Sonrisa SLP
NIF:        12345678Z                      CIF:        B12345674
Domicilio:  Avda. de la Paz, 7, 3º A       Domicilio:  Calle Luna 3
Población:  28030 Madrid                   Población:  28004 Madrid

Factura nº: 23      Fecha: 3 de mayo de 2024

Concepto                  Importe
Sesiones de fisioterapia  420,00 €
Total                     420,00 €
""",
        {
            "VendorName": "Marta Ruiz Calvo",
            "VendorAddress": "Avda. de la Paz, 7, 3º A, 28030 Madrid",
            "VendorTaxId": "12345678Z",
            "CustomerName": "Clínica Dental Sonrisa SLP",
            "CustomerAddress": "Calle Luna 3, 28004 Madrid",
            "CustomerTaxId": "B12345674",
        },
        id="two-forms-side-by-side",
    ),
    pytest.param(
        """\
Talleres Hermanos Pinto, S.L.L.
Pol. Ind. El Pino, Nave 12 - 41016 Sevilla
CIF B41234567 - Tel 954 12 34 56 - www.tallerespinto.es

FACTURA Nº 118/24   FECHA 02/02/2024

CLIENTE: Transportes Guadiana S.L.
DIRECCIÓN: Ctra. de Badajoz km 4
POBLACIÓN: 06006 Badajoz
NIF: B06123456

CANT   DESCRIPCIÓN             PRECIO    TOTAL
1      Cambio de aceite        60,00     60,00
""",
        {
            "VendorName": "Talleres Hermanos Pinto, S.L.L.",
            "VendorAddress": "Pol. Ind. El Pino, Nave 12, 41016 Sevilla",
            "VendorTaxId": "B41234567",
            "CustomerName": "Transportes Guadiana S.L.",
            "CustomerAddress": "Ctra. de Badajoz km 4, 06006 Badajoz",
            "CustomerTaxId": "B06123456",
        },
        id="label-and-value-in-one-cell",
    ),
    pytest.param(
        """\
                                              ASESORÍA BELTRÁN, S.L.P.
                                              Calle Serrano 88, 2º dcha.
                                              28006 Madrid
                                              NIF B81234567

Panadería El Trigal C.B.
Calle Ancha, 15
24003 León
NIF E24123456

Factura 2024-77
Fecha: 31/01/2024

Concepto                          Importe
Honorarios enero                  150,00
""",
        {
            "VendorName": "ASESORÍA BELTRÁN, S.L.P.",
            "VendorAddress": "Calle Serrano 88, 2º dcha., 28006 Madrid",
            "VendorTaxId": "B81234567",
            "CustomerName": "Panadería El Trigal C.B.",
            "CustomerAddress": "Calle Ancha, 15, 24003 León",
            "CustomerTaxId": "E24123456",
        },
        id="envelope-window",
    ),
    pytest.param(
        """\
LIMPIEZAS BRILLO                                     FACTURA
                                                     Número   F-220
                                                     Fecha    05/06/2024

Facturar a:
Comunidad de Propietarios Calle Mayor 14
Calle Mayor 14
28013 Madrid
NIF: H78123456

Descripción                     Precio      Importe
Limpieza portal junio           200,00      200,00

Total                                       242,00

Limpiezas Brillo Norte, S.L. - CIF: B83456789 - C/ Alcalá 300, 28027 Madrid
Inscrita en el Registro Mercantil de Madrid, Tomo 1234, Folio 56, Hoja M-98765
""",
        {
            "VendorName": "Limpiezas Brillo Norte, S.L.",
            "VendorAddress": "C/ Alcalá 300, 28027 Madrid",
            "VendorTaxId": "B83456789",
            "CustomerName": "Comunidad de Propietarios Calle Mayor 14",
            "CustomerAddress": "Calle Mayor 14, 28013 Madrid",
            "CustomerTaxId": "H78123456",
        },
        id="vendor-at-the-foot",
    ),
    pytest.param(
        """\
        FARMACIA PILAR GOMEZ SANZ
          C/ Real, 22
          19001 Guadalajara
          NIF 03123456V
          Tlf: 949 123 456
FACTURA SIMPLIFICADA  T-1-5543
12/05/2024  18:22
1 IBUPROFENO 600 MG        3,12
1 CREMA SOLAR             18,90
TOTAL                     22,02
EFECTIVO                  50,00
CAMBIO                    27,98
""",
        {
            "VendorName": "FARMACIA PILAR GOMEZ SANZ",
            "VendorAddress": "C/ Real, 22, 19001 Guadalajara",
            "VendorTaxId": "03123456V",
        },
        id="spanish-ticket",
    ),
    pytest.param(
        """\
Aguas de Levante, S.A.                 Factura de agua
                                       Nº factura 2024-556677
                                       Fecha de emisión 02/04/2024
Titular del contrato                   Total a pagar  38,20 €
PANIAGUA SANCHEZ JOSE ANTONIO
NIF 12345678Z
Dirección de suministro: Calle Pez 3, 4º B, 30001 Murcia
Nº contrato 998877

Consumo                 12 m3        20,00
Cuota fija                           18,20
Aguas de Levante, S.A. CIF A30123456. Domicilio social: Plaza Circular 9, 30008 Murcia. Inscrita en el R.M. de Murcia
""",
        {
            "VendorName": "Aguas de Levante, S.A.",
            "VendorAddress": "Plaza Circular 9, 30008 Murcia",
            "VendorTaxId": "A30123456",
            "CustomerName": "PANIAGUA SANCHEZ JOSE ANTONIO",
            "CustomerTaxId": "12345678Z",
            "CustomerAddress": "Calle Pez 3, 4º B, 30001 Murcia",
        },
        id="utility-bill",
    ),
    pytest.param(
        """\
Laura Gil Prieto | Diseño gráfico | NIF 12345678Z | Calle Sol 5, 2º, 15001 A Coruña | laura@gilprieto.es

Factura: 14/2024                Fecha: 01/03/2024

Cliente:    Bodegas Rías, S.A.
            Lugar de Barrantes s/n
            36636 Ribadumia, Pontevedra
            A36123456

Concepto                 Base      IVA      IRPF     Total
Logotipo                 600,00    126,00   90,00    636,00
""",
        {
            "VendorName": "Laura Gil Prieto",
            "VendorAddress": "Calle Sol 5, 2º, 15001 A Coruña",
            "VendorTaxId": "12345678Z",
            "CustomerName": "Bodegas Rías, S.A.",
            "CustomerAddress": "Lugar de Barrantes s/n, 36636 Ribadumia, Pontevedra",
            "CustomerTaxId": "A36123456",
        },
        id="freelancer-on-one-line",
    ),
    pytest.param(
        """\
Ferretería Campos, S.A.
Avenida Constitución 12 - 13001 Ciudad Real - C.I.F.: A13123456 - Tlf.: 926 21 22 23

FACTURA

Cliente                       NIF           Dirección                  Población
Obras y Reformas Díaz, S.L.   B13654321     C/ Toledo, 25, bajo        13002 Ciudad Real

Número      Fecha         Forma de pago
F24/881     10/04/2024    Transferencia

Artículo              Cantidad    Precio    Importe
Taladro               1           89,00     89,00
""",
        {
            "VendorName": "Ferretería Campos, S.A.",
            "VendorAddress": "Avenida Constitución 12, 13001 Ciudad Real",
            "VendorTaxId": "A13123456",
            "CustomerName": "Obras y Reformas Díaz, S.L.",
            "CustomerTaxId": "B13654321",
            "CustomerAddress": "C/ Toledo, 25, bajo, 13002 Ciudad Real",
        },
        id="table-of-the-customer",
    ),
    pytest.param(
        """\
            HOSTAL LA PARRA
            Plaza Mayor, 4
            10600 Plasencia (Cáceres)
            NIF: 06987654Y

Factura Nº: 000123                    Fecha: 18/08/2024
Sr./Sra.: D. Antonio López García     Habitación: 204
NIF: 12345678Z                        Entrada: 16/08/2024
Calle Olmo 3, 2º                      Salida: 18/08/2024
45001 Toledo

Concepto              Importe
Alojamiento           120,00
IVA 10%               12,00
Total                 132,00
""",
        {
            "VendorName": "HOSTAL LA PARRA",
            "VendorAddress": "Plaza Mayor, 4, 10600 Plasencia (Cáceres)",
            "VendorTaxId": "06987654Y",
            "CustomerName": "Antonio López García",
            "CustomerTaxId": "12345678Z",
            "CustomerAddress": "Calle Olmo 3, 2º, 45001 Toledo",
        },
        id="hotel",
    ),
    pytest.param(
        """\
FACTURA DE ALQUILER

ARRENDADOR                              ARRENDATARIO
Inversiones Costa Sur, S.L.             Peluquería Alba Marín Soto
CIF: B29123456                          DNI: 12345678-Z
C/ Larios, 5, 29015 Málaga              C/ Compás 9, 29008 Málaga

Nº: 7/2024   Fecha: 01/07/2024
Inmueble: Local comercial C/ Compás 9, 29008 Málaga

Renta julio 2024                        800,00 €
IVA 21%                                 168,00 €
Retención 19%                          -152,00 €
Total a pagar                           816,00 €
""",
        {
            "VendorName": "Inversiones Costa Sur, S.L.",
            "VendorAddress": "C/ Larios, 5, 29015 Málaga",
            "VendorTaxId": "B29123456",
            "CustomerName": "Peluquería Alba Marín Soto",
            "CustomerTaxId": "12345678Z",
            "CustomerAddress": "C/ Compás 9, 29008 Málaga",
        },
        id="rent",
    ),
    pytest.param(
        """\
NEBULA                                                Nebula Hosting Digital, S.L.
                                                      CIF B65432109
                                                      Rambla Catalunya, 38, 8a planta
                                                      08007 Barcelona
                                                      soporte@nebulahosting.es

Editorial Anagrana S.A.
A/A: Departamento de compras
Carrer de Balmes, 200
08006 Barcelona
CIF: A08123456

FACTURA N-2024-00912
Fecha: 01/09/2024

Descripción               Cantidad    Precio    Total
Servidor dedicado         1           99,00     99,00
""",
        {
            "VendorName": "Nebula Hosting Digital, S.L.",
            "VendorAddress": "Rambla Catalunya, 38, 8a planta, 08007 Barcelona",
            "VendorTaxId": "B65432109",
            "CustomerName": "Editorial Anagrana S.A.",
            "CustomerTaxId": "A08123456",
            "CustomerAddress": "Carrer de Balmes, 200, 08006 Barcelona",
        },
        id="logo-and-full-name",
    ),
    pytest.param(
        """\
FACTURA 2024/19                                     Fecha 22/03/2024

De: Raquel Soto Vidal, NIF 12345678Z, C/ Sagasta 18, 1º B, 26001 Logroño
Para: Bodegas Altún S.L., CIF B26123456, Ctra. de Laguardia km 3, 01307 Baños de Ebro (Álava)

Traducción de etiquetas      3     40,00     120,00
Revisión                     1     30,00      30,00
Base imponible                               150,00
""",
        {
            "VendorName": "Raquel Soto Vidal",
            "VendorAddress": "C/ Sagasta 18, 1º B, 26001 Logroño",
            "VendorTaxId": "12345678Z",
            "CustomerName": "Bodegas Altún S.L.",
            "CustomerAddress": "Ctra. de Laguardia km 3, 01307 Baños de Ebro (Álava)",
            "CustomerTaxId": "B26123456",
        },
        id="commas",
    ),
    pytest.param(
        """\
Conexia Móvil, S.A.U.                              FACTURA
                                                   Nº Factura: C24-1002938
                                                   Fecha factura: 01/05/2024
Nombre: ROMERO CANO MARIA DEL CARMEN               Periodo: 01/04/2024 - 30/04/2024
NIF: 12345678Z                                     Nº Cliente: 0099281
Dirección: AVDA ANDALUCIA 22 4 C
CP y Población: 14005 CORDOBA

RESUMEN                               IMPORTE
Cuotas                                24,79 €
IVA 21%                               5,21 €
TOTAL A PAGAR                         30,00 €

Conexia Móvil, S.A.U. Domicilio social: Paseo de la Castellana 200, 28046 Madrid. CIF A82123456. R.M. Madrid, T. 12345
""",
        {
            "VendorName": "Conexia Móvil, S.A.U.",
            "VendorAddress": "Paseo de la Castellana 200, 28046 Madrid",
            "VendorTaxId": "A82123456",
            "CustomerName": "ROMERO CANO MARIA DEL CARMEN",
            "CustomerTaxId": "12345678Z",
            "CustomerAddress": "AVDA ANDALUCIA 22 4 C, 14005 CORDOBA",
        },
        id="telephone-bill",
    ),
    pytest.param(
        """\
                       FACTURA SIMPLIFICADA

Electrodomésticos Vega, S.L.U.                        Nº: T24-00871
NIF: B33123456                                        Fecha: 02/05/2024
Calle Uría nº 12, bajo
33003 Oviedo (Asturias)
Teléfono: 985 12 34 56

DATOS CLIENTE
Nombre/Razón social: Inmobiliaria Nalón, S.A.
NIF/CIF: A33654321
Domicilio: C/ Fruela, 5 - 3º
C.P.: 33007      Localidad: Oviedo

Código     Descripción        Uds.    Precio    Importe
100        Lavadora           1       399,00    399,00
""",
        {
            "VendorName": "Electrodomésticos Vega, S.L.U.",
            "VendorAddress": "Calle Uría nº 12, bajo, 33003 Oviedo (Asturias)",
            "VendorTaxId": "B33123456",
            "CustomerName": "Inmobiliaria Nalón, S.A.",
            "CustomerTaxId": "A33654321",
            "CustomerAddress": "C/ Fruela, 5, 3º, 33007, Oviedo",
        },
        id="several-labels-on-a-row",
    ),
    pytest.param(
        """\
Imprenta Norte, S. Coop.
Polígono Malpica, calle E, nave 30
50016 Zaragoza
CIF F50123456

Cliente        Ayuntamiento de Utebo
NIF            P5027200I
Dirección      Avda. Zaragoza 2
CP y población 50180 Utebo

Factura        2024/332
Fecha          11/06/2024

Cantidad   Descripción           Precio    Importe
1000       Carteles              0,30      300,00
""",
        {
            "VendorName": "Imprenta Norte, S. Coop.",
            "VendorAddress": "Polígono Malpica, calle E, nave 30, 50016 Zaragoza",
            "VendorTaxId": "F50123456",
            "CustomerName": "Ayuntamiento de Utebo",
            "CustomerTaxId": "P5027200I",
            "CustomerAddress": "Avda. Zaragoza 2, 50180 Utebo",
        },
        id="labels-without-colons",
    ),
    pytest.param(
        """\
TRANSPORTES BÉJAR            Tel. 923 40 00 11            CIF: B37111111
TRANSPORTES BÉJAR HNOS S.L.  info@transbejar.com          Ctra. Salamanca 12
                                                          37700 Béjar

Destinatario: LANAS DEL TORMES S.A.
              C/ Toro, 88
              37002 Salamanca
              C.I.F. A37222222

Nº factura     Fecha          Vencimiento
5567           15/05/2024     15/06/2024

Concepto                         Kilos    Precio   Importe
Porte Béjar - Madrid             1200     0,10     120,00
""",
        {
            "VendorName": "TRANSPORTES BÉJAR HNOS S.L.",
            "VendorAddress": "Ctra. Salamanca 12, 37700 Béjar",
            "VendorTaxId": "B37111111",
            "CustomerName": "LANAS DEL TORMES S.A.",
            "CustomerTaxId": "A37222222",
            "CustomerAddress": "C/ Toro, 88, 37002 Salamanca",
        },
        id="letterhead-in-columns",
    ),
    pytest.param(
        """\
      E.S. LOS ROBLES
   CARBURANTES MESETA S.L.
    N-VI KM 203
    47100 TORDESILLAS
    CIF B47123123
FACTURA SIMPLIFICADA
N. OPERACION 8891
FECHA 12/02/2024 09:12
CLIENTE: REFORMAS PISUERGA SL
CIF: B47000000
GASOLEO A     40,00 L   1,509    60,36
TOTAL EUROS                      60,36
IVA 21%  BASE 49,88  CUOTA       10,48
""",
        {
            "VendorName": "CARBURANTES MESETA S.L.",
            "VendorAddress": "N-VI KM 203, 47100 TORDESILLAS",
            "VendorTaxId": "B47123123",
            "CustomerName": "REFORMAS PISUERGA SL",
            "CustomerTaxId": "B47000000",
        },
        id="ticket-with-customer",
    ),
]


@pytest.mark.parametrize(("text", "expected"), LAYOUTS)
def test_the_parties_of_a_layout_are_found(text: str, expected: dict[str, str]) -> None:
    """Every name, address and tax number, and nothing else."""
    assert {field.name: field.value for field in find_parties(rows_of_text(text))} == expected
