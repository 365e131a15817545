"""infinity's routes over a real socket and a real model, asked as its own client asks."""

import base64

import numpy as np
import pytest

from tests.clients.server import MARKS, LiveServer

pytestmark = MARKS
ANY_MODEL = "default/not-specified"
QUERY = "When is the invoice due?"
DOCUMENTS = ["A recipe for bread with olives.", "The invoice is due in 30 days."]


def test_rerank_by_shape(live_server: LiveServer) -> None:
    """One path for two services: the same order and scores in each one's words."""
    fields = {"return_documents": True, "raw_scores": False, "model": ANY_MODEL, "top_n": 1}
    with live_server.client() as client:
        ranks = client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS, **fields}).json()
        tei = client.post("/rerank", json={"query": QUERY, "texts": DOCUMENTS}).json()

    [best] = ranks["results"]
    assert (1, DOCUMENTS[1]) == (best["index"], best["document"])
    assert (tei[0]["index"], pytest.approx(tei[0]["score"], abs=1e-6)) == (best["index"], best["relevance_score"])


def test_classify(live_server: LiveServer) -> None:
    """Every label of each text; probabilities unless logits are asked for."""
    body = {"input": ["Invoice 2024-017. Total due: 1,284.50 EUR."], "model": ANY_MODEL}
    with live_server.client() as client:
        [predictions] = client.post("/classify", json={**body, "raw_scores": False}).json()["data"]
        [logits] = client.post("/classify", json={**body, "raw_scores": True}).json()["data"]

    assert pytest.approx(1.0, abs=1e-3) == sum(prediction["score"] for prediction in predictions)
    assert predictions[0]["label"] == logits[0]["label"]
    assert min(logit["score"] for logit in logits) < 0


def test_models(live_server: LiveServer) -> None:
    """The models of /v1/models, each with what infinity's client cannot do without."""
    with live_server.client() as client:
        ours, theirs = client.get("/v1/models").json()["data"], client.get("/models").json()["data"]

    hearing = [model["id"] for model in ours if model["task"] == "speech"]  # infinity has no such route
    assert [model["id"] for model in ours] == [model["id"] for model in theirs] + hearing
    assert {"infinity"} == {model["owned_by"] for model in theirs}
    assert all(model["stats"].keys() >= {"queue_absolute", "results_pending", "batch_size"} for model in theirs)


@pytest.mark.parametrize(("top_n", "count"), [(1, 1), (2, 2), (8000, 3)])
def test_rerank_whatever_the_order(live_server: LiveServer, top_n: int, count: int) -> None:
    """The best is first however documents are ordered, with its text where that is asked for."""
    best = "The Eiffel Tower is located in Paris, France"
    others = ["The Eiffel Tower is located in the United States.", "The Eiffel Tower is located in the United Kingdom."]
    with live_server.client() as client:
        for documents in ([best, *others], [others[0], best, others[1]], [*others, best]):
            body = {"model": "bundled", "query": "Where is the Eiffel Tower located?", "documents": documents}
            answer = client.post("/rerank", json={**body, "top_n": top_n, "return_documents": True}).json()

            assert count == len(answer["results"])
            assert (documents.index(best), best) == (answer["results"][0]["index"], answer["results"][0]["document"])
            assert answer["usage"]["prompt_tokens"] > 0
            assert 422 == client.post("/rerank", json={**body, "top_n": -top_n}).status_code


def test_what_a_model_is_listed_for_it_does(live_server: LiveServer) -> None:
    """Every capability of `/models` by the listed id: vectors the same in both encodings, ranks and classes."""
    with live_server.client() as client:
        model = next(model for model in client.get("/models").json()["data"] if "embed" in model["capabilities"])
        floats, packed = (
            client.post("/embeddings", json={"input": "Hello", "model": model["id"], "encoding_format": form}).json()
            for form in ("float", "base64")
        )
        ranked = client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS, "model": model["id"]})
        classified = client.post("/classify", json={"input": DOCUMENTS, "model": model["id"]})

    vector = np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), np.float32)
    np.testing.assert_array_equal(np.float32(floats["data"][0]["embedding"]), vector)
    assert {"embed", "rerank", "classify"} == set(model["capabilities"])
    assert (200, 200) == (ranked.status_code, classified.status_code)
