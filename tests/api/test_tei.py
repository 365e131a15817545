"""The shapes of text-embeddings-inference."""

from typing import Any

import httpx
import numpy as np
import pytest

from backend.api.app import create_app
from backend.api.request_context import ApiLimits
from backend.errors import FinanciaError, InferenceFailed, Overloaded, Unavailable
from backend.lanes.text_work import TextLimits, TextWork
from backend.models.tokenizer import TokenArrays, TokenizedText, TokenPiece
from backend.telemetry import Telemetry
from backend.text.embeddings import EmbedOptions
from tests.api.checks import json_paths, path_of_store, problem
from tests.api.fakes import FakeServices, vector
from tests.api.text_routes import TEXT_ROUTES

ROW = [{"score": 0.5, "label": "invoice"}, {"score": 1 / 3, "label": "receipt"}]
QUERY = {"query": "q", "texts": ["ab", "abcd", "a"]}
API_LIMITS = ApiLimits(inputs=5, text_chars=100, body_bytes=10_000)


@pytest.mark.parametrize("inputs", ["hola", ["hola"], ["hola", "adiós"], [1, 2, 3], [[1, 2], [3]]])
async def test_embed(client: httpx.AsyncClient, inputs: Any) -> None:
    """A bare list of vectors, one for each input, a single input too."""
    response = await client.post("/embed", json={"inputs": inputs})

    expected = [inputs] if isinstance(inputs, str) or isinstance(inputs[0], int) else inputs
    assert 200 == response.status_code
    np.testing.assert_array_equal([vector(text) for text in expected], np.float32(response.json()))
    assert str(sum(map(len, expected))) == response.headers["x-compute-tokens"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, EmbedOptions(normalize=True), id="defaults-are-tei's"),
        pytest.param({"truncate": False}, EmbedOptions(truncate="none", normalize=True), id="never-cut"),
        pytest.param(
            {"truncate": True, "truncation_direction": "left"},
            EmbedOptions(truncate="start", normalize=True),
            id="cut-left",
        ),
        pytest.param(
            {"truncation_direction": "Left"}, EmbedOptions(truncate="start", normalize=True), id="old-spelling"
        ),
        pytest.param(
            {"prompt_name": "query", "dimensions": 4},
            EmbedOptions(prompt_name="query", dimensions=4, normalize=True),
            id="prompt-and-dimensions",
        ),
        pytest.param(
            {
                "truncate": None, "truncation_direction": None, "normalize": None, "prompt_name": None,
                "dimensions": None,
            },
            EmbedOptions(normalize=True),
            id="nulls",
        ),
    ],
)  # fmt: skip
async def test_embed_options(
    client: httpx.AsyncClient, services: FakeServices, fields: dict[str, Any], expected: EmbedOptions
) -> None:
    """TEI's two fields about truncation become the service's one option."""
    await client.post("/embed", json={"inputs": "a", **fields})

    assert expected == services.embeddings.calls[0][1]


async def test_truncated_inputs_are_listed_in_a_header(client: httpx.AsyncClient, services: FakeServices) -> None:
    """A bare list cannot carry them, so a header lists the inputs that were truncated."""
    services.embeddings.truncated = frozenset({1})

    response = await client.post("/embed", json={"inputs": ["a", "b"]})

    assert ("1", "1") == (response.headers["x-truncated"], response.headers["x-truncated-count"])
    described = (await client.get("/openapi.json")).json()["paths"]["/embed"]["post"]["responses"]["200"]["headers"]
    assert {"X-Compute-Tokens", "X-Truncated", "X-Truncated-Count"} <= set(described)


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        pytest.param({"inputs": ["a", True]}, 422, "inputs[1]", id="mixed"),
        pytest.param({"inputs": "a", "truncate": "yes"}, 422, "truncate", id="truncate"),
        pytest.param({"inputs": [1], "prompt_name": "query"}, 422, "prompt_name", id="prompt-before-token-ids"),
    ],
)
async def test_embed_faults(client: httpx.AsyncClient, body: Any, status: int, named: str) -> None:
    """Faults name TEI's own fields."""
    problem(await client.post("/embed", json=body), status, None, named)


