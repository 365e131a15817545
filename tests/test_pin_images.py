"""Images by digest: what files name, and what a registry on 127.0.0.1 says of it."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.http_server import serving
from tools.pin_images import FILES, ROOT, Image, RegistryError, digest_of, images_in, parse, pin, rewrite

OLD = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("written", "name", "registry", "repository"),
    [
        pytest.param("redis:7-bookworm", "redis", "https://registry-1.docker.io", "library/redis", id="official"),
        pytest.param(
            "prom/prometheus:v2", "prom/prometheus", "https://registry-1.docker.io", "prom/prometheus", id="hub"
        ),
        pytest.param(
            "docker.io/library/python:3", "docker.io/library/python", "https://registry-1.docker.io",
            "library/python", id="long",
        ),
        pytest.param("nvcr.io/nvidia/cuda:13", "nvcr.io/nvidia/cuda", "https://nvcr.io", "nvidia/cuda", id="another"),
        pytest.param("127.0.0.1:5000/a:1", "127.0.0.1:5000/a", "http://127.0.0.1:5000", "a", id="a-port-is-no-tag"),
    ],
)  # fmt: skip
def test_names_are_read_as_docker_reads_them(written: str, name: str, registry: str, repository: str):
    """With and without a digest; written back as they were."""
    plain, pinned = parse(written), parse(f"{written}@{OLD}")

    assert (name, (registry, repository)) == (plain.name, plain.address) == (pinned.name, pinned.address)
    assert (written, f"{written}@{OLD}") == (plain.pinned_text, pinned.pinned_text)


@pytest.mark.parametrize("written", ["redis", "127.0.0.1:5000/a", f"redis@{OLD}"])
def test_an_image_without_a_tag_is_refused(written: str):
    """Its digest could never be updated."""
    with pytest.raises(ValueError, match="has no tag"):
        parse(written)


def test_every_public_image_of_the_files_is_seen_and_nothing_else():
    """Not those that are built here, and no stage of a build."""
    seen = {
        file: {image.name for image in images_in((ROOT / file).read_text(encoding="utf-8")).values()} for file in FILES
    }
    services = {"pgvector/pgvector", "redis", "prom/prometheus", "grafana/grafana"}

    assert [{"python"}, {"python"}, services, services] == [seen[file] for file in FILES]
    assert {"a:1"} == set(images_in("FROM a:1 AS x\nFROM x AS y\nFROM scratch\nFROM ${BASE}\n# FROM b:1\n"))


def test_a_rewrite_touches_nothing_else():
    """Stages, platforms, comments and indentation stay; twice is once."""
    text = f"FROM --platform=linux/amd64 a:1 AS b\n  image: a:1  # why\nFROM a:1@{OLD}\n# FROM a:1\n  image: other:1"
    once = rewrite(text, {"a:1": "a:1@new", f"a:1@{OLD}": "a:1@new"})

    expected = ["FROM --platform=linux/amd64 a:1@new AS b", "  image: a:1@new  # why", "FROM a:1@new", "# FROM a:1"]
    assert [*expected, "  image: other:1"] == once.splitlines()
    assert once == rewrite(once, {"a:1": "a:1@new"})


class Registry:
    """A registry that gives manifests to who has a token for the repository."""

    def __init__(self) -> None:
        self.manifests = {"team/app": {"1": b'{"manifests": ["amd64", "arm64"]}'}}
        self.told_digest: str | None = None  # in place of the right one
        self.challenge = 'Bearer realm="{0}/token",service="here",scope="repository:{1}:pull"'
        self.host = ""

    def answer(self, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        url = urlsplit(path)
        if url.path == "/token":
            asked = parse_qs(url.query)
            assert ["here"] == asked["service"]
            return 200, {}, f'{{"token": "for {asked["scope"][0]}"}}'.encode()
        repository, _, tag = url.path.removeprefix("/v2/").partition("/manifests/")
        if headers.get("Authorization") != f"Bearer for repository:{repository}:pull":
            return 401, {"WWW-Authenticate": self.challenge.format(f"http://{self.host}", repository)}, b""
        assert "image.index" in headers["Accept"].partition(",")[0]
        if tag not in self.manifests.get(repository, {}):
            return 404, {}, b""
        body = self.manifests[repository][tag]
        return 200, {"Docker-Content-Digest": self.told_digest or sha256(body)}, body


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry that listens, at ``host``."""
    registry = Registry()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(registry.answer) as registry.host:
        yield registry


