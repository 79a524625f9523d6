"""A session: brings tree, collectors, writer and control together, from the first look to the last record.

All of it runs in one event loop, but for the counters (a thread, since a read of them may hang) and the writer. Who is
recorded is in ``members``, what is sampled how in ``sampling``, what else is read in ``readings``.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import sys
from collections.abc import Callable, Collection
from importlib import metadata
from pathlib import Path

import msgspec

from profd.daemon import paths, processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.errors import OutputUnwritable
from profd.daemon.gpu.collector import GpuCollector
from profd.daemon.hangs.watch import HangWatch, Hook
from profd.daemon.naming import script_folder
from profd.daemon.secrets import mask_command, mask_line
from profd.daemon.session import analyst
from profd.daemon.session.budget import Governor
from profd.daemon.session.control import Commands, ControlServer, SessionStatus, WindowBegun
from profd.daemon.session.inlet import ScriptChannelReader
from profd.daemon.session.livefile import LiveFile
from profd.daemon.session.readings import Readings
from profd.daemon.session.sampling import Members, Sampling
from profd.daemon.session.session import Ready, SessionOptions
from profd.daemon.session.stepping import Stepping
from profd.daemon.session.windowing import Windowing
from profd.daemon.stacks.pyspy import find_py_spy
from profd.daemon.stacks.source import SourceTree
from profd.daemon.store.records import (
    DescribeFrame,
    EventHappened,
    FindingsTaken,
    Frame,
    FrameDescription,
    Identity,
    OutputWritten,
    ProcessEnded,
    Record,
    RecordingTaken,
    RunEnded,
    RunStarted,
)
from profd.daemon.store.writer import RunWriter
from profd.daemon.tree import exitstatus
from profd.daemon.tree.diagnosis import RealSystem
from profd.daemon.tree.tree import Member, ProcessTree
from profd.daemon.userfiles import files_of
from profd.daemon.windows.request import WindowRequest


def run_started(options: SessionOptions, control_socket: Path, now_ns: int) -> RunStarted:
    """Return the first record of a run that this process begins to write."""
    me = processes.read_stat(os.getpid())
    return RunStarted(
        id=options.run_id,
        name=options.name,
        mode=options.mode,
        target=Identity(options.pid, options.start_ticks),
        command=mask_command(options.command),
        cwd=processes.link(options.pid, "cwd"),
        host=os.uname().nodename,
        user=_user_name(),
        started_ns=now_ns,
        recorder=Identity(os.getpid(), me.start_ticks if me else 0),
        versions={
            "profd": metadata.version("profd"),
            "python": processes.python_version(options.pid) or "",
            "py_spy": metadata.version("py-spy"),
            "kernel": os.uname().release,
        },
        options={
            "rate_hz": options.rate_hz,
            "budget_percent": options.budget_percent,
            "subprocesses": options.subprocesses,
            "steps": options.steps,
            "source": options.source,
            "all_gpus": options.all_gpus,
            "duration_s": options.duration_s,
            "hang_after_s": options.hang_after_s,
        },
        control_socket=str(control_socket),
    )


def described(describe: DescribeFrame, *, with_source: bool) -> DescribeFrame:
    """Return a function that describes frames: their lines of source with secrets masked, or without these lines."""

    def masked(frame: Frame) -> FrameDescription:
        found = describe(frame)
        source = mask_line(found.source) if found.source and with_source else None
        return msgspec.structs.replace(found, source=source)

    return masked


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


TREE_INTERVAL_S = 0.25
READ_INTERVAL_S = 1.0
STATUS_TIMEOUT_S = 1.0


class Recorder(Commands):
    """One session: records a tree of processes into one run file."""

    def __init__(self, options: SessionOptions, clock: Clock) -> None:
        """Take in what to record; nothing is touched before ``run``."""
        self.options = options
        self.clock = clock
        self.watchers = 0
        self.governor = Governor(options.rate_hz, options.budget_percent / 100)
        self.root = Identity(options.pid, options.start_ticks)
        self._hangs = hang_watch(options, clock, lambda: self._tree.members.values(), self._put)
        self._tree = ProcessTree(self.root, mask_command, clock, subprocesses=options.subprocesses)
        self.has_begun = False
        self._is_in_trouble = False
        self._ended = asyncio.Event()
        self._ended_ns = 0
        self._heard_ns = 0
        """When the script's last output came."""
        self._why = "stopped"

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
        self._sampling.is_watched = watchers > 0
        if watchers > self.watchers:
            self._sampling.hurry()
        self.watchers = watchers

    def mark(self, note: str) -> None:
        """Write into the run that somebody marked this moment."""
        self._say("mark", note)

    def aim_at_rate(self, rate_hz: int) -> None:
        """Sample at ``rate_hz`` at most from now on; what is in flight at another rate is not waited for."""
        self._readings.aim_at_rate(rate_hz)
        self._sampling.hurry()

    def aim_at_budget(self, budget_percent: float) -> None:
        """Cost this much at most from now on; the rate follows with the next reading of the cost."""
        self.governor.aim_at_budget(budget_percent / 100)

    def begin_window(self, request: WindowRequest) -> WindowBegun:
        """Begin a torch.profiler window of the training's processes; raises SessionFailed."""
        return self._windowing.begin(self._tree.members.values(), request)

    # The run

    async def run(self, announce: Callable[[Ready], None]) -> None:
        """Record until the target ends, the time is over, or someone says stop.

        ``announce`` is called once everything is in place. Raises ProfdError where it cannot be.
        """
        py_spy = find_py_spy()
        self._sampling = Sampling(py_spy, self.governor, self.clock, self._put)
        self._stepping = Stepping(self.clock, self._put_watched)
        stepping = self._stepping if self.options.steps else None
        self._members = Members(self._tree, self._sampling, stepping, self.clock, self._put)
        watch = exitstatus.watch_target(self.root)
        live_file = self._live_file = LiveFile(self.options.run_file)
        socket_path = paths.runtime_folder() / f"{self.options.run_id}.sock"
        started = run_started(self.options, socket_path, self.clock.now_ns())
        sources = SourceTree(files_of(self.root.pid), script_folder(self.options.command, started.cwd))
        describe = described(sources.describe, with_source=self.options.source)
        self._writer = RunWriter(live_file.path, started, describe, live_file.most_bytes)
        self._readings = Readings(self.clock, self.governor, self._writer, self._put_watched)
        self._gpus = GpuCollector(
            self.clock,
            self._put_watched,
            everything=self.options.all_gpus,
            in_container=RealSystem().in_container(),
        )
        self._windowing = Windowing(self.options.window_folder, self.clock, self._put)
        server = self._server = ControlServer(socket_path, self)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._end, "stopped")
        try:
            self._windowing.start()
            await server.start()
            announce(Ready(live_file.path, socket_path))
            self.has_begun = True
            if live_file.warning:
                self._say("note", live_file.warning)
            self._gpus.start()
            await self._record(watch, live_file.path)
        finally:
            await server.close()
            watch.close()
            await asyncio.to_thread(self._writer.close)
        if self._writer.failure:
            raise OutputUnwritable(f"{live_file.path} is cut off ({self._writer.failure})", "make room on its disk")
        if not live_file.is_there():
            raise OutputUnwritable(
                f"{live_file.path} was removed while it was written", "record again; the target runs on"
            )
        live_file.settle()

    async def _record(self, watch: exitstatus.Watch, run_file: Path) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(watch.fileno(), self._end, "target-exited")
        if self.options.duration_s is not None:
            loop.call_later(self.options.duration_s, self._end, "duration")
        self._inlet = ScriptChannelReader(self.options.link_fd, self._take_output, self._take_status)
        endless = {asyncio.ensure_future(self._follow_tree()), asyncio.ensure_future(self._read())}
        if self._hangs is not None:
            self._hangs.start()
        schedule = self.options.window_schedule
        if schedule is not None and schedule.every_s is not None:
            keeping = self._windowing.keep(schedule.every_s, schedule.request, self._tree.members.values)
            endless.add(asyncio.ensure_future(keeping))
        looking = analyst.Analyst(analyst.command(run_file), self.clock, self._take_findings, analyst.RESTS_S)
        ended = asyncio.ensure_future(self._ended.wait())
        await asyncio.wait({*endless, ended}, return_when=asyncio.FIRST_COMPLETED)
        broken = [task for task in endless if task.done()]  # only an error ends it
        if broken:
            self._end("failed")
        loop.remove_reader(watch.fileno())
        for task in (*endless, ended):
            task.cancel()
        if self._hangs is not None:
            await self._hangs.close()
        await self._windowing.close()
        await self._sampling.close()
        await asyncio.to_thread(self._stepping.close)
        await asyncio.to_thread(self._gpus.close)
        await self._say_farewell(watch)
        self._inlet.close()
        await looking.close(0 if self._writer.failure or self._writer.trouble else analyst.WHOLE_WITHIN_S)
        for task in broken:
            task.result()

    async def _follow_tree(self) -> None:
        while True:
            self._members.look()
            self._tell_trouble()
            if self._writer.failure or not self._live_file.is_there():
                self._end("failed")
            await self._server.renew()
            await asyncio.sleep(TREE_INTERVAL_S)

    def _tell_trouble(self) -> None:
        """Say in the session's log, since the run cannot, that nothing can be written, and when it can be again."""
        trouble = self._writer.trouble
        if bool(trouble) != self._is_in_trouble:
            self._is_in_trouble = bool(trouble)
            said = f"{trouble}: it is tried again until it can be" if trouble else "the run file can be written again"
            sys.stderr.write(f"profd: {said}\n")
            sys.stderr.flush()

    async def _read(self) -> None:
        while True:
            self._gpus.take(self._tree.members)
            self._gpus.check()
            before_hz = self.governor.rate_hz
            await self._readings.take(self._tree.members, self._members.python_threads)
            if self.governor.rate_hz < before_hz:  # what is in flight costs too much to wait for its end
                self._sampling.hurry()
            await asyncio.sleep(READ_INTERVAL_S)

    async def _say_farewell(self, watch: exitstatus.Watch) -> None:
        """Write how the run ended, and who ended with it since the last look at the tree."""
        self._members.look_at_end()
        code = number = None
        if self._why == "target-exited":
            code, number = exitstatus.code_and_signal(await self._exit_status(watch))
            self._put(ProcessEnded(self.root, self._ended_ns, code, number))
            self._say("ended", f"the target {exitstatus.in_words(code, number)}")
        await self._readings.close()
        self._put(RunEnded(self._ended_ns, self._why, code, number))

    async def _exit_status(self, watch: exitstatus.Watch) -> int | None:
        """Return how the target ended, by its launcher or by the kernel, once all that it wrote is here.

        Both may need a moment; who says nothing for a second is not waited for.
        """
        while (self._inlet.is_open or self._members.root_status is None) and self._is_due():
            if not self._inlet.is_open:  # its launcher is gone, or it never had one
                self._members.root_status = watch.status()
            await asyncio.sleep(0.01)
        status = self._members.root_status
        return watch.status() if status is None else status

    def _is_due(self) -> bool:
        """Say whether the script's launcher may still have something to say."""
        quiet_ns = self.clock.now_ns() - max(self._ended_ns, self._heard_ns)
        return quiet_ns < STATUS_TIMEOUT_S * SECOND_NS

    # What comes in

    def _put(self, record: Record) -> None:
        """Hand a record to the writer, and let who is recorded learn from it on its way."""
        if isinstance(record, RecordingTaken):
            self._members.take_recording(record)
        self._put_watched(record)

    def _put_watched(self, record: Record) -> None:
        """Hand a record to the writer, and let the watch for hangs see it; called in the threads that read, too."""
        if self._hangs is not None:
            self._hangs.take(record)
        self._writer.put(record)

    def _take_findings(self, record: Record) -> None:
        self._put(record)
        schedule = self.options.window_schedule
        if not isinstance(record, FindingsTaken) or schedule is None or self._ended.is_set():
            return
        if schedule.on_finding:
            self._windowing.heed(record.findings, schedule.request, self._tree.members.values())

    def _say(self, kind: str, text: str) -> None:
        self._put(EventHappened(self.clock.now_ns(), kind, text))

    def _take_output(self, data: bytes) -> None:
        self._heard_ns = self.clock.now_ns()
        self._put(OutputWritten(self._heard_ns, data))
        self._stepping.take_output(data)

    def _take_status(self, status: int) -> None:
        self._members.root_status = status

    def _end(self, why: str) -> None:
        if not self._ended.is_set():
            self._why, self._ended_ns = why, self.clock.now_ns()
            self._ended.set()


def hang_watch(
    options: SessionOptions,
    clock: Clock,
    members: Callable[[], Collection[Member]],
    put: Callable[[Record], object],
) -> HangWatch | None:
    """Return the watch that a session's options ask for; None where they ask for none."""
    if options.hang_after_s is None:
        return None
    variables = {
        "PROFD_RUN": options.run_id,
        "PROFD_RUN_FILE": str(options.run_file),
        "PROFD_PID": str(options.pid),
    }
    return HangWatch(options.hang_after_s, clock, members, put, hook=Hook(options.on_hang), variables=variables)
