"""Pages with tables of many kinds, and the rows, spans and headers of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from random import Random
from typing import Any, NamedTuple

from benchmarks.fields_designs.invoice import Sheet
from benchmarks.fields_designs.markup import sheet


class Cell(NamedTuple):
    """One cell of a made table."""

    text: str
    rowspan: int = 1
    colspan: int = 1


Row = Sequence[str | Cell]
_STYLES = {
    "ruled": "td, th { border: .7pt solid #333 }",
    "lined": "td, th { border-bottom: .5pt solid #888 }",
    "booktabs": "table { border-top: 1.2pt solid; border-bottom: 1.2pt solid } thead { border-bottom: .7pt solid }",
    "headonly": "thead th { background: #345; color: white }",
    "zebra": "tbody tr:nth-child(even) { background: #e8eef4 }",
    "plain": "td, th { padding: 3pt 8pt }",
}
_FILLER = {
    "es": "Los datos proceden de los registros internos y se publican con carácter provisional hasta su revisión.",
    "en": "All entries were checked by two members of the team; differences of one unit are due to rounding.",
    "fr": "Ces données sont publiées à titre indicatif et pourront être révisées au cours du prochain exercice.",
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table, or the piece of one that stands on a page."""

    rows: Sequence[Row]  # the first ones are its header
    head_rows: int = 1
    align: str = "l"  # a letter a column: l, r, c
    page: int = 1
    continues: bool = False  # the table of the page before
    width: str = "100%"

    def html(self) -> str:
        """Its HTML."""
        head = "".join(self._row(row, "th") for row in self.rows[: self.head_rows])
        body = "".join(self._row(row, "td") for row in self.rows[self.head_rows :])
        return f'<table style="width:{self.width}"><thead>{head}</thead><tbody>{body}</tbody></table>'

    def truth(self) -> dict[str, Any]:
        """Its truth."""
        rows = [
            [
                {
                    "text": cell.text.strip(),
                    "rowspan": cell.rowspan,
                    "colspan": cell.colspan,
                    "header": index < self.head_rows,
                }
                for cell in map(_cell, row)
            ]
            for index, row in enumerate(self.rows)
        ]
        return {"page": self.page, "rows": rows, **({"continues": True} if self.continues else {})}

    def _row(self, row: Row, tag: str) -> str:
        cells, column = [], 0
        for cell in map(_cell, row):
            kind = "c" if 1 < cell.colspan < 4 else (self.align + "l" * 20)[column]
            indent = 8 * (len(cell.text) - len(cell.text.lstrip()))
            cells.append(
                f'<{tag} class="{kind}" rowspan={cell.rowspan} colspan={cell.colspan} '
                f'style="padding-left:{4 + indent}pt">{escape(cell.text.strip())}</{tag}>'
            )
            column += cell.colspan
        return f"<tr>{''.join(cells)}</tr>"


def _cell(content: str | Cell) -> Cell:
    return content if isinstance(content, Cell) else Cell(content)


def _page(random: Random, language: str, title: str, style: str, *tables: Table, layout: str = "block") -> Sheet:
    """A page of tables below or beside each other, with a sentence above and below."""
    pieces = []
    for table in tables:
        start = ' style="break-before:page"' if table.continues else ""
        pieces.append(f"<div{start}>{table.html()}</div><br>")
    body = f"""<h1>{escape(title)}</h1><p>{_FILLER[language]}</p><br>
    <div style="display:{layout};gap:30pt">{"".join(pieces)}</div><p class=small>{_FILLER[language]}</p>"""
    truth = {
        "lang": language,
        "medium": "digital",
        "source": "generated",
        "doc_type": "table",
        "style": style,
        "labelled": ["tables"],
        "tables": [table.truth() for table in tables],
    }
    return Sheet(sheet(body, _STYLES[style], points=random.choice((8.5, 9.5, 10)), font=random.randrange(3)), truth)


def _amount(random: Random, least: int = 100, greatest: int = 99_000, *, spanish: bool = True) -> str:
    text = f"{random.randrange(least, greatest):,}"
    return text.replace(",", ".") if spanish else text


def price_groups(random: Random) -> Sheet:
    """A price list with a row over all columns before each group."""
    rows: list[Row] = [("Ref.", "Producto", "Envase", "PVP €")]
    for group, names in (
        ("QUESOS", ("Idiazábal curado", "Torta del Casar", "Mahón semi")),
        ("CONSERVAS", ("Bonito en aceite", "Espárrago grueso", "Pimiento asado")),
        ("VINOS", ("Mencía joven", "Godello sobre lías")),
    ):
        rows.append((Cell(group, 1, 4),))
        rows += [
            (
                f"{random.randrange(1000, 9999)}",
                name,
                random.choice(("250 g", "1 kg", "75 cl")),
                f"{random.randrange(3, 29)},{random.randrange(10, 99)}",
            )
            for name in names
        ]
    return _page(random, "es", "Lista de precios otoño", "lined", Table(rows, align="lllr"))


