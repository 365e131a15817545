"""Fetching from the hub: which failures pass by themselves, and that none lasts for ever."""

import json
import socket

import httpx2
import pytest
from huggingface_hub import constants, get_session
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    XetDownloadError,
)

from backend.errors import HubUnreachable, ModelUnavailable
from backend.models import model_files as hub

REQUEST = httpx2.Request("GET", "https://hub.test/api/models/some/model")


def answered(status: int, kind: type[HfHubHTTPError] = HfHubHTTPError) -> HfHubHTTPError:
    """The hub's error of this status."""
    return kind(str(status), response=httpx2.Response(status, request=REQUEST))


def not_in_cache(cause: Exception | None) -> LocalEntryNotFoundError:
    """What the client raises where neither the hub nor HF_HOME has it."""
    error = LocalEntryNotFoundError("an error happened")
    error.__cause__ = cause
    return error


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    """``failing(error)``: the client raises it."""

    def fail(error: Exception) -> None:
        def download(*_: object, **__: object) -> str:
            raise error

        monkeypatch.setattr(hub, "snapshot_download", download)

    return fail


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(not_in_cache(httpx2.ConnectError("no name")), id="no-network"),
        pytest.param(not_in_cache(httpx2.ReadTimeout("slow")), id="a-silent-proxy"),
        pytest.param(not_in_cache(answered(503)), id="the-hub-is-down"),
        pytest.param(not_in_cache(answered(429)), id="too-many-requests"),
        pytest.param(not_in_cache(OfflineModeIsEnabled("HF_HUB_OFFLINE=1")), id="offline"),
        pytest.param(not_in_cache(None), id="not-in-the-cache"),
        pytest.param(httpx2.ProxyError("no proxy"), id="no-proxy"),
        pytest.param(httpx2.RemoteProtocolError("cut"), id="cut-while-downloading"),
        pytest.param(ConnectionResetError("cut"), id="connection-reset"),
        pytest.param(TimeoutError("slow"), id="time-out"),
        pytest.param(XetDownloadError("cut"), id="cut-while-downloading-by-parts"),
        pytest.param(RuntimeError("cut"), id="the-downloader-failed"),
        pytest.param(json.JSONDecodeError("<html>", "", 0), id="a-login-page"),
    ],
)
def test_a_failure_that_may_pass(failing, error):
    """The network's and the hub's own: the same call may succeed later."""
    failing(error)

    with pytest.raises(HubUnreachable, match=r"some/model@main .*fetched from the hub"):
        hub.locate("some/model@main")


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(answered(404, RepositoryNotFoundError), id="unknown"),
        pytest.param(answered(403, GatedRepoError), id="gated"),
        pytest.param(not_in_cache(answered(403)), id="forbidden"),
        pytest.param(HFValidationError("no repo id"), id="no-hub-id"),
        pytest.param(OSError(28, "No space left on device"), id="disk-full"),
    ],
)
def test_a_failure_that_stays(failing, error):
    """Wrong names, keys and disks stop the start: trying again helps nobody."""
    failing(error)

    with pytest.raises(ModelUnavailable) as caught:
        hub.locate("some/model")

    assert not isinstance(caught.value, HubUnreachable)


def test_no_address_is_told(failing):
    """Addresses of mirrors and proxies may hold passwords, and /health is public."""
    failing(not_in_cache(httpx2.ConnectError("https://user:secret@mirror.test")))

    with pytest.raises(HubUnreachable) as caught:
        hub.locate("some/model")

    assert "LocalEntryNotFoundError, ConnectError" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_hub_that_never_answers(monkeypatch, tmp_path):
    """A firewall or proxy that swallows requests holds the start for seconds; the client alone waits for ever."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "TIMEOUT_S", {**hub.TIMEOUT_S, "read": 0.05})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")

        with pytest.raises(HubUnreachable, match="ReadTimeout"):
            hub.locate("some/model")


def test_limits_of_downloads_stay(failing):
    """Where huggingface_hub sets a limit itself, as HF_HUB_DOWNLOAD_TIMEOUT, that one holds; the bound is set once."""
    for _ in range(2):
        failing(not_in_cache(None))
        with pytest.raises(HubUnreachable):
            hub.locate("some/model")
    request = httpx2.Request("GET", "https://hub.test", extensions={"timeout": {"connect": None, "read": 60.0}})
    hub._bound(request)

    assert 1 == get_session().event_hooks["request"].count(hub._bound)
    assert {"connect": 5.0, "read": 60.0} == {name: request.extensions["timeout"][name] for name in ("connect", "read")}
