"""Pieces of HTML that several designs print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from html import escape
from random import Random

_FONTS = ("DejaVu Sans", "DejaVu Serif", "DejaVu Sans Condensed")
_BASE = """
@page { size: %(size)s; margin: %(margin)s }
body { font: %(points)spt '%(font)s'; color: #111; margin: 0 }
table { border-collapse: collapse; width: 100%% }
td, th { padding: 2pt 4pt; vertical-align: top; text-align: left }
thead { display: table-header-group } tr { break-inside: avoid }
.r { text-align: right; white-space: nowrap } .c { text-align: center } .b { font-weight: bold }
.small { font-size: 80%% } .two { display: flex; justify-content: space-between; gap: 20pt }
.two > div { flex: 1 } h1 { font-size: 150%%; margin: 4pt 0 } p { margin: 3pt 0 }
.ruled td, .ruled th { border: .7pt solid #444 } .lined td, .lined th { border-bottom: .5pt solid #999 }
.box { border: .8pt solid #333; padding: 5pt } .shade th { background: #ddd }
"""


def sheet(body: str, css: str = "", *, size: str = "A4", margin: str = "16mm", points: float = 9, font: int = 0) -> str:
    """A whole HTML page."""
    base = _BASE % {"size": size, "margin": margin, "points": points, "font": _FONTS[font]}
    return f"<!DOCTYPE html><html><head><meta charset=utf-8><style>{base}{css}</style></head><body>{body}</body></html>"


def grid(rows: Iterable[Sequence[str]], head: Sequence[str] = (), style: str = "", align: str = "") -> str:
    """A table; ``align`` has a letter a column (l, r, c). Texts are escaped."""

    def cells(row: Sequence[str], tag: str) -> str:
        kinds = (align + "l" * len(row))[: len(row)]
        return "".join(f'<{tag} class="{kind}">{escape(text)}</{tag}>' for text, kind in zip(row, kinds, strict=True))

    top = f"<thead><tr>{cells(head, 'th')}</tr></thead>" if head else ""
    return f'<table class="{style}">{top}' + "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows) + "</table>"


def boxes(pairs: Sequence[tuple[str, str]], style: str = "ruled", *, small: bool = True) -> str:
    """A grid of labels in one row and their values below."""
    labels = "".join(f'<td class="{"small" if small else "b"}">{escape(label)}</td>' for label, _ in pairs)
    values = "".join(f"<td>{escape(value)}</td>" for _, value in pairs)
    return f'<table class="{style}"><tr>{labels}</tr><tr>{values}</tr></table>'


def stacked(*lines: str, style: str = "") -> str:
    """Lines below each other; the first is bold."""
    first, *rest = lines
    return (
        f'<div class="{style}"><div class=b>{escape(first)}</div>'
        + "".join(f"<div>{escape(line)}</div>" for line in rest if line)
        + "</div>"
    )


def sums(pairs: Iterable[tuple[str, str]], width: str = "45%", style: str = "") -> str:
    """Labels to the left of right-aligned amounts, at the right side of the page."""
    rows = "".join(f"<tr><td>{escape(label)}</td><td class=r>{escape(value)}</td></tr>" for label, value in pairs)
    return f'<table class="{style}" style="width:{width};margin-left:auto">{rows}</table>'


def any_day(random: Random) -> date:
    """A day of the last two years."""
    return date(2024, 10, 1) + timedelta(days=random.randrange(700))


def any_number(random: Random, day: date) -> str:
    """A number of an invoice, in the manner of one of many programs."""
    serial = random.randrange(3, 4200)
    patterns = (
        f"{day.year}-{serial:04d}",
        f"A/{serial}",
        f"F{day:%y}/{serial:05d}",
        f"{serial}/{day.year}",
        f"VT-{day:%y%m}-{serial:04d}",
        f"{random.choice('ABT')}{serial:06d}",
        f"{day:%y}.{serial:04d}",
        f"{serial}",
    )
    return random.choice(patterns)
