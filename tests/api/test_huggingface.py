"""Hugging Face's tasks, as huggingface_hub and @huggingface/inference send them."""

import base64
from typing import Any

import httpx
import pytest

from tests.api.checks import problem
from tests.api.fakes import FakeServices


async def test_token_classification(client: httpx.AsyncClient) -> None:
    """A list for a text, a list of lists for several."""
    expected = {"entity_group": "PER", "score": 0.25, "word": "Juan", "start": 4, "end": 8}

    one = await client.post("/hf/token-classification", json={"inputs": "Don Juan", "parameters": {"stride": 1}})
    listed = await client.post("/hf/token-classification", json={"inputs": ["Don Juan"]})
    two = await client.post("/hf/token-classification", json={"inputs": ["Don Juan", "nadie"]})

    assert [expected] == one.json()
    assert [[expected]] == listed.json()
    assert [[expected], []] == two.json()


async def test_zero_shot(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Labels in the caller's words, the best first."""
    parameters = {"candidate_labels": ["factura", "contrato"], "multi_label": True, "hypothesis_template": "Es {}."}

    answer = await client.post("/hf/zero-shot-classification", json={"inputs": "a", "parameters": parameters})

    assert ["factura", "contrato"] == [prediction["label"] for prediction in answer.json()]
    [(texts, options)] = services.classification.calls
    assert (["a"], ["factura", "contrato"], True, "Es {}.") == (
        texts, options["labels"], options["multi_label"], options["hypothesis_template"],
    )  # fmt: skip
    problem(await client.post("/hf/zero-shot-classification", json={"inputs": "a"}), 422, "invalid_field", "parameters")


@pytest.mark.parametrize(
    ("context", "parameters", "expected"),
    [
        ("Juan pide.", None, {"answer": "Juan", "start": 0, "end": 4}),
        ("x pide.", {"handle_impossible_answer": True}, {"answer": "", "start": 0, "end": 0}),
    ],
)
async def test_question_answering(
    client: httpx.AsyncClient, services: FakeServices, context: str, parameters: Any, expected: dict[str, Any]
) -> None:
    """The likeliest words, however unlikely, unless none may be the answer."""
    asked = {"inputs": {"question": "¿Quién?", "context": context}, "parameters": parameters}

    answer = (await client.post("/hf/question-answering", json=asked)).json()

    assert expected == {name: answer[name] for name in expected}
    assert (parameters is None) == (0.0 == services.answers.calls[0][1]["min_score"])


async def test_summarization(client: httpx.AsyncClient, services: FakeServices) -> None:
    answer = await client.post("/hf/summarization", json={"inputs": "Un texto.", "parameters": {"max_length": 30}})

    assert [{"summary_text": "Un texto."}] == answer.json()
    assert 30 == services.summaries.calls[0][1].max_tokens


async def test_a_text_without_whole_sentences(client: httpx.AsyncClient, services: FakeServices) -> None:
    """A short one is its own summary; of a long one the reason is told, for which the answer has no place."""
    services.summaries.empty = "text: empty, because why"
    short = await client.post("/hf/summarization", json={"inputs": "Hello\nthere."})
    long = await client.post("/hf/summarization", json={"inputs": "a b\n" * 200})

    assert [{"summary_text": "Hello there."}] == short.json()
    assert "inputs: the summary is empty, because why" == problem(long, 422, "invalid_field")["error"]


@pytest.mark.parametrize(
    "sent",
    [
        {"content": b"RIFF of a test", "headers": {"content-type": "audio/wav"}},
        {"json": {"inputs": base64.b64encode(b"RIFF of a test").decode(), "parameters": {}}},
    ],
)
async def test_speech(client: httpx.AsyncClient, services: FakeServices, sent: dict[str, Any]) -> None:
    """The recording alone, or in base64."""
    answer = await client.post("/hf/automatic-speech-recognition", **sent)

    assert {"text": services.speech.heard.text} == answer.json()
    assert b"RIFF of a test" == services.speech.calls[0][0]
