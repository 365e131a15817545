"""Where torch comes from, decided from facts; which tests take long."""

import re
from pathlib import Path

import pytest

from tests.conftest import LONG_TESTS
from tools.torch_index import CPU_INDEX, choose

MIRROR = "https://mirror.example/cpu"


@pytest.mark.parametrize(
    ("wish", "facts", "expected"),
    [
        pytest.param(MIRROR, {"nvidia": True}, ["--extra-index-url", MIRROR], id="an-explicit-index-is-never-ignored"),
        pytest.param("pypi", {"answers": True}, [], id="pypi-even-without-a-gpu"),
        pytest.param("auto", {"answers": True}, ["--extra-index-url", CPU_INDEX], id="cpu-build-for-a-cpu"),
        pytest.param("auto", {"answers": True, "nvidia": True}, [], id="cuda-build-for-a-gpu"),
        pytest.param("auto", {"answers": False}, [], id="goes-on-when-the-index-does-not-answer"),
        pytest.param("auto", {"answers": True, "platform": "darwin"}, [], id="only-linux-has-two-builds-on-pypi"),
        pytest.param("auto", {"answers": True, "env": {"PIP_FIND_LINKS": "wheels"}}, [], id="wheels-of-ones-own"),
        pytest.param("auto", {"answers": True, "env": {"PIP_NO_INDEX": "1"}}, [], id="no-index-at-all"),
    ],
)
def test_choose(wish: str, facts: dict[str, object], expected: list[str]):
    """An explicit wish first; then what the machine is; the network is asked last."""
    arguments, why = choose(
        wish,
        platform=facts.get("platform", "linux"),
        environment=facts.get("env", {}),
        has_nvidia=lambda: facts.get("nvidia", False),
        answers=lambda _: facts.get("answers", False),
    )

    assert expected == arguments
    assert why


def test_the_network_is_not_asked_without_need():
    """A wish or wheels of one's own decide before anything is probed."""

    def never(*_: object) -> bool:
        raise AssertionError("asked")

    for wish, environment in ((MIRROR, {}), ("pypi", {}), ("auto", {"PIP_FIND_LINKS": "wheels"})):
        choose(wish, platform="linux", environment=environment, has_nvidia=never, answers=never)


def test_every_long_test_is_there():
    """One that was renamed would be quick again without a word."""
    root = Path(__file__).resolve().parents[1]
    texts = {file: file.read_text(encoding="utf-8") for file in (root / "tests").rglob("*.py")}
    defined = {name for text in texts.values() for name in re.findall(r"def (test_\w+)\(", text)}  # some are inherited
    files = {file.relative_to(root).as_posix() for file in texts}

    assert [] == [
        one for one in LONG_TESTS if one.partition("::")[0] not in files or one.rpartition("::")[2] not in defined
    ]
