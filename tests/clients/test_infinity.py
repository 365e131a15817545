"""infinity's routes over a real socket and a real model, asked as its own client asks."""

from __future__ import annotations

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
