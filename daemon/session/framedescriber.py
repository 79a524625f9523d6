"""Describe the frames of a run: the module of each, and its line of source without secrets."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from profd.daemon.clock import Clock
from profd.daemon.events import EventKind
from profd.daemon.secrets import mask_line
from profd.daemon.stacks.origin import ANY, Origin
from profd.daemon.stacks.source import SourceTree
from profd.daemon.store.records import (
    CHANGED_SOURCE,
    EventHappened,
    Frame,
    FrameDescription,
    Put,
    RecordingTaken,
)

_MOST_FILES, _LONGEST_PATH = 4096, 4096
"""The most files for which the process that runs them is known, and the longest path of one.

A training run has some hundred files. The kernel takes no longer path.
"""


class FrameDescriber:
    """Describes frames by the source that their processes began with.

    ``root_origin`` is the origin of the root's code, which stands for files of unknown processes.
    """

    def __init__(
        self,
        sources: Callable[[Origin], SourceTree],
        clock: Clock,
        put: Put,
        *,
        with_source: bool,
    ) -> None:
        """Know no file yet; ``sources`` gives the source of an origin, ``put`` takes events."""
        self.root_origin = ANY
        self._sources, self._clock, self._put = sources, clock, put
        self._with_source = with_source
        self._origins: dict[str, Origin] = {}
        """The origin of the process whose stacks first showed a file."""
        self._changed: set[str] = set()
        """The files that were reported as changed."""

    def take(self, recording: RecordingTaken, of_process: Origin) -> None:
        """Learn from a recording which process runs the code of a file."""
        if len(self._origins) < _MOST_FILES:
            seen = {frame.file for stack in recording.stacks for frame in stack}
            new = seen - self._origins.keys()
            self._origins |= {file: of_process for file in new if len(file) <= _LONGEST_PATH}

    def describe(self, frame: Frame) -> FrameDescription:
        """Describe a frame, in the writer's thread, and report once that a file has changed."""
        found = self._sources(self._origins.get(frame.file, self.root_origin)).describe(frame)
        # an upgrade changes hundreds of a library's files
        file = "" if found.is_library else frame.file
        if (
            found.source == CHANGED_SOURCE
            and file not in self._changed
            and len(self._changed) < _MOST_FILES
        ):
            self._changed.add(file)
            text = (
                f"{frame.file} has changed since it was started: its lines are not shown, phases "
                "and steps go by names alone"
            )
            self._put(EventHappened(self._clock.now_ns(), EventKind.NOTE, text))
        source = mask_line(found.source) if found.source and self._with_source else None
        return msgspec.structs.replace(found, source=source)