@pytest.mark.parametrize("inputs", ["hola", ["hola", "a" * 99], [1, 2, 3], [[1, 2], [3]]])
async def test_embed_all(client: httpx.AsyncClient, services: FakeServices, inputs: Any) -> None:
    """The vectors of each input's tokens in lists of lists, a single input in a list of one; none normalised."""
    services.embeddings.truncated = frozenset({0})

    response = await client.post("/embed_all", json={"inputs": inputs, "truncate": True, "prompt_name": None})

    expected = [inputs] if isinstance(inputs, str) or isinstance(inputs[0], int) else inputs
    assert [len(text) for text in expected] == [len(rows) for rows in response.json()]
    for text, rows in zip(expected, response.json(), strict=True):
        np.testing.assert_array_equal([vector(token) for token in text], np.float32(rows))
    assert str(sum(map(len, expected))) == response.headers["x-compute-tokens"]
    assert "0" == response.headers["x-truncated"]
    assert EmbedOptions() == services.embeddings.calls[0][1]


async def test_embed_all_in_pieces(client: httpx.AsyncClient) -> None:
    """A long answer is sent piece by piece, and is one document of JSON."""
    inputs = [[number] * 300 for number in range(1, 4)]

    response = await client.post("/embed_all", json={"inputs": inputs})

    assert [(300, len(vector(1)))] * 3 == [np.array(rows).shape for rows in response.json()]
    assert "content-length" not in response.headers


async def test_similarity(client: httpx.AsyncClient, services: FakeServices) -> None:
    """One score for each sentence, with TEI's nested parameters."""
    inputs = {"source_sentence": "uno", "sentences": ["uno", "dos"]}

    response = await client.post("/similarity", json={"inputs": inputs, "parameters": {"prompt_name": "query"}})

    scores = response.json()
    assert 200 == response.status_code
    assert pytest.approx(1.0, abs=1e-6) == scores[0]
    assert pytest.approx(float(vector("uno") @ vector("dos")), abs=1e-6) == scores[1]
    assert EmbedOptions(prompt_name="query", normalize=True) == services.embeddings.calls[0][1]
    assert "inference;dur=" in response.headers["server-timing"]


@pytest.mark.parametrize(
    ("inputs", "status", "named"),
    [
        pytest.param("a", 422, "inputs", id="text"),
        pytest.param({"source_sentence": "a"}, 422, "inputs.sentences", id="no-sentences"),
        pytest.param({"source_sentence": "a", "sentences": []}, 400, "inputs.sentences", id="empty-list"),
        pytest.param({"source_sentence": "a", "sentences": ["b", ""]}, 400, "inputs.sentences.1", id="empty-sentence"),
        pytest.param({"source_sentence": "a", "sentences": "b"}, 422, "inputs.sentences", id="text-for-list"),
    ],
)
async def test_similarity_faults(client: httpx.AsyncClient, inputs: Any, status: int, named: str) -> None:
    """The error names the field."""
    problem(await client.post("/similarity", json={"inputs": inputs}), status, None, named)


async def test_as_many_sentences_as_inputs(client: httpx.AsyncClient, services: FakeServices) -> None:
    """LIMIT_INPUTS counts the sentences; the one that they are compared with is none of them."""
    sentences = ["b"] * services.limits.inputs
    most = await client.post("/similarity", json={"inputs": {"source_sentence": "a", "sentences": sentences}})
    more = await client.post("/similarity", json={"inputs": {"source_sentence": "a", "sentences": [*sentences, "b"]}})

    assert len(sentences) == len(most.json())
    problem(more, 413, "too_large", f"inputs.sentences: {len(sentences) + 1} is over the limit of {len(sentences)}")


async def test_a_refused_timeout_leaves_no_work(client: httpx.AsyncClient) -> None:
    """The call is not made, so nothing of it is left that nobody waits for (found by schemathesis)."""
    response = await client.post("/tokenize", json={"inputs": "a"}, headers={"X-Request-Timeout-S": "0"})

    problem(response, 422, "invalid_field", "X-Request-Timeout-S")


