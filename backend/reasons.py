"""Why something was read as it was: codes with parameters, and the English sentences that say them.

An answer has both: ``why`` for people, and beside it ``reasons`` for programs that speak other languages. Records and
caches keep the sentence alone, so what another release wrote is read, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from string import Formatter
from typing import Any

from typing_extensions import TypedDict

# Code -> sentence. A parameter is text, a list where it is one of _LISTS, else a number by its format. Codes stay.
SENTENCES: Mapping[str, str] = {
    # What a document was read as, or why it has no fields
    "looks_like_one": "read as {kind}: its page looks like one",
    "as_confirmed_supplier": "read as {kind}: as a confirmed document of its supplier",
    "read_as": "read as {kind}: {signs}",
    "classed": "classed {type}",
    "looks_like_other": "looks like {type}: fields are read from invoices, receipts, statements",
    "says_no_invoice": "says that it is no invoice",
    "title_of_other": "its title is a {type}'s: fields are read from invoices, receipts, statements",
    "no_total": "no total beside an amount stands on it: it is no invoice, receipt or statement",
    "too_few_signs": (
        "too little on it is an invoice's, a receipt's or a statement's ({points:g} of {needed:g} points)"
    ),
    "another_document": "another one begins on page {page:d}",
    "another_numbered_document": "another one, {number}, begins on page {page:d}",
    "electronic_wins": "the electronic invoice ({format}) wins",
    "reading_failed": "{what}: reading them failed ({fault}), which is logged",
    "first_words_only": "of the document, only the first {words:d} words were looked at",
    "numbers_not_read": (
        "InvoiceId, PurchaseOrder and RectifiedInvoiceId were not looked for: the bundled encoder, whose words the"
        " network that reads them knows, is not installed"
    ),
    # By what a field was found
    "electronic": "the electronic invoice ({format}) says so",
    "qr_code": "the {format} code on page {page:d} says so",
    "network": "as the network reads the page",
    "confirmed_invoices": "as in {count:d} confirmed invoices",
    "confirmed_invoice": "as in 1 confirmed invoice",
    "corrected": "corrected by {by}",
    "label": "{position} the label “{label}”",
    "its_label": "{position} its label",
    "money_label": '{position} "{label}"',
    "below_header": "below its header",
    "own_label": "{position} '{label}'",
    "own_answer": "what a sentence answers",
    "like_examples": "as in the examples",
    "own_place": "by its place and form",
    "date_at_head": "a date without a label at the head of the page",
    "day_or_month": "day and month could be the other way round",
    "time_beside_date": "a time beside the date or its label",
    "payment_words": "words of a term of payment",
    "account_number": "an account number with right check digits",
    "wrong_account_number": "an account number with wrong check digits",
    "vendor_label": "beside the label of the seller",
    "prominent_name": "the most prominent name",
    "prominent_legal_name": "the most prominent name with a legal form",
    "name_with_registry": "the name with an entry in a register, or with an account to pay to",
    "legal_name_of_tax_id": "a name with a legal form beside the vendor's tax number",
    "vendor_block_address": "the address in the block of the vendor",
    "vendor_block_tax_id": "a tax number in a block of the vendor",
    "customer_label": "beside the label of the customer",
    "greeting": "the name in the greeting",
    "below_vendor": "a name with its address below the vendor's",
    "customer_block_address": "the address below the customer's name",
    "delivery_address": "where the goods or services go",
    "customer_block_tax_id": "a tax number in the block of the customer",
    "customer_tax_id_label": "a tax number whose label says it is the customer's",
    "other_tax_id": "a tax number in a box of its own that is not the vendor's",
    "currency_sign": "the sign beside the amounts",
    "currency_named": "named in the text",
    "dollar_sign": "a dollar sign",
    "currency_of_places": "by tax ids and places",
    "tax_table": "a table of taxes",
    "tax_rows": "rates with their bases and amounts",
    "rate_makes_amount": "base x rate = amount",
    "sum_of_lines": "sum of the lines",
    "sum_of_taxes": "sum of the tax rows",
    "tax_and_surcharge": "tax and surcharge",
    "rate_makes_tax": "its rate makes the tax",
    "arithmetic": "by arithmetic",
    "cash_less_change": "cash less change",
    "total_without_tax": "the total without its tax",
    "withholding": "withholding",
    "surcharge": "recargo de equivalencia",
    "only_adds_up_so": "only so the amounts add up",
    "columns_labelled": "below the labels of their columns",
    "rows_above_total": "rows of a text and an amount above a total",
    "beside_amount": "beside the amount",
    "amount_by_price": "amount / price",
    "not_read": "it was not read",
    "quantity_by_price": "quantity x price makes the amount",
    "in_column": "in its column",
    "movements": "{lines:d} lines with a date and an amount under the header of an account's movements",
    "balance_agrees": "the balance agrees",
    "balance_disagrees": "the balance disagrees",
    "line_begins": "at the beginning of its line",
    "behind_booking_date": "behind the date of booking",
    "last_balance": "the balance of the last movement",
    "iban": "an IBAN",
    "two_dates": "two dates at the head of the statement",
    "month_of_title": "the month of its title",
    # Why a page is of its own text or recognised, and how
    "set_here": "the file's own text, set on a page here",
    "pictures_read": "{count:d} of {of:d} pictures on it read by OCR, each at its place",
    "asked_for": "asked for",
    "blank": "the page is blank: nothing is drawn on it",
    "no_text": "it has no text of its own",
    "little_text": "its own text has {characters:d} characters, and more is drawn on it",
    "scan": "images cover {share:.0%} of it and its own text has {characters:d} characters",
    "unmapped_glyphs": "{share:.0%} of its glyphs are mapped to no character",
    "replaced_characters": "{share:.0%} of its characters are replacements or private",
    "odd_characters": "{share:.0%} of its own characters are neither letters, digits nor punctuation",
    "torn_words": "{share:.0%} of the words of its own text are single letters: its words are torn apart",
    "no_language": ("the letters of its own text follow each other as in no language: its fonts are mis-mapped"),
    "own_text": "its own text of {characters:d} characters is sound",
    "earlier_ocr": "an earlier OCR's text layer of {characters:d} characters is sound",
    "default_dpi": "{dpi:g} dpi, what OCR needs for print",
    "fewer_dpi": (
        "{dpi:.0f} dpi: at {wished_dpi:.0f} the page of {width:.0f} x {height:.0f} points would be over {limit:d} "
        "pixels (LIMIT_RENDER_PIXELS)"
    ),
    "most_dpi": "{dpi:.0f} dpi, the most within LIMIT_RENDER_PIXELS",
    "model_dpi": "{dpi:.0f} dpi, {times:d} times the pixels that the model takes",
    "finer_scan": "{dpi:g} dpi: the scan of {scan_dpi:.0f} dpi is finer than OCR needs",
    "scan_pixels": "{dpi:.0f} dpi: the scan's own pixels",
    "coarse_scan": "{dpi:.0f} dpi: a coarse scan of {scan_dpi:.0f} dpi, enlarged",
    "image_pixels": "the image's own pixels",
    "made_pixels": "{width:d} x {height:d} pixels made of its own",
    "image_cut_off": "the file is cut off or damaged: what was left of it was read",
    "tesseract_no_words": "Tesseract, {where}, found no words",
    "tesseract_after": "Tesseract, {where}, after {steps}",
    "tesseract": "Tesseract, {where}, on the page as it is",
    "tesseract_sure": "sure of it, so no other engine was asked",
    "tesseract_found_none": "Tesseract found no word",
    "tesseract_unsure": ("Tesseract was unsure (confidence {confidence:.2f}, {share:.0%} of its words doubtful)"),
    "tesseract_found_none_first": "Tesseract found no word in its densest lines",
    "tesseract_unsure_first": (
        "Tesseract was unsure of its first lines (confidence {confidence:.2f}, {doubtful:d} of {words:d} words "
        "doubtful)"
    ),
    "blank_unread": "the page is blank: no engine was asked",
    "read_again": "Tesseract read it again with {languages}, for the language of its text",
    "read_again_no_better": "Tesseract read it again with {languages}, which was no better",
    "not_read_again": "it could not be read again with {languages}: {error}",
    "tesseract_lacks": "Tesseract has no data for {languages}",
    "rapidocr": "RapidOCR read it",
    "rapidocr_failed": "but RapidOCR could not read it: {error}",
    "rapidocr_less": "but RapidOCR read less: {reason}",
    "rapidocr_fewer": "but RapidOCR found {letters:d} letters of {of:d}",
    "rapidocr_lacks": "RapidOCR does not know {languages}",
    "engine_asked_for": "{engine} was asked for",
    "page_time_over": "its {limit_s:.3g} s of work (LIMIT_PAGE_S) were over before all of it was read",
    # Of recordings: how a minute was read, what is missing, and what was left out
    "transcribed": "{model} transcribed what is said",
    "nobody_here": "nobody speaks here",
    "no_sound": "the recording has no sound in it",
    "silent": "the recording is silent",
    "nobody_speaks": "nobody speaks in the recording: there are other sounds, such as noise or music",
    "no_words": "somebody may speak, but the model made no words of it",
    "no_words_here": "somebody may speak here, but the model made no words of it",
    "unheard": "of {seconds:.1f} s in which somebody may speak the model made no words",
    "not_said": "what the model wrote was not said: {reason}",
    "part_failed": "a part could not be transcribed: {error}",
    "sound_cut_off": "the file is damaged or cut off: {fault}",
    "packets_lost": "{bad:d} of its {packets:d} packets could not be decoded",
    "reading_stopped": "it could not be read after {seconds:.1f} s: {error}",
    "shorter_sound": "it announces {announced_s:.1f} s of sound and holds {seconds:.1f} s",
    "bytes_missing": "its last {bytes:d} bytes are missing",
    "text_doubtful": "nobody speaks (probability {probability:.2f}), and the text is doubtful",
    "repeated": "the model repeated itself, however it was asked",
    "after_end": "the model wrote it after the end of the audio",
    "phantom": "a phrase that the model writes where nobody speaks: {reason}",
    # What the classes of a document were made of, where there is an image model
    "picture_unseen": "the text alone: page {page:d} could not be looked at: {fault}",
    "picture_alone": "the picture of page {page:d} alone: there are no classes of a text",
    "picture_low": "the text alone: the picture's best label has too low a score to say",
    "picture_not_asked": "the text alone: the picture's best label is none of the labels asked for",
    "text_low": "the picture alone: the text's best label has too low a score to say",
    "picture_many_labels": "the text alone: the image model gives a page any number of labels",
    "text_many_labels": "the text alone: the classifier gives a text any number of labels",
    "other_names": "the text alone: its classes and those of {model} have other names",
    "see_both": "see both parts",
    "text_and_picture": "the text and the picture of page {page:d}: the average of the logarithms of their scores",
    # What stands beside a summary and its sentences
    "nothing_to_read": "text: empty, because there is nothing to read: no letters and no figures",
    "no_whole_sentence": (
        "text: empty, because there is no whole sentence of 30 to 600 characters, only such as fields, headings or rows"
        " (the feature fields of POST /v1/documents tells what a form or an invoice says)"
    ),
    "sentences_too_long": (
        "text: empty, because the shortest sentence, {tokens:d} tokens, is more than max_tokens, {limit:d}, and a"
        " sentence is never cut (raise max_tokens)"
    ),
    "wrote_nothing": "text: {model} wrote nothing",
    "not_used_by_method": "{options}: not used by the method {method}, only by model (SUMMARY_MODEL)",
    "not_used_of_text": "{options}: not used for a file of plain text, which has no pages",
    "nothing_was_read": "nothing was read",
    "no_sentence_near": "no sentence of the text is near it",
    "numbers_unknown": "{numbers}: in none of the sentences it rests on",
    # Why an entity gave way to another; `winner` and `loser` are phrases
    "pattern_has_value": "the pattern found the same and has its value",
    "cut_back": "cut back to {start:d}-{end:d}: the rest is {type}, {winner}",
    "goes_before": "{winner} goes before {loser}",
    "longer_stands": "the longer one stands",
    "score_stands": "the higher score stands",
    "first_stands": "the first found stands",
    "no_layout": "{feature} are read from a page's layout, and a recording has none",
}
_LISTS = frozenset({"signs", "steps", "languages", "options", "numbers"})


class ReasonAnswer(TypedDict):
    """A reason of `why` for programs; "other" has its English `text` alone."""

    code: str
    params: dict[str, Any]


def because(code: str, **params: Any) -> str:
    """The sentence of a code."""
    said = {name: ", ".join(value) if name in _LISTS else value for name, value in params.items()}
    return SENTENCES[code].format(**said)


def reasons_in(why: str) -> list[ReasonAnswer]:
    """The reasons that a sentence is made of, in its order. Do not change them: equal sentences share them."""
    return list((_reasons if len(why) <= _MAX_CHARS else _reasons.__wrapped__)(why))


@lru_cache(maxsize=4096)
def _reasons(why: str) -> tuple[ReasonAnswer, ...]:
    return tuple(map(_read, filter(None, _BETWEEN.split(why.removesuffix(_SEE_DOCUMENTS)))))


_SEE_DOCUMENTS = " (`documents`)"
_BETWEEN = re.compile(r"; (?![^“]*”)|, (?=but RapidOCR )")  # not within a label
_MAX_CHARS = 1000  # of one reason: longer ones quote an error


def _read(sentence: str) -> ReasonAnswer:
    if (code := _PLAIN.get(sentence)) is not None:
        return {"code": code, "params": {}}
    for code, pattern, readers in _PATTERNS if len(sentence) <= _MAX_CHARS else ():
        if (match := pattern.fullmatch(sentence)) is not None:
            return {"code": code, "params": {name: readers[name](text) for name, text in match.groupdict().items()}}
    return {"code": "other", "params": {"text": sentence}}


def _text_of(name: str) -> Callable[[str], Any]:
    if name in _LISTS:
        return re.compile(", ?").split
    return (lambda text: text.replace(" ", "_")) if name == "kind" else str


def _share(text: str) -> float:
    return float(text) / 100


def _compiled(code: str, template: str) -> tuple[str, re.Pattern[str], dict[str, Callable[[str], Any]]]:
    pattern, readers = "", {}
    for literal, name, form, _ in Formatter().parse(template):
        pattern += re.escape(literal)
        if not name:
            continue
        kind, readers[name] = (
            (".+?", _text_of(name)) if not form
            else (r"-?\d+", int) if form == "d"
            else (r"\d+", _share) if form.endswith("%")
            else (r"-?[\d.]+(?:e[+-]?\d+)?", float)
        )  # fmt: skip
        pattern += f"(?P<{name}>{kind})" + ("%" if form and form.endswith("%") else "")
    return code, re.compile(pattern, re.DOTALL), readers


_PLAIN = {sentence: code for code, sentence in SENTENCES.items() if "{" not in sentence}
_PATTERNS = [_compiled(code, sentence) for code, sentence in SENTENCES.items() if "{" in sentence]
