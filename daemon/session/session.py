"""Start a session: the headless process that records a run, apart from whoever asked for it.

The process has its own session and process group, so neither a closed terminal nor a signal to the
script's group reaches it. This module imports little, because a launcher needs it while the script
starts.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import subprocess
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from profd.daemon import errors, paths, processes, program
from profd.daemon.errors import ProfdError, SessionFailed
from profd.daemon.forks import let_go_of_all_but, rename
from profd.daemon.recordingconfig import RecordingSettings
from profd.daemon.store.records import Identity
from profd.daemon.tree.exitstatus import ProcessWatch
from profd.daemon.windows.request import Schedule

_MODULE = "profd.daemon.session"
CLOSING_S = 30.0
"""A session that is asked to end has written its run within this time, on a busy machine, too."""
_READY_TIMEOUT_S = 30.0
_FAREWELL_TIMEOUT_S = 2.0


class SessionOptions(RecordingSettings, frozen=True, kw_only=True):
    """What to record, and the file to write.

    ``mode`` is ``launched`` or ``attached``. ``channel_fd`` is set by ``start_session``.
    """

    run_id: str
    name: str
    run_file: Path
    mode: str
    pid: int
    start_ticks: int
    command: tuple[str, ...]
    folder: str = ""
    """The folder in which the command was started, if that is known."""
    spent_s: float = 0.0
    """The CPU seconds that were spent on the run before; they count in its first minute."""
    window_folder: Path | None = None
    """The folder in which the script's torch asks for windows.

    None if the script was not armed for that.
    """
    window_schedule: Schedule | None = None
    """When windows are taken without being asked for."""
    channel_fd: int | None = None


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The session's answer once it records. ``run_file`` is the file that is written now."""

    run_file: Path
    control_socket: Path


# A supervisor that has run since before an upgrade knows it by this tag.
class StartFailed(msgspec.Struct, frozen=True, tag="Failed"):
    """The session's answer if it could not start; ``kind`` names the class of the error."""

    kind: str
    what: str
    remedy: str


def encode(message: SessionOptions | Ready | StartFailed) -> bytes:
    return msgspec.json.encode(message, enc_hook=os.fspath)


def decode_options(data: bytes) -> SessionOptions:
    return msgspec.json.decode(data, type=SessionOptions, dec_hook=_make)


def _make(kind: type, value: object) -> object:
    return kind(value)


class RunningSession:
    """A session that records."""

    def __init__(self, process: subprocess.Popen[bytes], ready: Ready) -> None:
        self._process, self.pid = process, process.pid
        self.run_file, self.control_socket = ready.run_file, ready.control_socket

    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.terminate()

    def wait_closed(self, timeout_s: float | None) -> bool:
        """Wait until the session is gone; with a timeout, wake it first if it is stopped.

        Returns False if the session has not closed its file by then.
        """
        if timeout_s is not None:
            self._process.send_signal(signal.SIGCONT)
        try:
            return self._process.wait(timeout_s) == 0
        except subprocess.TimeoutExpired:
            return False


class StartingSession:
    """The process of a session that has no options yet: it imports what it needs.

    It is ended if it gets none.
    """

    def __init__(self, *fds: int, become: Callable[[], None] | None = None) -> None:
        """Start the process and pass it these descriptors.

        It is a fork of this process if that may ``become`` the session, and has its environment.
        """
        self.log = paths.runtime_folder() / f"starting-{os.urandom(4).hex()}.log"
        home = paths.home()  # a relative path would be below another folder
        own = {**program.environment(), **({"PROFD_HOME": str(home)} if home else {})}
        with self.log.open("wb") as said:
            self.process = subprocess.Popen(
                program.words(_MODULE),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                pass_fds=fds,
                restore_signals=False,  # Python ignores SIGPIPE, and a fork has to do so, too
                start_new_session=True,
                cwd="/",
                env=own,
                preexec_fn=become if own == os.environ else None,
            )

    def __enter__(self) -> StartingSession:
        return self

    def __exit__(self, *_: object) -> None:
        if self.log.exists():
            self.process.kill()
            self.process.communicate()
            self.log.unlink()