async def test_tokenize(client: httpx.AsyncClient) -> None:
    """One list of tokens for each text; empty texts are fine where nothing is embedded."""
    bare = await client.post("/tokenize", json={"inputs": ["a", ""], "add_special_tokens": False})
    marked = await client.post("/tokenize", json={"inputs": "a"})

    assert [[{"id": 1, "text": "a", "special": False, "start": 0, "stop": 1}]] * 2 == bare.json()
    assert {"id": 0, "text": "[CLS]", "special": True, "start": None, "stop": None} == marked.json()[0][0]


@pytest.mark.parametrize(("inputs", "status"), [([], 400), (5, 422), ([5], 422), (["a", None], 422), (None, 422)])
async def test_tokenize_faults(client: httpx.AsyncClient, inputs: Any, status: int) -> None:
    """Only texts can be cut into tokens."""
    problem(await client.post("/tokenize", json={"inputs": inputs}), status, None, "inputs")


async def test_info(client: httpx.AsyncClient) -> None:
    """TEI's description, with this service's model and limits."""
    body = (await client.get("/info")).json()

    assert ("fake-model", "int8", 256, 512) == tuple(
        body[name] for name in ("model_id", "model_dtype", "max_input_length", "max_batch_tokens")
    )
    assert {"embedding": {"pooling": "mean"}} == body["model_type"]
    assert (5, True) == (body["max_client_batch_size"], body["auto_truncate"])
    assert ("fake-model", 2000) == (body["served_model_name"], body["max_concurrent_requests"])
    assert body["tokenization_workers"] > 0


@pytest.mark.parametrize(
    ("model_type", "labels"), [("classifier", ["invoice", "receipt", "contract"]), ("reranker", ["LABEL_0"])]
)
async def test_info_of_another_task(client: httpx.AsyncClient, model_type: str, labels: list[str]) -> None:
    """TEI's servers have one task; here the query says which one is meant, and the labels come as TEI writes them."""
    body = (await client.get("/info", params={"model_type": model_type})).json()

    numbers = {str(number): label for number, label in enumerate(labels)}
    expected = {"id2label": numbers, "label2id": {label: int(number) for number, label in numbers.items()}}
    assert {model_type: expected} == body["model_type"]


async def test_info_of_an_unknown_task(client: httpx.AsyncClient) -> None:
    """The words there are."""
    problem(await client.get("/info", params={"model_type": "splade"}), 422, None, "model_type")


@pytest.mark.parametrize(
    ("inputs", "rows", "answer"),
    [
        pytest.param("a", ["a"], ROW, id="text"),
        pytest.param(["a"], ["a"], ROW, id="text-in-a-list"),
        pytest.param(["a", "b"], [("a", "b")], ROW, id="pair"),
        pytest.param([["a"], ["b"]], ["a", "b"], [ROW, ROW], id="batch"),
        pytest.param([["a"], ["b", "c"], ["d"]], ["a", ("b", "c"), "d"], [ROW] * 3, id="texts-and-pairs"),
    ],
)
async def test_predict(
    client: httpx.AsyncClient, services: FakeServices, inputs: Any, rows: list[Any], answer: Any
) -> None:
    """One input gives a list, a batch a list of lists; two texts side by side are a pair."""
    response = await client.post("/predict", json={"inputs": inputs})

    assert answer == response.json()
    assert rows == services.classification.calls[0][0]
    assert str(sum(len("".join(row)) + 2 for row in rows)) == response.headers["x-compute-tokens"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, (False, "end"), id="defaults-are-tei's"),
        pytest.param({"raw_scores": None, "truncate": None}, (False, "end"), id="nulls"),
        pytest.param({"raw_scores": True, "truncate": False}, (True, "none"), id="logits-never-cut"),
        pytest.param({"truncate": True, "truncation_direction": "Left"}, (False, "start"), id="cut-left"),
        pytest.param({"parameters": {"top_k": 1}}, (False, "end"), id="huggingface-hub's-other-field"),
    ],
)
async def test_predict_options(
    client: httpx.AsyncClient, services: FakeServices, fields: dict[str, Any], expected: tuple[bool, str]
) -> None:
    """TEI's fields become the service's options."""
    await client.post("/predict", json={"inputs": "a", **fields})

    options = services.classification.calls[0][1]
    assert expected == (options["raw_scores"], options["truncate"])
    assert options["urgency"].deadline_s > 0


