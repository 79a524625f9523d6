"""Where metrics are served, and what is said where they cannot be."""

from __future__ import annotations

import contextlib
import socket

import pytest

from profd.daemon.errors import MissingTool, UsageError
from profd.daemon.metrics import exporter
from profd.daemon.metrics.exporter import (
    Address,
    check_endpoint,
    check_installed,
    listen,
    open_exporter,
    parse_address,
    url_of,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9400", Address("127.0.0.1", 9400)),
        (":9400", Address("127.0.0.1", 9400)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),
        ("[::1]:9400", Address("::1", 9400)),
        ("localhost:80", Address("localhost", 80)),
    ],
)
def test_an_address_is_a_port_or_a_host_with_one(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "9400:", "localhost", "65536", "-1", "٣", "host:port"])
def test_what_is_no_address_says_what_is(text: str) -> None:
    with pytest.raises(UsageError, match=r"0\.0\.0\.0:9400"):
        parse_address(text)


def test_a_port_in_use_is_told() -> None:
    with contextlib.closing(listen(Address("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} .*in use.*choose another port"):
            open_exporter(str(port), None, print)


def test_a_port_is_free_again_at_once() -> None:
    with listen(Address("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname())
        with socket.create_connection(address) as client:
            listener.accept()[0].close()  # who closes first keeps the port for a while
            assert client.recv(1) == b""
    listen(address).close()


def test_a_host_that_is_not_there_is_told() -> None:
    with pytest.raises(UsageError, match=r"192\.0\.2\.1 port 0"):
        listen(Address("192.0.2.1", 0))


def test_the_url_of_an_address_of_six_has_brackets() -> None:
    try:
        listener = listen(Address("::1", 0))
    except UsageError:
        pytest.skip("this machine has no IPv6")
    with contextlib.closing(listener):
        assert url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}/metrics"


def test_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(exporter._NEEDED, "otlp", "no_such_package.at.all")
    with pytest.raises(MissingTool, match=r"pip install 'profd\[otlp\]'"):
        check_installed("otlp")


@pytest.mark.parametrize("endpoint", ["localhost:4318", "http://", "grpc://localhost:4317", ""])
def test_what_is_no_endpoint_says_what_is(endpoint: str) -> None:
    with pytest.raises(UsageError, match="http://localhost:4318"):
        check_endpoint(endpoint)


def test_without_an_option_there_is_no_exporter() -> None:
    assert open_exporter(None, None, print) is None
