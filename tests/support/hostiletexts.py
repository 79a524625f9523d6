"""A run whose every text tries to break out of where it is shown."""

from __future__ import annotations

from pathlib import Path

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.store import records
from profd.daemon.store.records import Frame, FrameDescription
from support import synthetic

MARKUP = '<img src=x onerror="window.hurt=1"></script><script>window.hurt=1</script>\''
REORDERING = "\u202egnol\u2066"
ODD = "\u2028\x1b[31m\x00\n"
WIDE = "😈"
EVIL = MARKUP + REORDERING + ODD + WIDE

STACKS = (
    (Frame("<module>", f"/srv/{EVIL}.py", 1), Frame(f"train{EVIL}", f"/srv/{EVIL}.py", 2)),
    (Frame("<module>", f"/srv/{EVIL}.py", 1), Frame("__proto__", "constructor", 0)),
)


def describe(frame: Frame) -> FrameDescription:
    """Give every frame a hostile path and a hostile line of source."""
    return FrameDescription(
        module_path=frame.file.lstrip("/"), is_library=False, source=f"{EVIL} = 1"
    )


def write_run(path: Path) -> Path:
    """Write a run of two seconds with hostile names of everything, and return its path."""
    started = msgspec.structs.replace(
        synthetic.run_started(),
        id=EVIL,
        name=EVIL,
        command=("python", f"{EVIL}.py"),
        cwd=EVIL,
        host=EVIL,
        user=EVIL,
    )
    at_ns = started.started_ns
    thread = (synthetic.MAIN_TID, f"main{EVIL}", True, ((STACKS[0], 600), (STACKS[1], 400)))
    many: list[records.Record] = [
        records.ProcessSeen(
            synthetic.MAIN, None, ("python", EVIL), "main", None, None, "3.11.7", at_ns
        ),
        records.EventHappened(at_ns, EventKind.NOTE, EVIL, synthetic.MAIN),
        *(
            synthetic.recording(synthetic.MAIN, at_ns + second * SECOND_NS, (thread,))
            for second in range(2)
        ),
        records.EventHappened(at_ns + SECOND_NS, EventKind(EVIL), EVIL),
        _window(at_ns),
        records.RunEnded(at_ns + 2 * SECOND_NS, "target-exited", exit_code=0),
    ]
    return synthetic.write_records(path, many, started, describe)


def _window(at_ns: int) -> records.WindowTaken:
    operator = records.OperatorTotals(EVIL, "cpu", False, EVIL, 1, 2, 3, 0, 0, 0, 0, 0, 0)
    end_ns = at_ns + SECOND_NS
    return records.WindowTaken(
        synthetic.MAIN, end_ns, EVIL, at_ns, start_ns=at_ns, end_ns=end_ns, operators=(operator,)
    )
