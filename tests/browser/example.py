"""Writes the invoice that the page offers as an example, with a headless Chromium.

    python -m tests.browser.example backend/api/page/example.pdf

Nobody in it exists; its tax ids and IBAN have right check digits, and its amounts add up.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
from pathlib import Path

from tests.browser.chrome import Chrome, open_tab

_PAPER = """<!doctype html><meta charset="utf-8"><title>Factura 2026/0417</title><style>
body { font: 10pt "Liberation Sans", sans-serif; margin: 16mm; color: #222 }
h1 { color: #0b6b65; margin: 0; letter-spacing: 1px } table { border-collapse: collapse; width: 100% }
th, td { padding: 5px 8px; text-align: right; border-bottom: 1px solid #ccc } th { background: #e0f1ef }
.left { text-align: left } .head { display: flex; justify-content: space-between; margin-bottom: 10mm }
.head p { margin: 2px 0 } .sums { width: 75mm; margin: 8mm 0 8mm auto } .sums td { border: 0 }
.total td { font-weight: bold; font-size: 12pt; border-top: 2px solid #0b6b65 }
</style>
<div class=head><div><p><b>Suministros Alborada, S.L.</b></p><p>CIF: B12345674</p>
<p>Calle del Olivo, 12</p><p>41001 Sevilla</p></div>
<div><h1>FACTURA</h1><p>Factura n.º: 2026/0417</p><p>Fecha: 12/03/2026</p><p>Vencimiento: 11/04/2026</p></div></div>
<div class=head><div><p>Cliente</p><p><b>Talleres Ribera, S.A.</b></p><p>CIF: A58818501</p><p>Avenida del Puerto, 8</p>
<p>46021 Valencia</p></div></div>
<table><tr><th class=left>Descripción<th>Cantidad<th>Precio<th>IVA<th>Importe
<tr><td class=left>Papel A4, caja de 5 paquetes<td>10<td>24,50 €<td>21 %<td>245,00 €
<tr><td class=left>Tóner negro HP 26A<td>3<td>81,40 €<td>21 %<td>244,20 €
<tr><td class=left>Silla operativa con respaldo de malla<td>2<td>156,20 €<td>21 %<td>312,40 €
<tr><td class=left>Manual de contabilidad (libro)<td>4<td>29,15 €<td>4 %<td>116,60 €</table>
<table class=sums><tr><td class=left>Base imponible<td>918,20 €<tr><td class=left>IVA 21 % de 801,60 €<td>168,34 €
<tr><td class=left>IVA 4 % de 116,60 €<td>4,66 €<tr class=total><td class=left>Total factura<td>1.091,20 €</table>
<p>Forma de pago: transferencia a la cuenta ES91 2100 0418 4502 0005 1332</p>"""


async def printed() -> bytes:
    """The paper as a PDF."""
    with tempfile.TemporaryDirectory() as profile:
        chrome = Chrome(Path(profile))
        try:
            async with open_tab(chrome) as tab:
                frame = (await tab.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
                await tab.send("Page.setDocumentContent", frameId=frame, html=_PAPER)
                pdf = await tab.send("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)
                return base64.b64decode(pdf["data"])
        finally:
            chrome.close()


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(asyncio.run(printed()))
