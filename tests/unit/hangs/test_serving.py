"""When a server that stands still hangs, by its own metrics: read from a real port, on a clock in
the test's hands.
"""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator, Sequence
from functools import partial

import pytest
from support.clocks import StoppedClock

from profd.daemon.hangs.look import Look, StackState
from profd.daemon.hangs.serving import NoMetrics, Requests, read_requests
from profd.daemon.hangs.waits import Wait
from profd.daemon.hangs.watch import HangWatch
from profd.daemon.store.records import (
    EventHappened,
    Frame,
    HangEnded,
    HangFound,
    Identity,
    Point,
    PointsTaken,
    Record,
)
from profd.daemon.tree.tree import Member

SERVER, ENGINE = Identity(100, 1), Identity(101, 1)
MEMBERS = [
    Member(SERVER, None, ("python", "serve.py"), "main", None, None, "3.11.7", 1),
    Member(ENGINE, SERVER, ("python", "serve.py"), "helper", None, None, "3.11.7", 1),
]
STDLIB = "/usr/lib/python3.11"
LOOP = (
    Frame("<module>", "/srv/serve.py", 90),
    Frame("BaseEventLoop.run_forever", f"{STDLIB}/asyncio/base_events.py", 607),
    Frame("BaseEventLoop._run_once", f"{STDLIB}/asyncio/base_events.py", 1898),
    Frame("EpollSelector.select", f"{STDLIB}/selectors.py", 468),
)
QUEUE = (
    Frame("engine", "/srv/serve.py", 30),
    Frame("Queue.get", f"{STDLIB}/multiprocessing/queues.py", 103),
)
WEDGED = (Frame("engine", "/srv/serve.py", 33), Frame("forward", "/srv/serve.py", 12))


class Page(http.server.BaseHTTPRequestHandler):
    """Answers with the server's text."""

    def do_GET(self) -> None:
        text = self.server.text.encode()  # type: ignore[attr-defined]
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Stage:
    """A server with an engine, its page of metrics, and the watch."""

    def __init__(self, page: http.server.HTTPServer) -> None:
        self.page, self.clock = page, StoppedClock()
        self.put: list[Record] = []
        self.engine: tuple[Frame, ...] = QUEUE
        self.cores = self._cpu_s = 0.0
        self.loop: tuple[Frame, ...] = LOOP
        read = partial(read_requests, page.server_port)
        members = lambda: MEMBERS  # noqa: E731
        self.watch = HangWatch(
            30.0, self.clock, members, self.put.append, look=self._look, requests=read
        )
        self.say(0, 0)

    def say(self, running: int, tokens: int) -> None:
        self.page.text = (  # type: ignore[attr-defined]
            f'# HELP x\nvllm:num_requests_running{{model_name="m"}} '
            f"{running}.0\nvllm:num_requests_waiting 0.0\n"
            f"vllm:generation_tokens_total {tokens}.0\nprocess_cpu_seconds_total "
            f"{self.clock.now_ns()}\n"
        )

    def _look(self, members: Sequence[Member], at_ns: int, *, mains_only: bool) -> Look:
        lock = Wait("lock", "a lock")
        rows = (
            StackState(
                MEMBERS[0], "MainThread", True, self.loop, Wait("events", "waits for events")
            ),
            StackState(MEMBERS[1], "MainThread", True, self.engine, lock),
        )
        return Look(at_ns, rows, cpu_s={None: self._cpu_s})

    async def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            self._cpu_s += self.cores
            self.watch.take(
                PointsTaken(self.clock.now_ns(), (Point("cpu_cores", self.cores, SERVER),))
            )
            await self.watch.check()

    def hangs(self) -> list[HangFound]:
        return [record for record in self.put if isinstance(record, HangFound)]


@pytest.fixture
def stage() -> Iterator[Stage]:
    page = http.server.HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=page.serve_forever, args=(0.01,))
    thread.start()
    yield Stage(page)
    page.shutdown()
    thread.join(10)
    page.server_close()


async def test_a_server_without_requests_may_stand_still(stage: Stage) -> None:
    await stage.pass_s(600)
    assert stage.hangs() == []


async def test_a_server_with_requests_that_serves_none_hangs_until_it_does(stage: Stage) -> None:
    stage.say(3, 100)
    stage.engine = WEDGED
    await stage.pass_s(45)
    (hang,) = stage.hangs()
    assert hang.report.cause == "requests"
    assert "3 requests are pending, and none is served; " in hang.text
    assert "helper 101 stands in forward (serve.py:12): a lock" in hang.text
    stage.say(0, 400)
    await stage.pass_s(6)
    assert any(isinstance(record, HangEnded) for record in stage.put)


async def test_tokens_that_grow_are_progress_and_so_is_work_in_changing_lines(stage: Stage) -> None:
    for tokens in range(100):
        stage.say(1, tokens)
        await stage.pass_s(3)
    stage.cores = 1.0
    for second in range(100):
        stage.engine = (*QUEUE, Frame("forward", "/srv/serve.py", second))
        await stage.pass_s(1)
    assert stage.hangs() == []


async def test_metrics_that_answer_no_more_are_a_hang(stage: Stage) -> None:
    stage.say(0, 100)
    await stage.pass_s(10)
    stage.page.text = ""  # type: ignore[attr-defined]
    stage.loop = (*LOOP[:-1], Frame("handler", "/srv/serve.py", 51))
    await stage.pass_s(50)
    (hang,) = stage.hangs()
    assert (
        "the server's metrics no longer answer; the main process stands in handler (serve.py:51)"
        in hang.text
    )
    notes = [
        record.text
        for record in stage.put
        if isinstance(record, EventHappened) and record.kind == "note"
    ]
    assert len(notes) == 1


@pytest.mark.parametrize(
    "text",
    ["", "hello 1", "vllm:num_requests_running x", "vllm:num_requests_running NaN", "\x00\xff"],
)
def test_a_page_without_requests_is_said_in_words(stage: Stage, text: str) -> None:
    stage.page.text = text  # type: ignore[attr-defined]
    with pytest.raises(NoMetrics, match="has no number of requests"):
        read_requests(stage.page.server_port)


def test_requests_are_added_up_over_labels(stage: Stage) -> None:
    pending = [
        f'nv_inference_pending_request_count{{model="{name}"}} {count}'
        for name, count in (("a", 2), ("b", 1))
    ]
    stage.page.text = "\n".join([*pending, 'nv_inference_count{model="a"} 7'])  # type: ignore[attr-defined]
    assert read_requests(stage.page.server_port) == Requests(3.0, 7.0)


def test_a_page_that_drips_is_hung_up_on() -> None:
    """Each byte comes within the timeout of a socket, and the page never ends."""
    ends = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            while not ends.wait(0.01):
                connection.sendall(b"# ")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        dripping = threading.Thread(target=drip, args=(listener,))
        dripping.start()
        try:
            with pytest.raises(NoMetrics, match=r"not within 0\.2 s"):
                read_requests(listener.getsockname()[1], within_s=0.2)
        finally:
            ends.set()
            dripping.join()
