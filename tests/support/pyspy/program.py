"""The program that stands in for the ``py-spy`` executable.

It follows py-spy 0.4.2 and 0.4.3: the former's source (main.rs, config.rs, sampler.rs, pyspy.rs, speedscope.rs,
flamegraph.rs, dump.rs, stack_trace.rs), the latter's ``--help`` and what it prints. It knows nothing of how profd reads
any of that. ``tests/integration/test_pyspy_contract.py`` holds it and the real py-spy to the same assertions.

It reads no stacks: it plays a trace, and it fails where its scenario says so. The scenario is the file
``scenario.json`` beside the executable, read anew at each start; ``support.pyspy.standin`` writes it. Each start and
what becomes of it is a line in ``journal.jsonl`` beside it. A process to be read need not run Python, nor be readable,
unless the scenario is strict. Where the real py-spy would die of a SIGINT just after its first line, before it has a
handler, this one already waits for it.

Few imports: it starts once or twice a second in many tests.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from typing import Any, NoReturn

from support.pyspy import playing

_FLAGS = {"record": {"--nonblocking", "--idle", "--threads"}, "dump": {"--nonblocking", "--json"}}
_VALUES = {"record": {"--format", "--rate", "--duration", "--output", "--pid"}, "dump": {"--pid"}}
_FORMAT = "chrometrace"
_TICK_S = 0.02
_READ_AT_ONCE = 64


class Failed(Exception):
    """py-spy fails: the message, and what caused it."""

    def __init__(self, message: str, *causes: str) -> None:
        super().__init__(message)
        self.causes = causes


def parse(words: list[str]) -> tuple[str, dict[str, str]]:
    """Return the command and the values of its options by name. It plays what profd asks for, and refuses all else."""
    if words[:1] == ["--version"]:
        return "version", {}
    command, rest, values = words[0], iter(words[1:]), {}
    for word in rest:
        if word in _VALUES[command]:
            values[word.removeprefix("--")] = next(rest)
        elif word not in _FLAGS[command]:
            raise SystemExit(f"the stand-in plays no {word}")
    if not _FLAGS[command] <= set(words) or values.pop("format", _FORMAT) != _FORMAT:
        raise SystemExit(f"the stand-in plays no {words}")
    return command, values


class Journal:
    """What became of each start, a JSON object a line; ``number`` counts the starts of this command from 1."""

    def __init__(self, path: str, command: str, target: int) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self._about = {"command": command, "target": target}
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        before = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        self.number = 1 + before.count(f'{{"event": "start", "command": "{command}"'.encode())
        blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        self.write("start", arguments=sys.argv[1:], environment=dict(os.environ), blocked=blocked)
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def write(self, event: str, **more: object) -> None:
        """Add a line; one write, so that lines of several processes do not mix."""
        line = {"event": event, **self._about, "number": self.number, "pid": os.getpid(), **more}
        os.write(self._fd, json.dumps(line).encode() + b"\n")


class Target:
    """The process to be read: whether it is there, and whether it is still the program that it was."""

    def __init__(self, pid: int, strict: bool) -> None:
        self._exe = f"/proc/{pid}/exe"
        self._read_exe()
        self._memory: int | None = None
        try:
            self._memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
            with open(f"/proc/{pid}/maps") as file:
                maps = file.read()
        except FileNotFoundError as error:
            raise _gone() from error
        except PermissionError:
            if strict:
                raise
            return
        if not maps or (strict and "python" not in maps):
            raise Failed("Failed to find python version from target process")
        self._address = int(maps.partition("-")[0], 16)

    def _read_exe(self) -> None:
        try:
            os.readlink(self._exe)
        except (FileNotFoundError, ProcessLookupError) as error:
            raise _gone() from error

    def is_readable(self) -> bool:
        """Say whether the memory is still that of the program it was: neither exit nor exec has taken it."""
        if self._memory is None:
            return not self.has_ended()
        try:
            return len(os.pread(self._memory, _READ_AT_ONCE, self._address)) == _READ_AT_ONCE
        except OSError:
            return False

    def has_ended(self) -> bool:
        """Say whether the process has ended, be it waited for or not."""
        try:
            self._read_exe()
        except Failed:
            return True
        return False


def _gone() -> Failed:
    reason = "No such file or directory (os error 2)"
    return Failed(
        "Failed to get process executable name. Check that the process is running.", reason, reason
    )


class Fault:
    """What the scenario wants to go wrong at this start; nothing where it says nothing."""

    def __init__(self, scenario: dict[str, Any], command: str, number: int) -> None:
        wanted = (
            fault
            for fault in scenario["faults"]
            if fault["command"] == command and fault["first"] <= number <= (fault["last"] or number)
        )
        self._fault: dict[str, Any] = next(wanted, {})
        self.trace: str = self._fault.get("trace", "")
        self.size: int = self._fault.get("size", 0)
        self.is_deaf: bool = self._fault.get("deaf", False)

    def strike(self, moment: str) -> None:
        """Do what is to happen at this moment, if anything."""
        if self._fault.get("at") != moment:
            return
        if self._fault["says"]:
            os.write(2, self._fault["says"].encode())
        kind = self._fault["do"]
        if kind == "exit":
            os._exit(self._fault["code"])
        elif kind == "signal":
            _die(self._fault["signal"])
        elif kind in ("hang", "silence"):
            if kind == "silence":
                os.close(1)
                os.close(2)
            _hang(self.is_deaf)


def _die(number: int) -> NoReturn:
    signal.signal(number, signal.SIG_DFL) if number not in (
        signal.SIGKILL,
        signal.SIGSTOP,
    ) else None
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    while True:
        signal.pause()


def _hang(is_deaf: bool) -> NoReturn:
    if is_deaf:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        time.sleep(3600)


def record(options: dict[str, str], scenario: dict[str, Any], journal: Journal) -> None:
    """``py-spy record``: sample until the time is over, SIGINT, or the end of the process; then write the file."""
    began_s = _begun_s()
    fault = Fault(scenario, "record", journal.number)
    fault.strike("start")
    pid, rate = int(options["pid"]), int(options["rate"])
    limit_s = int(options["duration"]) if "duration" in options else None
    target = Target(pid, scenario["strict"])
    take = playing.Take(scenario["trace"], pid)
    signal.signal(signal.SIGINT, lambda *_: None)  # as py-spy has one, though it never runs here
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    length = f" for {limit_s} seconds" if limit_s is not None else ""
    journal.write("sampling")  # first: whoever reads that it samples may act before the next line
    say(f"py-spy> Sampling process {rate} times a second{length}. Press Control-C to exit.\n")
    sampling_s = time.monotonic()
    fault.strike("sampling")
    is_logging = "warn" in os.environ.get("RUST_LOG", "")
    how, readable_s, missed = _sample(target, pid, (rate, limit_s), fault.is_deaf, is_logging)
    span = playing.Span(
        sampling_us=round((sampling_s - began_s) * 1e6),
        end_us=round((readable_s - began_s) * 1e6),
        wall_zero_s=time.time() - (time.monotonic() - began_s),
        rate=rate,
        most=limit_s * rate - 1 if limit_s is not None else None,
    )
    played = take.play(span, scenario["fail_every"])
    if is_logging:
        os.write(2, "".join(played.log).encode())
    if how:
        say(f"\npy-spy> {how}")
    journal.write("ending")
    fault.strike("end")
    _write_file(options["output"], playing.spoil(played.data, fault.trace, fault.size))
    totals = f"Samples: {played.samples} Errors: {played.errors + missed}"
    say(f"py-spy> Wrote chrome trace to '{options['output']}'. {totals}")
    say("py-spy> Visit chrome://tracing or https://ui.perfetto.dev/ to view")
    journal.write("wrote", says=totals)


def _begun_s() -> float:
    """Return when this process was started: py-spy's own start takes no time, that of an interpreter does."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    # The kernel rounds down; a trace must not begin before its process.
    ago_s = time.clock_gettime(time.CLOCK_BOOTTIME) - (ticks + 1) / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - max(ago_s, 0.0)


