"""Texts made to take long: work grows with their length, never with its square, and lets other threads run meanwhile.

What reads texts is found by walking: every public function that takes one. Those that need more than a text and its
language are called by `READERS`, which a test holds to be whole; `NO_READERS` read what nobody can make long.
"""

import gc
import importlib
import inspect
import pkgutil
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import CodeType, ModuleType

import numpy as np
import pytest

import backend
from backend.abandoned import Abandoned
from backend.documents.chunks import printed_rows, text_chunks
from backend.documents.formats.markdown import place_in_markdown, stream_markdown
from backend.documents.own_examples import page_runs, read_run
from backend.documents.printed_names import printed_names
from backend.errors import CallerGone, FinanciaError
from backend.files.file_types import sniff
from backend.files.limits import FileLimits
from backend.files.office.content import Content
from backend.files.office.html_page import read_html
from backend.files.office.rtf import read_rtf
from backend.files.office.text_kinds import delimiter_of, is_markdown
from backend.files.pages import Box, Document, Word
from backend.files.text_files import decode_text, document_of_text
from backend.files.visual_rows import page_rows
from backend.invoices.items.find import list_lines
from backend.invoices.items.lines import ItemLine
from backend.invoices.items.pieces import piece_rows
from backend.invoices.parties.tax_ids import tax_ids_in
from backend.invoices.structure import fields_of, tables_of
from backend.models.features import gram_places
from backend.models.words import word_places, word_spellings
from backend.search.document_chunks import cut_chunks
from backend.search.keywords import matched_spans, query_terms, tokens_of, word_coverage
from backend.tables.aligned_layout import names_columns
from backend.tables.level_page import PlacedWord
from backend.tables.text_rows import row_cuts
from backend.text.entity_merge import MODEL, Entity, merge
from backend.text.key_phrases import phrase_candidates
from backend.text.key_sentences import SummaryLength, select_key_sentences, select_summary, summary_candidates
from backend.text.language import detect
from backend.text.own_labels import KINDS, OwnLabel
from backend.text.own_values import places_of, read_value, read_values
from backend.text.patterns import PATTERN_TYPES, find_patterns
from backend.text.patterns.folding import fold, letters_of
from backend.text.sentences import sentence_spans
from backend.text.written_numbers import LANGUAGES, rewritings
from tests.tiny_models import tokenizer_of

