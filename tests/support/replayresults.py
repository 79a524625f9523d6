"""What the product says of a replayed recording, and how far that is from what the program itself
says.

Shares are rounded to 6 decimals and all else to 6 digits: Python 3.12 adds up floats in another way
than those before it, and what is added up from sets comes in no order.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from truth.programs import Diary as TrackDiary
from truth.programs import Program as TrackProgram

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import phase_shares, take_profile
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.summary import Summary, summarize
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import STEP_COUNT
from support.recordinglines import Diary
from support.recordings import replay

_FUNCTIONS = 12
_STARTUP = "startup, import"


class Replayed(NamedTuple):
    """A replayed recording.

    ``results`` is what the product says, by topic; ``errors`` how far that is from the program's
    diary.
    """

    results: Mapping[str, Any]
    errors: Mapping[str, float]
    diary: Diary

    def stored(self) -> dict[str, Any]:
        """Return what is written down of it."""
        return {**self.results, "errors": dict(self.errors)}


@lru_cache(None)
def replayed(name: str) -> Replayed:
    """Replay a recording, once a process."""
    with tempfile.TemporaryDirectory() as folder:
        run_file = Path(folder) / "run.profd"
        diary = replay(name, run_file)
        with RunReader(run_file) as reader:
            summary = summarize(reader)
            errors = {
                topic: _to_six_digits(error) for topic, error in _errors(reader, summary, diary)
            }
            return Replayed(_results(reader, summary), errors, diary)


def _results(reader: RunReader, summary: Summary) -> dict[str, Any]:
    recordings = reader.recordings()
    return {
        "samples": {
            "recordings": len(recordings),
            "read": sum(row.samples for row in recordings),
            "torn": sum(row.torn for row in recordings),
            "failed": sum(row.errors for row in recordings),
            "coverage": _rounded(summary.coverage),
        },
        "shares": _shares(summary),
        "phases": _phases(summary),
        "steps": {
            name: value if isinstance(value, str) else _rounded(value)
            for name, value in msgspec.structs.asdict(summary.steps).items()
            if value is not None or name != "why_unknown"
        },
        "findings": [
            {
                "rule": one.rule,
                "severity": one.severity,
                "title": one.title,
                "cause": one.cause,
                "remedy": one.remedy,
                "gain bound": _rounded(one.gain_bound),
                "line": one.evidence.line.source if one.evidence.line else None,
            }
            for one in summary.findings
        ],
        **({"hangs": [one.text for one in summary.hangs]} if summary.hangs else {}),
        "processes": _processes(summary),
        "ranks": [
            {"rank": row.rank, "late": row.is_late, "waiting": _rounded(row.waiting_share)}
            for row in summary.ranks
        ],
        "memory": [
            {
                "command": reader.processes[one.process or 0].command[-1] if one.process else None,
                "series": one.series,
                "verdict": one.verdict,
                "slope": _rounded(one.slope_bytes_per_s),
                "a step": _rounded(one.bytes_per_step),
            }
            for one in summary.memory
            if one.verdict != "unknown"
        ],
    }


def _shares(summary: Summary) -> dict[str, Any]:
    """Return the shares of functions: own, in all, and their margins."""
    rows = sorted(
        summary.functions,
        key=lambda row: (-round(row.total_share, 6), row.function, row.file, row.line),
    )
    return {
        f"{row.function} ({row.module_path})": {
            "self": _rounded(row.self_share),
            "total": _rounded(row.total_share),
            "margins": [_rounded(row.self_error), _rounded(row.total_error)],
        }
        for row in rows[:_FUNCTIONS]
    }


def _phases(summary: Summary) -> dict[str, Any]:
    lines = {line.phase: line.source for line in summary.phase_lines}
    return {
        phase: {
            "share": _rounded(share),
            "margin": _rounded(summary.phase_errors.get(phase)),
            "line": lines.get(phase),
        }
        for phase, share in sorted(
            summary.phases.items(), key=lambda item: (-round(item[1], 6), item[0])
        )
    }


def _processes(summary: Summary) -> list[dict[str, Any]]:
    return [
        {
            "role": row.role,
            "rank": row.rank,
            "ordinal": row.ordinal,
            "samples": row.samples,
            "hottest": [one.function for one in row.functions[:1]],
        }
        for row in summary.processes
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else _to_six_digits(value)


def _to_six_digits(value: float) -> float:
    return round(value, 6) if abs(value) < 1 else float(f"{value:.6g}")


# How far that is from the truth


def _errors(reader: RunReader, summary: Summary, diary: Diary) -> Iterator[tuple[str, float]]:
    """Yield by topic how far the product is from the program's own words.

    ``shares`` is the largest error of a share, ``phases`` the total variation of the phases after
    startup, ``share`` the error of the first finding's share, ``rate`` the relative error of steps a second, ``count`` by how many the steps that
    were counted are wrong.
    """
    recordings = reader.recordings()
    from_ns = min(row.start_ns for row in recordings)
    to_ns = max(row.end_ns for row in recordings)
    if diary.tracks:
        yield "shares", max(_share_errors(reader, diary, from_ns, to_ns))
    if diary.phases:
        yield (
            "phases",
            _distance(_phases_said(reader, from_ns, to_ns), _true_phases(diary, from_ns, to_ns)),
        )
    if diary.planted and diary.spent and summary.findings:
        made, evidence = _Made(diary.spent), summary.findings[0].evidence
        first_ns, last_ns = made.within(evidence.from_ns, evidence.to_ns)
        spent = made.between(first_ns, last_ns) / (last_ns - first_ns)
        yield "share", abs(evidence.measures[0].value - spent)
    if diary.steps and summary.steps.per_s is not None:
        yield from _step_errors(reader, summary, diary)


def _share_errors(reader: RunReader, diary: Diary, from_ns: int, to_ns: int) -> Iterator[float]:
    program = TrackProgram(Path(), {}, diary.turns)
    true = TrackDiary(diary.tracks, program).shares(from_ns, to_ns)
    spent_ns: Counter[str | None] = Counter()
    for stack, time_ns in take_profile(
        reader, Selection(from_ns=from_ns, to_ns=to_ns)
    ).time_ns.items():
        spent_ns[program.phase_of(tuple(frame.function for frame in reader.frames_of(stack)))] += (
            time_ns  # type: ignore[assignment]
        )
    whole_ns = sum(spent_ns[phase] for phase in true)
    for phase, share in true.items():
        yield abs(spent_ns[phase] / whole_ns - share)


def _phases_said(reader: RunReader, from_ns: int, to_ns: int) -> dict[str, float]:
    selection = Selection(from_ns=from_ns, to_ns=to_ns, main_threads=True)
    phases = PhaseIndex(reader)
    return _after_startup(phase_shares(take_profile(reader, selection, phases), phases))


def _true_phases(diary: Diary, from_ns: int, to_ns: int) -> dict[str, float]:
    spent_ns: defaultdict[str, float] = defaultdict(float)
    for (begun_ns, phase), (ended_ns, _) in pairwise(diary.phases):
        spent_ns[phase] += max(min(ended_ns, to_ns) - max(begun_ns, from_ns), 0)
    return _after_startup(spent_ns)


def _after_startup(spent: Mapping[str, float]) -> dict[str, float]:
    whole = sum(time for phase, time in spent.items() if phase != _STARTUP)
    return {phase: time / whole for phase, time in spent.items() if phase != _STARTUP}


def _distance(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Return the total variation of two distributions."""
    return (
        sum(abs(one.get(name, 0.0) - other.get(name, 0.0)) for name in sorted({*one, *other})) / 2
    )


