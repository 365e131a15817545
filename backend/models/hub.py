"""Fetches models from the hub, and tells a network that fails from a model that cannot be had."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import httpx2  # what huggingface_hub fetches with
from huggingface_hub import get_session, snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    XetDownloadError,
)

from backend.errors import HubUnreachable, ModelUnavailable
from backend.models.checkpoint_tensors import ADAPTER_WEIGHTS, WEIGHTS

_FILES = ["*.json", WEIGHTS, ADAPTER_WEIGHTS, "1_Pooling/*", "vocab.txt", "sentencepiece.bpe.model"]
# The client waits for ever by itself: a firewall that drops packets would hold the start for two minutes, a proxy that
# never answers for good. A hub that is there answers in a tenth of these.
TIMEOUT_S = {"connect": 5.0, "read": 10.0, "write": 10.0, "pool": 10.0}
_PASSING_STATUSES = frozenset({408, 425, 429})  # and every 5xx
_NETWORK_ERRORS = (
    httpx2.TransportError,  # no route, no name, a proxy, a certificate, a connection cut
    ConnectionError,
    TimeoutError,
    OfflineModeIsEnabled,
    XetDownloadError,
    RuntimeError,  # of hf_xet, which downloads large files
    json.JSONDecodeError,  # a login page of a network in place of the hub
)


def fetch(source: str, files: Sequence[str] = _FILES, *, instead: str = "MODEL_PROFILE=bundled") -> Path:
    """The folder of a hub model, downloaded first where it is not in ``HF_HOME``. Minutes for a large one.

    Args:
        source: a hub id with an optional ``@revision``.
        files: names or patterns of those that are needed; others are not downloaded.
        instead: the setting that needs no network, for the error.

    Raises: HubUnreachable where the network or the hub fails, so that the same call may succeed later;
        ModelUnavailable where the hub answers that there is no such model, or it cannot be stored.
    """
    repository, _, revision = source.partition("@")
    _bound_session()
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(files)))
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise ModelUnavailable(f"{source} is not on the hub, or HF_TOKEN does not open it") from error
    except (HfHubHTTPError, httpx2.HTTPError, XetDownloadError, OSError, RuntimeError, ValueError) as error:
        kind = HubUnreachable if _is_passing(error) else ModelUnavailable
        raise kind(
            f"{source} is neither a local folder nor can it be fetched from the hub ({_reason(error)}); "
            f"check the name and the network, or use {instead}"
        ) from error


def _is_passing(error: BaseException) -> bool:
    """Whether the network or the hub failed, and not the request."""
    if isinstance(error, LocalEntryNotFoundError):  # not in HF_HOME either; why it was not fetched is its cause
        return error.__cause__ is None or _is_passing(error.__cause__)
    if isinstance(error, (HfHubHTTPError, httpx2.HTTPStatusError)):
        status = error.response.status_code
        return status >= 500 or status in _PASSING_STATUSES
    return isinstance(error, _NETWORK_ERRORS)


def _reason(error: BaseException) -> str:
    """The type of the error, and of its cause; messages have addresses in them."""
    return type(error).__name__ + (f", {type(error.__cause__).__name__}" if error.__cause__ is not None else "")


def _bound_session() -> None:
    """Have no request of huggingface_hub's client wait for ever."""
    session = get_session()
    hooks = session.event_hooks
    if _bound not in hooks["request"]:
        session.event_hooks = {**hooks, "request": [*hooks["request"], _bound]}


def _bound(request: httpx2.Request) -> None:
    """Fill in the limits that huggingface_hub has left out; its own, of downloads, stay."""
    given = {name: limit for name, limit in request.extensions.get("timeout", {}).items() if limit is not None}
    request.extensions = {**request.extensions, "timeout": {**TIMEOUT_S, **given}}
