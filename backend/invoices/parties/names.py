"""Recognises names of companies and persons, and lines of postal addresses, in letterheads and address blocks.

Addresses are known by their street words, postcodes, towns and countries. Works on folded text.
"""

from __future__ import annotations

import re

from backend.text.patterns.folding import fold
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


# Legal forms at the end of a company's name; OCR loses points and spaces.
LEGAL_FORM = re.compile(
    r"(?<![^\W_])(?:"
    r"S\.? ?(?:A|L)\.?(?: ?U\.?| ?L\.?| ?P\.?| ?N\.? ?E\.?)?(?:[ ,]+(?:en liquidacion|unipersonal"
    r"|sociedad unipersonal))?|S\.? ?L\.? ?L\.?|S\. ?C\.(?: ?P\.)?|SCP|S\.? ?Coop\.?(?: ?V\.?| ?Lda\.?| ?And\.?"
    r"| ?Mad\.?)?"
    r"|S\. ?Com\.|C\. ?B\.|A\. ?I\. ?E\.|U\. ?T\. ?E\.|S\.? ?A\.? (?:de|DE) C\.? ?V\.?|S\.? (?:de|DE) R\.? ?L\.?"
    r"|S\.? ?R\.? ?L\.?|S\.? ?p\.? ?A\.?|S\.? ?A\.? ?S\.? ?U?|S\.? ?A\.? ?R\.? ?L\.?|EURL|SASU|SCI|SNC|SCOP"
    r"|Sociedad (?:Limitada|Anonima|Cooperativa)|Comunidad de Bienes"
    r"|PartG(?: ?mbB)?|mbB|KGaA|eG|SE|GmbH(?: & Co\.? KG)?|UG|OHG|KG|GbR|AG|mbH|e\. ?K\.|e\. ?V\.|Ltd\.?|Limited"
    r"|LLC|L\.L\.C\.|LLP|LP|PLC|plc"
    r"|Inc\.?|Incorporated|Corp\.?|Corporation|Company|& Co\.?"
    r"|Co\.(?! [A-Z][a-z]+)|Co\.,? Ltd\.?|DAC|CLG|CIC"  # not "Co. Dublin"
    r"|Unip(?:essoal)?\.?,? Lda\.?|Ltda\.?|Lda\.?|N\.?V\.?|B\.?V\.?|V\.?O\.?F\.?|Pty\.?(?: Ltd\.?)?|Sdn\.? ?Bhd\.?"
    r"|S[DO]N\.? ?BHD\.?|S/B|Bhd\.?|Pte\.? Ltd\.?|Berhad|ApS|A/S|AB|Oy"
    r")(?![^\W_])\.?",
)
_CAPITAL_FORM = re.compile(
    r"(?<![^\W_])(?:GMBH|LTD|LIMITED|INC|CORP|CORPORATION|SDN\.? ?BHD|BHD|S\. ?COOP|LDA|LLC|SARL|SRL|SPA|SAS|SLU|SAU"
    r"|PTY|COMPANY|PLC|& CO)(?![^\W_])\.?"
)
_FORM_FIRST = re.compile(r"(?:SARL|SASU?|EURL|SCI|SNC|SELARL|SCP) (?!au )[^\W\d_]{2}")  # of French companies
_FORM_ALONE = re.compile(
    r"\W*(?:S\. ?[AL]\.(?: ?U\.)?|S\.?L\.?U?|S\. ?Coop\.?|Coop\.?|[LA]\.(?: ?U\.)?|SDN\.? ?BHD\.?|GmbH|Ltd\.?"
    r"|Limited|Inc\.?|LLC)\W*",
    re.IGNORECASE,
)
_JOINERS = frozenset(
    re.split(
        " ",
        "de del la las los el y e i of and the for & do da dos di et und von van zu der den du des le les l d "
        "en a al per para por com con",
    )
)
_SHORTEST = 3  # letters
_LETTERS_OF_NAME = 0.6  # of its characters
_PRICE = re.compile(r"\d[.,]\d\d(?!\d)")
_MAX_WORDS, _LONGEST = 10, 80
_AFTER_FORM = 3  # characters, of punctuation
_SHORTEST_BEFORE, _BETWEEN_FORMS = 2, 6  # characters
_NO_NAME = re.compile(  # what a shop does, or says
    r"(?:c|s)omercio|servicios de|venta de|todo (?:en|para)|especialistas|soluciones|desde \d{4}|since \d{4}"
    r"|fundad|slogan|your |nuestr|calidad|la mejor|thank|gracias"
    r"|(?<![^\W_])(?:real decreto|r\.? ?d|decreto|ley|orden|directiva|reglamento|statutory instrument)(?![^\W_])"
    r"[^\d]{0,24}\d+/\d{2,4}|(?<![^\W_])art(?:\.|iculo|icle)s? \d"  # of a law
    r"|formerly|licensee|tq for|welcome|cash sale|copy$|trading as|t/a\b|dba\b",
    re.IGNORECASE,
)
_DEPARTMENT = re.compile(
    r"(?:dept|dpto|depto|departament\w*|department|dipartimento|abteilung|abt|accounts payable|accounting"
    r"|service comptab\w*|buchhaltung|contabilidad|administracion y finanzas)(?![^\W_])",
    re.IGNORECASE,
)
_REGISTRATION = re.compile(  # "(519537-X)", "(CO.REG :860671-D)", "862725-U"
    r"(?<!\s)\s*[([]\s*(?:co\.? ?(?:reg|no)\.?[^)\]]*|(?:no\.? ?)?[\w\-/ ]*\d{4,}[\w\-/ ]*)[)\]]?\s*$"
    r"|(?<!\s)\s+\d{5,}-?[A-Z](?:\s*\([A-Z]+\))?$",
    re.IGNORECASE,
)
_LEADING = re.compile(
    r"^(?:(?:attn?|atte|a la att|att|atencion|d|dna|dña|dª|don|dona|doña|sr|sra|srs|sres|senor|senora|mr|mrs|ms|messrs"
    r"|herrn?|frau|monsieur|madame|m|mme|fao|spett\.? ?le|exmo|exma)[.:](?!ª)\s*(?:/\s*\w+\.?\s*)?"
    r"|(?:don|dona|doña|messrs|herrn|herr|frau|monsieur|madame|mme|mr|mrs|ms|spett\.? ?le|d\.|d\.ª|dª|dna\.) )+",
    re.IGNORECASE,
)
# "Otorgante obligado al pago: Sabela Regueiro"
_ROLE_BEFORE = re.compile(r"^([^:\d]{4,60}): +(?=[^\W\d_]\S* [^\W\d_])")
# "Bodegas Duero, S.A., con" before a tax number; "Alder & Finch Ltd by Rowan Studio".
_SENTENCE_AFTER = re.compile(r",?(?<!\s)\s+(?:con|with|mit|avec|com|amb)$")
# "Factura emitida por Cable Norte, S.L.", "Puede reclamar en el 1470. Cable Norte, S.L."
_SENTENCE_BEFORE = re.compile(
    r"^(?:[^\W\d_]+ ){0,3}(?:(?:emitid|prestad|operad|facturad|comercializad|suministrad|gestionad|vendid)[oa]s? por"
    r"|(?:issued|provided|supplied|operated|invoiced|billed|sold|managed) by) (?=(?-i:[^\W\d_a-z]))"
    r"|^(?:\S+ ){2,12}?(?:\d+|[^\W\d_]{5,})\. (?=(?-i:[^\W\d_a-z]))",
    re.IGNORECASE,
)
_BY_ANOTHER = re.compile(r"(?<!\s)\s+by\s+[A-Z]")
_IN_BRACKETS = re.compile(r"(?<!\s)\s+\(([^()]+)\)$")
_ATTENTION = re.compile(r"(?:attn?|atte|a la att|atencion|atención|fao)[.:]|spett\.? ?le ", re.IGNORECASE)
_TITLE_AFTER = re.compile(
    r"(?<!\s)\s+(?:tax )?(?:invoice|factura|receipt|rechnung|facture|fatura|statement)$", re.IGNORECASE
)


