"""Which model the compared servers get, and which other encoders of ours take part."""

import urllib.request

import pytest

from backend.errors import ModelUnavailable
from benchmarks import peers
from benchmarks.http import CONSTANTS, OTHER_ENCODERS, chosen_peers


class Spec:
    """What ``resolve`` gives, as far as the benchmarks read it."""

    def __init__(self, folder):
        self.folder = folder


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Folders by source; what is not there is not installed. The served one is "bundled"."""
    folders = {"bundled": tmp_path / "full", "bundled-full": tmp_path / "full", "minilm": tmp_path / "minilm"}

    def resolve(source):
        if source not in folders:
            raise ModelUnavailable(f"{source} is not installed")
        return Spec(folders[source])

    monkeypatch.setattr(peers, "resolve", resolve)
    monkeypatch.delenv("EMBEDDING_MODEL", raising=False)
    return folders


def test_every_server_gets_the_served_weights(installed, tmp_path):
    """sentence-transformers and infinity read the very folder that this service reads."""
    fastapi, infinity = (
        chosen_peers(["fastapi"], tmp_path, tmp_path)[0],
        peers.infinity("infinity-fp32", tmp_path, tmp_path),
    )

    assert str(installed["bundled"]) == fastapi.env["BENCHMARK_MODEL"]
    assert f"--model-id={installed['bundled']}" in infinity.argv


def test_the_setting_chooses_the_weights_of_all(installed, monkeypatch, tmp_path):
    """EMBEDDING_MODEL reaches our server through the environment, and the others by its folder."""
    monkeypatch.setenv("EMBEDDING_MODEL", "minilm")

    assert installed["minilm"] == peers.model_folder()
    assert str(installed["minilm"]) == peers.bare_fastapi().env["BENCHMARK_MODEL"]


@pytest.mark.parametrize(
    ("served", "others"),
    [
        pytest.param("bundled", ["ours-minilm"], id="the-full-one-is-the-default"),
        pytest.param("minilm", ["ours-full"], id="minilm-is-served"),
    ],
)
def test_other_encoders_are_installed_and_not_the_served_one(installed, monkeypatch, served, others):
    """None is measured twice under two names, and one that did not come with this version is left out."""
    monkeypatch.setenv("EMBEDDING_MODEL", served)

    assert others == peers.other_encoders()


def test_another_encoder_is_our_server_with_a_setting(tmp_path):
    """The rest of its environment is the default's."""
    ours, minilm = chosen_peers(["ours", "ours-minilm"], tmp_path, tmp_path)

    assert {"EMBEDDING_MODEL": OTHER_ENCODERS["ours-minilm"]} == dict(minilm.env.items() - ours.env.items())
    assert ours.argv == minilm.argv


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONSTANTS)
def test_the_upper_bound_of_http_answers(kind, tmp_path):
    """Over our app too, which changes without a look at this benchmark."""
    body = tmp_path / "body.json"
    body.write_bytes(b'{"constant": true}')

    with peers.running(peers.constant(kind, body), tmp_path) as server:
        request = urllib.request.Request(server.url("/v1/embeddings"), b"{}", {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert body.read_bytes() == answer.read()