async def test_truncated_texts_are_listed_in_a_header(client: httpx.AsyncClient) -> None:
    """A bare list cannot carry them, so a header does."""
    predicted = await client.post("/predict", json={"inputs": [["a"], ["long text"]]})
    ranked = await client.post("/rerank", json={"query": "q", "texts": ["a", "b", "long text"]})

    assert ("1", "2") == (predicted.headers["x-truncated"], ranked.headers["x-truncated"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inputs", "status", "named"),
    [
        pytest.param([], 400, ["inputs", "empty list"], id="empty-list"),
        pytest.param("", 400, ["inputs", "empty"], id="empty-text"),
        pytest.param(["a", ""], 400, ["inputs", "empty"], id="half-a-pair"),
        pytest.param([["a"], [""]], 400, ["inputs[1]", "empty"], id="one-empty-text"),
        pytest.param([["a"], []], 422, ["inputs[1]", "0 texts"], id="an-empty-row"),
        pytest.param(["a", "b", "c"], 422, ["3 texts", '[["a"], ["b", "c"]]'], id="texts-that-want-to-be-a-batch"),
        pytest.param([["a", "b", "c"]], 422, ["inputs[0]", "3 texts"], id="three-texts-in-a-row"),
        pytest.param([["a"], "b"], 422, ["inputs[1]", "a text"], id="text-in-a-batch"),
        pytest.param(["a", ["b"]], 422, ["inputs[1]", "a list"], id="list-in-a-pair"),
        pytest.param([["a", 5]], 422, ["inputs[0][1]", "a number"], id="number-in-a-row"),
        pytest.param([5], 422, ["inputs[0]", "a number"], id="number"),
        pytest.param(None, 422, ["inputs", "null"], id="null"),
        pytest.param([["a"]] * 6, 413, ["6", "5", "LIMIT_INPUTS"], id="too-many"),
        pytest.param([["a"], ["b", "c" * 101]], 413, ["101", "LIMIT_TEXT_CHARS"], id="too-long"),
    ],
)
async def test_predict_faults(
    client: httpx.AsyncClient, services: FakeServices, inputs: Any, status: int, named: list[str]
) -> None:
    """The error says what is wrong, where, and how a batch is written; nothing is computed."""
    problem(await client.post("/predict", json={"inputs": inputs}), status, None, *named)

    assert [] == services.classification.calls


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, [(1, 1.0), (0, 0.5), (2, 0.25)], id="scores"),
        pytest.param({"raw_scores": True}, [(1, 4.0), (0, 2.0), (2, 1.0)], id="raw-scores"),
        pytest.param({"raw_scores": None, "return_text": None}, [(1, 1.0), (0, 0.5), (2, 0.25)], id="nulls"),
    ],
)
async def test_rank(client: httpx.AsyncClient, fields: dict[str, Any], expected: list[tuple[int, float]]) -> None:
    """A bare list, best first, without texts."""
    response = await client.post("/rerank", json={**QUERY, **fields})

    assert [{"index": index, "score": score} for index, score in expected] == response.json()
    assert "10" == response.headers["x-compute-tokens"]
    assert "inference;dur=" in response.headers["server-timing"]


async def test_rank_returns_texts(client: httpx.AsyncClient) -> None:
    """With `return_text` each result has its text."""
    response = await client.post("/rerank", json={**QUERY, "return_text": True})

    assert [(1, "abcd"), (0, "ab"), (2, "a")] == [(rank["index"], rank["text"]) for rank in response.json()]


