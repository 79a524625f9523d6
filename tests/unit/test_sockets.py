"""TCP and UDP sockets as the kernel lists them: both families, both ends, and whose they are."""

from __future__ import annotations

import os
import socket

import pytest

from profd.daemon import processes
from profd.daemon.sockets import InternetSocket, endpoint, internet_sockets


def found(one: socket.socket) -> InternetSocket:
    link = processes.link(os.getpid(), f"fd/{one.fileno()}")
    (same,) = (each for each in internet_sockets(os.getpid()) if each.link == link)
    return same


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_both_ends_of_a_connection_are_found(family: socket.AddressFamily, host: str) -> None:
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        assert found(server).is_listening
        assert endpoint(found(server).local) == (host, port)
        with socket.create_connection((host, port)) as here:
            assert endpoint(found(here).remote) == (host, port)
            assert endpoint(found(here).local) == here.getsockname()[:2]
            assert not found(here).is_listening


def test_a_process_that_is_gone_has_none() -> None:
    assert list(internet_sockets(1 << 30)) == []
