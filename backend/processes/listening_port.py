"""The port that all HTTP workers serve, each with a listening socket of its own.

The kernel spreads new connections over the sockets by a hash of the addresses (SO_REUSEPORT). From one socket that all
share, the worker that wakes first takes everything that waits: of 32 connections made at once one worker got 30.
"""

from __future__ import annotations

import socket
from typing import Any

from backend.config import Settings
from backend.errors import SetupError


class ListeningPort:
    """HOST and PORT, held for this service from ``open`` to ``close``."""

    def __init__(self, settings: Settings) -> None:
        self._host, self._port = settings.host, settings.port
        self._holders: list[socket.socket] = []
        self._family = socket.AF_INET
        self._address: Any = ()  # as getaddrinfo has it

    def open(self) -> tuple[str, int]:
        """Take the port; the address, with the number that the kernel chose for port 0. Raises: SetupError."""
        try:
            self._family, kind, protocol, _, address = socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(self._family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._bind(probe, address)  # fails where anybody listens
                self._address = probe.getsockname()
            self._claim()
            self._holders.append(self.socket_of_worker())  # never listens; holds the port while no worker does
        except OSError as error:
            self.close()
            reason = (error.strerror or str(error)).lower()
            raise SetupError(
                f"HOST={self._host} PORT={self._port} cannot be listened on: {reason}; choose others"
            ) from error
        return str(self._address[0]), int(self._address[1])

    def socket_of_worker(self) -> socket.socket:
        """A bound socket for one worker to listen on. Raises: OSError."""
        made = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._bind(made, self._address)
        except OSError:
            made.close()
            raise
        return made

    def close(self) -> None:
        """Leave the port to the workers that still have a socket, and to others once those end."""
        for holder in self._holders:
            holder.close()
        self._holders.clear()

    def _claim(self) -> None:
        """Keep another service from joining these sockets: SO_REUSEPORT alone admits every process of this user."""
        claim = socket.socket(socket.AF_UNIX)
        self._holders.append(claim)
        claim.bind("\0financia-inference {} {}".format(*self._address[:2]))  # as ports, of one network namespace

    def _bind(self, made: socket.socket, address: Any) -> None:
        if self._family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as with one process
        made.bind(address)