def legal_form_end(text: str) -> int | None:
    """Where a name with its legal form ends in a folded text; None without a legal form after a name."""
    end: int | None = None
    for match in sorted(
        (match for form in (LEGAL_FORM, _CAPITAL_FORM) for match in form.finditer(text)),
        key=lambda match: match.start(),
    ):
        if end is None:
            before = text[: match.start()].strip(" ,")
            if len(before) >= _SHORTEST_BEFORE and any(map(str.isalpha, before)):
                end = match.end()
        elif match.start() - end <= _BETWEEN_FORMS:
            end = max(end, match.end())  # "Aeon Co. (M) Bhd", "Weber & Co. KG"
    return end


@word_cache(4096)
def has_legal_form(text: str) -> bool:
    """Whether a folded text is a name that ends, or begins, with a legal form."""
    text = without_registration(text)
    if _FORM_FIRST.match(text):
        return True
    end = legal_form_end(text)
    return end is not None and len(text) - end <= _AFTER_FORM


def without_registration(text: str) -> str:
    """A name without the number in a register after it: "(519537-X)"."""
    return _REGISTRATION.sub("", text)


def is_department(text: str) -> bool:
    """Whether a folded line names a part of a company, below the company's name: "Dpto. Administracion"."""
    return _DEPARTMENT.match(text.strip(" .,;:-")) is not None