def start_ahead() -> contextlib.AbstractContextManager[StartingSession | None]:
    """Start the process of a session that gets its options later.

    It is a fork of this process where that is as good: to start Python and import anew what both
    need takes a tenth of a second of CPU. Gives None if that fails: ``start_session`` then says
    why.
    """
    try:
        return StartingSession(become=_become_session if threading.active_count() == 1 else None)
    except OSError:
        return contextlib.nullcontext()


def _become_session() -> None:
    """Go on as the session; does not return."""
    rename(b"python", [b"python", b"-m", _MODULE.encode()])
    let_go_of_all_but(range(3))
    gc.freeze()  # so that what both have stays shared
    gc.enable()  # subprocess has disabled it
    try:
        from profd.daemon.session.__main__ import main

        os._exit(main())
    except BaseException:  # noqa: BLE001  as at the end of any program
        traceback.print_exc()
        os._exit(1)


def start_session(
    options: SessionOptions,
    *,
    channel: socket.socket | None = None,
    starting: StartingSession | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> RunningSession:
    """Start a session and return it once it records.

    ``channel`` is the session's end of the channel from a launched script; it stays open here.
    ``starting`` is a process that was started ahead. ``meanwhile`` is called before waiting for the
    process. Raises the error that kept the session from starting, or SessionFailed if it named
    none.
    """
    channel_fd = channel.fileno() if channel else None
    # Bytes that are no text are replaced: the command is for display, not for running.
    command = tuple(os.fsencode(word).decode(errors="replace") for word in options.command)
    options = msgspec.structs.replace(options, command=command, channel_fd=channel_fd)
    try:
        starting = starting or StartingSession(*([] if channel_fd is None else [channel_fd]))
    except OSError as error:
        raise SessionFailed(
            f"no session can be started: {error}", "mend that, and try again"
        ) from None
    process, log = starting.process, paths.runtime_folder() / f"{options.run_id}.log"
    starting.log.rename(log)
    try:
        return RunningSession(process, _answer(process, options, log, meanwhile))
    except ProfdError:
        try:
            process.wait(_FAREWELL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise


def end_session(recorder: Identity) -> ProcessWatch:
    """Ask a session to end, whoever started it.

    Returns a watch that becomes readable once the session has closed its file and is gone.

    It uses a signal, not the socket, which goes away with the folder of a login. Raises
    ProcessLookupError if the session has ended, and SessionFailed if the process is no session: a
    run file may name anything.
    """
    watch = ProcessWatch(recorder)
    try:
        if not is_session(recorder.pid):
            raise SessionFailed(
                f"process {recorder.pid} is no session of profd's", "nothing was done to it"
            )
        # a stopped session would not get the first signal
        for number in (signal.SIGTERM, signal.SIGCONT):
            watch.send(number)
    except PermissionError:
        watch.close()
        raise SessionFailed(
            f"the session {recorder.pid} is another user's", "become that user, or root"
        ) from None
    except (ProcessLookupError, SessionFailed):
        watch.close()
        raise
    return watch


def is_session(pid: int) -> bool:
    """Return whether a process is a session."""
    return processes.command_line(pid)[-2:] == ("-m", _MODULE)


def _answer(
    process: subprocess.Popen[bytes],
    options: SessionOptions,
    log: Path,
    meanwhile: Callable[[], object] | None,
) -> Ready:
    """Send the session its options and return its answer; it closes its output after that."""
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout:
        # The options fit into the pipe's buffer, or the session reads them: neither waits for the
        # other.
        # A session that has ended before it read them says why in its log.
        with (
            contextlib.suppress(BrokenPipeError),
            process.stdin,
        ):
            process.stdin.write(encode(options))
        if meanwhile is not None:
            meanwhile()
        if not select.select([process.stdout], [], [], _READY_TIMEOUT_S)[0]:
            raise SessionFailed("the recording session did not start in time", f"see {log}")
        said = process.stdout.read()
    try:
        answer = msgspec.json.decode(said, type=Ready | StartFailed, dec_hook=_make)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise SessionFailed("the recording session did not start", f"see {log}") from None
    if isinstance(answer, StartFailed):
        kind = getattr(errors, answer.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, ProfdError)):
            kind = SessionFailed
        raise kind(answer.what, answer.remedy)
    return answer
