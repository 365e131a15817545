"""Companies, persons and their addresses in the countries of the designs; all made up."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from benchmarks.fields_designs.identities import COMPANY_NUMBERS, cif, nie, nif

_ES_FIRST = [
    "Rocío",
    "Gonzalo",
    "Nerea",
    "Íñigo",
    "Montserrat",
    "Eulalia",
    "Hugo",
    "Estíbaliz",
    "Ramón",
    "Candela",
    "Aitor",
    "Begoña",
    "Matías",
    "Úrsula",
    "Abel",
]
_ES_LAST = [
    "Bermúdez",
    "Echeverría",
    "Pacheco",
    "Quiroga",
    "Ledesma",
    "Zubiri",
    "Cobos",
    "Peñalver",
    "Aguado",
    "Montoro",
    "Güell",
    "Frutos",
    "Barroso",
    "Olmedo",
]
_ES_TRADES = {
    "any": ["Cerrajería", "Viveros", "Bodegas", "Textiles", "Rotulación", "Panificadora", "Carpintería", "Papelería"],
    "hotel": ["Hotel", "Hospedería", "Apartahotel", "Hostal"],
    "workshop": ["Talleres", "Neumáticos", "Autoservicio"],
    "bar": ["Cafetería", "Bar", "Mesón", "Cervecería"],
    "shop": ["Ferretería", "Droguería", "Zapatería", "Juguetería"],
    "telecom": ["Telefonía", "Fibra", "Comunicaciones"],
    "water": ["Aguas de", "Abastecimientos", "Gestión Hídrica"],
    "clinic": ["Clínica Dental", "Fisioterapia", "Academia", "Centro de Psicología"],
    "advisers": ["Gestoría", "Asesores", "Abogados"],
    "builders": ["Construcciones", "Reformas", "Instalaciones"],
}
_ES_NAMES = [
    "Piedrahita",
    "Arroyo Seco",
    "Tajuña",
    "Guadiela",
    "Monte Oscuro",
    "Zarzalejo",
    "Peña Ubiña",
    "Río Cabe",
    "El Espinar",
    "Santolaya",
    "Dos Castillas",
    "Almazara Vieja",
]
_ES_FORMS = [", S.L.", " S.L.", ", S.A.", " SL", ", S.L.U.", " S.A.U.", ", S.L.L.", " S.C.", " Sociedad Limitada"]
_ES_STREETS = [
    "Ronda de Atocha",
    "Avda. de la Constitución",
    "C/ Sagunto",
    "Plaza del Trigo",
    "Camino Viejo",
    "Travesía de la Luna",
    "Gran Vía",
    "Carretera de Burgos",
    "Pza. Mayor",
    "Rúa do Hórreo",
]
_ES_TOWNS = [
    ("09004", "Burgos"),
    ("24007", "León"),
    ("33208", "Gijón (Asturias)"),
    ("18012", "Granada"),
    ("37001", "Salamanca"),
    ("15702", "Santiago de Compostela (A Coruña)"),
    ("45600", "Talavera de la Reina"),
    ("26005", "Logroño, La Rioja"),
    ("14013", "Córdoba"),
    ("19200", "Azuqueca de Henares (Guadalajara)"),
]
_CANARY_TOWNS = [("35010", "Las Palmas de Gran Canaria"), ("38650", "Los Cristianos, Arona"), ("35500", "Arrecife")]
_CA_TOWNS = [("17001", "Girona"), ("08201", "Sabadell"), ("43202", "Reus"), ("25003", "Lleida")]
_CA_STREETS = ["Carrer de la Pau", "Rambla Nova", "Passeig de l'Estació", "Av. Catalunya"]
_EN_WORDS = [
    "Thornbury",
    "Wrenfield",
    "Copper Lane",
    "Marlow & Finch",
    "Northgate",
    "Elderbrook",
    "Saltmarsh",
    "Quillon",
]
_EN_TRADES = ["Joinery", "Electrical", "Textiles", "Bookbinding", "Scaffolding", "Veterinary Care", "Translations"]
_GB_STREETS = ["Bridge Street", "Station Road", "Mill Lane", "Harbour View", "The Crescent", "Castle Hill"]
_GB_TOWNS = ["Bristol BS1 4ST", "Leeds LS2 7HY", "Norwich NR3 1AB", "Cardiff CF10 2GP", "Exeter EX4 6PL"]
_IE_TOWNS = ["Cork T12 X8N6", "Galway H91 E2K3", "Dublin 8, D08 KX45", "Limerick V94 T28R"]
_US_STREETS = ["Maple Avenue", "W Jefferson Blvd", "Old Mill Rd", "SE 14th Street", "Harbor Drive"]
_US_TOWNS = ["Portland, OR 97214", "Boise, ID 83702", "Tulsa, OK 74103", "Raleigh, NC 27601", "Madison, WI 53703"]
_US_FORMS = [", Inc.", " LLC", " Corp.", " Co."]
_DE_NAMES = [
    "Hagedorn Metallbau GmbH",
    "Bäckerei Küster e.K.",
    "Lindenau IT-Systeme GmbH & Co. KG",
    "Vossberg Druck UG",
    "Tischlerei Ohlsen",
    "Reimers Haustechnik GmbH",
    "Gartenbau Wiesenthal KG",
    "Kanzlei Brandt & Pfeiffer PartG mbB",
]
_DE_STREETS = ["Ahornweg", "Bahnhofstraße", "Am Kirchplatz", "Lange Gasse"]
_DE_TOWNS = ["04109 Leipzig", "50667 Köln", "79098 Freiburg im Breisgau", "24103 Kiel"]
_FR_NAMES = [
    "Menuiserie Carpentier SARL",
    "Les Vergers du Loir SAS",
    "Imprimerie Delacourt SA",
    "Atelier Roussel EURL",
    "SARL Plomberie Guérin",
    "Boulangerie Maréchal",
    "SCI Les Tilleuls",
    "Transports Lemoine SAS",
]
_FR_STREETS = ["rue des Tanneurs", "avenue Jean Jaurès", "quai de la Fosse", "impasse du Moulin"]
_FR_TOWNS = ["44000 Nantes", "35000 Rennes", "63000 Clermont-Ferrand", "21000 Dijon"]
_PT_NAMES = [
    "Serralharia Vouga, Lda.",
    "Moinhos do Lima, S.A.",
    "Têxteis Azurém Unipessoal Lda",
    "Gráfica Ribatejo, Lda",
    "Padaria Flor do Campo, Lda",
    "Construções Mondego S.A.",
    "Oficina Auto Estrela",
    "Cerâmica Alcobaça, Lda.",
]
_PT_STREETS = ["Rua do Carmo", "Avenida da Liberdade", "Largo da Sé", "Travessa das Flores"]
_PT_TOWNS = ["4700-320 Braga", "3000-213 Coimbra", "2000-081 Santarém", "8000-164 Faro"]


@dataclass(frozen=True, slots=True)
class Party:
    """A seller or a buyer."""

    name: str
    tax_id: str  # "" where it has none
    tax_id_is_right: bool
    street: str
    town: str  # with its postal code

    @property
    def address(self) -> str:
        """On one line."""
        return f"{self.street}, {self.town}"


def spanish_company(random: Random, trade: str = "any", *, towns: list[tuple[str, str]] | None = None) -> Party:
    """A company; one number in eight is wrong."""
    form = random.choice(_ES_FORMS)
    kind = "A" if "A" in form else "J" if "C" in form else "B"
    name = f"{random.choice(_ES_TRADES[trade])} {random.choice(_ES_NAMES)}{form}"
    is_right = random.random() >= 1 / 8
    return Party(name, cif(random, kind, is_right=is_right), is_right, *_spanish_address(random, towns or _ES_TOWNS))


def spanish_person(random: Random) -> Party:
    """A person in business or at home; now and then a foreigner's number."""
    name = f"{random.choice(_ES_FIRST)} {random.choice(_ES_LAST)} {random.choice(_ES_LAST)}"
    is_right = random.random() >= 1 / 8
    make = nie if random.random() < 0.15 else nif
    return Party(name, make(random, is_right=is_right), is_right, *_spanish_address(random, _ES_TOWNS))