UNITS = (
    *(
        "a", "A", "1", "0", "@", "(", "[", "\n", " ", ".", ",", "-", "/", ":", "_", "€", "%", "|", "'", "\t", "\xa0",
        "中", "…",
    ),
    *(
        "a ", "A ", "1 ", "1-", "1.", "1,", "1/", "a.", "a@a.", ".  ", "a\u0301", "\u0301", "\u0301\u0316", " \n",
        "ab\n", "- a\n", "Ab Cd ",
    ),
    *(
        "http://", "1€ ", "1,00 ", "ES12 ", "12345678Z ", "S.A. ", "1 mar ", "12 de ", "+34 ", "Total: ", "IVA 21% ",
        "nº ",
    ),
    *("Calle Mayor 1, ", "01/02/2024 ", "| "),
)  # fmt: skip
LENGTHS = (2_500, 10_000)
GROWTH = 9.0  # times, where the text is four times as long; a square would be sixteen
FLOOR_S = 0.25  # what takes less says nothing about its growth
UNTOUCHED = frozenset({"backend.scaleout", "backend.models.triton_kernels"})  # need Ray, a GPU; read no text
# Patterns that the code asks by match or fullmatch only, or for a text of bounded length.
ANCHORED = frozenset(
    {
        "invoices.parties.blocks._TO",
        "invoices.parties.names._FORM_ALONE",
        "invoices.parties.pieces._AMBIGUOUS",
        "invoices.parties.pieces._FIELD",
        "invoices.parties.pieces._HEADING",
        "invoices.parties.pieces._NUMBER",
        "invoices.parties.pieces._POSTCODE_FIRST",
        "reasons._PATTERNS",  # of the sentences that we write
        "search.keywords._VALUE",
        "tables.aligned_layout._PERIOD",
        "text.id_formats._IBAN_PART",  # of python-stdnum's own table
        "text.key_phrases._NO_NOUN",
        "text.patterns.ids._STRUCTURE",  # the same
        "text.patterns.ids._AMOUNT",
        "text.sentences._FIGURES",
        "text.sentences._ITEM",
        "text.sentences._WEB_ADDRESS",
    }
)
COLUMN_UNITS = ("Ab    ", "a:    ", "a    .    ")
ON_PAGES = ("names",)  # readers of rows and columns
# Caches of texts that what reads them bounds before, or that parts of patterns match.
BOUNDED_CACHES = frozenset(
    {
        "api.routes.browser_files._docs_file",  # names of routes
        "files.office.number_formats.number_format",  # in a worker process, whose memory is bounded
        "invoices.ocr_confusions._account_lengths",  # two letters
        "reasons._reasons",  # asked for short ones
        "models.runtimes._predicted",  # of ours, as the next five
        "text.id_formats.all_formats",
        "text.id_formats.formats_of_length",
        "text.patterns.ids._account_format",
        "text.patterns.ids._national_check",
        "text.patterns.amounts._code_of",  # the name of a currency
        "text.patterns.contacts._look_up",  # sixteen digits
        "search.keywords._cached_text_token",  # words of an index's length
        "search.keywords._folded_cached",
    }
)
QUICK_UNITS = (" ", ".", "1 ", "a")
HOLDING_UNITS = ("1 ", ".", "1,00 ")
MAX_HELD_S = 0.15
TEXTS = frozenset({"text", "texts", "sentence", "markup"})  # names of parameters
TEXT_TYPES = frozenset({"str", "Sequence[str]", "Iterable[str]"})
WINGS = frozenset(
    {"documents", "files", "images", "invoices", "models", "search", "speech", "summaries", "tables", "text"}
)
NO_READERS = frozenset(
    {
        "documents.text_fields.find_text_fields",  # "fields" on a thread
        "invoices.taught.printed.date_of",  # its figures once
        "files.text_layout.letters_apart",  # of the gaps between a PDF's characters, in a worker process
        "models.features.gram_scores",  # "grams" of each text, as the next three
        "models.features.wide_features",
        "text.scoring.head_cost",
        "text.scoring.head_scores",
        "search.attributes.checked_text",  # of a bounded length
        "search.sqlite.schema.chunk_checksum",  # a sum over bytes
        "summaries.service.supported",  # a sentence that a model wrote
        "summaries.writers.reading_of",  # "sentences" on a thread
        "text.late_interaction.read_tokens",  # embeds: texts are tokenised in slices, as everywhere
    }
)


def _sentences(text: str) -> None:
    spans = sentence_spans(text)
    summary_candidates([text[start:stop] for start, stop in spans.tolist()], "es")


def _chosen(text: str) -> None:
    """Key sentences and a summary of sentences that are all alike to the model."""
    texts = text.split("\n")[:2_000]
    vectors, same = np.ones((len(texts), 2), np.float32), np.ones(2, np.float32)
    select_key_sentences(texts, vectors, same, count=3)
    numbers = np.arange(len(texts))
    select_summary(texts, numbers, vectors, same, length=SummaryLength(), tokens=np.full(len(texts), 4))


def _chunks(text: str) -> None:
    starts = np.arange(0, len(text), 4)
    text_chunks(text, starts, 256, overlap_tokens=32, rows=printed_rows(text))
    cut_chunks(text, starts, (256, 32), printed_rows(text), None)


def _hit(text: str) -> None:
    """A chunk that a search found, and where the query stands in it."""
    matched_spans(text, query_terms("factura 1 12/10/2024"), "es")
    word_coverage(text, "es", "factura 1 12/10/2024")


def _merged_name(text: str) -> None:
    """A name of a model with a date behind it: it is cut back to the words before the run."""
    text = f"El Hospital{text}12 de octubre de 2024"
    merge([*find_patterns(text), Entity("ORG", text[:-5], 0, len(text) - 5, 0.9, MODEL)], PATTERN_TYPES)


def _phrases(text: str) -> None:
    phrase_candidates(text, word_places(text), sentence_spans(text), "es")


def _invoice(run: str, *, cell: str = "2") -> Document:
    return document_of_text(
        "Acme S.L. CIF B12345674\nFACTURA Nº 2024/12   Fecha: 12/10/2024\n\n"
        f"Descripción          Cantidad   Precio   Importe\nTornillos {run}          {cell}   10,00   20,00\n"
        "Base imponible 20,00\nIVA 21% 4,20\nTotal 24,20 €\n"
    )


