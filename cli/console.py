"""Lines on stderr, data on stdout, and SIGINT and SIGTERM as a request to end."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import PurePath
from types import FrameType
from typing import Any, TextIO

import click

from profd.daemon.errors import ExitCode
from profd.daemon.standardstreams import StandardStream


def say(text: str) -> None:
    """Write one line to stderr; characters that would steer the terminal are spelled out."""
    # Imported here because `profd --help` does not need it.
    from profd.daemon.render.plaintext import visible

    click.echo("profd: " + visible(" ".join(text.split())), err=True)


_PIPED_CELLS = 100
_LEAST_CELLS, _MOST_CELLS = 40, 200


def line_cells(stream: TextIO) -> int:
    """Return how many cells a line of text may take: those of the terminal, 100 in a pipe or file.

    A terminal that is wider than 200 gets no longer lines: nobody reads them.
    """
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return min(max(columns or _PIPED_CELLS, _LEAST_CELLS), _MOST_CELLS)


def short_command(words: Sequence[str]) -> str:
    """Return a command on one line, paths without their folders: scripts are known by name."""
    from profd.daemon.render.plaintext import cut

    names = (PurePath(word).name if word.startswith("/") else word for word in words)
    return cut(" ".join(" ".join(names).split()), 100)


def print_json(value: Any, *, indent: int = 2) -> None:  # noqa: ANN401  whatever msgspec writes
    """Write a value to stdout as JSON, over several lines unless ``indent`` is below 0."""
    import msgspec

    from profd.daemon.render.plaintext import visible_json

    text = msgspec.json.format(msgspec.json.encode(value), indent=indent)
    click.echo(visible_json(text.decode()))


def close_stdout(stdout: StandardStream, code: int) -> int:
    """Write what is still buffered, and return the exit code.

    The code is 73 in place of 0 if stdout did not take all of it. If the reader has left, as
    ``head`` does once it has enough, nothing is printed, and the code is 1.
    """
    sys.stdout.flush()
    if stdout.failure is None or code != ExitCode.OK:
        return code
    if stdout.failure.errno == errno.EPIPE:
        return ExitCode.FAILURE
    say(f"stdout cannot be written ({stdout.failure.strerror}): redirect it to where there is room")
    return ExitCode.UNWRITABLE_OUTPUT


class StopSignals:
    """Catches the signals within its context, once: a second signal has its usual effect.

    A signal that is ignored, as in a shell's background job, stays ignored. Main thread only.
    """

    def __init__(self) -> None:
        self._asked = False
        self._reaction: Callable[[], None] | None = None
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> StopSignals:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def call(self, reaction: Callable[[], None]) -> None:
        """Call ``reaction`` when a signal arrives, or now if one has arrived already."""
        self._reaction = reaction
        if self._asked:
            reaction()

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        self.__exit__()
        if self._reaction is not None:
            self._reaction()
