"""What the session of a live run is asked for: windows, marks, another rate, the end of the recording."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from textual.message import Message

from profd.daemon.errors import SessionFailed
from profd.daemon.store.rows import RunInfo
from profd.daemon.supervise.control import HIGHEST_RATE_HZ, ControlClient, window_request
from profd.daemon.supervise.session import end_session
from profd.daemon.units import plural
from profd.tui.errands.outcomes import ErrandDone, ErrandFailed, WindowRefused

RATES_HZ = (1, 2, 5, 10, 20, 50, 100, 200, 500, HIGHEST_RATE_HZ)
"""The rates that one key press leads to the next of."""


def take_window(info: RunInfo, *, inject: bool = False) -> Message:
    """Ask for a torch.profiler window of the usual length; the run file will say what comes of it."""
    request = window_request(inject=inject)
    try:
        with _session(info) as client:
            begun = client.window(request)
    except SessionFailed as error:
        return WindowRefused(error, may_inject=not inject and "--inject" in str(error))
    whose = f"process {begun.pids[0]}" if len(begun.pids) == 1 else f"{len(begun.pids)} processes"
    return ErrandDone(f"taking {plural(request.steps, 'step')} of {whose}; 4 shows the operators", "Window")


def mark(info: RunInfo, note: str) -> Message:
    """Mark this moment in the run."""
    return _ask(info, "No mark", lambda client: _said(client.mark(note), "the moment is marked"))


def change_rate(info: RunInfo, steps: int) -> Message:
    """Sample at the next higher or lower rate."""
    return _ask(info, "The rate stays", lambda client: _change_rate(client, steps))


def stop(info: RunInfo) -> Message:
    """End the recording; the script runs on."""
    try:
        _check_live(info)
        with contextlib.suppress(ProcessLookupError):
            end_session(info.recorder).close()
    except SessionFailed as error:
        return ErrandFailed(error, "Not stopped")
    return ErrandDone("the recording ends; the script runs on")


def _check_live(info: RunInfo) -> None:
    if info.state != "live":
        raise SessionFailed("the run is not recorded any more", "this can be asked of a live run alone")


def _session(info: RunInfo) -> contextlib.closing[ControlClient]:
    _check_live(info)
    return contextlib.closing(ControlClient(Path(info.control_socket), info.recorder.pid))


def _ask(info: RunInfo, title: str, ask: Callable[[ControlClient], ErrandDone]) -> Message:
    try:
        with _session(info) as client:
            return ask(client)
    except SessionFailed as error:
        return ErrandFailed(error, title)


def _said(_: object, text: str) -> ErrandDone:
    return ErrandDone(text)


def _change_rate(client: ControlClient, steps: int) -> ErrandDone:
    rate_hz = client.hello().rate_hz
    beyond = [rate for rate in RATES_HZ if (rate > rate_hz if steps > 0 else rate < rate_hz)]
    if not beyond:
        return ErrandDone(f"profd samples at {rate_hz} Hz, which is as far as it goes", "Rate")
    wanted_hz = beyond[0] if steps > 0 else beyond[-1]
    now_hz = client.aim_at_rate(wanted_hz).rate_hz
    why = "" if now_hz == wanted_hz else f"; {wanted_hz} Hz would cost more than the budget"
    return ErrandDone(f"profd samples at {now_hz} Hz instead of {rate_hz} Hz{why}", "Rate")