async def test_rank_options(client: httpx.AsyncClient, services: FakeServices) -> None:
    """TEI's two fields about truncation become the service's one option."""
    for fields in ({}, {"truncate": False}, {"truncation_direction": "left"}):
        await client.post("/rerank", json={**QUERY, **fields})

    assert ["end", "none", "start"] == [options["truncate"] for _, options in services.reranking.calls]
    assert ("q", QUERY["texts"]) == services.reranking.calls[0][0]


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        pytest.param({"query": ""}, 400, ["query", "empty"], id="empty-query"),
        pytest.param({"query": 5}, 422, ["query"], id="number-as-query"),
        pytest.param({"texts": []}, 400, ["texts", "empty list"], id="no-texts"),
        pytest.param({"texts": "a"}, 422, ["texts", "a list"], id="text-for-list"),
        pytest.param({"texts": ["a", ""]}, 400, ["texts[1]"], id="empty-text"),
        pytest.param({"texts": ["a", {"text": "b"}]}, 422, ["texts[1]", "an object"], id="object"),
        pytest.param({"texts": ["a"] * 6}, 413, ["6", "5", "LIMIT_INPUTS"], id="too-many"),
        pytest.param({"texts": ["a" * 101]}, 413, ["101", "LIMIT_TEXT_CHARS"], id="too-long"),
        pytest.param({"query": "a" * 101}, 413, ["query", "101", "LIMIT_TEXT_CHARS"], id="long-query"),
    ],
)
async def test_rank_faults(
    client: httpx.AsyncClient, services: FakeServices, fields: dict[str, Any], status: int, named: list[str]
) -> None:
    """The error says what is wrong and where; nothing is computed."""
    problem(await client.post("/rerank", json={**QUERY, **fields}), status, None, *named)

    assert [] == services.reranking.calls


async def test_many_tokens_are_streamed(services: FakeServices, client: httpx.AsyncClient, monkeypatch) -> None:
    """Written piece by piece they are the same JSON; texts without tokens are empty lists."""
    count = 10_001
    places = np.stack([np.arange(count), np.arange(count) + 1], axis=1).astype(np.int32)
    mark = TokenPiece(id=0, text="[CLS]", special=True, start=None, stop=None)
    none = TokenArrays(np.empty(0, np.int32), np.empty((0, 2), np.int32))
    texts = [
        TokenizedText("", none),
        TokenizedText('é"' * count, TokenArrays(np.arange(count, dtype=np.int32), places), [mark], [mark]),
        TokenizedText("", none, [mark]),
    ]

    async def tokenize(*_: Any, **options: Any) -> list[TokenizedText]:
        assert services.limits.tokenize_tokens == options["max_tokens"]
        return texts

    monkeypatch.setattr(services.embeddings, "tokenize", tokenize)
    response = await client.post("/tokenize", json={"inputs": ["", "a", ""]})
    first, second, third = response.json()

    assert "content-length" not in response.headers
    assert ([], 1) == (first, len(third))
    assert ["[CLS]", "é", '"', "é"] == [token["text"] for token in second[:4]]
    assert {"id": 10_000, "text": "é", "special": False, "start": 10_000, "stop": 10_001} == second[-2]
    assert count + 2 == len(second)


async def test_a_full_budget_of_characters_is_429(services: FakeServices, client: httpx.AsyncClient) -> None:
    """Before anything is tokenised, on every route that reads texts; short texts are answered still."""
    services.limits, services.text_work = ApiLimits(), TextWork(Telemetry(), TextLimits(queue_chars=10_000))
    text = "a" * 9_000
    assert TEXT_ROUTES.keys() == json_paths(create_app(services))
    paths = {path: await path_of_store(client, path) for path in TEXT_ROUTES}
    with services.text_work.admit(9_000):
        for path, (body, _) in TEXT_ROUTES.items():
            refused = problem(await client.post(paths[path], json=body(text)), 429, "overloaded")
            assert "LIMIT_QUEUE_CHARS" in refused["detail"], path
        short = await client.post("/embed", json={"inputs": "a"})

    assert 200 == short.status_code


@pytest.mark.parametrize(("character", "read"), [("\ufdfa", 18), ("\ufdfb", 8), ("ñ", 1)])
async def test_a_character_that_is_read_as_a_phrase_counts_as_one(
    services: FakeServices, client: httpx.AsyncClient, character: str, read: int
) -> None:
    """Against the limit of one text, and of all: a million of them held a thread for 8 s and took 2 GB."""
    services.limits = ApiLimits(text_chars=20_000)
    fits, budget = 20_000 // read, 20_000 // read * read
    services.text_work = TextWork(Telemetry(), TextLimits(request_chars=budget + 1))

    assert 200 == (await client.post("/embed", json={"inputs": character * fits})).status_code
    long = problem(await client.post("/embed", json={"inputs": character * (fits + 1)}), 413, "too_large")
    many = problem(await client.post("/embed", json={"inputs": [character * fits, "two"]}), 413, "too_large")

    assert f"{(fits + 1) * read} is over" in long["detail"]
    assert ("U+FDFA" in long["detail"]) == (read > 1)
    assert f"{budget + 3} is over" in many["detail"]
    assert "LIMIT_REQUEST_CHARS" in many["detail"]


