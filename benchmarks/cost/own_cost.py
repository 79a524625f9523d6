"""What profd itself takes, beside bare py-spy on the same process at the same rate: headless, and
while it is watched.

Run on a quiet machine: ``python benchmarks/run.py own_cost [--runs 3] [--seconds 190] [--quick]
[--pid PID]``; about 20 minutes. Writes its section of ``docs/measurements.md``, unless quick or of
another program (``--pid``), which has to run for that long. In each run profd and py-spy record one
process at the same time, so that they see the same load.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from common import steps
from common.measurements import write_section
from common.meters import Mark, Memory, cores_between, cpu_with_children_s, own_cpu_s
from common.paired import effect
from common.recorders import BarePySpy, Onlooker, Profd, Recorder, compile_modules, mark

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.stacks.dump import take_dump
from profd.daemon.store.reader import RunReader
from profd.daemon.timerange import TimeRange

START_S, STARTED_S = 10.0, 70.0
"""When the recording has started, and when the run is known: its rate is the steady one then."""
LIMITS = {"headless": 0.5, "watched": 1.5}
"""What the ratio to bare py-spy is to be at most, after the first minute."""
METHOD = (
    "`benchmarks/cost/own_cost.py`: {runs} runs of {seconds} s on one torch loop, profd as it is without options and "
    "one long `py-spy record --nonblocking --idle --threads -r 100` side by side, both begun at the same "
    "time; means over the runs, ratios with their 95 % intervals. profd's modules are compiled "
    "beforehand, as an installer does. Watched: the benchmark's own process watches over the "
    "control socket and reads the run file each second, which is not counted. CPU is what the "
    "kernel says of profd's command, its session and every py-spy that it starts. The first 10 s "
    "begin with the start of the processes. After the first minute is what comes after 70 s: then "
    "the rate is the steady one, unless the run is watched. The whole ends with the last process, for profd with the "
    "summing up of the run. RSS counts a page in each process that has it, PSS shares it out."
)


class Cost(NamedTuple):
    """What one recorder took: cores in the first 10 s, in the next and after these, CPU seconds in
    all, most memory.
    """

    start_cores: float
    next_cores: float
    steady_cores: float
    whole_s: float
    memory: Memory


class Run(NamedTuple):
    """One run: both recorders, and of profd after the first minute what its parts take, by name, and what it
    says of all.
    """

    profd: Cost
    py_spy: Cost
    parts: dict[str, float]
    stated_cores: float


class Parts:
    """The CPU seconds of profd by part: the threads of its session by name, and its other
    processes.
    """

    def __init__(self, profd: Profd) -> None:
        self._profd = profd
        self._names = {
            thread.os_thread_id: thread.thread_name or "session, another thread"
            for thread in take_dump(profd.session_pid)
        }
        self._others: dict[int, tuple[str, float]] = {}
        self._begun_s, self._before = time.monotonic(), self._read()

    def _read(self) -> dict[str, float]:
        session = self._profd.session_pid
        found: dict[str, float] = collections.defaultdict(float)
        for thread in Path(f"/proc/{session}/task").iterdir():
            name = self._names.get(int(thread.name), "session, another thread")
            found[name] += int((thread / "schedstat").read_text().split()[0]) / SECOND_NS
        found["py-spy"] = cpu_with_children_s(session) - own_cpu_s(session)
        for pid in processes.children(session):
            words = processes.command_line(pid)
            if words[:1] != ("py-spy",):
                name = (
                    "findings' process"
                    if any("analyst" in word for word in words)
                    else "reader of files"
                )
                self._others[pid] = name, own_cpu_s(pid)
        for (
            name,
            cpu_s,
        ) in self._others.values():  # of one that has ended what was seen: it is among the reaped
            found["py-spy"] -= cpu_s
            found[name] += cpu_s
        found["command"] = own_cpu_s(self._profd.process.pid)
        return found

    def cores(self) -> dict[str, float]:
        """Return the cores that each part took since the beginning."""
        now, seconds = self._read(), time.monotonic() - self._begun_s
        return {name: (now[name] - self._before.get(name, 0.0)) / seconds for name in now}


def parts_lines(runs: Sequence[Run]) -> list[str]:
    """Return the table of where the CPU time goes, as means over runs."""
    sums: collections.Counter[str] = collections.Counter()
    for run in runs:
        sums.update(run.parts)
    rows = [f"| {name} | {total / len(runs):.2%} |" for name, total in sums.most_common()]
    return [
        "",
        "Headless, after the first minute, by part:",
        "",
        "| part | CPU of one core |",
        "|---|---:|",
        *rows,
    ]


class Record:
    """The marks of one recorder, and the largest memory that was seen of it."""

    def __init__(self, recorder: Recorder, started_s: float) -> None:
        self.marks = [Mark(0.0, 0.0)]
        self._recorder = recorder
        self._started_s = started_s
        self._largest = Memory(0, 0, 0)

    def take(self) -> None:
        """Read the meters."""
        self.marks.append(mark(self._recorder, self._started_s))
        self._largest = max(self._largest, self._recorder.memory())

    def cost(self, whole_s: float, seconds: int) -> Cost:
        """Return what the recorder took, given its CPU seconds in all."""
        return Cost(
            cores_between(self.marks, 0.0, START_S + 0.5),
            cores_between(self.marks, START_S, STARTED_S + 0.5),
            cores_between(self.marks, STARTED_S, seconds),
            whole_s,
            self._largest,
        )


@contextlib.contextmanager
def _loop() -> Iterator[int]:
    """Run a loop; gives its PID."""
    with steps.bare(1) as loop:
        loop.begin(steps.ENDLESS)
        yield loop.pid


def measure(pid: int, seconds: int, *, is_watched: bool) -> Run:
    """Record one process with both for ``seconds``."""
    with tempfile.TemporaryDirectory() as folder:
        started_s = time.monotonic()
        py_spy = BarePySpy(pid, seconds, Path(folder) / "bare.raw")
        profd = Profd.attach(pid, Path(folder) / "run.profd", "--duration", str(seconds))
        ours, bare = Record(profd, started_s), Record(py_spy, started_s)
        parts: Parts | None = None
        with _watching(profd, is_watched=is_watched) as looks:
            for at_s in each_second(started_s, seconds):
                for look in looks:
                    look()
                ours.take()
                bare.take()
                if parts is None and at_s >= STARTED_S:
                    parts = Parts(profd)
            cores = parts.cores() if parts is not None else {}
        costs = ours.cost(profd.wait(), seconds), bare.cost(py_spy.wait(), seconds)
        return Run(*costs, cores, stated_cores(profd.run_file))


def each_second(started_s: float, seconds: int) -> Iterator[float]:
    """Wait for each whole second before ``seconds`` have passed, and yield it."""
    for second in range(1, seconds):
        time.sleep(max(started_s + second - time.monotonic(), 0))
        yield time.monotonic() - started_s


@contextlib.contextmanager
def _watching(profd: Profd, *, is_watched: bool) -> Iterator[list[Callable[[], None]]]:
    """Give what is to be done each second: looking, where it is watched."""
    if not is_watched:
        yield []
        return
    with contextlib.closing(Onlooker(profd)) as onlooker:
        yield [onlooker.look]


def stated_cores(run_file: Path) -> float:
    """Return the cores that profd said it took, after the first minute."""
    with RunReader(run_file) as reader:
        series = reader.find_series("profd_cpu_cores")
        assert series is not None
        points = reader.points(
            series.id, TimeRange(reader.info.started_ns + int(STARTED_S * SECOND_NS))
        )
        return statistics.mean(point.value for point in points)


def rows(name: str, runs: Sequence[Run]) -> list[str]:
    """Return the rows of a table for runs of one kind."""
    first = [(run.profd.start_cores, run.py_spy.start_cores) for run in runs]
    following = [(run.profd.next_cores, run.py_spy.next_cores) for run in runs]
    steady = [(run.profd.steady_cores, run.py_spy.steady_cores) for run in runs]
    whole = [(run.profd.whole_s, run.py_spy.whole_s) for run in runs]
    stated = statistics.mean(run.stated_cores for run in runs)
    memory = max(run.profd.memory for run in runs), max(run.py_spy.memory for run in runs)
    return [
        f"| **{name}, after the first minute** (ratio to be at most {LIMITS[name]}) | "
        f"{_cells(steady, '.2%')} |",
        f"| {name}, first 10 s | {_cells(first, '.2%')} |",
        f"| {name}, 10 to 70 s | {_cells(following, '.2%')} |",
        f"| {name}, whole, CPU seconds | {_cells(whole, '.2f')} |",
        f"| {name}, after the first minute, as profd itself says | {stated:.2%} | | |",
        f"| {name}, memory, RSS (PSS) | {_megabytes(memory[0])} | {_megabytes(memory[1])} | |",
    ]


def _cells(pairs: Sequence[tuple[float, float]], form: str) -> str:
    ones, others = zip(*pairs, strict=True)
    ratio = effect(pairs).as_ratio() if len(pairs) > 1 else f"{ones[0] / others[0]:.2f}"
    return f"{statistics.mean(ones):{form}} | {statistics.mean(others):{form}} | {ratio}"


def _megabytes(memory: Memory) -> str:
    return f"{memory.rss_bytes / 1e6:.0f} ({memory.pss_bytes / 1e6:.0f}) MB"


def main() -> None:
    """Measure both kinds of runs in turns and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=190)
    parser.add_argument(
        "--quick", action="store_true", help="try it in three minutes; writes nothing down"
    )
    parser.add_argument(
        "--pid", type=int, help="of a program to record instead of the loop; writes nothing down"
    )
    options = parser.parse_args()
    runs, seconds = (1, 90) if options.quick else (options.runs, options.seconds)
    compile_modules()
    kinds: dict[str, list[Run]] = {name: [] for name in LIMITS}
    for number in range(runs):
        for name in sorted(kinds, reverse=number % 2 == 1):
            with contextlib.nullcontext(options.pid) if options.pid else _loop() as pid:
                kinds[name].append(measure(pid, seconds, is_watched=name == "watched"))
            print(f"run {number + 1}, {name}: {kinds[name][-1]}", flush=True)
    lines = ["| | profd | bare `py-spy record` | ratio |", "|---|---:|---:|---:|"]
    lines += [line for name, runs_of in kinds.items() for line in rows(name, runs_of)]
    lines += parts_lines(kinds["headless"])
    print("\n".join(lines))
    if not options.quick and not options.pid:
        write_section("What profd itself takes", METHOD.format(runs=runs, seconds=seconds), lines)
