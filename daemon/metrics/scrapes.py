"""Serves metrics over HTTP by prometheus_client, on a socket that listens already."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import sys
import threading
from collections.abc import Iterable
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from profd.daemon.metrics.catalog import METRICS, Metric, Samples

MOST_REQUESTS = 8


class Scrape(Collector):
    """What prometheus_client asks for at each scrape."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Family]:
        """Return the metrics that have values, in the order of the catalog."""
        families: dict[Metric, Family] = {}
        for metric, labels, value in self._samples():
            family = families.get(metric)
            if family is None:
                family = families[metric] = Family(
                    metric.name.removesuffix("_total"), metric.help, metric.kind
                )
            family.add_sample(
                metric.name, dict(zip(metric.labels, labels, strict=True)), float(value)
            )
        return [families[metric] for metric in METRICS if metric in families]


class Server(ThreadingMixIn, WSGIServer):
    """An HTTP server on a socket that is given, with a thread for each request."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, samples: Samples) -> None:
        """Serve at ``listener`` what ``samples`` returns, once started."""
        host, port = listener.getsockname()[:2]
        super().__init__((host, port), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = host, port
        self.is_local = ipaddress.ip_address(host).is_loopback
        self._free = threading.BoundedSemaphore(MOST_REQUESTS)
        self.silent: dict[socket.socket, None] = {}
        """Clients whose request has not come, in the order in which they came."""
        self.setup_environ()
        registry = CollectorRegistry()
        registry.register(Scrape(samples))
        self.set_app(make_wsgi_app(registry))

    def start(self) -> None:
        # Nobody stops it, so it need not wake up to see whether somebody does.
        threading.Thread(
            target=self.serve_forever, args=(3600.0,), name="profd-scrapes", daemon=True
        ).start()

    def process_request(
        self,
        request: socket.socket | tuple[bytes, socket.socket],
        client_address: Any,  # noqa: ANN401  as in socketserver
    ) -> None:
        """Answer a request in a thread of its own.

        One too many takes the place of the client that has been silent longest: it has not said
        what it wants. If all have, it is hung up on, and its client tries again.
        """
        if not self._free.acquire(blocking=False) and not self._take_place():
            self.shutdown_request(request)
            return
        assert isinstance(request, socket.socket)
        self.silent[request] = None
        super().process_request(request, client_address)

    def _take_place(self) -> bool:
        for silent in list(self.silent):
            with contextlib.suppress(OSError):  # it has just gone
                silent.shutdown(socket.SHUT_RDWR)
            # Other requests wait meanwhile.
            return self._free.acquire(timeout=1.0)
        return False

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.silent.pop(request, None)
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say what went wrong with a request; that a client is gone is nothing to say."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _is_local(host: str) -> bool:
    """Say whether a request's host is an address, or a name that only this machine has."""
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return name in ("", "localhost", socket.gethostname()) or name.endswith(".localhost")
    return True


class _Handler(WSGIRequestHandler):
    """Takes a request, and does not wait forever for one."""

    timeout = 2.0
    server: Server

    def parse_request(self) -> bool:
        """Read the head of a request; on the loopback address refuse one to another host's name.

        A page of that name, in a browser on this machine, could have it lead here and read what it
        is not shown.
        """
        is_whole = super().parse_request()
        self.server.silent.pop(self.connection, None)
        if not is_whole:
            return False
        if self.server.is_local and not _is_local(self.headers.get("Host", "")):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return False
        return True

    def log_message(self, format: str, *args: object) -> None:
        """Keep no log of requests."""
