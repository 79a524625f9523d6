"""Records real programs for the tests, and writes down what the product says of each.

``make.py [--expect] [NAME ...]``: records the programs of ``catalog.py``, all of them or those that are named, and
replays each into ``expected/``. With ``--expect`` nothing is recorded: what is stored is replayed. Shows what is new in
the results, as git has it.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import msgspec
from support.folders import ROOT
from support.interpreters import find_python
from support.recordinglines import Header, Started, StoredLine, encode_line, read_lines, write_lines
from support.recordings import RECORDINGS, recording_file, recording_names
from support.replayresults import replayed

from recordings.catalog import HANG_AFTER_S, PROGRAMS_TO_RECORD, Program
from recordings.diaries import Said
from recordings.sources import sources_of

PATIENCE_S = 180.0


def main() -> None:
    """Record what is named, and compare what the product says of it with what it said before."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--expect", action="store_true", help="record nothing, replay what is stored"
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PROGRAMS_TO_RECORD)}")
    options = parser.parse_args()
    for name in options.names or (recording_names() if options.expect else PROGRAMS_TO_RECORD):
        if not options.expect:
            make(name, PROGRAMS_TO_RECORD[name])
        expected = RECORDINGS / "expected" / f"{name}.json"
        expected.write_text(
            json.dumps(replayed(name).stored(), indent=1, ensure_ascii=False) + "\n"
        )
        subprocess.run(["git", "--no-pager", "diff", "--", expected], check=True)


def make(name: str, program: Program) -> None:
    """Record a program."""
    with tempfile.TemporaryDirectory(prefix="recording-") as folder:
        os.environ["PROFD_HOME"] = f"{folder}/home"
        lines = run(program, Path(folder))
        # This machine's own places are nobody's business, and would make each recording differ in them.
        places = {
            str(ROOT): "/srv/profd",
            str(Path(_python(program)[1])): "/usr/local",
            folder: "/home/user/recording",
            str(Path.home()): "/home/user",
        }
    encoded = [encode_line(line).decode() for line in lines]
    for place, instead in places.items():
        encoded = [line.replace(place, instead) for line in encoded]
    write_lines(recording_file(name), [line.encode() for line in encoded])
    print(f"{name}: {recording_file(name).stat().st_size / 1000:.0f} kB", flush=True)


def run(program: Program, folder: Path) -> list[StoredLine]:
    """Run a program and record it; return the lines of the recording."""
    working = program.prepare(folder) if program.prepare else folder
    diary = folder / "diary"
    python, _ = _python(program)
    meant = {"DIARY": str(diary), "FOLDER": str(folder), "STARTED": str(time.time_ns())}
    words = [python, *(meant.get(word, word) for word in program.words)]
    environment = {
        "PATH": f"{Path(python).parent}:/usr/bin:/bin",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
    }
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        words, cwd=working, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    said: list[Said] = []
    is_ready = threading.Event()
    listener = threading.Thread(target=_listen, args=(process, said, is_ready))
    listener.start()
    try:
        if program.is_awaited and not is_ready.wait(PATIENCE_S):
            raise SystemExit(f"{words} was never ready")
        lines = _without_host(_record(process.pid, program, folder))
        sources = sources_of(lines)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        with contextlib.suppress(ProcessLookupError):  # children that hang hold its output
            os.killpg(process.pid, signal.SIGKILL)
        listener.join(PATIENCE_S)
    return [_header(program, python), *lines, program.read(diary, said), sources]


def _record(pid: int, program: Program, folder: Path) -> list[StoredLine]:
    """Record a process, by a process that is not its parent: a session takes what its children cost for its own."""
    file = folder / "session.jsonl.gz"
    capture = Path(__file__).with_name("capture.py")
    seconds = "inf" if program.seconds is None else str(program.seconds)
    watched = [str(HANG_AFTER_S)] if program.may_hang else []
    subprocess.run(
        [sys.executable, capture, str(pid), seconds, str(program.rate_hz), file, *watched],
        check=True,
    )
    return read_lines(file)


def _listen(process: subprocess.Popen[str], said: list[Said], is_ready: threading.Event) -> None:
    """Note what a program says, and when."""
    assert process.stdout is not None
    for line in process.stdout:
        said.append(Said(time.time_ns(), line.rstrip("\n")))
        if line.strip() == "ready":
            is_ready.set()


def _python(program: Program) -> tuple[str, str]:
    """Return the interpreter for a program, and the folder that it is installed in."""
    if not program.python:
        return sys.executable, sys.base_prefix
    python = find_python(program.python) or f"python{program.python}"
    asked = subprocess.run(
        [python, "-c", "import sys; print(sys.base_prefix)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return python, asked.stdout.strip()


def _without_host(lines: list[StoredLine]) -> list[StoredLine]:
    return [
        Started(msgspec.structs.replace(line.started, host="recorder", user="user"))
        if isinstance(line, Started)
        else line
        for line in lines
    ]


def _header(program: Program, python: str) -> Header:
    asked = subprocess.run([python, "--version"], capture_output=True, text=True, check=True)
    script = next(word for word in program.words if word.endswith(".py"))
    return Header(
        date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        program=" ".join((Path(script).name, *program.words[program.words.index(script) + 1 :])),
        interpreter=asked.stdout.strip(),
        py_spy=metadata.version("py-spy"),
        torch=metadata.version("torch"),
        machine=f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}",
        rate_hz=program.rate_hz,
    )


if __name__ == "__main__":
    main()
