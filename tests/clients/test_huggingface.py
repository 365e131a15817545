"""huggingface_hub's InferenceClient against the routes of text-embeddings-inference."""

import numpy as np
import pytest
from huggingface_hub import InferenceClient, constants
from huggingface_hub.errors import HfHubHTTPError

from tests.clients.server import MARKS, LiveServer

pytestmark = MARKS
TEXT = "The invoice is due in 30 days."


@pytest.fixture(autouse=True)
def _allow_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """In offline mode, which all tests use, the client refuses every address, our own too."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def test_feature_extraction(live_server: LiveServer) -> None:
    """One text gives an array of one vector of length 1."""
    vectors = InferenceClient(f"{live_server.url}/embed").feature_extraction(TEXT)

    assert (1, 384) == vectors.shape
    assert np.float32 == vectors.dtype
    assert pytest.approx(1.0, abs=1e-5) == float(np.linalg.norm(vectors))


def test_options(live_server: LiveServer) -> None:
    """normalize, truncate and truncation_direction do what they say."""
    client = InferenceClient(f"{live_server.url}/embed")
    long = "Abrimos a las nueve. " * 200 + "The invoice is due. " * 200

    plain = client.feature_extraction(TEXT, normalize=False)
    right = client.feature_extraction(long, truncate=True, truncation_direction="right")
    left = client.feature_extraction(long, truncate=True, truncation_direction="left")

    assert abs(float(np.linalg.norm(plain)) - 1.0) > 0.1
    assert float(np.vdot(left, right)) < 0.9
    with pytest.raises(HfHubHTTPError, match="512"):
        client.feature_extraction(long, truncate=False)


def test_sentence_similarity(live_server: LiveServer) -> None:
    """Scores in the order of the sentences."""
    client = InferenceClient(f"{live_server.url}/similarity")

    same, near, far = client.sentence_similarity(TEXT, [TEXT, "Payment is due next month.", "A recipe for bread."])

    assert pytest.approx(1.0, abs=1e-3) == same
    assert near > far


def test_text_classification(live_server: LiveServer) -> None:
    """The client returns the first item of a bare list, the best class."""
    with live_server.client() as client:
        labels = client.get("/v1/classifiers/document-type").json()["labels"]

    best = InferenceClient(f"{live_server.url}/predict").text_classification(
        "INVOICE No. 2024-017\nBill to: Acme Ltd\nSubtotal 1,061.57\nVAT 21% 222.93\nTotal due: 1,284.50 EUR"
    )

    assert "invoice" == best.label
    assert best.label in labels
    assert 1 / len(labels) < best.score <= 1.0


def test_error_messages(live_server: LiveServer) -> None:
    """The client shows our message."""
    with pytest.raises(HfHubHTTPError, match="must not be empty"):
        InferenceClient(f"{live_server.url}/embed").feature_extraction("")


def test_keys(guarded_server: LiveServer) -> None:
    """The client's token is sent as the API key."""
    url = f"{guarded_server.url}/embed"

    assert (1, 384) == InferenceClient(url, token="right-key").feature_extraction(TEXT).shape
    with pytest.raises(HfHubHTTPError, match="API_KEYS"):
        InferenceClient(url, token="wrong-key").feature_extraction(TEXT)


def test_the_bare_address(live_server: LiveServer) -> None:
    """Without a task's path, as for a server of one model."""
    assert (1, 384) == InferenceClient(live_server.url).feature_extraction(TEXT).shape


def test_other_tasks(live_server: LiveServer) -> None:
    """Each at an address of its own."""
    tasks = f"{live_server.url}/hf"
    entities = InferenceClient(f"{tasks}/token-classification").token_classification("Ana García lives in Madrid.")
    classes = InferenceClient(f"{tasks}/zero-shot-classification").zero_shot_classification(TEXT, ["invoice", "sport"])

    assert {"Madrid"} <= {entity.word for entity in entities}
    assert "invoice" == classes[0].label
