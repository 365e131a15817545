"""Recognises lines of postal addresses by their street words, postcodes, towns and countries. Works on folded text."""

from __future__ import annotations

import re

from backend.word_cache import word_cache

CERTAIN, LIKELY, POSSIBLE, NONE = 3.0, 2.0, 1.0, 0.0

# Words that begin a street in Romance languages and Malay: a capitalised name or a number follows.
_STREET_FIRST = re.compile(
    r"(?<![^\W_])(?:no\.? ?(?=\d+[A-Z]?(?:[ ,&/-]+\d+[A-Z]?)*[ ,]+[^\W\d_])|(?:c\s?/|c\. ?(?=[A-Z])"
    r"|cl\.? (?=[A-Z])|calle|calleja|callejon|avda|avd|av|avenida|avgda|avinguda|paseo|passeig|p[ºo]\.? (?=[A-Z])"
    r"|pg\.? (?=[A-Z])|pza|plaza|pl\. |placa|praza|carrer|carretera|ctra|crta|camino|cami|cno|ronda|rda|travesia"
    r"|trav|glorieta|gran via|poligono|pol\.? ?ind"
    r"|p\.? ?i\.? (?=[A-Z])|pg\.? ?ind|parque (?:empresarial|industrial|tecnologico|comercial)|pasaje|psje|ptge"
    r"|urb|urbanizacion|cuesta|rambla|rbla|barrio|bda|barriada"
    r"|apartado|apdo|edificio|edif|nave|parcela|km|kale|kalea|etorbidea|rua|alameda|partida|sector|muelle|via"
    r"|travessera|torrent|lugar|aldea|costanilla|bulevar"
    r"|boulevard|bd|rue|chemin|allee|impasse|quai|cours|residence|immeuble|lotissement"
    r"|zone (?:industrielle|artisanale|d activites)"
    r"|z\.? ?[ai]\.?(?= )|place|square|route|autoroute|bp|travessa|largo|praca"
    r"|estrada|quinta|lote|viale|piazza|corso|vicolo|strada|largo|jalan|jln|lorong|lrg|taman|tmn|lebuh|lebuhraya"
    r"|persiaran|kampung|kg\.|kawasan|bandar|seksyen"
    r"|lot|level|menara|wisma|bangunan|kompleks|p\.? ?o\.? ?box|po box|postfach|suite|unit|flat|floor|apartment"
    r"|apt|ste|avenue|av\.|am|im|an der|auf der)(?![^\W_])\.?)",
    re.IGNORECASE,
)
# Words that end it in Germanic languages.
_STREET_LAST = re.compile(
    r"(?<![^\W_])(?:street|st|road|rd|avenue|ave|lane|ln|drive|dr|boulevard|blvd|court|ct|place|pl|square|sq"
    r"|terrace|close|crescent|cres|way|parkway|pkwy|highway|hwy"
    r"|house|building|estate|business park|industrial park|science park|retail park|mews|quay|wharf|row|gardens"
    r"|grove|hill|park|yard|circle|cir|trail|trl|walk|loop|plaza"
    r"|center|centre|mall|wing|green|view|rise|gate|broadway|parade|villas?|lodge|farm|mill|works|chambers|tower"
    r"|towers|embankment|bridge|floor|room)(?![^\W_])\.?",
    re.IGNORECASE,
)
_GERMANIC = re.compile(
    r"[^\W\d_]{2,40}(?:str\.?|stra(?:ss|ß)e|weg|platz|allee|gasse|ring|damm|ufer|straat|laan|plein|gracht|kade|steig"
    r"|markt)\s?\d+|(?:(?<![^\W\d_])[^\W\d_]{1,40}[- ])?(?:str\.|strasse|straße|platz|allee) \d+",
    re.IGNORECASE,
)
_UK = r"(?:GIR ?0AA|[A-Z]{1,2}\d[A-Z\d]? ?\d[ABD-HJLNP-UW-Z]{2})"
_TOWN = r"(?:[^\W\d_a-z][^\W\d_]+|[LDlO]'[^\W\d_]+|[AO] [A-Z])"
_STATES = (
    "AL|AK|AZ|AR|CA|CO|CT|DE|FL|GA|HI|ID|IL|IN|IA|KS|KY|LA|ME|MD|MA|MI|MN|MS|MO|MT|NE|NV|NH|NJ|NM|NY|NC|ND|OH|OK|OR|PA|RI|SC|SD|TN|TX|UT|VT|VA|WA|WV|WI|WY|DC|PR"
    "|ON|QC|BC|AB|MB|SK|NS|NB|NSW|VIC|QLD|TAS|ACT"
)
_POSTCODE_TOWN = re.compile(
    r"(?<![^\W_])(?<!LOT )(?<!Lot )"  # a lot's number is no postcode
    rf"(?:(?:[A-Z]{{1,2}}[- ]?)?\d{{5}}(?!\d)(?:-\d{{4}})?,?[ ]?[-\u2013·(]?[ ]?{_TOWN}"  # 28013 Madrid
    rf"|\d{{4}}-\d{{3}} {_TOWN}|\d{{4}} ?[A-Z]{{2}} {_TOWN}|(?:A|B|L|CH|DK|AT|BE)-\d{{4}} {_TOWN}"
    rf"|{_TOWN}[.,]? \(?(?:{_STATES})\)?,? \d{{5}}(?:-\d{{4}})?(?![^\W_])"
    rf"|(?:{_STATES}),? \d{{4,5}}[A-Z]?(?:-\d{{4}})?$"
    rf"|{_UK}(?![^\W_])|[A-Z]\d[\dW] [A-Z\d]{{4}}(?![^\W_])|[A-Z]\d[A-Z] ?\d[A-Z]\d)"
)
_TOWN_POSTCODE = re.compile(rf"(?<![^\W\d_]){_TOWN}[ ,(-]{{1,3}}\d{{5}}\)?$|^(?i:c\.? ?p\.?:? ?)?\d{{5}}$")
_FOUR_DIGITS_TOWN = re.compile(
    rf"\d{{4}},? {_TOWN}(?: {_TOWN}){{0,3}}(?:,.*)?"
)  # Austria, Switzerland, Belgium, Denmark
_COUNTRY = re.compile(
    r"(?:espa[nñ]a|spain|espanya|espanha|united kingdom|uk|u\.k\.|england|scotland|wales|great britain|ireland"
    r"|northern ireland|united states(?: of america)?|usa|u\.s\.a\.|us"
    r"|deutschland|germany|france|portugal|italia|italy|osterreich|austria|schweiz|suisse|switzerland|belgique"
    r"|belgium|belgie|nederland|netherlands|the netherlands|luxembourg|andorra"
    r"|malaysia|singapore|argentina|mexico|chile|colombia|peru|brasil|canada|australia|hong kong|china|japan"
    r"|(?-i:ES|PT|FR|DE|IT|IE|GB|NL|BE|AT|CH)"  # as marketplaces print them
    r"|deutschland ?/ ?germany|selangor|johor|kuala lumpur|penang|perak|melaka)\.?",
    re.IGNORECASE,
)
_PROVINCE = re.compile(
    r"\(?(?:alava|albacete|alicante|almeria|asturias|avila|badajoz|baleares|illes balears|barcelona|bizkaia"
    r"|vizcaya|burgos|caceres|cadiz|cantabria|castellon|ciudad real|cordoba|a coruna"
    r"|la coruna|cuenca|gipuzkoa|guipuzcoa|girona|granada|guadalajara|huelva|huesca|jaen|la rioja|las palmas|leon"
    r"|lleida|lugo|madrid|malaga|murcia|navarra|ourense|palencia|pontevedra"
    r"|salamanca|segovia|sevilla|soria|tarragona|santa cruz de tenerife|teruel|toledo|valencia|valladolid|zamora"
    r"|zaragoza|ceuta|melilla|(?:co\.|county) [^\W\d_]+)\)?",
    re.IGNORECASE,
)
_NUMBERED = re.compile(
    r"\A\d{1,5}[A-Za-z]?(?:[-/]\d{1,4}[A-Za-z]?)?(?:, ?| )(?!(?:d[ií]as|days|uds|x|kg|units)\b)[^\W\d_]"
    r"|\A[^\W\d_]{3}.*,? (?:n\.?[ºo]\.? ?)?\d{1,4}(?: ?[A-Za-zºª])?(?:,.{0,200})?$"
)
_DIGIT = re.compile(r"\d")


