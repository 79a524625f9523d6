"""The session's process: brings tree, collectors, writer and control together, from the first look to the closed file.

Run as ``python -m profd.daemon.supervise.recorder`` with its options as JSON on stdin; answers one line on stdout and
closes it. All of it runs in one event loop, but for the counters (a thread, since a read of them may hang) and the
writer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Literal

from profd.daemon import paths, processes
from profd.daemon.clock import SECOND_NS, AnchoredClock, Clock
from profd.daemon.collect.chain import StackChain
from profd.daemon.collect.cost import CostMeter, Governor
from profd.daemon.collect.host import HostCollector
from profd.daemon.collect.pyspy import find_py_spy
from profd.daemon.collect.source import SourceTree, source_root
from profd.daemon.errors import NoSuchProcess, ProfdError
from profd.daemon.store.records import (
    EventHappened,
    Identity,
    OutputWritten,
    Point,
    PointsTaken,
    ProcessEnded,
    Record,
    RecordingTaken,
    RunEnded,
    RunStarted,
)
from profd.daemon.store.writer import RunWriter
from profd.daemon.supervise import exitstatus, roles
from profd.daemon.supervise.control import Commands, ControlServer, SessionStatus
from profd.daemon.supervise.inlet import ScriptInlet
from profd.daemon.supervise.secrets import mask_command
from profd.daemon.supervise.session import Failed, Ready, SessionOptions, decode_options, encode
from profd.daemon.supervise.tree import Appeared, Change, Execed, Member, ProcessTree, Vanished

TREE_INTERVAL_S = 0.25
COUNTER_INTERVAL_S = 1.0
LENGTH_S = 4.0
WATCHED_LENGTH_S = 1.5
TURN_RATE_DIVISOR = 5
CLOSING_TIMEOUT_S = 10.0
STATUS_TIMEOUT_S = 1.0
STARTUP_READINGS = 2  # what starting costs says nothing of what recording costs
WALL_JUMP_NS = SECOND_NS


class MemberPace:
    """How a member of the tree is sampled: by its role, by the governor, and by whether anyone watches."""

    def __init__(self, recorder: Recorder, member: Member) -> None:
        self._recorder = recorder
        self._member = member

    def rate_hz(self) -> int:
        """Return samples a second; who shares a turn with others gets a part of the main process's rate."""
        rate_hz = self._recorder.governor.rate_hz
        return rate_hz if self._member.role == roles.MAIN else max(rate_hz // TURN_RATE_DIVISOR, 1)

    def length_s(self) -> float:
        """Return seconds that a recording lasts: longer ones cost less, shorter ones are seen sooner."""
        return WATCHED_LENGTH_S if self._recorder.watchers else LENGTH_S


class Recorder(Commands):
    """One session: records a tree of processes into one run file."""

    def __init__(self, options: SessionOptions, clock: Clock) -> None:
        """Take in what to record; nothing is touched before ``run``."""
        self.options = options
        self.clock = clock
        self.watchers = 0
        self.governor = Governor(options.rate_hz, options.budget_percent / 100)
        self.root = Identity(options.pid, options.start_ticks)
        self._tree = ProcessTree(self.root, mask_command, clock, subprocesses=options.subprocesses)
        self._counters = HostCollector(clock)
        self._cost = CostMeter(clock)
        self._chains: dict[Identity, tuple[StackChain, asyncio.Task[None]]] = {}
        self._python_threads: dict[Identity, frozenset[int]] = {}
        self._turn = asyncio.Semaphore(1)
        self._ended = asyncio.Event()
        self._why = "stopped"
        self._script_status: int | None = None
        self._wall_jump_ns = 0
        self._cost_readings = 0

    # Commands of the control socket

    def status(self) -> SessionStatus:
        """Return what the session says of itself."""
        return SessionStatus(
            run_id=self.options.run_id,
            run_file=str(self.options.run_file),
            session_pid=os.getpid(),
            target_pid=self.root.pid,
            rate_hz=self.governor.rate_hz,
            watchers=self.watchers,
        )

    def watchers_changed(self, watchers: int) -> None:
        """Make data fresh for the first one who looks."""
        if watchers > self.watchers:
            for chain, _ in self._chains.values():
                chain.hurry()
        self.watchers = watchers

    def stop(self) -> None:
        """End the session; the target runs on."""
        self._end("stopped")

    # The run

    async def run(self, announce: Callable[[Ready], None]) -> None:
        """Record until the target ends, the time is over, or someone says stop.

        ``announce`` is called once everything is in place. Raises ProfdError where it cannot be.
        """
        executable = find_py_spy()
        watch = self._watch_root()
        live_file = self._live_file()
        socket_path = paths.runtime_folder() / f"{self.options.run_id}.sock"
        server = ControlServer(socket_path, self)
        self._writer = RunWriter(live_file, self._run_started(socket_path), self._sources().describe)
        self._executable = executable
        try:
            await server.start()
            announce(Ready(live_file, socket_path))
            await self._record(watch)
        finally:
            await server.close()
            watch.close()
            await asyncio.to_thread(self._writer.close)
            self._settle(live_file)

    async def _record(self, watch: exitstatus.Watch) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(watch.fileno(), self._end, "target-exited")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._end, "stopped")
        if self.options.duration_s is not None:
            loop.call_later(self.options.duration_s, self._end, "duration")
        inlet = ScriptInlet(self.options.link_fd, self.options.pty_fd, self._take_output, self._take_status)
        endless = [asyncio.ensure_future(self._follow_tree()), asyncio.ensure_future(self._read_counters())]
        ended = asyncio.ensure_future(self._ended.wait())
        waited: list[asyncio.Task[None] | asyncio.Task[Literal[True]]] = [*endless, ended]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        loop.remove_reader(watch.fileno())
        try:
            for task in endless:
                if task.done():
                    task.result()  # only an error ends it
        finally:
            for running in waited:
                running.cancel()
            await self._close_chains()
            await self._say_farewell(watch)
            inlet.close()

    async def _follow_tree(self) -> None:
        while True:
            for change in self._tree.poll():
                self._take_change(change)
            if self._writer.failure:
                self._end("failed")
            await asyncio.sleep(TREE_INTERVAL_S)

    def _take_change(self, change: Change) -> None:
        member = change.member
        command = " ".join(member.command)[:200]
        if isinstance(change, Vanished):
            code, number = exitstatus.code_and_signal(change.exit_status)
            self._put(ProcessEnded(member.identity, self.clock.now_ns(), code, number))
            if member.identity != self.root:
                self._say("ended", f"{member.role} {member.identity.pid} {exitstatus.in_words(code, number)}", member)
            return
        self._put(self._tree.record_of(member))
        if isinstance(change, Appeared):
            self._say("started", f"{member.role} {member.identity.pid}: {command}", member)
        elif isinstance(change, Execed):
            self._say("exec", f"process {member.identity.pid} became {command}", member)
        if member.python is not None and member.identity not in self._chains:
            self._start_chain(member)

    def _start_chain(self, member: Member) -> None:
        chain = StackChain(self._executable, member.identity, MemberPace(self, member), self.clock, self._put)
        # Main processes without a gap; the others in turns. One that turns out to be something else stays as it began.
        run = chain.run() if member.role in (roles.MAIN, roles.LAUNCHER) else chain.run_in_turns(self._turn)
        task = asyncio.ensure_future(run)
        self._chains[member.identity] = (chain, task)
        task.add_done_callback(lambda done: self._forget_chain(member.identity, done))

    def _forget_chain(self, identity: Identity, task: asyncio.Task[None]) -> None:
        self._chains.pop(identity, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            traceback.print_exception(error)
            self._put(EventHappened(self.clock.now_ns(), "error", f"sampling stopped: {error!r}", identity))

    async def _read_counters(self) -> None:
        while True:
            points = await asyncio.to_thread(
                self._counters.collect, list(self._tree.members), dict(self._python_threads)
            )
            self._put(points)
            self._read_cost()
            self._read_wall_clock()
            await asyncio.sleep(COUNTER_INTERVAL_S)

    def _read_cost(self) -> None:
        cores = self._cost.cores()
        own = (Point("profd_cpu_cores", cores), Point("profd_rss_bytes", self._cost.rss_bytes()))
        self._put(PointsTaken(self.clock.now_ns(), own))
        before_hz = self.governor.rate_hz
        self._cost_readings += 1
        if self._cost_readings > STARTUP_READINGS and self.governor.take(cores):
            why = "to stay within its budget" if self.governor.rate_hz < before_hz else "as there is room again"
            self._say("note", f"profd samples at {self.governor.rate_hz} Hz instead of {before_hz} Hz, {why}")

    def _read_wall_clock(self) -> None:
        jump_ns = self.clock.wall_jump_ns()
        if abs(jump_ns - self._wall_jump_ns) > WALL_JUMP_NS:
            self._say("wall-jump", f"the wall clock jumped by {(jump_ns - self._wall_jump_ns) / SECOND_NS:+.3f} s")
            self._wall_jump_ns = jump_ns

    async def _close_chains(self) -> None:
        """End all recordings and take in what they hold."""
        tasks = [task for _, task in self._chains.values()]
        for chain, _ in self._chains.values():
            chain.stop()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSING_TIMEOUT_S)

    async def _say_farewell(self, watch: exitstatus.Watch) -> None:
        """Write how the run ended."""
        code = number = None
        at_ns = self.clock.now_ns()
        if self._why == "target-exited":
            code, number = exitstatus.code_and_signal(await self._exit_status(watch))
            self._put(ProcessEnded(self.root, at_ns, code, number))
            self._say("ended", f"the target {exitstatus.in_words(code, number)}")
        self._put(RunEnded(at_ns, self._why, code, number))

    async def _exit_status(self, watch: exitstatus.Watch) -> int | None:
        """Return how the target ended, by its launcher or by the kernel; both may need a moment."""
        deadline_ns = self.clock.now_ns() + int(STATUS_TIMEOUT_S * SECOND_NS)
        while self._script_status is None and self.clock.now_ns() < deadline_ns:
            if self.options.link_fd is None:
                self._script_status = watch.status()
            await asyncio.sleep(0.01)
        return self._script_status if self._script_status is not None else watch.status()

    # What comes in

    def _put(self, record: Record) -> None:
        """Hand a record to the writer, and learn roles and threads from recordings on their way."""
        if isinstance(record, RecordingTaken):
            self._python_threads[record.identity] = frozenset(thread.os_tid for thread in record.threads)
            if member := self._tree.take_stacks(record.identity, record.stacks):
                self._writer.put(self._tree.record_of(member))
        self._writer.put(record)

    def _say(self, kind: str, text: str, member: Member | None = None) -> None:
        self._put(EventHappened(self.clock.now_ns(), kind, text, member.identity if member else None))

    def _take_output(self, data: bytes) -> None:
        self._put(OutputWritten(self.clock.now_ns(), data))

    def _take_status(self, status: int) -> None:
        self._script_status = status

    def _end(self, why: str) -> None:
        if not self._ended.is_set():
            self._why = why
            self._ended.set()

    # The file

    def _watch_root(self) -> exitstatus.Watch:
        try:
            return exitstatus.Watch(self.root)
        except ProcessLookupError:
            raise NoSuchProcess(f"process {self.root.pid} has ended already", "nothing was recorded") from None

    def _live_file(self) -> Path:
        """Return the path to write to while the run is live: on a local disk, linked from where it will end up."""
        wanted = self.options.run_file
        if not paths.is_on_network(wanted.parent):
            return wanted
        folder = paths.make_private(Path(tempfile.gettempdir()) / f"profd-{os.getuid()}")
        live_file = folder / wanted.name
        wanted.symlink_to(live_file)
        return live_file

    def _settle(self, live_file: Path) -> None:
        """Move the finished file to where it was asked for."""
        wanted = self.options.run_file
        if live_file != wanted:
            moving = wanted.with_name(f".{wanted.name}.moving")
            shutil.move(live_file, moving)
            moving.replace(wanted)

    def _sources(self) -> SourceTree:
        return SourceTree(source_root(self.root.pid))

    def _run_started(self, socket_path: Path) -> RunStarted:
        options = self.options
        me = processes.read_stat(os.getpid())
        return RunStarted(
            id=options.run_id,
            name=options.name,
            mode=options.mode,
            target=self.root,
            command=mask_command(options.command),
            cwd=_working_folder(self.root.pid),
            host=os.uname().nodename,
            user=_user_name(),
            started_ns=self.clock.now_ns(),
            recorder=Identity(os.getpid(), me.start_ticks if me else 0),
            versions={
                "profd": metadata.version("profd"),
                "python": processes.python_version(self.root.pid) or "",
                "py_spy": metadata.version("py-spy"),
                "kernel": os.uname().release,
            },
            options={
                "rate_hz": options.rate_hz,
                "budget_percent": options.budget_percent,
                "subprocesses": options.subprocesses,
                "duration_s": options.duration_s,
            },
            control_socket=str(socket_path),
        )


def _working_folder(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _announce(word: Ready | Failed) -> None:
    """Say the first and only word on stdout, and let go of it: whoever started the session waits for its end."""
    os.write(1, encode(word))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def main() -> int:
    """Record a run; returns the exit code of the session's process."""
    # The launcher holds its signals back, and this process, py-spy's parent, would inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Of all that run here, the kernel shall take the profiler first when memory ends, not the training.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    options = decode_options(sys.stdin.buffer.read())

    async def record() -> None:
        await Recorder(options, AnchoredClock()).run(_announce)

    try:
        asyncio.run(record())
    except ProfdError as error:
        _announce(Failed(type(error).__name__, error.what, error.remedy))
        return int(error.exit_code)
    finally:
        _remove_empty_log(options.run_id)
    return 0


def _remove_empty_log(run_id: str) -> None:
    """Remove what stderr was sent to where nothing was said."""
    log = paths.runtime_folder() / f"{run_id}.log"
    with contextlib.suppress(OSError):
        if not log.stat().st_size:
            log.unlink()


if __name__ == "__main__":
    sys.exit(main())