def _step_errors(reader: RunReader, summary: Summary, diary: Diary) -> Iterator[tuple[str, float]]:
    steps, made = summary.steps, _Made(diary.steps)
    counted = sorted(
        point.at_ns
        for row in reader.list_series()
        if row.name == STEP_COUNT
        for point in reader.points(row.id)
    )
    # Where nothing was counted, steps are those of the whole run.
    times = counted or [reader.info.started_ns, reader.info.end_ns]
    first_ns, last_ns = made.within(times[0], times[-1])
    true_per_s = made.between(first_ns, last_ns) * SECOND_NS / (last_ns - first_ns)
    assert steps.per_s is not None
    yield "rate", abs(steps.per_s / true_per_s - 1)
    whole_ns = reader.info.started_ns, reader.info.end_ns
    if steps.count is not None and made.within(*whole_ns) == whole_ns:
        from_ns = whole_ns[0] if reader.info.mode == "launched" else times[0]
        yield "count", abs(steps.count - made.between(from_ns, times[-1]))


class _Made:
    """The steps that were made by a time: the step of that time as a fraction."""

    def __init__(self, steps: Sequence[tuple[int, int]]) -> None:
        self._times = [at_ns for at_ns, _ in steps]
        self._made = [made for _, made in steps]

    def within(self, from_ns: int, to_ns: int) -> tuple[int, int]:
        """Return the part of a range of time that the diary knows."""
        return max(from_ns, self._times[0]), min(to_ns, self._times[-1])

    def between(self, from_ns: int, to_ns: int) -> float:
        """Return how many were made from one time to another."""
        return self._by(to_ns) - self._by(from_ns)

    def _by(self, at_ns: int) -> float:
        after = min(max(bisect_right(self._times, at_ns), 1), len(self._times) - 1)
        before_ns, after_ns = self._times[after - 1], self._times[after]
        share = (at_ns - before_ns) / (after_ns - before_ns)
        return self._made[after - 1] + share * (self._made[after] - self._made[after - 1])
