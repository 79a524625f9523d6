"""What a trace lacks, in traces of a GPU that are whole and in what becomes of them by known
losses.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from profd.daemon.store.records import WindowStream
from profd.daemon.windows.reduction import Reduction, reduce
from profd.daemon.windows.trace import TraceUnreadable

DATA = Path(__file__).parents[2] / "data"
WHOLE = ("h200_imagenet", "h200_launch_bound", "h200_launch_bound_shared")
HOUR_US = 3600 * 1e6
Event = dict[str, Any]


def text_of(name: str) -> bytes:
    return gzip.decompress((DATA / f"{name}.json.gz").read_bytes())


def reduced(text: bytes) -> Reduction:
    return reduce(BytesIO(text), begins_with_step=False)


def changed(name: str, change: Callable[[list[Event]], Iterable[Event]]) -> Reduction:
    """Return the summary of a trace whose kernels, in order of time, were changed."""
    whole = msgspec.json.decode(text_of(name))
    events = whole["traceEvents"]
    kernels = sorted(
        (one for one in events if one.get("cat") == "kernel"), key=lambda one: one["ts"]
    )
    others = [one for one in events if one.get("cat") != "kernel"]
    return reduced(msgspec.json.encode({**whole, "traceEvents": [*others, *change(kernels)]}))


def counted(reduction: Reduction) -> Mapping[str, int]:
    names = WindowStream.__struct_fields__[3:]
    return {name: sum(getattr(one, name) for one in reduction.streams) for name in names}


def moved(kernels: list[Event], by_us: float, count: int) -> list[Event]:
    return [{**one, "ts": one["ts"] + by_us * (at < count)} for at, one in enumerate(kernels)]


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_trace_lacks_nothing(name: str) -> None:
    found = counted(reduced(text_of(name)))
    assert found["launches"] >= 300
    assert (found["lost"], found["misdated"]) == (0, 0)


@pytest.mark.parametrize("name", WHOLE[1:])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_first_kernels_that_are_lost_are_counted_as_such(name: str, count: int) -> None:
    found = counted(changed(name, lambda kernels: kernels[count:]))
    assert (found["lost"], found["first"], found["launches"]) == (count, count, 300)


@pytest.mark.parametrize("name", WHOLE[1:])
@pytest.mark.parametrize("lost", [slice(-1, None), slice(-60, None), slice(100, 164), slice(5, 6)])
def test_last_kernels_and_a_lost_buffer_are_counted_and_no_first_ones(
    name: str, lost: slice
) -> None:
    def without(kernels: list[Event]) -> list[Event]:
        gone = [id(one) for one in kernels[lost]]
        return [one for one in kernels if id(one) not in gone]

    found = counted(changed(name, without))
    assert (found["lost"], found["first"]) == (len(range(300)[lost]), 0)


@pytest.mark.parametrize("name", WHOLE)
def test_a_trace_without_any_kernel_has_lost_all(name: str) -> None:
    found = counted(changed(name, lambda _: []))
    assert found["lost"] == found["launches"] > 0


@pytest.mark.parametrize("by_us", [-27 * HOUR_US, -HOUR_US, -10_000.0, HOUR_US])
@pytest.mark.parametrize("count", [1, 200, 300])
def test_kernels_with_times_of_another_clock_count_for_nothing(by_us: float, count: int) -> None:
    whole = reduced(text_of("h200_launch_bound"))
    found = changed("h200_launch_bound", lambda kernels: moved(kernels, by_us, count))
    assert counted(found) == {**counted(whole), "misdated": count}
    assert found.end_ns <= whole.end_ns
    assert sum(row.calls for row in found.operators if row.device == "cuda") == 300 - count


def test_a_stream_that_is_lost_is_counted() -> None:
    def on_two(kernels: list[Event]) -> list[Event]:
        return [{**one, "tid": 7 + number % 2} for number, one in enumerate(kernels)]

    both = changed("h200_launch_bound", on_two)
    assert [(one.stream, one.launches) for one in both.streams] == [(7, 150), (8, 150)]
    one = changed("h200_launch_bound", lambda kernels: on_two(kernels)[::2])
    assert (counted(one)["lost"], len(one.streams)) == (150, 2)


def test_kernels_that_something_else_launched_are_no_loss() -> None:
    streams = reduced(text_of("h200_imagenet")).streams
    assert [(one.unlaunched, one.cupti) for one in streams] == [(254, 130001)]


@pytest.mark.parametrize("end", [0.1, 0.5, 0.99])
def test_a_trace_that_breaks_off_is_no_trace(end: float) -> None:
    text = text_of("h200_launch_bound")
    with pytest.raises(TraceUnreadable):
        reduced(text[: int(len(text) * end)])