def test_a_registry_is_asked_with_a_token(registry: Registry):
    """The digest is of the very bytes it sent."""
    expected = sha256(registry.manifests["team/app"]["1"])

    assert expected == digest_of(parse(f"{registry.host}/team/app:1"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"told_digest": OLD}, "but its answer is sha256:", id="an-answer-that-is-not-its-digest"),
        pytest.param({"manifests": {}}, "404", id="no-such-image"),
        pytest.param({"challenge": "Basic"}, "a way to sign in that is not known", id="another-sign-in"),
    ],
)
def test_a_wrong_answer_pins_nothing(registry: Registry, change: dict[str, object], why: str):
    """It is an error with the address, never a digest."""
    for name, value in change.items():
        setattr(registry, name, value)

    with pytest.raises(RegistryError, match=why) as fault:
        digest_of(parse(f"{registry.host}/team/app:1"))

    assert "/v2/team/app/manifests/1" in str(fault.value)


@pytest.fixture
def files(tmp_path: Path, registry: Registry) -> Path:
    """A folder with the files of the repository's names, each with one image of the registry."""
    for file in FILES:
        start = "  image:" if file.endswith(".yml") else "FROM"
        (tmp_path / file).write_text(f"{start} {registry.host}/team/app:1\n", encoding="utf-8")
    return tmp_path


def test_pinning_checking_and_updating(files: Path, registry: Registry, capsys: pytest.CaptureFixture[str]):
    """A check changes nothing and tells what is stale; pinning makes it up to date until the tag moves."""
    first = sha256(registry.manifests["team/app"]["1"])

    assert pin(files, check=True) == 1
    assert f"{registry.host}/team/app:1 should be {registry.host}/team/app:1@{first}" in capsys.readouterr().out
    assert "@" not in (files / FILES[0]).read_text(encoding="utf-8")
    assert [0, 0] == [pin(files, check=False), pin(files, check=True)]
    assert [f"FROM {registry.host}/team/app:1@{first}\n"] * 2 == [(files / file).read_text() for file in FILES[:2]]
    assert [f"  image: {registry.host}/team/app:1@{first}\n"] * 2 == [(files / file).read_text() for file in FILES[2:]]

    registry.manifests["team/app"]["1"] = b"a rebuild under the same tag"
    assert pin(files, check=True) == 1
    assert pin(files, check=False) == 0
    assert first not in "".join((files / file).read_text(encoding="utf-8") for file in FILES)


def test_without_an_answer_everything_stays(files: Path, registry: Registry, capsys: pytest.CaptureFixture[str]):
    """One registry is away: its lines stay and the exit code tells; the other images are pinned."""
    away = f"127.0.0.1:1/gone:1@{OLD}"
    (files / FILES[0]).write_text(f"FROM {away}\n", encoding="utf-8")

    assert pin(files, check=False) == 2
    assert f"{away}: not asked, stays as it is" in capsys.readouterr().err
    assert f"FROM {away}\n" == (files / FILES[0]).read_text(encoding="utf-8")
    assert "@sha256:" in (files / FILES[1]).read_text(encoding="utf-8")


def test_both_dockerfiles_start_from_the_same_image():
    """Pinned together or not at all: an image of two bases would not be the one that was tested."""
    bases = [image for file in FILES[:2] for image in images_in((ROOT / file).read_text(encoding="utf-8")).values()]

    assert 1 == len(set(bases))
    assert [] == [base for base in bases if base != Image("python", "3.11-slim-bookworm", base.digest)]
