"""Numbers, dates and addresses that patterns find: ``/v1/entities`` on the texts marked for the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backend.documents.entities import Entity
from backend.documents.patterns import PATTERN_TYPES
from benchmarks.judging.records import Bench, Judge, Row
from benchmarks.judging.tasks import PATTERNS
from tests.documents.marked import Score, read_marked, score

CHECKSUMS = ("CCC", "CIF", "IBAN", "NIE", "NIF", "VAT")  # a checksum tells which are real
TARGET = 0.98  # of precision and of recall, on these types


async def judge(bench: Bench) -> list[Row]:
    """Precision and recall over all types with a checksum, over all others, and by type."""
    texts = read_marked()
    answer = await bench.services.entities.find([one.text for one in texts])
    found: Mapping[str, Sequence[Entity]] = {
        one.text: [entity for entity in row.entities if entity.type in PATTERN_TYPES]
        for one, row in zip(texts, answer.rows, strict=True)
    }
    scores = score(texts, found.__getitem__)
    others = [kind for kind in scores if kind not in CHECKSUMS]
    checked = [kind for kind in scores if kind in CHECKSUMS]
    rows = []
    for name, kinds, target in (("with a checksum", checked, TARGET), ("others", others, None)):
        for measure in ("precision", "recall"):
            whole = total([scores[kind] for kind in kinds])
            parts = {kind: float(getattr(scores[kind], measure)) for kind in kinds}
            rows.append(
                Row(PATTERNS, name, "en, es", measure, getattr(whole, measure), whole.marked, target, "patterns", parts)
            )
    return rows


def total(scores: Sequence[Score]) -> Score:
    """The counts of several types as of one."""
    return Score(*(sum(getattr(one, count) for one in scores) for count in ("marked", "found", "right", "values")))


JUDGES = (Judge(PATTERNS, PATTERNS, judge),)
