"""Papers in designs written by hand: HTML templates whose values are drawn anew for each, as words with boxes and labels.

    python -m tools.papers.designs --out FOLDER --papers 40

Writes a JSON file a design, in the form that ``tools.train_fields --data`` reads. A template's first line tells its
language and kind; in it ``f(name, text)`` marks a field's value, ``lines(name, texts, between)`` one over several lines,
an element with the attribute ``r`` is a line of goods, and all that may vary goes through ``rng``. Chromium lays it out.
"""

import argparse
import json
import random
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from backend.models.fields_network import KINDS, LABELS
from tools.papers.facts import Facts, facts_of, sum_up
from tools.papers.sheet import MadeWord, Sheet, scan
from tools.papers.values import Speaker, document_id, short_name

FOLDER = Path(__file__).with_name("designs")
_HEAD = re.compile(r"\{#\s*language:\s*(\w+);\s*kind:\s*(\w+)")
_AMOUNTS = frozenset(
    label for label in LABELS if "Amount" in label or "Total" in label or label in ("TaxBase", "ItemPrice")
) | {"EquivalenceSurcharge"}
_NO_FIELDS = ("payslip", "bank", "contract", "letter")
_POINTS = 0.75  # of a CSS pixel
_ONE_ADDRESS = 14  # words between the parts of an address in the cells of a form
_SCANNED = 0.3  # of the papers
_MAX_WORDS = 700
_PAGE = (794, 1123)  # pixels of A4
# Writes each page into a frame and tells the words that are seen: text, box, size of type, field, line of goods.
_SCRIPT = """
const told = pages.map(page => {
  const frame = document.createElement('iframe');
  frame.style = 'border:0;width:WIDEpx;height:HIGHpx';
  document.body.append(frame);
  const doc = frame.contentDocument, view = frame.contentWindow, words = [];
  doc.open(); doc.write(page); doc.close();
  const fields = [...doc.querySelectorAll('v')], rows = [...doc.querySelectorAll('[r]')];
  const walk = doc.createTreeWalker(doc.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walk.nextNode();) {
    const holder = node.parentElement, style = view.getComputedStyle(holder), field = holder.closest('v');
    if (style.visibility === 'hidden' || holder.closest('style,script,title')) continue;
    for (const match of node.textContent.matchAll(/\\S+/g)) {
      const range = doc.createRange();
      range.setStart(node, match.index); range.setEnd(node, match.index + match[0].length);
      const box = [...range.getClientRects()].find(rect => rect.width > 0.5);
      if (!box) continue;
      const shown = {uppercase: 'toUpperCase', lowercase: 'toLowerCase'}[style.textTransform];
      words.push({
        text: shown ? match[0][shown]() : match[0], box: [box.left, box.top, box.right, box.bottom],
        size: parseFloat(style.fontSize), label: field ? field.getAttribute('f') : '', field: fields.indexOf(field),
        goes_on: !!field && field.hasAttribute('c'), row: rows.indexOf(holder.closest('[r]')),
        glued: match.index === 0 && !/^\\s/.test(node.textContent)});
    }
  }
  frame.remove();
  return words;
});
document.body.textContent = JSON.stringify(told);
"""


def drawn(template: str, rng: random.Random) -> tuple[str, str]:
    """The kind and the HTML of one paper of a design. Raises: jinja2.TemplateError."""
    head = _HEAD.match(template)
    if head is None or head[2] not in KINDS:
        raise ValueError("the first line is {# language: es; kind: invoice #}")
    say = Speaker(rng)
    while say.language != head[1] or say.region == "my":
        say = Speaker(rng)
    say.second, say.upper = say.language, False
    facts = facts_of(head[2], say)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"]
    )
    core = short_name(facts.vendor).split()
    brand = rng.choice((core[0], core[-1], say.company().split(",")[0].split()[0]))
    page = environment.from_string(template).render(
        facts=facts, say=say, rng=rng, f=_marked, lines=_lines, trade=brand, Decimal=Decimal, timedelta=timedelta,
        plain=lambda: _plain(facts, rng), few=lambda most: _few(facts, rng, most),
        other_id=lambda: document_id(rng, 2026), other_day=lambda: facts.day - timedelta(days=rng.randint(1, 40)),
    )  # fmt: skip
    return head[2], page


def _marked(name: str, value: object) -> Markup:
    """A value of a field; of an amount the parts that have figures."""
    if not name or name not in LABELS:
        raise ValueError(f"no field {name!r}")
    if name not in _AMOUNTS:
        return _part(name, str(value))
    pieces: list[str] = []
    goes_on = False
    for piece in str(value).split():
        is_part = any(c.isdigit() or c in "-−(" for c in piece)
        pieces.append(_part(name, piece, goes_on=goes_on) if is_part else escape(piece))
        goes_on = goes_on or is_part
    return Markup(" ").join(pieces)


