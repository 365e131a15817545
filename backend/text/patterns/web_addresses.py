"""E-mail addresses and URLs."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from backend.text.patterns.pattern import CLEAR, LIKELY, SURE, Pattern, PatternMatch, has_before, matches

_LABEL = r"[^\W_](?:[\w-]{0,61}[^\W_])?"
_HOST = rf"(?:{_LABEL}\.){{1,8}}"
_LOCAL_CLASS = r"[\w.+%'&/=-]"
_AT_HOST = re.compile(rf"@(?P<host>{_HOST}[^\W\d_]{{2,24}})(?![\w@])")
_LOCAL = re.compile(rf"(?<!{_LOCAL_CLASS})(?<!@){_LOCAL_CLASS}{{1,64}}+$")

_REST = r"[^\s<>\"'«»“”`|{}\\^]{0,2048}+"
_WITH_SCHEME = re.compile(rf"[hHfF](?<![^\W_].)(?i:(?<=h)ttps?|(?<=f)tp)://(?=\w|\[){_REST}")
_WITH_WWW = re.compile(rf"[wW](?<![\w@.-].)(?i:ww)\.(?=\w){_REST}")
# A bare host ends in a top-level domain that is no word ("fin.es" may be two sentences), or has a path.
_BARE = re.compile(
    rf"\.(?=[^\W_])(?P<domain>(?:com|org|net|eu|info|edu|gov|cat|gal|eus|co\.uk|(?:gob|com|org)\.es)"
    rf"|(?P<word>es|fr|de|it|pt|io|uk))(?![\w@-]|\.[^\W_])(?P<path>[/?:]{_REST})?"
)
_HOST_BEFORE = re.compile(rf"(?<![\w@.-])(?:{_LABEL}\.){{0,3}}{_LABEL}$")
_WEB = re.compile(r"\b(?:web|website|site|pagina|sitio|visit[ea]?|url|en)\W{0,3}$", re.IGNORECASE)
_CLOSING = {")": "(", "]": "["}


def _find_emails(text: str) -> Iterator[PatternMatch]:
    for match in matches(_AT_HOST, text):
        before = _LOCAL.search(text[max(0, match.start() - 65) : match.start()])
        local = before[0].lstrip(".'-&/=%+") if before else ""
        if not local or local.endswith(".") or ".." in local:
            continue
        yield PatternMatch(match.start() - len(local), match.end(), None, None, SURE)


def _find_urls(text: str) -> Iterator[PatternMatch]:
    """URLs with a scheme, with www, and bare hosts, in this order of precedence where they overlap."""
    taken = bytearray(len(text))
    for pattern, score in ((_WITH_SCHEME, SURE), (_WITH_WWW, CLEAR)):
        for match in matches(pattern, text):
            start, end = match.start(), match.start() + _trimmed_length(match[0])
            if not taken[start] and ("." in text[start:end] or "localhost" in text[start:end]):
                taken[start : match.end()] = b"\1" * (match.end() - start)
                yield PatternMatch(start, end, None, None, score)
    for match in matches(_BARE, text):
        host = _HOST_BEFORE.search(text[max(0, match.start() - 100) : match.start()])
        if host is None or taken[match.start()] or text[match.end() : match.end() + 1] == "@":
            continue
        start = match.start() - len(host[0])
        if match["word"] and not match["path"] and not has_before(text, start, _WEB, 12):
            continue
        end = match.start() + _trimmed_length(match[0])
        yield PatternMatch(start, end, None, None, LIKELY)


def _trimmed_length(url: str) -> int:
    """The length of a URL without the sentence's punctuation and without a bracket that was opened before it."""
    open_count = {closing: url.count(opening) - url.count(closing) for closing, opening in _CLOSING.items()}
    end = len(url)
    while end:
        last = url[end - 1]
        if last in _CLOSING and open_count[last] < 0:
            open_count[last] += 1
        elif last not in ".,;:!?*…":
            break
        end -= 1
    return end


def _normalized_url(url: str) -> str:
    """Scheme and host in lower case, HTML entities decoded; nothing is added."""
    url = html.unescape(url) if "&" in url else url
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    host_end = next((index for index, character in enumerate(rest) if character in "/?#"), len(rest))
    return f"{scheme.lower()}{separator}{rest[:host_end].lower()}{rest[host_end:]}"


def _normalized_email(address: str) -> str:
    local, _, host = address.rpartition("@")
    return f"{local}@{host.lower()}"


PATTERNS = (
    Pattern("EMAIL", _find_emails, needs_digit=False, normalize=_normalized_email),
    Pattern("URL", _find_urls, needs_digit=False, normalize=_normalized_url),
)
