"""The sessions that record the jobs: ordinary ones, as ``profd attach`` starts them, each a process of its own.

They outlive the supervisor that started them; the next one adopts them by the registry.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from profd.daemon import paths, processes
from profd.daemon.clock import Clock
from profd.daemon.errors import NoSuchProcess, ProfdError, SessionFailed
from profd.daemon.naming import script_name
from profd.daemon.service.configuration import Configuration
from profd.daemon.service.processes import Job
from profd.daemon.service.storage import Entry, RunRegistry, boot_id
from profd.daemon.session.control import ControlClient
from profd.daemon.session.session import RunningSession, SessionOptions, end_session, is_session, start_session
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity
from profd.daemon.tree.attachable import check_attachable
from profd.daemon.tree.exitstatus import Watch

INTERRUPTED = "interrupted"
_REAPING_S = 5.0


@dataclass(eq=False)
class Recording:
    """A live session; ``watch`` becomes readable when its process ends."""

    entry: Entry
    watch: Watch
    control_socket: Path
    session: RunningSession | None = None
    """None where another supervisor started it."""
    budget_percent: float = 0.0
    """Its part of the host's budget, as it last heard; 0 where it heard none from this supervisor."""
    cpu_s: float = 0.0
    """CPU seconds at the last reading."""
    is_released: bool = False
    """Whether it ends because its job is quiet and another one waits."""


class Sessions:
    """Sessions of this user on this host. Each method but ``cpu_s`` may take seconds, and is called in a thread."""

    def __init__(self, configuration: Configuration, registry: RunRegistry, clock: Clock) -> None:
        self.configuration = configuration
        self._registry = registry
        self._clock = clock

    def start(self, job: Job, budget_percent: float) -> Recording:
        """Start recording a job, and return once it is recorded; raises ProfdError."""
        check_attachable(job.root.pid)
        if not processes.is_running(*job.root):
            raise NoSuchProcess(f"pid {job.root.pid} ended while it was looked at", "nothing was recorded")
        wanted, name = self.configuration, paths.clean_name(script_name(job.command))
        run_id = paths.new_run_id(name)
        options = SessionOptions(
            run_id=run_id,
            name=name,
            run_file=paths.new_run_file(run_id),
            mode="attached",
            pid=job.root.pid,
            start_ticks=job.root.start_ticks,
            command=job.command,
            rate_hz=wanted.rate_hz,
            budget_percent=budget_percent,
            duration_s=wanted.slice_hours * 3600,
            hang_after_s=wanted.hang_after_s or None,
            on_hang=wanted.on_hang or None,
        )
        entry = Entry(run_id, job.root, job.member, job.rule, boot_id(), self._clock.now_ns())
        self._registry.put(entry)
        try:
            session = start_session(options)
            return Recording(entry, _watch(session.pid), session.control_socket, session)
        except (ProfdError, OSError) as error:
            self._registry.remove(run_id)
            if isinstance(error, ProfdError):
                raise
            raise SessionFailed(f"the session of pid {job.root.pid} is gone ({error})", "see `profd ls`") from error

    def adopt(self, entry: Entry) -> Recording | None:
        pid = _find_session(entry.run_id)
        if not entry.is_of_this_boot or pid is None:
            return None
        try:
            return Recording(entry, _watch(pid), paths.runtime_folder() / f"{entry.run_id}.sock")
        except OSError:
            return None  # it has ended while it was looked at

    def allow(self, recording: Recording, budget_percent: float) -> None:
        with contextlib.closing(ControlClient(recording.control_socket)) as client:
            client.aim_at_budget(budget_percent)

    def cpu_s(self, recording: Recording) -> float:
        """Return the CPU seconds of a session and its recordings so far; at once, in no thread."""
        pid = recording.watch.identity.pid
        children = processes.children(pid, of_all_threads=False)
        return (_cpu_ticks(pid) + sum(map(_cpu_ticks, children))) / processes.CLOCK_TICKS

    def stop(self, recording: Recording) -> None:
        with contextlib.suppress(ProcessLookupError):
            end_session(recording.watch.identity).close()

    def close(self, recording: Recording) -> str:
        """Let go of a session that has ended, and return why it did, as ``Entry.why_ended`` has it."""
        recording.watch.close()
        if recording.session is not None:
            recording.session.wait_closed(_REAPING_S)
        return why_ended(recording.entry.run_id)


def run_file(run_id: str) -> Path:
    """Return the file of a run that the supervisor began."""
    return paths.runs_folder() / f"{run_id}{paths.SUFFIX}"


def why_ended(run_id: str) -> str:
    """Return why a run ended; ``interrupted`` where its file does not say why."""
    try:
        with RunReader(run_file(run_id)) as reader:
            return reader.info.why_ended or INTERRUPTED
    except ProfdError:
        return INTERRUPTED


def _cpu_ticks(pid: int) -> int:
    stat = processes.read_stat(pid)
    return 0 if stat is None else stat.cpu_ticks + stat.ended_children_ticks


def _watch(pid: int) -> Watch:
    stat = processes.read_stat(pid)
    if stat is None:
        raise ProcessLookupError(f"pid {pid} is gone")
    return Watch(Identity(pid, stat.start_ticks))


def _find_session(run_id: str) -> int | None:
    """Return the PID of the living session of a run: the one whose stderr is the run's log.

    That is so from the first moment of a session, when there is no run file yet, to its last.
    """
    log = str((paths.runtime_folder() / f"{run_id}.log").resolve())
    for pid in processes.pids():
        if processes.owner_uid(pid) == os.geteuid():
            is_its = processes.link(pid, "fd/2").removesuffix(" (deleted)") == log
            if is_its and is_session(pid):
                return pid
    return None