def is_form_alone(text: str) -> bool:
    """Whether a line is the legal form of the name on the line above."""
    return _FORM_ALONE.fullmatch(text) is not None


@word_cache(4096)
def is_name(text: str) -> bool:
    """Whether a folded text may be the name of a company or person, by its capitals and length."""
    text = without_registration(text)
    words = text.split()
    if not 1 <= len(words) <= _MAX_WORDS or not _SHORTEST <= len(text) <= _LONGEST or _PRICE.search(text):
        return False
    letters = sum(map(str.isalpha, text))
    if letters < _SHORTEST or letters < _LETTERS_OF_NAME * len(text.replace(" ", "")):
        return False
    if not has_legal_form(text) and (is_department(text) or _NO_NAME.search(text) or text.endswith((":", "?", "!"))):
        return False
    main = [word for word in words if word.lower().strip(".,") not in _JOINERS and any(map(str.isalpha, word))]
    lower = sum(word[0].islower() for word in main)
    return bool(main) and lower * 3 <= len(main)


def clean_name(text: str) -> str:
    """A name without a form of address before it, and without a registration number or the title after it."""
    text = text.strip(" ,;:-·*")
    role = _ROLE_BEFORE.match(text)
    if role and not has_legal_form(fold(role[1]).text):
        text = text[role.end() :]
    if not has_legal_form(text) or _ATTENTION.match(text):
        text = _LEADING.sub("", text)
    else:
        text = _SENTENCE_BEFORE.sub("", text)
    text = _TITLE_AFTER.sub("", without_registration(text))
    text = _SENTENCE_AFTER.sub("", text)
    other = _BY_ANOTHER.search(text)
    if other and has_legal_form(fold(text[: other.start()]).text):
        text = text[: other.start()]
    place = _IN_BRACKETS.search(text)
    if place and is_region(fold(place[1]).text):
        text = text[: place.start()]
    return text.strip(" ,;:-·*/")


def ends_open(text: str) -> bool:
    """Whether a folded line breaks off within a name: "Suministros Industriales y"."""
    return (
        text.rstrip().endswith((",", "&", "-", " S.", "Sdn", "SDN"))
        or (text.rsplit(maxsplit=1) or [""])[-1].lower() in _JOINERS
    )