def _own_values(text: str) -> list[object]:
    found, labels = find_patterns(text), [OwnLabel((kind,), kind, kind) for kind in KINDS]
    return [read_value(label, text, 0, len(text), found) for label in labels] + [
        places_of(label, text, found) for label in labels
    ]


def _own_lists(text: str) -> list[object]:
    """As of a list whose values stand in two spans, the second within the first."""
    found, spans = find_patterns(text), [(0, len(text)), (len(text) // 2, len(text))]
    return [read_values(OwnLabel((kind,), kind, kind, many=True), text, spans, found) for kind in KINDS]


def _words_in_markdown(text: str) -> list[object]:
    """The text's words, and as many that it does not have."""
    return [place_in_markdown(text, word, 0) for word in text.split() + [f"{word}#" for word in text.split()]]


def _own_runs(text: str) -> list[object]:
    """All runs of words of a page that may be what examples of a label are like: a quarter, each word is in eight."""
    [page] = document_of_text(text[: len(text) // 4]).pages
    runs, patterns = page_runs(page)
    return [read_run(OwnLabel(("date",), "date", "date"), page.text, run, patterns) for run in runs]


def _spoken_numbers(text: str) -> list[object]:
    """As it stands, and as the words of numbers, which an attacker can say as well."""
    spoken = text.replace("1", "uno, ").replace(".", " mil y ").replace("a", " treinta y ").replace("|", " oh one, ")
    return [rewritings(heard.split(), language) for heard in (text, spoken) for language in LANGUAGES]


READERS: dict[str, Callable[[str], object]] = {
    "spoken_numbers": _spoken_numbers,
    "language": detect,
    "patterns": find_patterns,
    "merge": _merged_name,
    "sentences": _sentences,
    "phrases": _phrases,
    "chosen": _chosen,
    "chunks": _chunks,
    "hit": _hit,
    "grams": lambda text: gram_places(text, 16),
    "spellings": lambda text: word_spellings(text, word_places(text)),
    "header": lambda text: names_columns(text.split("\n"), 2),
    "kind": lambda text: sniff(f"a {text}".encode()),
    "web_page": lambda text: read_html(text, Content(FileLimits())),
    "rich_text": lambda text: read_rtf(text.encode(), Content(FileLimits())),
    "separated": delimiter_of,
    "marked_up": is_markdown,
    "own_values": _own_values,
    "own_lists": _own_lists,
    "places_in_markdown": _words_in_markdown,
    "own_runs": _own_runs,
    "words": partial(tokens_of, language="es"),
    "query": query_terms,
    "markdown": lambda text: list(stream_markdown(document_of_text(text))),
    "tables": lambda text: tables_of(document_of_text(text)),
    "names": lambda text: [printed_names(page) for page in document_of_text(text).pages],
    "fields": lambda text: fields_of(document_of_text(text)),
    "description": lambda text: fields_of(_invoice(text)),
    "cell": lambda text: fields_of(_invoice("M6", cell=text)),
}


def cpu_s(work: Callable[[str], object], text: str) -> float:
    """Seconds of this thread, without collections, which look through what all tests left behind."""
    gc.disable()
    try:
        started_s = time.thread_time()
        work(text)
        return time.thread_time() - started_s
    finally:
        gc.enable()


def times_longer(work: Callable[[str], object], short: str, long: str) -> float:
    """How many times as long as of the first text it takes of the second, each the shorter of two times."""
    before_s, spent_s = (min(cpu_s(work, text) for _ in range(2)) for text in (short, long))
    return spent_s / before_s


def grows_too_fast(work: Callable[[str], object], unit: str) -> str:
    """How the time of ``work`` grew where it grew more than ``GROWTH`` allows, each time of three; else empty.

    Other work on the machine doubles the time of one now and then.
    """
    short, long = (unit * (length // len(unit)) for length in LENGTHS)
    if cpu_s(work, long) <= FLOOR_S:
        return ""
    grown = ""
    for _ in range(3):
        before_s, spent_s = cpu_s(work, short), cpu_s(work, long)
        if spent_s <= GROWTH * before_s:
            return ""
        grown = f"{unit!r}: {before_s:.3f} s, then {spent_s:.3f} s"
    return grown


def modules() -> Iterator[ModuleType]:
    """All of backend/."""
    for module in pkgutil.walk_packages(backend.__path__, "backend."):
        if not module.name.endswith("__main__") and module.name not in UNTOUCHED:
            yield importlib.import_module(module.name)


def text_functions() -> dict[str, Callable[..., object]]:
    """Every public function that takes a text or several, of the wings that read what strangers send."""
    return {
        f"{module.__name__.removeprefix('backend.')}.{name}": function
        for module in modules()
        if module.__name__.split(".")[1] in WINGS
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and not name.startswith("_")
        and any(each.name in TEXTS and each.annotation in TEXT_TYPES for each in required(function))
    }


def required(function: Callable[..., object]) -> list[inspect.Parameter]:
    """The parameters without a default."""
    parameters = inspect.signature(function).parameters.values()
    return [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]


def reader_of(function: Callable[..., object]) -> Callable[[str], None] | None:
    """``function`` as a reader of one text; None where it needs more than a text and its language."""
    names = [parameter.name for parameter in required(function)]
    if not set(names) <= TEXTS | {"language"} or inspect.iscoroutinefunction(function):
        return None

    def read(text: str) -> None:
        values = {name: "es" if name == "language" else text for name in names}
        if "texts" in values:
            values["texts"] = text.split("\n")  # type: ignore[assignment]
        with suppress(ValueError, ArithmeticError, FinanciaError):
            inspect.unwrap(function)(**values)

    return read


def called_by(work: Callable[[], object]) -> set[CodeType]:
    """The code that ``work`` enters."""
    entered: set[CodeType] = set()
    sys.setprofile(lambda frame, event, _: entered.add(frame.f_code) if event == "call" else None)
    try:
        work()
    finally:
        sys.setprofile(None)
    return entered


def longest_hold_s(work: Callable[[str], object], text: str) -> float:
    """Processor seconds for which ``work`` ran on its thread without letting another one run."""
    gc.disable()  # a collection walks all that the tests before have left
    thread = threading.Thread(target=work, args=(text,))
    thread.start()
    longest_s, spent_s = 0.0, 0.0
    with suppress(OSError):  # it has just ended
        clock = time.pthread_getcpuclockid(thread.ident or 0)
        while thread.is_alive():
            time.sleep(0.001)  # and then waits for the interpreter, which is what is measured
            now_s = time.clock_gettime(clock)
            longest_s, spent_s = max(longest_s, now_s - spent_s), now_s
    thread.join()
    gc.enable()
    return longest_s


def patterns_of(name: str, value: object) -> Iterator[tuple[str, re.Pattern[str]]]:
    """The patterns that a name of a module stands for, tables of them included."""
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield name, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from patterns_of(f"{name}[{key!r}]", each)
    elif isinstance(value, tuple | list | frozenset):
        for each in value:
            yield from patterns_of(name, each)


@pytest.fixture(scope="module")
def patterns() -> dict[str, re.Pattern[str]]:
    """Every compiled pattern of backend/ by the module and name that holds it."""
    found: dict[str, re.Pattern[str]] = {}
    for module in modules():
        for name, value in vars(module).items():
            found.update(patterns_of(f"{module.__name__}.{name}", value))
    return found


@pytest.fixture(scope="module")
def readers() -> dict[str, Callable[[str], object]]:
    """Those of `READERS` and every public function that takes a text alone."""
    walked = {name: reader_of(function) for name, function in text_functions().items() if name not in NO_READERS}
    return READERS | {name: reader for name, reader in walked.items() if reader is not None}


def test_every_function_that_takes_a_text_is_read():
    """Alone, or by one of `READERS`."""
    entered: set[CodeType] = set()
    for reader in READERS.values():
        entered |= called_by(partial(reader, "La factura 1 de Acme S.L. vence el 12/10/2024.\nTotal 24,20 €\n"))
    missed = {
        name
        for name, function in text_functions().items()
        if name not in NO_READERS and reader_of(function) is None and function.__code__ not in entered
    }

    assert missed == set()


def test_every_reader_reads_nothing(readers: dict[str, Callable[[str], object]]):
    """A text of blanks, and an empty one."""
    for reader in readers.values():
        for text in ("", " ", "\n\n"):
            reader(text)


@pytest.mark.skipif(sys.platform != "linux", reason="the clock of another thread")
@pytest.mark.parametrize("unit", HOLDING_UNITS)
def test_others_run_while_a_text_is_read(unit: str):
    """A search of 50,000 characters that look like a number held the interpreter for 0.2 s, of a million for 4 s."""
    for reader in READERS.values():
        reader("la factura 1")  # reads its model
    held_s = {name: longest_hold_s(reader, unit * (50_000 // len(unit))) for name, reader in READERS.items()}

    assert {name: seconds for name, seconds in held_s.items() if seconds > MAX_HELD_S} == {}


@pytest.mark.skipif(sys.platform != "linux", reason="the clock of another thread")
@pytest.mark.parametrize("work", [fold, letters_of])
def test_others_run_while_a_megabyte_is_folded(work: Callable[[str], object]):
    """In one step it held the interpreter for 0.2 s, and eight requests at once for more than a second."""
    text = "nº. " * 250_000

    assert longest_hold_s(work, text) < MAX_HELD_S / 2


@pytest.mark.skipif(sys.platform != "linux", reason="the clock of another thread")
def test_others_run_while_a_file_is_decoded():
    """Control characters were looked for in all of it at once, for 0.5 s in the longest that there may be."""
    content = ("ñ" * 5_000_000).encode()

    assert longest_hold_s(lambda _: decode_text(content), "") < MAX_HELD_S / 2


@pytest.mark.skipif(sys.platform != "linux", reason="the clock of another thread")
def test_others_run_while_many_token_ids_are_decoded():
    """A million in one piece held the interpreter for 0.3 s."""
    ids, tokenizer = np.arange(400_000) % 30_000, tokenizer_of("minilm")

    assert longest_hold_s(lambda _: tokenizer.decode(ids), "") < MAX_HELD_S / 2


@pytest.mark.parametrize(("unit", "characters"), [("1 ", 200_000), ("\ta", 20_000)])
def test_a_long_line_is_typed_in_linear_time(unit: str, characters: int):
    """A line of a megabyte took 17 s, one of tabulators would have taken minutes: each word looked at all before it."""
    short, long = (unit * (times * characters // len(unit)) for times in (1, 4))

    assert times_longer(document_of_text, short, long) < GROWTH


@pytest.mark.parametrize(("rows", "columns"), [(20, 200), (2, 8_000)])
def test_time_of_tables_grows_with_their_columns(rows: int, columns: int):
    """Each gap was held against all cells, for every column: 5,000 amounts in 200 columns took 17 s, four times as
    many five minutes. Of two rows each piece was held against all columns: 8,000 took 13 s.
    """
    few, many = ("\n".join(["1,00   " * count] * rows) for count in (columns // 4, columns))
    read = READERS["tables"]
    read(few)

    assert times_longer(read, few, many) < GROWTH


def test_time_of_headings_grows_with_the_columns_below():
    """Each was held against every run of columns: 500 over 1,000 took 12 s, twice as many minutes."""
    few, many = (
        "\n".join(("   Cuota      " * (columns // 2), "Nom    " * columns, *["1,00   " * columns] * 2))
        for columns in (250, 1_000)
    )
    read = READERS["tables"]
    read(few)

    assert times_longer(read, few, many) < GROWTH


@pytest.mark.parametrize("unit", ["- a\n", "Papel   1,00   2,00\n        Total   2,00\n"])
def test_time_of_tables_grows_with_their_rows(unit: str):
    """Each row looked for its lines among all: 10,000 lines took 7 s. Each total read all cells above it."""
    few, many = (unit * (characters // len(unit)) for characters in (8_000, 32_000))
    read = READERS["tables"]
    read(few)

    assert times_longer(read, few, many) < GROWTH


def test_time_of_rows_grows_with_the_columns_that_few_lines_fill():
    """Each column looked for its figures among all lines: 25,000 columns of two amounts took 20 s."""

    def read(text: str) -> list[float]:
        words = [Word(amount, Box(0, 0, 20, 10), 1.0, 0, 4, 0, 0) for amount in text.split()]
        placed = [[PlacedWord(word, Box(0, 20 * (at + down), 20, 20 * (at + down) + 10)) for down in (0, 1)]
                  for at, word in enumerate(words)]  # fmt: skip
        return row_cuts(placed, 10, ruled=False)

    few, many = ("1,00 " * columns for columns in (2_000, 8_000))
    read(few)

    assert times_longer(read, few, many) < GROWTH


def test_time_grows_with_equal_amounts():
    """Each makes the one above it: from every amount on the run of all below it was added up, 12 s for 4,000."""

    def read(text: str) -> list[ItemLine]:
        return list_lines([piece_rows(page_rows(page), ",") for page in document_of_text(text).pages])

    few, many = ("Papel   2,00\n" * rows for rows in (1_000, 4_000))
    read(few)

    assert times_longer(read, few, many) < GROWTH


def test_time_grows_with_tax_numbers_in_a_line():
    """Each was held against all before it."""
    few, many = ("12345678Z " * count for count in (1_000, 4_000))
    tax_ids_in(few)

    assert times_longer(tax_ids_in, few, many) < GROWTH


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("unit", COLUMN_UNITS)
def test_time_grows_with_the_columns_of_a_page(unit: str, rows: int):
    """A name's value is looked for below it: among all columns, 11,000 words would have taken a minute."""

    def read(text: str, reader: Callable[[str], object]) -> None:
        reader("\n".join([text] * rows))

    slow = {name: grown for name in ON_PAGES if (grown := grows_too_fast(partial(read, reader=READERS[name]), unit))}

    assert slow == {}


def test_only_short_words_are_kept():
    """Whatever keeps what it found of texts by their letters keeps those of bounded length (`word_cache`)."""
    kept = {
        f"{module.__name__.removeprefix('backend.')}.{name}"
        for module in modules()
        for name, value in vars(module).items()
        if hasattr(value, "cache_info")
        and getattr(value, "__module__", "") == module.__name__
        and any(each.annotation == "str" for each in required(value.__wrapped__))
    }

    assert BOUNDED_CACHES == kept


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_time_grows_with_the_length_of_a_text(unit: str, readers: dict[str, Callable[[str], object]]):
    for reader in readers.values():
        reader("la factura 1")  # reads its model
    slow = {name: grown for name, reader in readers.items() if (grown := grows_too_fast(reader, unit))}

    assert 60 < len(readers)

    assert slow == {}


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_time_of_a_pattern_grows_with_the_length_of_a_text(unit: str, patterns: dict[str, re.Pattern[str]]):
    """By match and fullmatch, and by search unless the code asks the pattern at one place only (`ANCHORED`)."""

    def anchored(text: str, pattern: re.Pattern[str]) -> None:
        pattern.match(text)
        pattern.fullmatch(text)

    def searched(text: str, pattern: re.Pattern[str]) -> None:
        for _ in pattern.finditer(text):
            pass

    slow = {}
    for name, pattern in patterns.items():
        anywhere = name.removeprefix("backend.").partition("[")[0] not in ANCHORED
        for work in (anchored, searched) if anywhere else (anchored,):
            if grown := grows_too_fast(partial(work, pattern=pattern), unit):
                slow[name] = grown

    assert 300 < len(patterns)
    assert slow == {}


@pytest.mark.parametrize("unit", QUICK_UNITS)
def test_a_run_of_one_kind_is_soon_read(unit):
    """What stopped the service for 12 to 106 s takes well under one; the network reads 2,000 words meanwhile."""
    spent_s = {name: cpu_s(READERS[name], unit * (4_000 // len(unit))) for name in ("merge", "chunks", "description")}

    assert max(spent_s["merge"], spent_s["chunks"]) < 1, spent_s
    assert spent_s["description"] < 4, spent_s


@pytest.mark.parametrize("name", ["patterns", "phrases", "fields", "tables"])
@pytest.mark.parametrize("unit", ["1€ ", "1 ", "factura uno. ", "Total 1,00\n"])
def test_reading_ends_when_nobody_waits(name, unit):
    """Whatever the text, it asks often enough."""
    abandoned = Abandoned()
    abandoned.set()

    with pytest.raises(CallerGone):
        abandoned.run(partial(READERS[name], unit * 5_000))


@pytest.mark.parametrize("blanks", range(16_384 - 30, 16_384 + 2))
def test_what_lies_across_two_slices_is_found(blanks):
    """Texts are searched slice by slice (`patterns.pattern.matches`)."""
    found = find_patterns(" " * blanks + "IBAN ES91 2100 0418 4502 0005 1332")

    assert ["ES9121000418450200051332"] == [entity.value for entity in found if entity.type == "IBAN"]