def _part(name: str, text: str, *, goes_on: bool = False) -> Markup:
    return Markup('<v f="{}"{}>{}</v>').format(name, Markup(" c") if goes_on else "", text)


def _lines(name: str, texts: Sequence[str], between: str = "<br>") -> Markup:
    return Markup(between).join(_part(name, text, goes_on=bool(index)) for index, text in enumerate(texts))


def _few(facts: Facts, rng: random.Random, most: int) -> str:
    """Leaves the first goods, and makes the sums anew."""
    if len(facts.goods) > most:
        del facts.goods[most:]
        sum_up(facts, rng)
    return ""


def _plain(facts: Facts, rng: random.Random) -> str:
    """Leaves one rate of tax, and neither discount, withholding, surcharge nor payment."""
    for goods in facts.goods:
        goods.rate = facts.goods[0].rate
    sum_up(facts, rng, plain=True)
    return ""


def measured(pages: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The words of pages as Chromium sets them. Raises: subprocess.CalledProcessError."""
    script = _SCRIPT.replace("WIDE", str(_PAGE[0])).replace("HIGH", str(_PAGE[1]))
    listed = json.dumps(pages).replace("</", "<\\/")
    with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as file:
        file.write(f"<!doctype html><meta charset=utf-8><body></body><script>const pages = {listed};{script}</script>")
        file.flush()
        command = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"file://{file.name}")
        shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    body = shown[shown.index("<body>") + len("<body>") : shown.rindex("</body>")]
    found: list[list[dict[str, Any]]] = json.loads(Markup(body).unescape())
    return found


def labelled(words: Sequence[dict[str, Any]], kind: str, rng: random.Random) -> list[MadeWord]:
    """The words in points, with labels; some papers as if scanned."""
    grown = rng.uniform(0.92, 1.12)  # of the boxes: readers of PDF differ
    tops: dict[int, float] = {}
    for word in words:
        if word["row"] >= 0 and word["label"]:
            tops[word["row"]] = min(tops.get(word["row"], word["box"][1]), word["box"][1])
    found: list[MadeWord] = []
    field = -1
    address, told_at = "", -_ONE_ADDRESS - 1
    right = top = 0.0  # of the word before
    for index, word in enumerate(words):
        x0, y0, x1, y1 = word["box"]
        half = word["size"] * grown / 2
        box = (x0 * _POINTS, ((y0 + y1) / 2 - half) * _POINTS, x1 * _POINTS, ((y0 + y1) / 2 + half) * _POINTS)
        label = "" if kind in _NO_FIELDS else word["label"]
        begins = bool(label) and not word["goes_on"] and word["field"] != field
        if label.endswith("Address"):
            begins = begins and not (label == address and index - told_at <= _ONE_ADDRESS)
            address, told_at = label, index
        field = word["field"] if label else field
        row = bool(label) and word["row"] >= 0 and y0 < tops[word["row"]] + word["size"] * 0.6
        made = MadeWord(word["text"], box, label, begins, row)
        if word["glued"] and found and abs(y0 - top) < 3 and abs(x0 - right) < 1:
            found[-1] = found[-1].joined(made.text, box, made)
        else:
            found.append(made)
        right, top = x1, y0
    sheet = Sheet(595.0, 842.0, words=found)
    if rng.random() < _SCANNED:
        scan(sheet, rng)
    return sheet.words


def papers_of(template: str, seed: str, count: int) -> list[dict[str, Any]]:
    """Papers of one design, as ``tools.train_fields`` reads them."""
    rngs = [random.Random(f"{seed} {number}") for number in range(count)]
    papers = [drawn(template, rng) for rng in rngs]
    found = []
    for (kind, _), words, rng in zip(papers, measured([page for _, page in papers]), rngs, strict=True):
        made = labelled(words, kind, rng)
        if len(made) <= _MAX_WORDS:
            told = [asdict(word) | {"box": [round(value, 2) for value in word.box]} for word in made]
            found.append({"kind": kind, "opens": True, "words": told})
    return found


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of a JSON file a design")
    parser.add_argument("--papers", type=int, default=40, help="of each design")
    parser.add_argument("--seed", default="1")
    a = parser.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    for file in sorted(FOLDER.glob("*.html")):
        papers = papers_of(file.read_text("utf-8"), f"{a.seed} {file.stem}", a.papers)
        (a.out / f"{file.stem}.json").write_text(json.dumps(papers, ensure_ascii=False), "utf-8")
        print(f"{file.stem}: {len(papers)} papers")


if __name__ == "__main__":
    main()
