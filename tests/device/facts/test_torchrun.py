"""A process's place among those of torchrun on its machine."""

import pytest

from backend.device.default_device import LocalRank, local_rank


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param({}, LocalRank(0, 1), id="alone"),
        pytest.param({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, LocalRank(1, 4, True), id="second-of-four"),
        pytest.param({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, LocalRank(0, 1, True), id="one-a-machine"),
        pytest.param({"LOCAL_RANK": "0"}, LocalRank(0, 1), id="half-an-environment"),
        pytest.param({"LOCAL_RANK": "-1", "LOCAL_WORLD_SIZE": "1"}, LocalRank(0, 1), id="accelerates-none"),
        pytest.param({"LOCAL_RANK": "4", "LOCAL_WORLD_SIZE": "4"}, LocalRank(0, 1), id="beyond"),
    ],
)
def test_local_rank(environ, expected):
    """Both variables count, as torchrun sets them; without them the process is alone."""
    assert expected == local_rank(environ)