def balance(random: Random) -> Sheet:
    """A balance sheet without lines: indents, sums, losses in brackets."""
    rows: list[Row] = [("", "31/12/2024", "31/12/2023")]
    names = (
        "ACTIVO NO CORRIENTE",
        "  Inmovilizado intangible",
        "  Inmovilizado material",
        "  Inversiones financieras",
        "ACTIVO CORRIENTE",
        "  Existencias",
        "  Deudores comerciales",
        "  Tesorería",
        "TOTAL ACTIVO",
        "  Capital",
        "  Reservas",
        "  Resultado del ejercicio",
        "TOTAL PATRIMONIO NETO",
    )
    for name in names:
        lost = name.endswith("ejercicio")
        figures = [_amount(random, 4000, 900_000) for _ in range(2)]
        rows.append((name, *(f"({figure})" if lost else figure for figure in figures)))
    return _page(random, "es", "Balance de situación (euros)", "plain", Table(rows, align="lrr"))


def shifts(random: Random) -> Sheet:
    """A rota with cells over several rows."""
    rows: list[Row] = [
        ("Turno", "Lunes", "Martes", "Miércoles", "Jueves", "Viernes"),
        ("Mañana 6-14", Cell("Iker", 2), "Noa", "Noa", Cell("Bruno", 1, 2)),
        ("Tarde 14-22", "Vega", "Iker", "Vega", "Noa"),
        ("Noche 22-6", "Bruno", "Bruno", Cell("Cerrado por inventario", 1, 2), "Vega"),
        ("Guardia", "Lía", "Lía", "Omar", "Omar", "Lía"),
    ]
    return _page(random, "es", "Cuadrante de la semana 41", "ruled", Table(rows))


def register(random: Random) -> Sheet:
    """A list over two pages with its header on both."""
    head: Row = ("Member", "Joined", "Branch", "Fee £", "Balance £")

    def row(index: int) -> Row:
        return (
            f"M-{4100 + index}",
            f"{random.randrange(1, 29):02d}/{random.randrange(1, 13):02d}/20{random.randrange(10, 25)}",
            random.choice(("Stroud", "Hexham", "Ludlow", "Oban")),
            f"{random.randrange(20, 90)}.00",
            f"{random.randrange(-40, 200)}.{random.randrange(10, 99)}",
        )

    first = Table([head, *(row(index) for index in range(28))], align="lllrr")
    second = Table([head, *(row(index) for index in range(28, 45))], align="lllrr", page=2, continues=True)
    return _page(random, "en", "Register of members", "ruled", first, second)


def side_by_side(random: Random) -> Sheet:
    """Two small tables beside each other."""
    left = Table(
        [
            ("Zone", "Rooms"),
            *((name, str(random.randrange(2, 40))) for name in ("North wing", "South wing", "Annexe", "Tower")),
        ],
        align="lr",
    )
    right = Table(
        [
            ("Month", "Guests", "Nights"),
            *(
                (name, str(random.randrange(90, 400)), str(random.randrange(400, 990)))
                for name in ("May", "June", "July", "August", "September")
            ),
        ],
        align="lrr",
    )
    return _page(random, "en", "Occupancy", "ruled", left, right, layout="flex")


def survey(random: Random) -> Sheet:
    """Two rows of header, the first with spans; lines above, below and under the header only."""
    rows: list[Row] = [
        (Cell("Region", 2), Cell("Households", 1, 2), Cell("Businesses", 1, 2)),
        ("2023", "2024", "2023", "2024"),
    ]
    rows += [
        (name, *(_amount(random, 900, 90_000, spanish=False) for _ in range(4)))
        for name in ("Highlands", "Borders", "Fife", "Lothian", "Grampian", "Islands")
    ]
    return _page(random, "en", "Broadband connections", "booktabs", Table(rows, head_rows=2, align="ccccc"))


def nutrition(random: Random) -> Sheet:
    """A narrow table without lines."""
    rows: list[Row] = [("Información nutricional", "Por 100 g", "Por ración")]
    rows += [
        (
            name,
            f"{random.randrange(1, 60)},{random.randrange(10)} {unit}",
            f"{random.randrange(1, 30)},{random.randrange(10)} {unit}",
        )
        for name, unit in (
            ("Grasas", "g"),
            ("  de las cuales saturadas", "g"),
            ("Hidratos de carbono", "g"),
            ("  de los cuales azúcares", "g"),
            ("Fibra alimentaria", "g"),
            ("Proteínas", "g"),
            ("Sal", "g"),
        )
    ]
    return _page(random, "es", "Galleta de avena", "plain", Table(rows, align="lrr", width="60%"))


