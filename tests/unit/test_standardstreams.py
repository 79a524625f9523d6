"""A program's own streams: a write that fails ends the stream, is counted, and raises nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import DEADLINE_S

from profd.daemon.standardstreams import StandardStream


def test_a_write_that_fails_ends_the_stream_and_what_is_lost_is_counted() -> None:
    with Path("/dev/full").open("wb") as full:
        stream = StandardStream(full.fileno())
        assert (stream.write(b"abc"), stream.write(b"de")) == (3, 2)
    assert stream.failure is not None
    assert (stream.failure.errno, stream.lost_bytes) == (errno.ENOSPC, 5)


def test_what_is_written_after_a_failure_does_not_come_out_behind_a_gap() -> None:
    read_fd, write_fd = os.pipe()
    stream = StandardStream(write_fd)
    stream.failure = OSError(errno.ENOSPC, "full for a moment")
    stream.write(b"the end")
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as pipe:
        assert pipe.read() == b""


def test_a_slow_reader_gets_everything_from_a_stream_that_does_not_block() -> None:
    """Another program that shares the pipe may have made it nonblocking."""
    code = "from profd.daemon.standardstreams import open_streams; open_streams(); print('x' * 1_000_000)"
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=write_fd)
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as pipe:
        assert len(pipe.read()) == 1_000_001
    assert process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2), (1, 2)])
def test_no_file_takes_the_number_of_a_stream_that_is_closed(closed: tuple[int, ...]) -> None:
    code = "import os, sys; from profd.daemon.standardstreams import open_streams; open_streams()\n"
    code += (
        "print('out'); sys.stderr.write('err'); os._exit(10 * os.open('/', os.O_RDONLY) + "
        "os.get_inheritable(2))"
    )

    def close() -> None:
        for fd in closed:
            os.close(fd)

    null = subprocess.DEVNULL
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=null, stdout=null, stderr=null, preexec_fn=close
    )
    assert done.returncode == 30 + (2 not in closed)
