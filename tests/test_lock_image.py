"""Checksums of torch's wheels, asked of an index of its own: a real pip against an index on 127.0.0.1."""

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.http_server import serving
from tools import lock_image
from tools.lock_image import BUILDS, lock_torch, pins

VERSION = "2.13.0"
CUDA = 'nvidia-cublas==13.1.0; platform_system == "Linux"'
TRITON = 'triton==3.5.1; platform_system == "Linux" and platform_machine == "x86_64"'


def wheel(name: str, version: str, requires: Sequence[str] = ()) -> bytes:
    """A wheel that holds nothing but its metadata."""
    told = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
    told += "".join(f"Requires-Dist: {wish}\n" for wish in requires)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        folder = f"{name.replace('-', '_')}-{version}.dist-info"
        archive.writestr(f"{folder}/METADATA", told)
        archive.writestr(
            f"{folder}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{folder}/RECORD", "")
    return content.getvalue()


def wheels_of(build: str, version: str = VERSION) -> dict[str, bytes]:
    """File name -> content, as torch's index has them for both processors."""
    requires = ["filelock", "optree>=0.13; extra == 'optree'"]
    requires += [CUDA, TRITON] if build != "cpu" else []
    found = {
        f"torch-{version}+{build}-cp311-cp311-manylinux_2_28_{machine}.whl": wheel(
            "torch", f"{version}+{build}", [*requires, f"unread; platform_machine == 'of {machine}'"]
        )
        for machine in lock_image.MACHINES
    }
    for machine in lock_image.MACHINES:  # of its own kind: not for Linux
        found[f"torch-{version}+{build}-cp311-cp311-win_{machine}.whl"] = b"unread"
    found["nvidia_cublas-13.1.0-py3-none-manylinux_2_27_x86_64.whl"] = wheel("nvidia-cublas", "13.1.0") + b"x86_64"
    found["nvidia_cublas-13.1.0-py3-none-manylinux_2_27_aarch64.whl"] = wheel("nvidia-cublas", "13.1.0")
    found["triton-3.5.1-cp311-cp311-manylinux_2_27_x86_64.whl"] = wheel("triton", "3.5.1", ["setuptools>=40"])
    return found


class Index:
    """A package index (PEP 503 in HTML, PEP 691 in JSON) of the wheels put into it."""

    def __init__(self) -> None:
        self.wheels: dict[str, bytes] = {}
        self.as_json = False
        self.with_checksums = True
        self.url = ""

    def page(self, name: str) -> tuple[str, bytes]:
        """Media type and text of a package's page."""
        files = {
            file: body for file, body in self.wheels.items() if file.lower().startswith(f"{name.replace('-', '_')}-")
        }
        sums = {file: hashlib.sha256(body).hexdigest() for file, body in files.items() if self.with_checksums}
        if self.as_json:
            told = [{"filename": f, "url": f"/files/{f}", "hashes": {"sha256": sums[f]} if sums else {}} for f in files]
            text = json.dumps({"meta": {"api-version": "1.0"}, "name": name, "files": told})
            return "application/vnd.pypi.simple.v1+json", text.encode()
        links = [f'<a href="/files/{f}{f"#sha256={sums[f]}" if sums else ""}">{f}</a>' for f in files]
        return "text/html", f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()

    def answer(self, path: str, _headers: object) -> tuple[int, dict[str, str], bytes]:
        top, _, rest = path.strip("/").partition("/")
        if top == "files":
            return 200, {"Content-Type": "application/zip"}, self.wheels[unquote(rest)]
        kind, text = self.page(rest)
        return (200 if self.wheels else 404), {"Content-Type": kind}, text


@pytest.fixture
def index() -> Iterator[Index]:
    """An index that listens, at ``url``."""
    index = Index()
    with serving(index.answer) as host:
        index.url = f"http://{host}/whl"
        yield index


@pytest.fixture
def lock(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Locks a build from the index, whatever proxies and folders of wheels this machine has."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "not-to-be-asked"))
    known = {"filelock", "setuptools"}
    return lambda build: lock_torch(build, VERSION, known, index=index.url, folder=tmp_path)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [False, True], ids=["html", "json"])
