"""The images and the Compose file, built and started once for the tests of this folder that ask for them."""

from collections.abc import Iterator

import pytest

from tests.containers.engine import Stack, find_engine


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Building images takes minutes and a network: only who asks for it (-m containers) gets it."""
    if "containers" in (config.option.markexpr or ""):
        return
    left = [item for item in items if item.get_closest_marker("containers")]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Backend, Redis and Prometheus of docker-compose.yml, ready; all of it is removed at the end."""
    stack = Stack(find_engine())
    stack.refuse_strangers()
    stack.build()
    try:
        stack.start()
        yield stack
    finally:
        stack.remove()
