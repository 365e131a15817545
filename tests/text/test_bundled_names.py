"""The bundled tagger on names as business papers have them: sentences written by hand, never trained on."""

import re
from pathlib import Path

import pytest

from backend.bootstrap.services import build
from backend.config import load_settings

PAPERS = Path(__file__).with_name("business_names.txt")
_MARKED = re.compile(r"\[(PER|ORG|LOC) ([^\]]+)\]")
QUICK = {"runtime": "openvino", "precision": "int8"}  # one candidate to measure, and what serves on most machines
TYPES = ("PER", "ORG", "LOC")
Names = set[tuple[str, int, int]]  # type, first and past-last character


def marked() -> list[tuple[str, Names]]:
    """Each text without its marks, and its names."""
    lines = [line for line in PAPERS.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [_read(line) for line in lines]


def _read(line: str) -> tuple[str, Names]:
    text, names, position = "", set(), 0
    for match in _MARKED.finditer(line):
        text += line[position : match.start()]
        names.add((match[1], len(text), len(text) + len(match[2])))
        text += match[2]
        position = match.end()
    return text + line[position:], names


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_names_in_business_papers(tmp_path: Path):
    """Of exact spans, legal forms and both surnames included: as a user sees them, of model and patterns together."""
    services = await build(load_settings(state_dir=tmp_path, device="cpu", embedding_model="minilm", **QUICK))
    try:
        papers = marked()
        rows = (await services.entities.find([text for text, _ in papers], types=TYPES)).rows
    finally:
        await services.close()

    found = [{(entity.type, entity.start, entity.end) for entity in row.entities} for row in rows]
    missed = dict.fromkeys(TYPES, 0)
    for (_, names), spans in zip(papers, found, strict=True):
        for kind, _, _ in names - spans:
            missed[kind] += 1
    counts = {kind: sum(name[0] == kind for _, names in papers for name in names) for kind in TYPES}
    right = sum(counts.values()) - sum(missed.values())
    f1 = 2 * right / (sum(counts.values()) + sum(map(len, found)))
    assert f1 >= 0.88, (f1, missed, counts)  # 0.90 with int8 on a Xeon; other arithmetic moves a name or two
    assert all(missed[kind] <= 0.2 * counts[kind] for kind in TYPES), missed
