"""Record a session: bring tree, collectors, writer and control together.

It does so from the first look to the last record.

All of it runs in one event loop, except for the counters (a thread, since a read of them may hang)
and the writer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from profd.daemon import VERSION, paths, processes
from profd.daemon.clock import SECOND_NS, Clock, until_tick_s
from profd.daemon.errors import OutputUnwritable
from profd.daemon.events import EventKind
from profd.daemon.gpu.collector import GpuCollector
from profd.daemon.hangs.hangfile import write_hang
from profd.daemon.hangs.job import JobInquiry
from profd.daemon.hangs.nativelook import with_native_frames
from profd.daemon.hangs.watch import HangWatch, Hook
from profd.daemon.interpreter.frames import count_threads
from profd.daemon.launch.channelreader import ScriptChannelReader
from profd.daemon.naming import exit_words, script_folder, signal_name
from profd.daemon.rights import Rights
from profd.daemon.secrets import mask_command
from profd.daemon.session import analyst
from profd.daemon.session.budget import Governor
from profd.daemon.session.control import ControlServer, Request, SessionStatus, WindowBegun
from profd.daemon.session.framedescriber import FrameDescriber
from profd.daemon.session.livefile import LiveFile
from profd.daemon.session.need import Need
from profd.daemon.session.openings import Openings
from profd.daemon.session.readings import Readings
from profd.daemon.session.sampling import Members, Sampling
from profd.daemon.session.session import Ready, SessionOptions
from profd.daemon.session.stepping import Stepping
from profd.daemon.session.unread import ReadingWatch
from profd.daemon.stacks.cells import Cells
from profd.daemon.stacks.pyspy import find_py_spy, version_of
from profd.daemon.stacks.source import SourceTree
from profd.daemon.store import records
from profd.daemon.store.records import EventHappened, Identity, ProcessEnded, Record
from profd.daemon.store.writer import RunWriter
from profd.daemon.tree import exitstatus, roles
from profd.daemon.tree.tree import ProcessTree
from profd.daemon.userfiles import files_of
from profd.daemon.windows.request import WindowRequest

if TYPE_CHECKING:
    from profd.daemon.session.windowing import Windowing

STEADY_READINGS_S = 5.0
"""The time from reading to reading while all is as before and nobody watches."""
_STORED = "rate_hz budget_percent subprocesses steps source all_gpus duration_s hang_after_s"
"""The options that change what the numbers mean."""


class Recorder:
    """One session: records a tree of processes into one run file."""

    def __init__(self, options: SessionOptions, clock: Clock) -> None:
        self.options = options
        self.has_begun = False
        self._clock = clock
        self._watchers = 0
        budget_cores, threads = options.budget_percent / 100, count_threads(options.pid)
        self._need = Need(clock, options.rate_hz)
        self._governor = Governor(self._need.full_hz, budget_cores, threads, options.spent_s)
        self._root = Identity(options.pid, options.start_ticks)
        self._tree = ProcessTree(
            self._root, mask_command, clock, options.subprocesses, options.folder
        )
        self._reading = ReadingWatch(clock, self._put)
        self._hangs: HangWatch | None = None
        self._openings: Openings | None = None
        self._ended = asyncio.Event()
        self._ended_ns = 0
        self._news = asyncio.Event()
        """Set when the readings of a steady run are not to wait for their time."""
        self._why = "stopped"
        self._output_ns = 0
        """When the script's last output came."""

    async def run(self, announce: Callable[[Ready], None]) -> None:
        """Record until the target ends or the time is over.

        ``announce`` is called once all is in place.
        """
        options, clock = self.options, self._clock
        self._loop = asyncio.get_running_loop()
        self._sampling = Sampling(
            find_py_spy(), self._governor, clock, self._take_sampled, self._reading.take_failure
        )
        self._members = Members(self._tree, self._sampling, self._reading, clock, self._put)
        watch = exitstatus.watch_target(self._root)
        self._live_file = LiveFile(options.run_file)
        run_file = self._live_file.path
        socket_path = paths.runtime_folder() / f"{options.run_id}.sock"
        started = run_started(options, socket_path, clock.now_ns())
        files = files_of(options.pid)
        own = script_folder(options.command, options.folder or started.cwd)
        sources = lru_cache(8)(partial(SourceTree, files, own, Cells(files, options.pid)))
        self._describer = FrameDescriber(sources, clock, self._put, with_source=options.source)
        describe, most_bytes = self._describer.describe, self._live_file.most_bytes
        self._writer = RunWriter(run_file, started, describe, most_bytes)
        self._writer.gathers = True
        self._readings = Readings(clock, self._governor, self._put)
        self._analyst = analyst.AnalystProcess(
            analyst.command(run_file),
            clock,
            self._take_findings,
            analyst.RESTS_S,
            self._are_findings_read,
            self._sampling.grant,
        )
        self._server = ControlServer(socket_path, self.carry_out, self._watchers_changed)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._end, "stopped")
        try:
            if options.window_folder is not None:
                _ = self._windowing
            await self._server.start()
            self._members.look()
            if (root := self._tree.members.get(self._root)) is not None:
                self._describer.root_origin = root.origin
            announce(Ready(run_file, socket_path))
            self.has_begun = True
            if self._live_file.warning:
                self._say(EventKind.NOTE, self._live_file.warning)
            looking = asyncio.ensure_future(self._sampling.watch())
            try:
                await self._record(watch)
            finally:
                looking.cancel()
        finally:
            await self._server.close()
            watch.close()
            await asyncio.to_thread(self._writer.close)
        if self._writer.failure:
            raise OutputUnwritable(
                f"{run_file} is cut off ({self._writer.failure})", "make room on its disk"
            )
        if not self._live_file.is_there():
            raise OutputUnwritable(
                f"{run_file} was removed while it was written", "record again; the target runs on"
            )
        self._live_file.settle()

    async def _record(self, watch: exitstatus.ProcessWatch) -> None:
        self._loop.add_reader(watch.fileno(), self._end, "target-exited")
        if self.options.duration_s is not None:
            self._loop.call_later(self.options.duration_s, self._end, "duration")
        self._begin_others()
        self._script = ScriptChannelReader(
            self.options.channel_fd, self._take_output, self._take_status
        )
        endless = self._begin_endless()
        ended = asyncio.ensure_future(self._ended.wait())
        await asyncio.wait({*endless, ended}, return_when=asyncio.FIRST_COMPLETED)
        broken = [task for task in endless if task.done()]  # only an error ends such a task
        if broken:
            self._end("failed")
        self._loop.remove_reader(watch.fileno())
        for task in (*endless, ended):
            task.cancel()
        if self._hangs is not None:
            await self._hangs.close()
        if "_windowing" in vars(self):
            await self._windowing.close()
        await self._sampling.close()
        await self._reading.close()
        await asyncio.to_thread(self._stepping.close)
        await asyncio.to_thread(self._gpus.close)
        self._members.look_at_end()
        code = number = None
        if self._why == "target-exited":
            code, number = exitstatus.code_and_signal(await self._exit_status(watch))
            self._put(ProcessEnded(self._root, self._ended_ns, code, number))
            self._say(EventKind.ENDED, f"the target {exit_words(code, signal_name(number))}")
        await self._readings.close()
        self._put(records.RunEnded(self._ended_ns, self._why, code, number))
        self._script.close()
        if self._openings is not None:
            self._openings.close()
        await self._analyst.close(
            0 if self._writer.failure or self._writer.trouble else analyst.WHOLE_WITHIN_S
        )
        for task in broken:
            task.result()

    def _begin_endless(self) -> set[asyncio.Task[None]]:
        """Begin what goes on for as long as the run is recorded."""
        endless = {
            asyncio.ensure_future(self._follow_tree()),
            asyncio.ensure_future(self._read()),
        }
        schedule = self.options.window_schedule
        if schedule is not None and schedule.every_s is not None:
            keeping = self._windowing.keep(
                schedule.every_s, schedule.request, self._tree.members.values
            )
            endless.add(asyncio.ensure_future(keeping))
        return endless

    @cached_property
    def _windowing(self) -> Windowing:
        """The windows, imported once some are to be taken."""
        from profd.daemon.session.windowing import Windowing

        windowing = Windowing(self.options.window_folder, self._clock, self._put)
        windowing.start()
        return windowing

    def _begin_others(self) -> None:
        """Begin all but the samples and readings: GPUs, steps, and the watch for hangs."""
        options, clock = self.options, self._clock
        self._gpus = GpuCollector(
            clock,
            self._put,
            everything=options.all_gpus,
            in_container=Rights().in_container(),
        )
        self._gpus.start()
        self._stepping = Stepping(clock, self._put)
        if options.steps:
            self._members.follow_steps(self._stepping)
        self._inquiry = JobInquiry(clock, self._put, self._learn_ranks)
        ask = None if options.nccl_ras == "off" else self._inquiry.ask
        if options.hang_after_s is not None:
            run = {
                "PROFD_RUN": options.run_id,
                "PROFD_RUN_FILE": str(options.run_file),
                "PROFD_PID": str(options.pid),
            }
            self._hangs = HangWatch(
                options.hang_after_s,
                clock,
                self._tree.members.values,
                self._put,
                hook=Hook(options.on_hang, run),
                ask=ask,
                grant=self._sampling.grant,
                add_native=with_native_frames,
                write=partial(write_hang, options.run_file),
            )
            self._hangs.start()

    async def _follow_tree(self) -> None:
        while True:
            self._members.look()
            await asyncio.sleep(until_tick_s(0.25 if self._watchers else 0.5))

    async def _read(self) -> None:
        was_in_trouble = False
        while True:
            trouble = self._writer.trouble
            # Trouble cannot be written to the run, so the session's log has it.
            if bool(trouble) != was_in_trouble:
                was_in_trouble = bool(trouble)
                again = f"{trouble}: it is tried again until it can be"
                sys.stderr.write(
                    f"profd: {again if trouble else 'the run file can be written again'}\n"
                )
            if self._writer.failure or not self._live_file.is_there():
                self._end("failed")
            await self._server.renew()
            self._sampling.keep_off_cores()
            self._sampling.hold_rate()
            self._gpus.take(self._tree.members)
            self._gpus.check()
            before_hz = self._governor.rate_hz
            is_window = "_windowing" in vars(self) and self._windowing.is_taking
            await self._readings.take(
                self._tree.members, self._members.python_threads, for_window=is_window
            )
            # The recordings under way cost too much to wait for their end.
            if self._governor.rate_hz < before_hz:
                self._sampling.hurry()
            self._follow_need()
            self._news.clear()
            pause_s = until_tick_s(STEADY_READINGS_S if self._need.is_steady else 1.0)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), pause_s)

    def _follow_need(self) -> None:
        """Sample as often as is needed now; at once, if that is more often than before."""
        need, before_hz = self._need, self._governor.highest_hz
        need.is_suspected = self._hangs is not None and self._hangs.is_suspicious
        self._stepping.is_steady = need.is_steady
        if (rate_hz := need.rate_hz()) != before_hz:
            is_more = rate_hz > before_hz
            self._readings.aim_at_rate(rate_hz, need.why if is_more else "all is as before")
            if is_more:
                self._sampling.hurry()

    def _learn_ranks(self, ranks: dict[int, int]) -> None:
        """Take ranks that NCCL reports; called in a thread."""
        self._loop.call_soon_threadsafe(self._members.take_ranks, ranks)

    async def _exit_status(self, watch: exitstatus.ProcessWatch) -> int | None:
        """Return how the target ended, once all of its output has come.

        It waits at most until no output has come for a second.
        """
        while self._script.is_open or self._members.root_status is None:
            if self._clock.now_ns() - max(self._ended_ns, self._output_ns) >= SECOND_NS:
                break
            if not self._script.is_open:  # its launcher is gone, or it never had one
                self._members.root_status = watch.status()
            await asyncio.sleep(0.01)
        status = self._members.root_status
        return watch.status() if status is None else status

    def carry_out(self, request: Request) -> SessionStatus | WindowBegun:
        """Carry out a request that came over the control socket.

        Raises SessionFailed if there can be no window.
        """
        if request.command == "window":
            return self._windowing.begin(
                self._tree.members.values(), request.window or WindowRequest()
            )
        if request.command == "mark":
            self._say(EventKind.MARK, request.note)
        elif request.command == "rate" and request.rate_hz is not None:
            self._need.wanted_hz = request.rate_hz
            self._readings.aim_at_rate(request.rate_hz, "it was asked to")
            self._sampling.hurry()  # the recordings under way have another rate
        elif request.command == "budget" and request.budget_percent is not None:
            # The rate follows with the next reading of the cost.
            self._governor.aim_at_budget(request.budget_percent / 100)
        run = self.options.run_id, str(self.options.run_file)
        return SessionStatus(*run, rate_hz=self._governor.rate_hz, watchers=self._watchers)

    def _watchers_changed(self, watchers: int) -> None:
        self._sampling.is_watched = watchers > 0
        self._writer.gathers = watchers == 0
        self._need.is_watched = watchers > 0
        if watchers > self._watchers:  # a new watcher sees fresh data
            self._news.set()
            self._sampling.hurry()
            self._analyst.ask()
        self._watchers = watchers

    def _take_sampled(self, record: Record) -> None:
        """Put a record of the sampling; a recording first shows files, roles and threads."""
        if isinstance(record, records.RecordingTaken):
            if (member := self._tree.members.get(record.identity)) is not None:
                self._describer.take(record, member.origin)
            record = self._members.take_recording(record)
            if member is not None and member.role == roles.MAIN:
                self._take_news(record)
        self._put(record)

    def _take_news(self, recording: records.RecordingTaken) -> None:
        was_steady = self._need.is_steady
        self._need.take(recording)
        if was_steady and not self._need.is_steady:
            self._news.set()

    def _put(self, record: Record) -> None:
        """Pass a record to the watch for hangs and to the writer.

        The threads that read call it too.
        """
        if self._hangs is not None:
            self._hangs.take(record)
        if not isinstance(record, records.RecordingTaken):  # those of main processes alone count
            self._need.take(record)
        self._writer.put(record)

    def _are_findings_read(self) -> bool:
        """Return whether somebody reads findings.

        Dashboards, windows that depend on findings, and whoever opens the run file read them.
        """
        schedule = self.options.window_schedule
        is_waiting = schedule is not None and schedule.on_finding
        return (
            self._watchers > 0
            or is_waiting
            or (self._openings is not None and self._openings.were_lately())
        )

    def _take_findings(self, record: Record) -> None:
        self._put(record)
        schedule = self.options.window_schedule
        if not isinstance(record, records.FindingsTaken) or self._ended.is_set():
            return
        # Watch only now: the process that looks for findings opens the file itself.
        if self._openings is None:
            self._openings = Openings(self._live_file.path, self._analyst.ask)
        if schedule is not None and schedule.on_finding:
            self._windowing.heed(record.findings, schedule.request, self._tree.members.values())

    def _take_output(self, data: bytes) -> None:
        self._output_ns = self._clock.now_ns()
        self._put(records.OutputWritten(self._output_ns, data))

    def _take_status(self, status: int) -> None:
        self._members.root_status = status

    def _say(self, kind: EventKind, text: str) -> None:
        self._put(EventHappened(self._clock.now_ns(), kind, text))

    def _end(self, why: str) -> None:
        if not self._ended.is_set():
            self._why, self._ended_ns = why, self._clock.now_ns()
            self._ended.set()


def run_started(options: SessionOptions, control_socket: Path, now_ns: int) -> records.RunStarted:
    system = os.uname()
    versions = {
        "profd": VERSION,
        "python": processes.python_version(options.pid) or "",
        "kernel": system.release,
    }
    with contextlib.suppress(OSError):  # its recordings will say why
        versions["py_spy"] = version_of(find_py_spy())
    return records.RunStarted(
        id=options.run_id,
        name=options.name,
        mode=options.mode,
        target=Identity(options.pid, options.start_ticks),
        command=mask_command(options.command),
        cwd=processes.link(options.pid, "cwd"),
        host=system.nodename,
        user=processes.user_name(os.getuid()),
        started_ns=now_ns,
        recorder=Identity(os.getpid(), processes.start_ticks(os.getpid())),
        versions=versions,
        options={name: getattr(options, name) for name in _STORED.split()},
        control_socket=str(control_socket),
    )
