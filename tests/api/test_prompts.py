"""What clients of other services say, and the prompts of models that are known."""

import pytest

from backend.api.routes.embeddings import INPUT_TYPES, TASKS, Prompts

E5 = {"query", "passage"}
NOMIC = {"search_query", "search_document", "classification", "clustering"}
JINA_V3 = {"retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"}
QWEN = {"query", "document"}


def chosen(prompts: Prompts, names: set[str]) -> str | None:
    """The prompt of a model with these that the service uses."""
    return next((name for name in prompts if name in names), None)


@pytest.mark.parametrize(
    ("word", "e5", "nomic", "jina", "qwen"),
    [
        ("search_query", "query", "search_query", "retrieval.query", "query"),
        ("query", "query", "search_query", "retrieval.query", "query"),
        ("search_document", "passage", "search_document", "retrieval.passage", "document"),
        ("passage", "passage", "search_document", "retrieval.passage", "document"),
        ("document", "passage", "search_document", "retrieval.passage", "document"),
        ("classification", "query", "classification", "classification", "query"),
        ("clustering", "query", "clustering", "separation", "query"),
    ],
)
def test_input_types(word: str, e5: str, nomic: str, jina: str, qwen: str):
    """Each model's own name for the same use; every word is here."""
    assert [e5, nomic, jina, qwen] == [chosen(INPUT_TYPES[word], names) for names in (E5, NOMIC, JINA_V3, QWEN)]
    assert 7 == len(INPUT_TYPES)


@pytest.mark.parametrize(
    ("word", "e5", "jina"),
    [
        ("retrieval.query", "query", "retrieval.query"),
        ("retrieval.passage", "passage", "retrieval.passage"),
        ("retrieval", None, None),
        ("text-matching", None, "text-matching"),
        ("classification", "query", "classification"),
        ("separation", "query", "separation"),
        ("clustering", "query", "separation"),
        ("nl2code.query", "query", "retrieval.query"),
        ("code.passage", "passage", "retrieval.passage"),
        ("qa", None, None),
    ],
)
def test_tasks(word: str, e5: str | None, jina: str | None):
    """A task without a side asks for no prompt, for both sides must be read alike."""
    assert [e5, jina] == [chosen(TASKS[word], names) for names in (E5, JINA_V3)]


def test_a_model_without_prompts():
    """No word asks for what it lacks."""
    assert {None} == {chosen(prompts, set()) for prompts in (*INPUT_TYPES.values(), *TASKS.values())}