@word_cache(4096)
def address_strength(text: str) -> float:
    """How sure a folded piece of text is part of an address: CERTAIN, LIKELY, POSSIBLE or NONE."""
    text = text.strip(" ,.;:-")
    if _POSTCODE_TOWN.search(text) or _TOWN_POSTCODE.search(text) or _GERMANIC.search(text):
        return CERTAIN
    has_digit = _DIGIT.search(text) is not None
    first = _STREET_FIRST.search(text)
    if first is not None and (has_digit or first.start() == 0):
        return CERTAIN if has_digit and first.start() == 0 else LIKELY
    if has_digit and _STREET_LAST.search(text):
        return LIKELY
    if _COUNTRY.fullmatch(text) or _PROVINCE.fullmatch(text) or _FOUR_DIGITS_TOWN.fullmatch(text):
        return LIKELY
    if _NUMBERED.match(text):
        return POSSIBLE
    return NONE


def is_place(text: str) -> bool:
    """Whether a folded text without a number may name a building, a street or a country: "Harbour House"."""
    ended = any(match.start() for match in _STREET_LAST.finditer(text))  # "Dr. Ana Gil" is no drive
    return ended or address_strength(text) > NONE or _STREET_FIRST.search(text) is not None


def is_region(text: str) -> bool:
    """Whether a folded text is a province or a country and nothing else: "(Jaen)"."""
    text = text.strip(" ,.;:-")
    return _COUNTRY.fullmatch(text) is not None or _PROVINCE.fullmatch(text) is not None


def has_town(text: str) -> bool:
    """Whether a postcode with its town is in a folded text: the end of most addresses."""
    return bool(_POSTCODE_TOWN.search(text) or _TOWN_POSTCODE.search(text.strip(" ,.;:-")))


def street_start(text: str) -> int | None:
    """Where a street begins after other words and a comma or a dash: "Ana Gil, Calle Mayor 3"; None without one."""
    for match in _STREET_FIRST.finditer(text):
        if (
            match.start()
            and text[: match.start()].rstrip().endswith((",", "-", ".", ":"))
            and _DIGIT.search(text, match.end())
        ):
            return match.start()
    return None