@pytest.mark.parametrize("path", ["/", "/invocations"])
async def test_the_bare_address(client: httpx.AsyncClient, path: str) -> None:
    """Clients of a server of one model send there what that does: inputs are embedded, texts ranked."""
    embedded = await client.post(path, json={"inputs": ["a", "b"], "normalize": True, "truncate": True})
    ranked = await client.post(path, json={"query": "a", "texts": ["b", "c"], "return_text": True})

    assert (await client.post("/embed", json={"inputs": ["a", "b"]})).json() == embedded.json()
    assert {"index", "score", "text"} == ranked.json()[0].keys()
    for body in ({}, {"query": "a"}, {"inputs": "a", "query": "a", "texts": ["b"]}):
        problem(await client.post(path, json=body), 422, "invalid_field", "inputs")


async def test_tasks_of_hugging_face_at_the_bare_address(client: httpx.AsyncClient) -> None:
    """Their client sends parameters with every task but embedding: vectors would be an answer to another question."""
    sent = {"inputs": "Ana García", "parameters": {}}

    problem(await client.post("/", json=sent), 422, "invalid_field", "/hf/token-classification")


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({"ids": "text"}, 422, "token id"),
        ({"ids": [[0, 10**6]]}, 422, "vocabulary"),
        ({"ids": [-1]}, 422, "vocabulary"),
        ({"ids": [[1]] * 1500}, 413, "LIMIT_INPUTS"),
    ],
)
async def test_ids_that_are_none(client: httpx.AsyncClient, body: dict[str, Any], status: int, named: str) -> None:
    problem(await client.post("/decode", json=body), status, None, named)


async def test_decode(client: httpx.AsyncClient) -> None:
    """A text for each list of ids."""
    assert ["<1>", "<2><3>"] == (await client.post("/decode", json={"ids": [[1], [2, 3]]})).json()
    assert ["<1>"] == (await client.post("/decode", json={"ids": [1]})).json()
    assert "<1>" == (await client.post("/v1/detokenize", json={"tokens": [1], "model": "x"})).json()["text"]


async def test_cohere_s_tokens(client: httpx.AsyncClient) -> None:
    """Ids and strings without the model's own marks."""
    body = (await client.post("/v1/tokenize", json={"text": "abc", "model": "command"})).json()

    assert ([1], ["a"]) == (body["tokens"], body["token_strings"])


@pytest.mark.parametrize(
    "path",
    [
        *("/embed", "/embed_all", "/embed_sparse", "/predict", "/rerank", "/similarity", "/tokenize", "/decode", "/"),
        "/invocations",
    ],
)
async def test_errors_are_those_that_its_clients_read(client: httpx.AsyncClient, path: str) -> None:
    """`error` is a text with `error_type` beside it, as its OpenAPI document says, among the members of a problem."""
    told = problem(await client.post(path, json={}), 404 if path == "/embed_sparse" else 422)

    assert (told["detail"], "Validation") == (told["error"], told["error_type"])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(Overloaded(9, 5, 1.0), "Overloaded", id="overloaded"),
        pytest.param(Unavailable("stopping"), "Unhealthy", id="unhealthy"),
        pytest.param(InferenceFailed("no"), "Backend", id="backend"),
    ],
)
async def test_failures_have_its_types(
    client: httpx.AsyncClient, services: FakeServices, error: FinanciaError, kind: str
) -> None:
    """The same failure is OpenAI's object on OpenAI's route."""
    services.embeddings.error = error

    told = problem(await client.post("/embed", json={"inputs": "a"}), error.status)
    elsewhere = problem(await client.post("/v1/embeddings", json={"input": "a"}), error.status)

    assert kind == told["error_type"]
    assert str(error) == elsewhere["error"]["message"]
    assert "error_type" not in elsewhere
