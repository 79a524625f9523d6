"""Starts and ends the process that serves a run's metrics, and parses its address.

Everything that can be wrong with an address is found out before anything is started: the socket
listens from then on, and the process takes it over.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from profd.daemon import paths, program
from profd.daemon.errors import ExitCode, MissingTool, ProfdError, UsageError
from profd.daemon.installation import install_extra


class ListenAddress(NamedTuple):
    """A host, by name or number, and a port; 0 is any port that is free."""

    host: str
    port: int


def parse_address(text: str) -> ListenAddress:
    """Return the address that ``[HOST:]PORT`` means, by default on the loopback.

    Raises UsageError.
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise UsageError(
            f"{text} is no address for metrics",
            "give [HOST:]PORT: 9400, 0.0.0.0:9400 or [::1]:9400",
        )
    return ListenAddress(host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port))


def listen(address: ListenAddress) -> socket.socket:
    """Return a socket that listens at an address; raises UsageError if that cannot be."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _unusable(address, error) from error
    try:
        # The port is free again as soon as the run before has ended.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(16)
    except OSError as error:
        listener.close()
        raise _unusable(address, error) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address of the metrics, as it stands in Prometheus's configuration."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


def _unusable(address: ListenAddress, error: OSError) -> ProfdError:
    what = f"metrics cannot be served at {address.host} port {address.port}"
    return UsageError.of_system(what, error, "choose another port, or 0 for any that is free")


PROGRAM = "profd.daemon.metrics"
_ENDED_WITH_ITS_RUN = (ExitCode.OK, ExitCode.NO_RUN, -signal.SIGTERM)
"""The exit codes of a process whose run has ended.

That of a short run has not come to look at it, or not to start.
"""
_NEEDED = {"metrics": "prometheus_client", "otlp": "opentelemetry.exporter.otlp.proto.http"}


class Exporter:
    """The metrics of one run, from before it is started; without an address it does nothing."""

    def __init__(
        self, address: str | None, otlp: str | None, narrate: Callable[[str], None]
    ) -> None:
        """Listen at ``address``, and be ready to send to the OTLP ``otlp``; either may be None.

        Raises UsageError if an address cannot be used, MissingTool if an extra is not installed.
        """
        self._narrate, self._otlp = narrate, otlp
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path(os.devnull)
        for extra, wanted in (("metrics", address), ("otlp", otlp)):
            if wanted is not None:
                check_installed(extra)
        if otlp is not None:
            check_endpoint(otlp)
        self._listener: socket.socket | None = (
            None if address is None else listen(parse_address(address))
        )
        if self._listener is not None:
            narrate(f"profd: metrics at {url_of(self._listener)}")

    def follow(self, run_file: Path) -> None:
        """Start the process for a run that is recorded."""
        if self._listener is None and self._otlp is None:
            return
        self._log = paths.runtime_folder() / f"{run_file.stem}.metrics.log"
        descriptors = [] if self._listener is None else [self._listener.fileno()]
        words = program.words(PROGRAM, str(run_file), "--log", str(self._log))
        words += [word for fd in descriptors for word in ("--listener-fd", str(fd))]
        words += [] if self._otlp is None else ["--otlp", self._otlp]
        try:
            with self._log.open("wb") as log_file:
                self._process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log_file,
                    pass_fds=descriptors,
                    start_new_session=True,
                    cwd="/",
                    env=program.environment(),
                )
        except OSError as error:
            self._narrate(
                f"profd: there are no metrics: their process did not start ({error.strerror})"
            )
        self.close()  # only the process listens from now on

    def close(self) -> None:
        """Let go of the socket; a process that was started keeps it."""
        if self._listener is not None:
            self._listener.close()

    def end(self) -> None:
        """End the process, so that the port is free when this returns."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            code = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code in _ENDED_WITH_ITS_RUN:
            self._log.unlink(missing_ok=True)
        else:
            self._narrate(f"profd: the metrics broke off: see {self._log}")


def check_installed(extra: str) -> None:
    """Raise MissingTool if the packages of an extra of profd are not there; import only those."""
    module = _NEEDED[extra]
    try:
        is_there = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it
        is_there = False
    if not is_there:
        raise MissingTool(f"--{extra} needs {module}, not installed here", install_extra(extra))


def check_endpoint(endpoint: str) -> None:
    """Raise UsageError if metrics cannot be sent to such an endpoint."""
    scheme, _, rest = endpoint.partition("://")
    if scheme not in ("http", "https") or not rest.strip("/"):
        raise UsageError(
            f"{endpoint} is no endpoint for OTLP over HTTP",
            "give its URL, such as http://localhost:4318",
        )
