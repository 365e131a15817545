"""Makes tagged sentences of business papers, which the public data sets lack: companies, people and places in them.

    python -m tools.made_names --output build/made/es_made_train.conll

Spanish first: invoices, deeds, contracts, payrolls, letters and forms, with legal forms (S.L., S.A.U., S.Coop.), names
in capitals and surname first, places after "en". The same seed gives the same file. Names are put together from lists
and stand for nobody; the text is under the project's licence (MIT).
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

from backend.models.words import word_places

SOURCE = """# Sentences of business papers, made by tools/made_names.py

## Source

this repository: tools/made_names.py

## Licence

MIT
"""
SENTENCES = 3600
SEED = 15

Tagged = list[tuple[str, str]]  # tokens with their BIO tags
Maker = Callable[[random.Random], str]

_SLOT = re.compile(r"\{(\w+)\}")


def sentences(count: int, seed: int) -> list[Tagged]:
    """``count`` tagged sentences, the same for the same seed."""
    draw = random.Random(seed)
    return [_sentence(draw) for _ in range(count)]


def write(file: Path, count: int = SENTENCES, seed: int = SEED) -> None:
    """Write a CoNLL file, with its SOURCE.md beside it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    blocks = ["\n".join(f"{word}\t{tag}" for word, tag in tagged) for tagged in sentences(count, seed)]
    file.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    (file.parent / "SOURCE.md").write_text(SOURCE, encoding="utf-8")


def _sentence(draw: random.Random) -> Tagged:
    templates = draw.choices((_DEEDS, _FORMS, _PROSE, _ENGLISH), (3, 4, 4, 3))[0]
    template = draw.choice(templates)
    names_in_capitals = draw.random() < (0.35 if templates in (_DEEDS, _FORMS) else 0.08)
    all_in_capitals = draw.random() < 0.08
    tagged: Tagged = []
    position = 0
    for slot in _SLOT.finditer(template):
        tagged += [(word, "O") for word in _tokens(template[position : slot.start()])]
        tagged += _fill(slot[1], draw, names_in_capitals)
        position = slot.end()
    tagged += [(word, "O") for word in _tokens(template[position:])]
    return [(word.upper(), tag) for word, tag in tagged] if all_in_capitals else tagged


def _fill(slot: str, draw: random.Random, names_in_capitals: bool) -> Tagged:
    """The words of a slot; the first one of a name begins an entity."""
    make, kind = _SLOTS[slot]
    words = _tokens(make(draw))
    if kind is None:
        return [(word, "O") for word in words]
    if names_in_capitals and kind != "LOC":
        keep_accents = draw.random() < 0.5
        words = [word.upper() if keep_accents else _without_accents(word.upper()) for word in words]
    return [(word, f"{'I' if index else 'B'}-{kind}") for index, word in enumerate(words)]


def _tokens(text: str) -> list[str]:
    """The words as serving cuts them: the tagger learns their first tokens' labels."""
    return [text[start:end] for start, end in word_places(text).tolist()]


def _without_accents(text: str) -> str:
    """Capitals as typewriters and forms have them; "Ñ" stays."""
    return "".join(character if character in "ñÑ" else unicodedata.normalize("NFD", character)[0] for character in text)


def _person(draw: random.Random) -> str:
    first = draw.choice(_FIRST)
    first += f" {draw.choice(_SECOND)}" if draw.random() < 0.3 else ""
    particle = draw.choice(("de ", "de la ", "del ")) if draw.random() < 0.04 else ""
    second = f" {draw.choice(_SURNAMES)}" if draw.random() < 0.75 else ""
    return f"{first} {particle}{draw.choice(_SURNAMES)}{second}"


def _surname_first(draw: random.Random) -> str:
    first = draw.choice(_FIRST) + (f" {draw.choice(_SECOND)}" if draw.random() < 0.4 else "")
    comma = "," if draw.random() < 0.5 else ""
    name = f"{draw.choice(_SURNAMES)} {draw.choice(_SURNAMES)}{comma} {first}"
    return name.upper() if draw.random() < 0.6 else name


def _english_person(draw: random.Random) -> str:
    middle = f"{draw.choice('ABCDEJLMPRTW')}. " if draw.random() < 0.25 else ""
    return f"{draw.choice(_ENGLISH_FIRST)} {middle}{draw.choice(_ENGLISH_SURNAMES)}"