def test_a_build_is_locked_with_what_torch_alone_asks_for(
    index: Index, lock: Callable[[str], str], tmp_path: Path, as_json: bool
):
    """A checksum for each processor; markers are read for that processor; what serve.txt has is left out."""
    index.wheels, index.as_json = wheels_of("cu130"), as_json

    said = lock("cu130")
    text = (tmp_path / "torch-cu130.txt").read_text(encoding="utf-8")

    assert said == "torch-cu130.txt: 3 packages"
    assert pins(text) == {"torch": VERSION, "nvidia-cublas": "13.1.0", "triton": "3.5.1"}
    expected = {
        name: {sha256(body) for file, body in index.wheels.items() if file.startswith(start) and "win_" not in file}
        for name, start in {"torch": "torch-", "nvidia-cublas": "nvidia_cublas-", "triton": "triton-"}.items()
    }
    assert expected == lock_image.checksums(text)
    assert [2, 2, 1] == [len(expected[name]) for name in ("torch", "nvidia-cublas", "triton")]


@pytest.mark.slow
def test_pip_installs_what_was_locked_and_nothing_else(index: Index, lock: Callable[[str], str], tmp_path: Path):
    """By the words of the Dockerfile; a wheel that was exchanged is refused."""
    index.wheels = wheels_of("cpu")
    lock("cpu")
    words = [
        "--require-hashes",
        "--no-deps",
        "--index-url",
        index.url,
        "--requirement",
        str(tmp_path / "torch-cpu.txt"),
    ]
    other = ["--target", str(tmp_path / "there"), *lock_image.for_machine("aarch64")[1:]]
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
    environment.pop("PIP_FIND_LINKS", None)
    command = [sys.executable, "-m", "pip", "install", *words, *other]
    taken = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=60)
    index.wheels = {name: body + b"exchanged" for name, body in index.wheels.items()}
    index.with_checksums = False
    refused = subprocess.run(
        [*command, "--force-reinstall"], check=False, capture_output=True, text=True, env=environment, timeout=60
    )

    assert taken.returncode == 0, taken.stderr
    assert (tmp_path / "there" / f"torch-{VERSION}+cpu.dist-info").is_dir()
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr


@pytest.mark.slow
def test_an_index_without_this_version_stops_the_lock(index: Index, lock: Callable[[str], str], tmp_path: Path):
    """pip says why; nothing is written."""
    index.wheels = wheels_of("cpu", version="2.12.0")

    with pytest.raises(subprocess.CalledProcessError):
        lock("cpu")

    assert not (tmp_path / "torch-cpu.txt").exists()


def test_an_index_without_checksums_is_told():
    """Rather than a list that checks nothing."""
    item = {"download_info": {"url": "https://mirror.example/torch.whl", "archive_info": {}}}

    with pytest.raises(ValueError, match=r"mirror\.example/torch\.whl: its index says no SHA-256"):
        lock_image.checksum(item)


def test_without_an_answer_a_list_stays_while_it_is_true(lock: Callable[[str], str], tmp_path: Path):
    """A list of this version is kept, one of another version removed, and each is said."""
    file = tmp_path / "torch-cpu.txt"
    absent = lock("cpu")
    file.write_text(f"torch=={VERSION} \\\n    --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    kept = lock("cpu")
    was_kept = file.exists()
    file.write_text(f"torch==2.12.0 \\\n    --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    removed = lock("cpu")

    assert absent.endswith("does not answer, so the image installs torch without a checksum of ours")
    assert kept.endswith("does not answer, so its checksums stay as they are")
    assert was_kept
    assert "what it said of torch 2.12.0 is removed" in removed
    assert not file.exists()


def test_the_lists_that_are_here_are_of_this_version():
    """Of a build that exists, of the torch of torch.txt, each line with a checksum."""
    [version] = pins((lock_image.FOLDER / "torch.txt").read_text(encoding="utf-8")).values()

    assert {"cpu", "cu126", "cu129"} <= set(BUILDS)
    for file in lock_image.FOLDER.glob("torch-*.txt"):
        text = file.read_text(encoding="utf-8")
        assert file.stem.removeprefix("torch-") in BUILDS
        assert pins(text)["torch"] == version, "make lock"
        assert all(lock_image.checksums(text).values())
