"""One port, a socket for each worker: who gets a new connection, and who may not join."""

import socket
from collections.abc import Callable, Iterator

import pytest

from backend.config import Settings
from backend.errors import SetupError
from backend.processes.http_workers import ListeningPort


@pytest.fixture
def port_of() -> Iterator[Callable[[int], ListeningPort]]:
    """A `ListeningPort` of 127.0.0.1 with this number, closed at the end."""
    ports: list[ListeningPort] = []

    def make(number: int) -> ListeningPort:
        ports.append(ListeningPort(Settings(server_processes=2, host="127.0.0.1", port=number)))
        return ports[-1]

    yield make
    for port in ports:
        port.close()


def test_connections_made_at_once_are_spread(port_of):
    """Nobody accepts meanwhile, so no worker is quicker: the kernel has chosen."""
    port = port_of(0)
    address = port.open()
    with port.socket_of_worker() as first, port.socket_of_worker() as second:
        for listener in (first, second):
            listener.listen(128)
        clients = [socket.create_connection(address) for _ in range(64)]
        counts = [_waiting(listener) for listener in (first, second)]
        for client in clients:
            client.close()

    assert sum(counts) == 64
    assert min(counts) >= 8  # six standard deviations below half


def _waiting(listener: socket.socket) -> int:
    listener.setblocking(False)
    count = 0
    try:
        while True:
            listener.accept()[0].close()
            count += 1
    except BlockingIOError:
        return count


def test_a_worker_that_is_gone_gets_no_connection(port_of):
    """The others get all; its next socket takes part again."""
    port = port_of(0)
    address = port.open()
    with port.socket_of_worker() as living:
        living.listen(128)
        with port.socket_of_worker() as dead:
            dead.listen(128)
        for _ in range(16):
            socket.create_connection(address).close()

        assert _waiting(living) == 16


def test_another_service_may_not_join(port_of):
    """SO_REUSEPORT would let it in, and half of the callers would meet it."""
    first = port_of(0)
    _, number = first.open()

    with pytest.raises(SetupError, match=rf"PORT={number} cannot be listened on: address already in use"):
        port_of(number).open()
    first.close()
    port_of(number).open()


def test_a_port_where_somebody_listens(port_of):
    """As with one process."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SetupError, match="address already in use"):
        port_of(taken.getsockname()[1]).open()


def test_a_host_that_is_not_here():
    """The reason is the system's."""
    with pytest.raises(SetupError, match=r"HOST=192\.0\.2\.7 PORT=8000 cannot be listened on"):
        ListeningPort(Settings(server_processes=2, host="192.0.2.7", port=8000)).open()