def _company(draw: random.Random) -> str:
    surname, other, place = draw.choice(_SURNAMES), draw.choice(_SURNAMES), draw.choice(_PLACES)
    trade, coined = draw.choice(_TRADES), _coined(draw)
    name = draw.choice(
        (
            f"{trade} {surname}",
            f"{trade} {surname} e Hijos",
            f"{trade} {surname} y {other}",
            f"{trade} {place}",
            f"{trade} {coined}",
            f"{trade} del {draw.choice(('Norte', 'Sur', 'Levante', 'Duero', 'Ebro', 'Mediterráneo', 'Cantábrico'))}",
            f"Hermanos {surname}",
            f"{draw.choice(('Hijos', 'Viuda', 'Sucesores', 'Herederos'))} de {draw.choice(_FIRST)} {surname}",
            f"{surname} y {other} {draw.choice(('Abogados', 'Asociados', 'Asesores', 'Arquitectos'))}",
            f"Grupo {draw.choice((coined, surname))}",
            f"{coined} {draw.choice(('Ibérica', 'España', 'Consultores', 'Servicios', 'Soluciones', 'Energía'))}",
            coined,
            f"{coined} {draw.randint(1990, 2024)}",
            f"{draw.choice(_FIRST)} {surname}",
        )
    )
    form = draw.choices(_LEGAL_FORMS, _LEGAL_FORM_WEIGHTS)[0]
    return f"{name}{draw.choice((',', ',', ''))} {form}"


def _foreign_company(draw: random.Random) -> str:
    surname, other = draw.choice(_ENGLISH_SURNAMES), draw.choice(_ENGLISH_SURNAMES)
    name = draw.choice(
        (
            f"{surname} & {other}",
            f"{surname} Holdings",
            f"{surname} {draw.choice(_ENGLISH_TRADES)}",
            f"{_coined(draw)} {draw.choice(_ENGLISH_TRADES)}",
            f"{draw.choice(_ENGLISH_PLACES)} {draw.choice(_ENGLISH_TRADES)}",
            _coined(draw),
        )
    )
    form = draw.choice(_FOREIGN_FORMS)
    return f"{name}{draw.choice((',', ''))} {form}"


def _coined(draw: random.Random) -> str:
    name = draw.choice(_STARTS) + draw.choice(_ENDS)
    return name.upper() if draw.random() < 0.15 else name.capitalize()


def _institution(draw: random.Random) -> str:
    return draw.choice(_INSTITUTIONS).replace("@", draw.choice(_PLACES))


def _place(draw: random.Random) -> str:
    return draw.choice(_PLACES if draw.random() < 0.8 else _COUNTRIES)


def _english_place(draw: random.Random) -> str:
    return draw.choice(_ENGLISH_PLACES)


def _date(draw: random.Random) -> str:
    day, month, year = draw.randint(1, 28), draw.choice(_MONTHS), draw.randint(1995, 2026)
    return draw.choice((f"{day} de {month} de {year}", f"{day:02}/{draw.randint(1, 12):02}/{year}"))


def _english_date(draw: random.Random) -> str:
    return f"{draw.randint(1, 28)} {draw.choice(_ENGLISH_MONTHS)} {draw.randint(1995, 2026)}"


def _amount(draw: random.Random) -> str:
    return (
        f"{draw.randint(1, 99)}.{draw.randint(0, 999):03},{draw.randint(0, 99):02} {draw.choice(('€', 'euros', 'EUR'))}"
    )


def _number(draw: random.Random) -> str:
    return draw.choice((f"{draw.randint(1, 9999)}", f"{draw.randint(2019, 2026)}/{draw.randint(1, 9999):04}"))


def _tax_number(draw: random.Random) -> str:
    return draw.choice("ABGJ") + f"{draw.randint(10**7, 10**8 - 1)}"


def _personal_number(draw: random.Random) -> str:
    return f"{draw.randint(10**7, 10**8 - 1)}{draw.choice(('', '-'))}{draw.choice('TRWAGMYFPDXBNJZSQVHLCKE')}"


def _street(draw: random.Random) -> str:
    way = draw.choice(("Calle", "C/", "Avenida", "Avda.", "Plaza", "Paseo", "Polígono Industrial", "Camino"))
    return f"{way} {draw.choice(_STREETS)}, {draw.randint(1, 180)}"


