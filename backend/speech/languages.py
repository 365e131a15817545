"""The languages that Whisper hears, and the ways in which callers write them."""

from __future__ import annotations

from collections.abc import Mapping

# Code of the tokenizer, ISO 639-2 (or 639-3) code, English name as OpenAI answers it.
# Source: openai/whisper, whisper/tokenizer.py.
_TABLE = """
af afr afrikaans
am amh amharic
ar ara arabic
as asm assamese
az aze azerbaijani
ba bak bashkir
be bel belarusian
bg bul bulgarian
bn ben bengali
bo bod tibetan
br bre breton
bs bos bosnian
ca cat catalan
cs ces czech
cy cym welsh
da dan danish
de deu german
el ell greek
en eng english
es spa spanish
et est estonian
eu eus basque
fa fas persian
fi fin finnish
fo fao faroese
fr fra french
gl glg galician
gu guj gujarati
ha hau hausa
haw haw hawaiian
he heb hebrew
hi hin hindi
hr hrv croatian
ht hat haitian creole
hu hun hungarian
hy hye armenian
id ind indonesian
is isl icelandic
it ita italian
ja jpn japanese
jw jav javanese
ka kat georgian
kk kaz kazakh
km khm khmer
kn kan kannada
ko kor korean
la lat latin
lb ltz luxembourgish
ln lin lingala
lo lao lao
lt lit lithuanian
lv lav latvian
mg mlg malagasy
mi mri maori
mk mkd macedonian
ml mal malayalam
mn mon mongolian
mr mar marathi
ms msa malay
mt mlt maltese
my mya myanmar
ne nep nepali
nl nld dutch
nn nno nynorsk
no nor norwegian
oc oci occitan
pa pan punjabi
pl pol polish
ps pus pashto
pt por portuguese
ro ron romanian
ru rus russian
sa san sanskrit
sd snd sindhi
si sin sinhala
sk slk slovak
sl slv slovenian
sn sna shona
so som somali
sq sqi albanian
sr srp serbian
su sun sundanese
sv swe swedish
sw swa swahili
ta tam tamil
te tel telugu
tg tgk tajik
th tha thai
tk tuk turkmen
tl tgl tagalog
tr tur turkish
tt tat tatar
uk ukr ukrainian
ur urd urdu
uz uzb uzbek
vi vie vietnamese
yi yid yiddish
yo yor yoruba
yue yue cantonese
zh zho chinese
"""
# Other names and codes for them: whisper's own aliases, ISO 639-2/B, and codes that were exchanged.
_ALIASES = {
    "burmese": "my", "valencian": "ca", "flemish": "nl", "haitian": "ht", "letzeburgesch": "lb", "pushto": "ps",
    "panjabi": "pa", "moldavian": "ro", "moldovan": "ro", "sinhalese": "si", "castilian": "es", "mandarin": "zh",
    "español": "es", "castellano": "es", "català": "ca", "galego": "gl", "euskera": "eu", "inglés": "en",
    "français": "fr", "deutsch": "de", "italiano": "it", "português": "pt", "jv": "jw", "nb": "no", "fil": "tl",
    "iw": "he", "tib": "bo", "cze": "cs", "wel": "cy", "ger": "de", "gre": "el", "baq": "eu", "per": "fa",
    "fre": "fr", "arm": "hy", "ice": "is", "mac": "mk", "mao": "mi", "may": "ms", "bur": "my", "dut": "nl",
    "rum": "ro", "slo": "sk", "alb": "sq", "chi": "zh", "cmn": "zh",
}  # fmt: skip
_ROWS = [row.split(" ", 2) for row in _TABLE.strip().splitlines()]
LANGUAGES: Mapping[str, str] = {code: name for code, _, name in _ROWS}  # code -> English name, in small letters
_CODES = {spelling: code for code, letters, name in _ROWS for spelling in (code, letters, name)} | _ALIASES


def language_code(language: str) -> str | None:
    """Whisper's code of a language; None for one that it does not know.

    ``language``: a code of ISO 639-1 ("es", "es-MX", "es_ES") or of ISO 639-2 ("spa"), or a name ("Spanish").
    """
    spelling = language.strip().lower()
    return _CODES.get(spelling) or _CODES.get(spelling.replace("_", "-").partition("-")[0])


def language_name(code: str | None) -> str:
    """The English name of a language in small letters, as OpenAI's answers have it; "unknown" for None."""
    return LANGUAGES.get(code or "", code or "unknown")