def incidents(random: Random) -> Sheet:
    """Long texts that wrap inside their cells."""
    texts = (
        "Fuga en la junta de la bomba de impulsión; se sustituye la junta y se comprueba la presión durante dos horas",
        "Alarma de nivel sin causa aparente",
        "Rotura del cristal de la puerta de acceso al almacén por golpe de carretilla elevadora",
        "Corte de suministro eléctrico de la compañía, grupo electrógeno en marcha durante 43 minutos",
        "Ratón en el vestuario",
    )
    rows: list[Row] = [("Fecha", "Incidencia", "Responsable", "Cierre")]
    rows += [
        (
            f"{random.randrange(1, 29):02d}/09/2025",
            text,
            random.choice(("Mantenimiento", "Servicios generales", "Proveedor externo")),
            random.choice(("sí", "no", "parcial")),
        )
        for text in texts
    ]
    return _page(random, "es", "Parte mensual de incidencias", "lined", Table(rows))


def standings(random: Random) -> Sheet:
    """Many narrow columns of figures, no lines but a dark header."""
    rows: list[Row] = [("Pos", "Team", "P", "W", "D", "L", "GF", "GA", "Pts")]
    for place, name in enumerate(
        ("Ravens", "Old Wharf", "St Brannock", "Dockers", "Pilgrims", "Kiln Lane", "Millers", "Castle"), 1
    ):
        rows.append(
            (
                str(place),
                name,
                "22",
                *(str(random.randrange(3, 14)) for _ in range(3)),
                str(random.randrange(15, 60)),
                str(random.randrange(15, 60)),
                str(52 - 4 * place),
            )
        )
    return _page(random, "en", "League table after round 22", "headonly", Table(rows, align="rlrrrrrrr"))


def tariff(random: Random) -> Sheet:
    """Ruled, with empty cells and marks of footnotes."""
    rows: list[Row] = [("Poids jusqu'à", "Zone A", "Zone B", "Zone C")]
    for index, weight in enumerate(("250 g", "500 g", "1 kg", "2 kg", "5 kg", "10 kg")):
        rows.append(
            (
                weight,
                f"{4 + index},{random.randrange(10, 99)}",
                f"{7 + 2 * index},{random.randrange(10, 99)}",
                "" if index > 3 else f"{12 + 3 * index},{random.randrange(10, 99)} *",
            )
        )
    return _page(random, "fr", "Tarifs d'expédition", "ruled", Table(rows, align="lrrr"))


def budget(random: Random) -> Sheet:
    """A first column whose cells go over several rows."""
    rows: list[Row] = [("Capítulo", "Partida", "Inicial", "Ejecutado", "%")]
    for chapter, parts in (
        ("Personal", ("Sueldos", "Seguridad Social", "Formación")),
        ("Gastos corrientes", ("Energía", "Limpieza")),
        ("Inversiones", ("Mobiliario", "Equipos", "Obras")),
    ):
        for index, part in enumerate(parts):
            figures = (part, _amount(random), _amount(random), f"{random.randrange(20, 120)},{random.randrange(10)}")
            rows.append((Cell(chapter, len(parts)), *figures) if index == 0 else figures)
    rows.append((Cell("Total", 1, 2), _amount(random), _amount(random), "88,1"))
    return _page(random, "es", "Ejecución del presupuesto", "ruled", Table(rows, align="llrrr"))


def zebra(random: Random) -> Sheet:
    """Shaded rows, no lines."""
    rows: list[Row] = [("Gare", "Arrivée", "Départ", "Quai")]
    minutes = random.randrange(360, 420)
    for name in ("Vierzon", "Châteauroux", "Argenton", "La Souterraine", "Limoges", "Uzerche", "Brive"):
        minutes += random.randrange(14, 40)
        rows.append(
            (
                name,
                f"{minutes // 60:02d}:{minutes % 60:02d}",
                f"{(minutes + 2) // 60:02d}:{(minutes + 2) % 60:02d}",
                random.choice(("A", "B", "1", "2")),
            )
        )
    return _page(random, "fr", "Horaires d'hiver", "zebra", Table(rows, align="lccc"))


TABLES: Mapping[str, Callable[[Random], Sheet]] = {
    "t_price_groups": price_groups,
    "t_balance": balance,
    "t_shifts": shifts,
    "t_register": register,
    "t_side_by_side": side_by_side,
    "t_survey": survey,
    "t_nutrition": nutrition,
    "t_incidents": incidents,
    "t_standings": standings,
    "t_tariff": tariff,
    "t_budget": budget,
    "t_zebra": zebra,
}