def canary_company(random: Random) -> Party:
    """A company of the Canary Islands."""
    return spanish_company(random, towns=_CANARY_TOWNS)


def catalan_company(random: Random) -> Party:
    """A company of Catalonia with an address in Catalan."""
    made = spanish_company(random)
    code, town = random.choice(_CA_TOWNS)
    street = f"{random.choice(_CA_STREETS)}, {random.randrange(1, 180)}, baixos"
    trade = random.choice(["Fusteria", "Llibreria", "Fruites", "Impremta"])
    name = random.choice(["Puigdomènech", "La Garriga", "Vall Fosca", "Can Serrat"])
    form = random.choice([", S.L.", " SL", ", SCCL"])
    return Party(f"{trade} {name}{form}", made.tax_id, made.tax_id_is_right, street, f"{code} {town}")


def foreign_pair(random: Random, country: str) -> tuple[Party, Party]:
    """A seller and a buyer of other names."""
    seller = foreign_company(random, country)
    while (buyer := foreign_company(random, country)).name == seller.name:
        pass
    return seller, buyer


def foreign_company(random: Random, country: str) -> Party:
    """A company of GB, IE, US, DE, FR or PT."""
    number = random.randrange(1, 240)
    is_right = random.random() >= 1 / 8
    tax_id = COMPANY_NUMBERS[country](random, is_right=is_right) if country in COMPANY_NUMBERS else ""
    english = f"{random.choice(_EN_WORDS)} {random.choice(_EN_TRADES)}"
    match country:
        case "GB":
            named = (
                english + random.choice([" Ltd", " Limited", " LLP", " Ltd."]),
                f"{number} {random.choice(_GB_STREETS)}",
                random.choice(_GB_TOWNS),
            )
        case "IE":
            named = (
                english + random.choice([" Ltd", " DAC", " Limited"]),
                f"{number} {random.choice(_GB_STREETS)}",
                random.choice(_IE_TOWNS),
            )
        case "US":
            named = (
                english + random.choice(_US_FORMS),
                f"{number * 17} {random.choice(_US_STREETS)}",
                random.choice(_US_TOWNS),
            )
        case "DE":
            named = (random.choice(_DE_NAMES), f"{random.choice(_DE_STREETS)} {number}", random.choice(_DE_TOWNS))
        case "FR":
            named = (random.choice(_FR_NAMES), f"{number} {random.choice(_FR_STREETS)}", random.choice(_FR_TOWNS))
        case _:
            named = (random.choice(_PT_NAMES), f"{random.choice(_PT_STREETS)}, {number}", random.choice(_PT_TOWNS))
    name, street, town = named
    return Party(name, tax_id, is_right, street, town)


def _spanish_address(random: Random, towns: list[tuple[str, str]]) -> tuple[str, str]:
    code, town = random.choice(towns)
    number = random.choice(["{}", "{}, bajo", "{}, 3.º C", ", {}", " n.º {}", "{}, local 2"]).format(
        random.randrange(1, 190)
    )
    return f"{random.choice(_ES_STREETS)} {number}".replace(" ,", ","), f"{code} {town}"