def _sample(
    target: Target, pid: int, pace: tuple[int, int | None], is_deaf: bool, is_logging: bool
) -> tuple[str, float, int]:
    """Wait for the end; return what py-spy says of it, until when the process could be read, and the reads after."""
    begun_s = readable_s = now_s = time.monotonic()
    limit_s = float("inf") if pace[1] is None else pace[1]
    tick_s, missed = max(1 / pace[0], _TICK_S), 0
    while now_s - begun_s < limit_s:
        if (
            signal.sigtimedwait({signal.SIGINT}, min(tick_s, begun_s + limit_s - now_s))
            and not is_deaf
        ):
            return "Stopped sampling because Control-C pressed", readable_s, missed
        now_s = time.monotonic()
        if target.is_readable():
            readable_s = now_s
        elif target.has_ended():
            return "Stopped sampling because process exited", readable_s, missed
        else:
            missed += 1
            if is_logging:
                os.write(2, playing.failed_read(pid, time.time()).encode())
    return "", readable_s, missed


def _write_file(path: str, data: bytes | None) -> None:
    if data is None:
        return
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise Failed(f"{error.strerror} (os error {error.errno})") from error


def dump(options: dict[str, str], scenario: dict[str, Any], journal: Journal) -> None:
    """``py-spy dump --json``: the stacks of now."""
    fault = Fault(scenario, "dump", journal.number)
    fault.strike("start")
    pid = int(options["pid"])
    Target(pid, scenario["strict"])
    data = playing.dumped(scenario["dump"], pid)
    spoiled = playing.spoil(data, fault.trace, fault.size)
    sys.stdout.buffer.write(spoiled or b"")
    sys.stdout.flush()
    fault.strike("end")
    journal.write("wrote")


def say(text: str) -> None:
    """Write a line at once, as py-spy does: its output is buffered by the line."""
    os.write(1, text.encode() + b"\n")


def main(folder: str) -> int:
    """Be py-spy, with the scenario in a folder; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with open(os.path.join(folder, "scenario.json")) as file:
        scenario = json.load(file)
    command, options = parse(sys.argv[1:])
    if command == "version":
        say(f"py-spy {scenario['version']}")
        return 0
    try:
        journal = Journal(os.path.join(folder, "journal.jsonl"), command, int(options["pid"]))
        (record if command == "record" else dump)(options, scenario, journal)
    except PermissionError as error:
        if os.geteuid() != 0:
            sudo = "'sudo env \"PATH=$PATH\" !!'"
            say_error(
                f"Permission Denied: Try running again with elevated permissions by going {sudo}"
            )
        else:
            say_error(f"Error: {error.strerror} (os error {error.errno})")
        return 1
    except Failed as error:
        say_error(f"Error: {error}")
        if error.causes:
            causes = "\n".join(
                f"    {number}: {cause}" for number, cause in enumerate(error.causes)
            )
            say_error(f"\nCaused by:\n{causes}")
        return 1
    return 0


def say_error(text: str) -> None:
    """Write a line of an error."""
    os.write(2, text.encode() + b"\n")
