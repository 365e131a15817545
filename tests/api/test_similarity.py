"""``POST /v1/similarity``: cosines and calibrated scores in the order of the sentences."""

from typing import Any

import httpx
import pytest

from backend.text.embeddings import EmbedOptions
from tests.api.checks import problem
from tests.api.fakes import FakeServices, vector


async def test_cosine_and_score_of_each_sentence(client: httpx.AsyncClient, services: FakeServices) -> None:
    """With the tokens of all texts, and which of them were cut: the source is input 0."""
    services.embeddings.truncated = frozenset({0, 2})
    cosines = [1.0, float(vector("uno") @ vector("dos"))]

    response = await client.post(
        "/v1/similarity",
        json={"source": "uno", "sentences": ["uno", "dos"], "prompt_name": "query", "model": "bundled"},
    )

    answer = response.json()
    assert 200 == response.status_code
    assert [0, 1] == [result["index"] for result in answer["results"]]
    assert pytest.approx(cosines, abs=1e-6) == [result["cosine"] for result in answer["results"]]
    assert pytest.approx([max(0, one / 2) for one in cosines], abs=1e-6) == [one["score"] for one in answer["results"]]
    assert ({"prompt_tokens": 9, "total_tokens": 9}, [0, 2]) == (answer["usage"], answer["truncated"])
    assert EmbedOptions(prompt_name="query", normalize=True) == services.embeddings.calls[0][1]


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        pytest.param({"source": "a"}, 422, "sentences", id="no-sentences"),
        pytest.param({"source": "a", "sentences": []}, 400, "sentences", id="empty"),
        pytest.param({"sentences": ["a"]}, 422, "source", id="no-source"),
        pytest.param({"source": "a", "sentences": ["a"], "model": "other"}, 404, "other", id="unknown-model"),
        pytest.param({"source": "a", "sentences": ["a"] * 101}, 413, "sentences", id="too-many"),
    ],
)
async def test_faults(client: httpx.AsyncClient, body: Any, status: int, named: str) -> None:
    """The error names the field."""
    problem(await client.post("/v1/similarity", json=body), status, None, named)