def _postcode(draw: random.Random) -> str:
    return f"{draw.randint(1000, 52999):05}"


def _one_of(choices: Sequence[str]) -> Maker:
    return lambda draw: draw.choice(choices)


def _listed(text: str) -> tuple[str, ...]:
    """The items between bars and line ends."""
    return tuple(item.strip() for item in re.split(r"[|\n]", text) if item.strip())


_FIRST = _listed(
    """
    José Antonio|María|Manuel|Carmen|Francisco|Ana|Juan|Isabel|Javier|Laura|Miguel|Cristina|Luis|Marta|Carlos|Lucía
    Jesús|Elena|Pedro|Pilar|Rafael|Rosa|Alejandro|Teresa|Fernando|Beatriz|Pablo|Raquel|Sergio|Nuria|Jorge
    Montserrat|Alberto|Rocío|Andrés|Inmaculada|Diego|Encarnación|Enrique|Dolores|Vicente|Concepción|Ramón|Yolanda
    Joaquín|Silvia|Álvaro|Mercedes|Ignacio|Eva|Rubén|Sonia|Óscar|Lourdes|Adrián|Amparo|Gonzalo|Begoña|Jaime|Esther
    Iker|Ainhoa|Jordi|Mireia|Xavier|Aitor|Nerea|Xoán|Uxía|Santiago|Valentina|Emiliano|Ximena|Mateo|Guadalupe|Hugo
    Íñigo|Ángeles|Eduardo|Gloria|Tomás|Consuelo|Agustín|Fátima
    """
)
_SECOND = _listed(
    "José|Antonio|María|Luis|Carmen|Manuel|Ángel|Jesús|Isabel|Carlos|Ignacio|Teresa|Javier|Pilar|Alberto|Dolores"
)
_SURNAMES = _listed(
    """
    García|Martínez|López|Sánchez|Pérez|Gómez|Fernández|Moreno|Jiménez|Ruiz|Hernández|Díaz|Álvarez|Muñoz|Romero
    Alonso|Gutiérrez|Navarro|Torres|Domínguez|Vázquez|Ramos|Gil|Ramírez|Serrano|Blanco|Molina|Morales|Suárez|Ortega
    Delgado|Castro|Ortiz|Rubio|Marín|Sanz|Núñez|Iglesias|Medina|Garrido|Cortés|Castillo|Santos|Lozano|Guerrero|Cano
    Prieto|Méndez|Cruz|Calvo|Gallego|Herrera|Márquez|León|Vidal|Peña|Flores|Cabrera|Campos|Vega|Fuentes|Carrasco
    Diez|Reyes|Caballero|Nieto|Aguilar|Pascual|Santana|Herrero|Montero|Lorenzo|Hidalgo|Giménez|Ibáñez|Ferrer|Durán
    Santiago|Vicente|Benítez|Mora|Arias|Vargas|Carmona|Crespo|Román|Pastor|Soto|Sáez|Velasco|Soler|Moya|Esteban
    Parra|Bravo|Gallardo|Rojas|Paniagua|Etxeberria|Agirre|Goikoetxea|Zubizarreta|Puig|Ferran|Casals|Bosch|Riera
    Vila|Pujol|Roca|Ferreiro|Otero|Lago|Seoane|Villar|Bermejo|Quintana|Tejedor|Escudero|Zapata|Quiroga|Barrientos
    Salvatierra|Urrutia|Echevarría|Larrañaga|Olmedo|Palacios|Robledo|Sepúlveda|Trujillo|Valverde|Yáñez|Zamora
    """
)
_ENGLISH_FIRST = _listed(
    """
    James|Mary|Robert|Patricia|John|Jennifer|Michael|Linda|David|Elizabeth|William|Susan|Richard|Jessica|Thomas
    Sarah|Charles|Karen|Daniel|Nancy|Matthew|Lisa|Anthony|Margaret|Mark|Sandra|Steven|Ashley|Paul|Emily|Andrew
    Donna|Priya|Wei|Fatima|Oliver|Amelia|Harry|Isla|George|Charlotte|Hans|Ingrid|Pierre|Claire|Giulia|Marco|Aisha
    Omar|Siobhan|Kwame
    """
)
_ENGLISH_SURNAMES = _listed(
    """
    Smith|Johnson|Williams|Brown|Jones|Miller|Davis|Wilson|Anderson|Taylor|Thomas|Moore|Jackson|Martin|Lee|Thompson
    White|Harris|Clark|Lewis|Robinson|Walker|Young|Allen|King|Wright|Scott|Hill|Green|Adams|Baker|Nelson|Carter
    Mitchell|Roberts|Turner|Phillips|Campbell|Parker|Evans|Edwards|Collins|Stewart|Morris|Murphy|Cook|Rogers|Bailey
    Cooper|Richardson|Howard|Ward|Peterson|Gray|Watson|Brooks|Kelly|Sanders|Price|Bennett|Wood|Barnes|Ross
    Henderson|Coleman|Jenkins|O'Brien|McCarthy|Patel|Singh|Khan|Nguyen|Chen|Müller|Schmidt|Fischer|Weber|Dubois
    Moreau|Rossi|Bianchi|van Dijk|Jansen|Lindqvist|Okafor|Fairbanks
    """
)
_PLACES = _listed(
    """
    Madrid|Barcelona|Valencia|Sevilla|Zaragoza|Málaga|Murcia|Palma|Bilbao|Alicante|Córdoba|Valladolid|Vigo|Gijón
    L'Hospitalet de Llobregat|Vitoria|A Coruña|La Coruña|Granada|Elche|Oviedo|Badalona|Terrassa|Cartagena|Sabadell
    Jerez de la Frontera|Móstoles|Alcalá de Henares|Pamplona|Fuenlabrada|Almería|Leganés|San Sebastián|Getafe
    Burgos|Santander|Albacete|Castellón de la Plana|Alcorcón|Logroño|Badajoz|Salamanca|Huelva|Lleida|Marbella
    Tarragona|León|Cádiz|Jaén|Ourense|Girona|Lugo|Cáceres|Melilla|Ceuta|Guadalajara|Toledo|Pontevedra|Palencia
    Ciudad Real|Zamora|Ávila|Cuenca|Huesca|Segovia|Soria|Teruel|Santiago de Compostela|Las Palmas de Gran Canaria
    Santa Cruz de Tenerife|Sant Cugat del Vallès|San Fernando|Torrejón de Ardoz|Alcobendas|Majadahonda|Paterna
    Torrent|Mataró|Reus|Avilés|Torrelavega|Puertollano|Lorca|Ponferrada|Benidorm|Vic|Manresa|Tudela|Calahorra
    Talavera de la Reina|Ciudad de México|Bogotá|Lima|Buenos Aires|Santiago de Chile|Quito|Montevideo|Medellín
    Guayaquil|Rosario|Monterrey|Caracas
    """
)
_COUNTRIES = _listed(
    """
    España|Portugal|Francia|Alemania|Italia|Reino Unido|México|Argentina|Chile|Colombia|Perú|Estados Unidos|Andorra
    Marruecos|Países Bajos|Bélgica|Suiza|Andalucía|Cataluña|Galicia|Castilla y León|Comunidad de Madrid|País Vasco
    Extremadura
    """
)
_ENGLISH_PLACES = _listed(
    """
    London|New York|Manchester|Chicago|Dublin|Boston|Edinburgh|Houston|Toronto|Sydney|Birmingham|San Francisco
    Leeds|Seattle|Bristol|Denver|Glasgow|Atlanta|Cardiff|Dallas|Belfast|Melbourne|Vancouver|Singapore|Delaware
    California|Texas|England and Wales|Ireland|Germany|Spain|France|Netherlands|Luxembourg|Frankfurt|Amsterdam
    Paris|Zurich|Milan|Madrid|Lisbon
    """
)
_STREETS = _listed(
    """
    Mayor|de Alcalá|Real|del Carmen|de la Constitución|Gran Vía|San Juan|de los Olmos|Nueva|del Sol|de la Paz
    Cervantes|Goya|Velázquez|de la Estación|San Roque|Las Flores|de Andalucía|de Castilla|La Ermita|Los Álamos
    de Europa
    """
)
_TRADES = _listed(
    """
    Construcciones|Talleres|Transportes|Suministros|Inversiones|Asesoría|Bodegas|Panadería|Ferretería|Instalaciones
    Electricidad|Muebles|Clínica Dental|Autoescuela|Restaurante|Hostelería|Promociones|Limpiezas|Carpintería
    Gestoría|Farmacia|Conservas|Excavaciones|Reformas|Distribuciones|Cerámicas|Frutas|Maderas|Pinturas|Imprenta
    Inmobiliaria|Seguros|Aceites
    """
)
_ENGLISH_TRADES = _listed(
    """
    Consulting|Logistics|Capital|Software|Engineering|Foods|Properties|Insurance|Pharmaceuticals|Energy|Trading
    Motors|Systems|Partners|Media|Textiles|Shipping|Technologies|Solutions|Bank
    """
)
_STARTS = _listed(
    "nexa|tecni|gesti|ibe|solu|mar|luz|terra|agro|digi|nova|vita|inno|cons|alba|opti|hidro|eco|mega|sol|vertia|quan|zeta"
)
_ENDS = _listed("lia|var|mar|tec|dia|sol|net|plus|cor|ria|nor|lux|gest|data|care|med|forma|cal|ven|tia|trans|ber")
_LEGAL_FORMS = _listed(
    "S.L.|S.A.|S.L.U.|S.A.U.|SL|SA|S.Coop.|S. Coop.|S.L.P.|C.B.|SLU|S.C.P.|S. Coop. And.|Sociedad Limitada"
    "|Sociedad Anónima|S.L.L.|A.I.E.|S.Com.|S.A. de C.V."
)
_LEGAL_FORM_WEIGHTS = (30, 18, 10, 5, 8, 6, 4, 3, 4, 3, 3, 1, 1, 2, 2, 1, 1, 1, 2)
_FOREIGN_FORMS = _listed(
    "Ltd|Ltd.|Limited|LLC|Inc.|Inc|Corp.|PLC|plc|LLP|GmbH|AG|S.r.l.|S.p.A.|SAS|S.A.R.L.|Lda.|B.V.|N.V.|L.P.|Company|AB|Oy"
    "|GmbH & Co. KG"
)
_INSTITUTIONS = _listed(
    """
    Ayuntamiento de @|Agencia Tributaria|Agencia Estatal de Administración Tributaria|AEAT
    Tesorería General de la Seguridad Social|TGSS|Registro Mercantil de @|Registro de la Propiedad de @
    Diputación de @|Juzgado de Primera Instancia de @|Juzgado de lo Mercantil de @|Audiencia Provincial de @
    Tribunal Supremo|Universidad de @|Banco de España|Banco Santander|CaixaBank|BBVA|Banco Sabadell|Bankinter
    Unicaja|Ibercaja|Caja Rural|ING|Iberdrola|Endesa|Naturgy|Telefónica|Movistar|Vodafone|Mapfre|Mutua Madrileña
    Correos|Ministerio de Hacienda|Ministerio de Trabajo|Junta de Andalucía|Generalitat de Catalunya
    Xunta de Galicia|Gobierno de Aragón|Colegio Notarial de @|Hospital Universitario de @|SEPE|INSS
    Cámara de Comercio de @|Comisión Nacional del Mercado de Valores|CNMV|Instituto Nacional de Estadística
    """
)
_MONTHS = _listed("enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre")
_ENGLISH_MONTHS = _listed("January|February|March|May|June|August|October|December")
_ITEMS = _listed(
    """
    Servicio de consultoría|Material de oficina|Mantenimiento informático|Alquiler de local
    Reparación de maquinaria|Transporte de mercancías|Licencia de software|Horas de formación|Tóner negro
    Mano de obra|Cuota mensual|Aceite de oliva virgen extra|Tubería PVC 40 mm|Diseño de página web
    Asesoramiento fiscal y contable|Desplazamiento|Comisión de apertura|Seguro de hogar
    """
)
_JOBS = _listed(
    """
    administrador único|apoderado|gerente|director general|consejera delegada|secretario|presidenta|socio|contable
    responsable de compras|notario|procuradora|letrado|auxiliar administrativo|oficial de primera|analista
    jefa de obra
    """
)
_LAWS = _listed(
    """
    Ley 37/1992 del Impuesto sobre el Valor Añadido|Código Civil|Código de Comercio|Estatuto de los Trabajadores
    Real Decreto 1619/2012|Ley de Arrendamientos Urbanos|Ley de Sociedades de Capital|Reglamento (UE) 2016/679
    Ley Hipotecaria
    """
)
_TITLES = _listed(
    """
    FACTURA|CONTRATO DE ARRENDAMIENTO|ESCRITURA DE COMPRAVENTA|NÓMINA|RECIBO DE SALARIOS|ALBARÁN DE ENTREGA
    PRESUPUESTO|CERTIFICADO|PODER GENERAL|ACTA DE LA JUNTA GENERAL|EXTRACTO DE CUENTA|PÓLIZA DE SEGURO
    CONTRATO DE PRÉSTAMO|DEMANDA|PEDIDO
    """
)
_DEEDS = (
    "En {LOC}, a {date}.",
    "EN {LOC}, A {date}, ANTE MÍ, {PER}, NOTARIO DEL ILUSTRE COLEGIO DE {LOC}, COMPARECE:",
    "REUNIDOS: De una parte, {mister} {PER}, mayor de edad, con DNI {dni} y domicilio en {LOC}, {street}.",
    "De otra parte, {mister} {PER}, en nombre y representación de {ORG}, con CIF {cif}, en su calidad de {job}.",
    "La sociedad {ORG}, constituida en {LOC} e inscrita en el {INST}, tomo {number}, folio {number}.",
    "{mister} {PER}, con N.I.F. {dni}, vecino de {LOC}, casado en régimen de gananciales con {mister} {PER}.",
    "Actúa como {job} de la mercantil {ORG}, domiciliada en {LOC}, {street}, C.P. {cp}.",
    "INTERVIENEN: {mister} {PER} en su propio nombre y derecho; y {mister} {PER} como {job} de {ORG}.",
    "La entidad {ORG} (en adelante, el Arrendador) cede a {ORG} (en adelante, la Arrendataria) el local sito en {LOC}.",
    "Que {mister} {PER} es dueño en pleno dominio de la finca número {number} del {INST}.",
    "Se otorga poder a favor de los procuradores {PER} y {PER}, con despacho en {LOC}.",
    "El préstamo concedido por {INST} a {ORG} asciende a {amount}.",
    "Para cualquier controversia las partes se someten a los Juzgados y Tribunales de {LOC}.",
    "Y en prueba de conformidad firman {PER} y {PER} en {LOC}, a {date}.",
    "Fdo.: {PER}",
    "Fdo. {PER}, {job} de {ORG}",
    "Conforme al artículo {number} de la {law}, la parte arrendataria entregará la fianza.",
    "ESTIPULACIONES: PRIMERA.- {ORG} vende y transmite a {mister} {PER}, que compra, la finca descrita.",
    "DEMANDANTE: {PER}. DEMANDADO: {ORG}. Procurador: {PER}.",
    "Vistos por {INST} los autos seguidos a instancia de {PER} contra {ORG} e {INST}.",
    "El administrador concursal de {ORG}, {mister} {PER}, presentó su informe ante el {INST}.",
    "Son socios fundadores {PER}, {PER} y {ORG}.",
    "Asisten a la junta: {PER} (presidente), {PER} (secretaria) y {PER}.",
    "La parte vendedora, {ORG}, sociedad de nacionalidad española, tiene su domicilio social en {LOC} ({LOC}).",
)
_FORMS = (
    "{title} Nº {number} Fecha: {date}",
    "Cliente: {ORG} CIF: {cif}",
    "Cliente: {PER} NIF: {dni}",
    "Proveedor: {ORG}",
    "Emisor: {ORG} - {street} - {cp} {LOC}",
    "{ORG} {street} {cp} {LOC} ({LOC}) NIF {cif}",
    "{ORG}",
    "{ORG} CIF {cif} Tel. 91{number}",
    "Facturar a: {ORG}, {street}, {cp} {LOC}",
    "Datos del cliente Nombre: {PER} DNI: {dni} Dirección: {street} Población: {LOC} Provincia: {LOC}",
    "Nombre y apellidos: {PER}",
    "Apellidos y nombre: {SURNAME_FIRST}",
    "APELLIDOS Y NOMBRE {SURNAME_FIRST} N.I.F. {dni}",
    "Trabajador: {SURNAME_FIRST} Categoría: {job} Antigüedad: {date}",
    "Empresa: {ORG} C.C.C. {number} Trabajador: {SURNAME_FIRST}",
    "Titular: {SURNAME_FIRST} Entidad: {INST} IBAN: ES{number} {number}",
    "Titular de la cuenta: {PER}",
    "Ordenante: {ORG} Beneficiario: {PER} Concepto: {item} Importe: {amount}",
    "{date} TRANSFERENCIA DE {ORG} {amount}",
    "{date} RECIBO {INST} {amount}",
    "{date} BIZUM A FAVOR DE {PER} {amount}",
    "{date} COMPRA TARJETA {ORG} {LOC} {amount}",
    "{item} 1 {amount} {amount}",
    "Base imponible {amount} IVA 21 % {amount} TOTAL A PAGAR {amount}",
    "Forma de pago: transferencia bancaria a {INST}",
    "Entregado por: {PER} Recibido por: {PER}",
    "Lugar de entrega: {street}, {cp} {LOC}",
    "Lugar y fecha: {LOC}, {date}",
    "En {LOC}, {date}",
    "Atendido por {PER}",
    "Att.: {mister} {PER}",
    "A la atención de {PER} {ORG} {street} {cp} {LOC}",
    "Paciente: {SURNAME_FIRST} Médico: Dr. {PER} Centro: {INST}",
    "Tomador del seguro: {ORG} Asegurado: {PER} Mediador: {ORG}",
    "Deudor: {ORG} Acreedor: {INST}",
    "Modelo 303 Ejercicio 2024 Período 3T NIF {cif} Razón social {ORG}",
    "Apellidos y nombre o razón social: {ORG}",
    "Declarante: {SURNAME_FIRST} Delegación de {LOC}",
    "Inscrita en el {INST}, Tomo {number}, Libro {number}, Hoja M-{number}",
    "Origen: {LOC} Destino: {LOC} Transportista: {ORG}",
    "País de origen: {LOC} Puerto de descarga: {LOC}",
    "ATENCIÓN: DOCUMENTO NO VÁLIDO COMO JUSTIFICANTE DE PAGO",
    "CONDICIONES GENERALES DE VENTA Y PLAZO DE ENTREGA",
    "OBSERVACIONES: MERCANCÍA ENTREGADA EN PERFECTO ESTADO",
    "DATOS BANCARIOS PARA EL PAGO DE LA FACTURA",
    "Concepto Cantidad Precio Dto. Importe",
)
_PROSE = (
    "Estimado {mister} {PER}: Le adjuntamos la factura de {ORG} por importe de {amount}.",
    "Nuestra oficina en {LOC} permanecerá cerrada el {date}.",
    "{ORG} abrirá una nueva planta en {LOC} y contratará a 200 personas.",
    "{PER} trabaja en {ORG} desde {date}.",
    "{PER} vive en {LOC} y trabaja en {LOC}.",
    "La sede de {ORG} está en {LOC}, pero sus almacenes se encuentran en {LOC}.",
    "Hablé con {PER}, de {ORG}, sobre el pedido {number}.",
    "La reunión con {ORG} será en {LOC} el {date}.",
    "El contrato entre {ORG} y {ORG} se firmó en {LOC}.",
    "Según {INST}, {ORG} adeuda {amount}.",
    "{INST} ha notificado a {ORG} una sanción de {amount}.",
    "{PER}, {job} de {ORG}, viajó de {LOC} a {LOC}.",
    "¿Puede {PER} enviar el presupuesto a {ORG}?",
    "«{ORG} cumple sus plazos», afirma {PER}.",
    "El proveedor {ORG} ({LOC}) nos ha enviado {item} por {amount}.",
    "Nacida en {LOC} en 1971, {PER} preside {ORG}.",
    "Los trabajadores de {ORG} en {LOC} irán a la huelga.",
    "Las ventas en {LOC} crecieron un 12 %, mientras que en {LOC} cayeron.",
    "El consejo de {ORG} nombró {job} a {PER}.",
    "{title} {number} de {ORG} (NIF {cif}) a {PER}: {amount}, vence el {date}.",
    "{title} {number} de {ORG} a {ORG}: {amount}.",
    "{title} de {ORG} a nombre de {PER}, {street}, {LOC}.",
    "Pagado a {PER} el {date}: {amount}.",
    "{ORG} vendió a {PER} {item} por {amount}.",
    "El {date} se notificó a {PER} y a {ORG} en {LOC}.",
    "Avisa a {PER} y manda copia a {ORG}.",
    "{INST} y {ORG} abren oficina en {LOC}, dijo {PER}.",
    "{INST} concede a {PER} una ayuda de {amount}.",
    "Reunión con {ORG} en {LOC} y con {PER}.",
    "Un saludo, {PER} {job} {ORG}",
    "Reciba un cordial saludo. {PER}. Departamento de Administración.",
    "Adjunto remito el {title} solicitado por {PER}.",
    "{ORG}, filial de {ORG}, presentó concurso de acreedores en {LOC}.",
    "La mercancía saldrá de {LOC} con destino a {LOC} vía {LOC}.",
    "{INST} adjudicó a {ORG} las obras por {amount}.",
    "El envío procede de {ORG}, con domicilio en {LOC}.",
    "Hemos recibido de {mister} {PER} la cantidad de {amount} en concepto de {item}.",
    "La {law} se aplicará a los contratos firmados en {LOC}.",
    "El local está situado en {LOC}, en la {street}.",
    "Se ruega confirmen la recepción de este documento antes del {date}.",
    "El pago se hará en un plazo de 30 días desde la fecha de la factura.",
    "{PER} y {PER} compraron un piso en {LOC} por {amount}.",
)
_ENGLISH = (
    "Invoice to: {EN_ORG}, {number} High Street, {EN_LOC}",
    "Bill to {EN_PER}, {EN_ORG}, {EN_LOC}.",
    "This Agreement is made on {en_date} between {EN_ORG} and {EN_ORG}.",
    "{EN_ORG}, a company incorporated in {EN_LOC}, appoints {EN_PER} as its director.",
    "Dear {EN_PER}, please find attached the invoice from {EN_ORG}.",
    "{EN_PER} joined {EN_ORG} in {EN_LOC} on {en_date}.",
    "Our office in {EN_LOC} has moved; write to {EN_PER}.",
    "{EN_ORG} acquired {EN_ORG} for an undisclosed sum.",
    "Kind regards, {EN_PER} Finance Manager {EN_ORG}",
    "Signed by {EN_PER} for and on behalf of {EN_ORG}",
    "Payable to: {EN_ORG} Bank: {EN_ORG} Reference: {number}",
    "Employee: {EN_PER} Employer: {EN_ORG} Pay date: {en_date}",
    "Patient name: {EN_PER} Address: {number} Park Road, {EN_LOC}",
    "Shares of {EN_ORG} rose in {EN_LOC} after {EN_PER} stepped down.",
    "The registered office of {EN_ORG} is in {EN_LOC}.",
    "{EN_PER} flew from {EN_LOC} to {EN_LOC} to meet {ORG}.",
    "We bought the goods from {ORG} in {LOC}.",
    "Ship to: {EN_PER}, {EN_LOC}, {EN_LOC}",
    "SHIPPER: {EN_ORG} CONSIGNEE: {ORG} PORT OF LOADING: {EN_LOC} PORT OF DISCHARGE: {LOC}",
    "Minutes of the meeting: present were {EN_PER}, {EN_PER} and {EN_PER}.",
    "Total due: $ {number} Payment terms: 30 days",
    "TERMS AND CONDITIONS OF SALE",
    "Please return this form to the Accounts Department before {en_date}.",
    "Witnessed by {EN_PER} of {EN_LOC}",
)
_SLOTS: dict[str, tuple[Maker, str | None]] = {
    "PER": (_person, "PER"),
    "SURNAME_FIRST": (_surname_first, "PER"),
    "EN_PER": (_english_person, "PER"),
    "ORG": (_company, "ORG"),
    "EN_ORG": (_foreign_company, "ORG"),
    "INST": (_institution, "ORG"),
    "LOC": (_place, "LOC"),
    "EN_LOC": (_english_place, "LOC"),
    "date": (_date, None),
    "en_date": (_english_date, None),
    "amount": (_amount, None),
    "number": (_number, None),
    "cif": (_tax_number, None),
    "dni": (_personal_number, None),
    "street": (_street, None),
    "cp": (_postcode, None),
    "item": (_one_of(_ITEMS), None),
    "job": (_one_of(_JOBS), None),
    "law": (_one_of(_LAWS), None),
    "title": (_one_of(_TITLES), None),
    "mister": (_one_of(("D.", "Don", "Dña.", "Doña", "Sr.", "Sra.", "señor", "señora")), None),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="python -m tools.made_names", description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=SENTENCES)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(arguments)
    write(options.output, options.sentences, options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
