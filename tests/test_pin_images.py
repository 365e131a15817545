"""Images by digest: what of the files is asked for, and what is written, with an answer of a registry and without."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = ("Dockerfile.backend", "Dockerfile.backend.gpu", "docker-compose.yml", "docker-compose.gpu.yml")
PUBLIC = ("grafana/grafana", "pgvector/pgvector", "prom/prometheus", "python", "redis")
# In place of Docker: of images whose name has "away" the registry does not answer.
DOCKER = '#!/bin/sh\nfor image; do :; done\ncase $image in *away*) exit 1 ;; esac\necho "sha256:$DIGIT$DIGIT"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the repository's files."""
    (tmp_path / "tools").mkdir()
    for file in (*FILES, "tools/pin_images.sh"):
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    return tmp_path


def pin(folder: Path, *flags: str, digit: int = 1) -> tuple[int, str]:
    """The exit code, and what was said."""
    env = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "DIGIT": str(digit)}
    done = subprocess.run(
        [folder / "tools" / "pin_images.sh", *flags], env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_pinning_checking_and_updating(folder: Path):
    """Every public image and no other; a check changes nothing; pinned twice is once, until the tag moves."""
    before = {file: (folder / file).read_text() for file in FILES}
    code, said = pin(folder, "--check")

    assert (1, list(PUBLIC)) == (code, [line.partition(":")[0] for line in said.splitlines()])
    assert before == {file: (folder / file).read_text() for file in FILES}
    assert [0, 0] == [pin(folder)[0], pin(folder, "--check")[0]]
    pinned = {file: (folder / file).read_text() for file in FILES}
    assert before == {file: text.replace("@sha256:11", "") for file, text in pinned.items()}
    assert 2 == pinned["Dockerfile.backend"].count("FROM python:3.11-slim-bookworm@sha256:11")
    assert [1, 0] == [pin(folder, "--check", digit=2)[0], pin(folder, digit=2)[0]]
    assert {file: text.replace("sha256:11", "sha256:22") for file, text in pinned.items()} == {
        file: (folder / file).read_text() for file in FILES
    }
    assert sorted(["docker", "tools", *FILES]) == sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("flags", [(), ("--check",)])
def test_without_an_answer_a_line_stays(folder: Path, flags: tuple[str, ...]):
    """One registry is away: the exit code tells, whatever else is stale; the other images are pinned."""
    line = f"FROM away.example:5000/gone:1@sha256:{'0' * 64}\n"
    (folder / FILES[0]).write_text(line)
    code, said = pin(folder, *flags)

    assert 2 == code
    assert f"{line.split()[1]}: not asked, stays as it is" in said
    assert line == (folder / FILES[0]).read_text()
    assert ("@sha256:11" in (folder / FILES[1]).read_text()) == (flags == ())


def test_a_rewrite_touches_nothing_else(folder: Path):
    """Stages and what a build gets from outside are no images; comments, indentation and longer names stay."""
    (folder / FILES[0]).write_text("FROM a:1 AS x\nFROM x\nFROM scratch\nFROM ${BASE}\n# FROM a:1\nFROM a:1-slim\n")
    (folder / FILES[2]).write_text("  image: a:1  # why\n    image: financia-backend:0.1.0\n")
    pin(folder)

    assert (
        "FROM a:1@sha256:11 AS x\nFROM x\nFROM scratch\nFROM ${BASE}\n# FROM a:1\nFROM a:1-slim@sha256:11\n"
        == (folder / FILES[0]).read_text()
    )
    assert "  image: a:1@sha256:11  # why\n    image: financia-backend:0.1.0\n" == (folder / FILES[2]).read_text()


def test_both_dockerfiles_start_from_the_same_image():
    """Pinned together or not at all: an image of two bases would not be the one that was tested."""
    lines = [line for file in FILES[:2] for line in (ROOT / file).read_text().splitlines() if line.startswith("FROM")]

    assert 1 == len({line.split()[1] for line in lines})
