"""Metrics as Prometheus reads them, over a socket that listens already."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator

import pytest
from support.scrapes import scrape, values
from support.waiting import until

from profd.daemon.metrics.catalog import METRICS, PHASE_SECONDS, RUN_INFO, STEPS, Sample
from profd.daemon.metrics.scrapes import MOST_REQUESTS, Scrape, Server

SAMPLES = [
    Sample(PHASE_SECONDS, ("a", "0", "forward"), 1.5),
    Sample(STEPS, ("a", "0"), 7),
    Sample(PHASE_SECONDS, ("a", "0", "data wait"), 2.5),
    Sample(RUN_INFO, ("a", 'name with "quotes" and \\', "launched", "host\nline"), 1),
]


@pytest.fixture
def url() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Server(listener, lambda: SAMPLES).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"


def test_a_scrape_has_each_value_under_its_labels_in_the_catalogs_order_and_no_label_breaks_a_line(
    url: str,
) -> None:
    found = [family.name for family in Scrape(lambda: SAMPLES).collect()]
    assert found == [
        one.name.removesuffix("_total")
        for one in METRICS
        if one in (RUN_INFO, STEPS, PHASE_SECONDS)
    ]
    assert len(found) == 3
    assert values(scrape(url)) == {
        'profd_run_info{host="host\\nline",mode="launched",name="name with \\"quotes\\" and '
        '\\\\",run="a"}': 1.0,
        'profd_steps_total{rank="0",run="a"}': 7.0,
        'profd_phase_seconds_total{phase="forward",rank="0",run="a"}': 1.5,
        'profd_phase_seconds_total{phase="data wait",rank="0",run="a"}': 2.5,
    }


def answered(url: str, host: str) -> int:
    """Return the status of the answer to a request that calls its host this."""
    connection = http.client.HTTPConnection(url.split("/")[2])
    with contextlib.closing(connection):
        connection.putrequest("GET", "/metrics", skip_host=True)
        connection.putheader("Host", host)
        connection.endheaders()
        return connection.getresponse().status


def test_a_page_of_another_name_reads_nothing(url: str) -> None:
    for host in ("127.0.0.1:9400", "localhost:9400", "[::1]:9400", ""):
        assert answered(url, host) == 200
    for host in ("evil.example", "evil.example:9400"):
        assert answered(url, host) == 421


REQUEST = b"GET /metrics HTTP/1.0\r\n\r\n"


def test_more_requests_than_are_answered_at_once_are_hung_up_on() -> None:
    begun, end, places = (
        threading.Semaphore(0),
        threading.Event(),
        threading.Semaphore(MOST_REQUESTS),
    )

    def slow() -> list[Sample]:
        if places.acquire(blocking=False):  # one more is answered at once, if it gets here
            begun.release()
            end.wait()
        return SAMPLES

    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        Server(listener, slow).start()
        place = listener.getsockname()
        asked = [stack.enter_context(socket.create_connection(place)) for _ in range(MOST_REQUESTS)]
        for one in asked:
            one.sendall(REQUEST)
            begun.acquire()
        with socket.create_connection(place) as other, contextlib.suppress(ConnectionError):
            other.sendall(REQUEST)
            assert other.recv(1) == b""
        end.set()
        assert all(one.recv(12).endswith(b"200") for one in asked)
        until(
            lambda: answered(f"http://127.0.0.1:{place[1]}/", "localhost") == 200,
            "there is room again",
        )


def test_clients_that_say_nothing_keep_nobody_out(url: str) -> None:
    place = ("127.0.0.1", int(url.split(":")[2].split("/")[0]))
    with contextlib.ExitStack() as stack:
        for silent in [
            stack.enter_context(socket.create_connection(place)) for _ in range(2 * MOST_REQUESTS)
        ]:
            silent.sendall(b"GET /met")
        assert [answered(url, "localhost") for _ in range(MOST_REQUESTS)] == [200] * MOST_REQUESTS
