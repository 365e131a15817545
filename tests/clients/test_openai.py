"""The official OpenAI client gets vectors, and shows our errors."""

from collections.abc import Iterator

import numpy as np
import openai
import pytest

from tests.clients.server import MARKS, LiveServer

pytestmark = MARKS
TEXTS = ["The invoice is due in 30 days.", "La factura vence en 30 días.", "A recipe for bread."]


@pytest.fixture
def client(live_server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live_server.url}/v1", api_key="not-needed", max_retries=0) as client:
        yield client


def _vectors(response: openai.types.CreateEmbeddingResponse) -> np.ndarray:
    return np.array([item.embedding for item in response.data], np.float32)


def test_one_text(client: openai.OpenAI) -> None:
    """One text gives one vector of length 1, with its tokens counted."""
    response = client.embeddings.create(model="bundled", input=TEXTS[0])

    assert (1, 384) == _vectors(response).shape
    assert pytest.approx(1.0, abs=1e-5) == float(np.linalg.norm(_vectors(response)))
    assert response.usage.prompt_tokens == response.usage.total_tokens > 5
    assert "intfloat/multilingual-e5-small" == response.model


def test_raw_base64(client: openai.OpenAI) -> None:
    """Asked for base64 by name, the client hands over the text itself."""
    response = client.embeddings.create(model="bundled", input=TEXTS[0], encoding_format="base64")

    assert 384 * 4 * 4 // 3 == len(str(response.data[0].embedding))


def test_dimensions(client: openai.OpenAI) -> None:
    """Fewer dimensions are the leading ones, scaled to length 1 again."""
    leading = _vectors(client.embeddings.create(model="bundled", input=TEXTS))[:, :64]
    short = _vectors(client.embeddings.create(model="bundled", input=TEXTS, dimensions=64))

    np.testing.assert_allclose(leading / np.linalg.norm(leading, axis=1, keepdims=True), short, atol=1e-5)


def test_own_fields(client: openai.OpenAI) -> None:
    """The fields that OpenAI lacks travel in extra_body; `truncated` comes back with the answer."""
    response = client.embeddings.create(
        model="bundled", input=["short", "word " * 2000], extra_body={"truncate": "start", "normalize": False}
    )

    assert [1] == response.model_dump()["truncated"]


def test_tasks(client: openai.OpenAI) -> None:
    """Jina's and NVIDIA's words for a question are one prompt, and no error where the model has none."""
    asked = [{"task": "retrieval.query"}, {"input_type": "query"}, {"input_type": "search_query"}]

    vectors = [_vectors(client.embeddings.create(model="bundled", input=TEXTS, extra_body=fields)) for fields in asked]

    for other in vectors[1:]:
        np.testing.assert_array_equal(vectors[0], other)


def test_whole_numbers(client: openai.OpenAI) -> None:
    """Jina's embedding_type goes before the base64 that this client asks for by itself."""
    floats = _vectors(client.embeddings.create(model="bundled", input=TEXTS))
    signs = client.embeddings.create(model="bundled", input=TEXTS, extra_body={"embedding_type": "ubinary"})

    np.testing.assert_array_equal(np.packbits(floats > 0, axis=1), [item.embedding for item in signs.data])


def test_without_v1(live_server: LiveServer) -> None:
    """Pointed at the root the client finds infinity's routes: the same vectors, and the models that infinity has."""
    with openai.OpenAI(base_url=live_server.url, api_key="not-needed", max_retries=0) as root:
        vectors = _vectors(root.embeddings.create(model="bundled", input=TEXTS))
        models = [model.id for model in root.models.list().data]
    with openai.OpenAI(base_url=f"{live_server.url}/v1", api_key="not-needed", max_retries=0) as client:
        np.testing.assert_array_equal(_vectors(client.embeddings.create(model="bundled", input=TEXTS)), vectors)
        listed = [model.id for model in client.models.list().data]
    assert models == [model for model in listed if model != "whisper-base"]  # infinity has no task for speech


def test_token_ids(client: openai.OpenAI) -> None:
    """Ids of the model's own tokenizer give the vector of their text."""
    from_ids = _vectors(client.embeddings.create(model="bundled", input=[[0, 33600, 31, 8999, 2]]))
    from_text = _vectors(client.embeddings.create(model="bundled", input="hello world"))

    np.testing.assert_allclose(from_text, from_ids, atol=1e-5)


async def test_async_client(live_server: LiveServer) -> None:
    """The async client works too."""
    async with openai.AsyncOpenAI(base_url=f"{live_server.url}/v1", api_key="x", max_retries=0) as client:
        response = await client.embeddings.create(model="bundled", input=TEXTS)

    assert (3, 384) == _vectors(response).shape


def test_models(client: openai.OpenAI) -> None:
    """The client lists and fetches models, by names with a slash too; `id` is the name that was asked for."""
    model = next(model for model in client.models.list().data if model.model_dump()["task"] == "embeddings")

    assert model == client.models.retrieve(model.id)
    assert {**model.model_dump(), "id": "bundled"} == client.models.retrieve("bundled").model_dump()
    assert 384 == model.model_dump()["width"]


@pytest.mark.parametrize(
    ("fields", "error", "named"),
    [
        pytest.param({"input": ""}, openai.BadRequestError, "must not be empty", id="empty"),
        pytest.param({"input": "a", "model": "gpt-4"}, openai.NotFoundError, "'gpt-4' is not loaded", id="model"),
        pytest.param({"input": "a", "dimensions": 5000}, openai.UnprocessableEntityError, "384", id="dimensions"),
        pytest.param(
            {"input": [[791, 25637, 374]]}, openai.UnprocessableEntityError, "another tokenizer's", id="token-ids"
        ),
        pytest.param({"input": ["a"] * 3000}, openai.APIStatusError, "LIMIT_INPUTS", id="too-many"),
    ],
)
def test_errors_are_shown(
    client: openai.OpenAI, fields: dict[str, object], error: type[openai.APIStatusError], named: str
) -> None:
    """The client raises its own class for the status, with our message, code and request id."""
    with pytest.raises(error) as raised:
        client.embeddings.create(**{"model": "bundled", **fields})  # type: ignore[arg-type]

    assert named in str(raised.value)
    assert raised.value.code is not None
    assert raised.value.request_id


def test_keys(guarded_server: LiveServer) -> None:
    """A wrong key is the client's AuthenticationError; the right one opens."""

    def embed(key: str) -> openai.types.CreateEmbeddingResponse:
        with openai.OpenAI(base_url=f"{guarded_server.url}/v1", api_key=key, max_retries=0) as client:
            return client.embeddings.create(model="bundled", input="a")

    with pytest.raises(openai.AuthenticationError, match="API_KEYS"):
        embed("wrong-key")

    assert 1 == len(embed("right-key").data)


def test_azure_openai(live_server: LiveServer) -> None:
    """The same library with Azure's paths."""
    with openai.AzureOpenAI(azure_endpoint=live_server.url, api_key="any", api_version="2024-10-21") as azure:
        assert 384 == len(azure.embeddings.create(model="bundled", input="a").data[0].embedding)
