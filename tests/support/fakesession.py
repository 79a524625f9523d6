"""A session that is made up: as it is started, and as it is asked over its socket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from profd.daemon.errors import SessionFailed
from profd.daemon.session.control import SessionStatus, WindowBegun
from profd.daemon.session.session import SessionOptions
from profd.daemon.store.records import Identity, Record
from profd.daemon.windows.request import WindowRequest
from support.synthetic import write_run


@dataclass
class FakeSession:
    """Takes down what it is asked; takes windows where it is armed, or by injection."""

    rate_hz: int = 100
    most_hz: int = 500
    is_armed: bool = True
    failure: SessionFailed | None = None
    asked: list[object] = field(default_factory=list)

    def __call__(self, path: Path, pid: int | None = None) -> FakeSession:
        if self.failure:
            raise self.failure
        return self

    def close(self) -> None:
        pass

    def _status(self) -> SessionStatus:
        return SessionStatus("id", "/runs/id.profd", self.rate_hz, 1)

    def hello(self) -> SessionStatus:
        return self._status()

    def mark(self, note: str) -> SessionStatus:
        self.asked.append(("mark", note))
        return self._status()

    def end(self, recorder: Identity) -> FakeSession:
        if self.failure:
            raise self.failure
        self.asked.append("stop")
        return self

    def aim_at_rate(self, rate_hz: int) -> SessionStatus:
        self.asked.append(("rate", rate_hz))
        self.rate_hz = min(rate_hz, self.most_hz)
        return self._status()

    def window(self, request: WindowRequest) -> WindowBegun:
        self.asked.append(("window", request.inject))
        if not self.is_armed and not request.inject:
            raise SessionFailed(
                "this run takes no windows", "launch it with --torch-window, or add --inject"
            )
        return WindowBegun(1, (4242, 4243))


@dataclass
class FakeRecording:
    """What starts a session, and the session that it starts: its run is there at once, and over.

    ``also`` is in it.
    """

    closes: bool = True
    runs_on: bool = False
    also: Sequence[Record] = ()
    options: SessionOptions | None = None
    is_asked_to_end: bool = False
    pid: int = 777
    control_socket: Path = Path("/run/profd.sock")

    def __call__(self, options: SessionOptions, **_: object) -> FakeRecording:
        self.options = options
        write_run(options.run_file, seconds=1, also=self.also)
        return self

    @property
    def run_file(self) -> Path:
        assert self.options is not None
        return self.options.run_file

    def is_running(self) -> bool:
        return self.runs_on

    def end(self) -> None:
        self.is_asked_to_end = True

    def wait_closed(self, timeout_s: float | None) -> bool:
        return self.closes
