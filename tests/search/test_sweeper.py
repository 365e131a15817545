"""What was deleted is removed in the background; a fault there is counted, and the next deletion goes on."""

import pytest

from backend.errors import Unavailable
from backend.search.waker import Sweeper
from backend.supervision import Supervisor
from backend.telemetry import Telemetry


@pytest.mark.parametrize(
    ("fault", "counted"),
    [
        pytest.param(RuntimeError("a fault of ours"), 1.0, id="ours-is-counted"),
        pytest.param(Unavailable("PostgreSQL is away"), 0.0, id="one-that-passes-is-told"),
    ],
)
async def test_the_next_deletion_goes_on_after_a_fault(fault, counted):
    telemetry, slices = Telemetry(), [fault, True, False]

    async def sweep() -> bool:
        if isinstance(found := slices.pop(0), Exception):
            raise found
        return found

    sweeper = Sweeper(sweep, Supervisor(telemetry))
    for _ in range(2):
        sweeper.wake()
        await sweeper.idle()
    await sweeper.close()

    assert [] == slices
    assert counted == telemetry.total("background_failures_total")
