"""Evaluates pattern entities (numbers, dates, addresses) on the annotated texts of the tests."""

from collections.abc import Mapping, Sequence

from backend.text.entity_merge import Entity
from backend.text.patterns import PATTERN_TYPES
from benchmarks.evaluation.records import PATTERNS, Evaluation, EvaluationContext, Row
from tests.text.marked import Score, read_marked, score

CHECKSUMS = ("CCC", "CIF", "IBAN", "NIE", "NIF", "VAT")  # types validated by a checksum
TARGET = 0.98  # of precision and of recall, on these types


async def evaluate(context: EvaluationContext) -> list[Row]:
    """Precision and recall over all types with a checksum, over all others, and by type."""
    texts = read_marked()
    answer = await context.services.entities.find([text.text for text in texts])
    found: Mapping[str, Sequence[Entity]] = {
        text.text: [entity for entity in row.entities if entity.type in PATTERN_TYPES]
        for text, row in zip(texts, answer.rows, strict=True)
    }
    scores = score(texts, found.__getitem__)
    others = [kind for kind in scores if kind not in CHECKSUMS]
    with_checksum = [kind for kind in scores if kind in CHECKSUMS]
    rows = []
    for name, kinds, target in (("with a checksum", with_checksum, TARGET), ("others", others, None)):
        for measure in ("precision", "recall"):
            total_score = total([scores[kind] for kind in kinds])
            parts = {kind: float(getattr(scores[kind], measure)) for kind in kinds}
            rows.append(
                Row(
                    PATTERNS,
                    name,
                    "en, es",
                    measure,
                    getattr(total_score, measure),
                    total_score.marked,
                    target,
                    "patterns",
                    parts,
                )
            )
    return rows


def total(scores: Sequence[Score]) -> Score:
    """The summed counts of several types."""
    return Score(*(sum(getattr(score, count) for score in scores) for count in ("marked", "found", "right", "values")))


EVALUATIONS = (Evaluation(PATTERNS, PATTERNS, evaluate),)
