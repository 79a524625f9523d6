"""Whose the PIDs are that NVML names: on the host by number, in a container only where nothing else
is possible.
"""

from __future__ import annotations

import os

import pytest
from support.clocks import StoppedClock
from support.gputraces import PARTS, WHOLE, FakeTraces

from profd.daemon.gpu.devices import GpuDevice
from profd.daemon.gpu.users import GpuUsers, ProcessTraces
from profd.daemon.store.records import Identity

RANKS = [Identity(40, 1), Identity(41, 1), Identity(42, 1)]


def users(traces: FakeTraces, *identities: Identity) -> GpuUsers:
    made = GpuUsers(StoppedClock(), traces)
    made.take(identities or RANKS, WHOLE)
    return made


@pytest.fixture
def traces() -> FakeTraces:
    return FakeTraces(on_host=False)


def test_on_the_host_a_pid_is_a_pid_of_the_run() -> None:
    room = users(FakeTraces())
    assert room.identify({WHOLE[0]: [40, 99], WHOLE[1]: [41]}) == {
        40: RANKS[0],
        41: RANKS[1],
    }
    room.take(RANKS[1:], WHOLE)  # a process that left the run is matched no more
    assert room.identify({WHOLE[0]: [40]}) == {}


Uses = dict[int, tuple[int, ...]]
ALL = (0, 1, 2)


@pytest.mark.parametrize(
    ("uses", "named", "ranks", "found"),
    [
        ({40: ()}, {0: [40]}, RANKS, {40: RANKS[0]}),
        ({}, {0: [40]}, RANKS, {}),
        (
            {40: (0,), 41: (1,), 42: (2,)},
            {0: [91], 1: [92], 2: [93]},
            RANKS,
            dict(zip((91, 92, 93), RANKS, strict=True)),
        ),
        ({40: ALL, 41: ALL, 42: ALL}, {0: [91], 1: [92]}, RANKS, {}),
        ({40: (0,)}, {0: [91, 92]}, RANKS[:1], {}),
        ({40: ALL, 77: (1,)}, {1: [77]}, RANKS[:1], {}),
    ],
    ids=[
        "the driver translates into the container",
        "a number of the host that someone has here by chance",
        "ranks with a GPU each",
        "ranks that may all use all GPUs are not identified",
        "two numbers for one process",
        "the number is of another process here",
    ],
)
def test_in_a_container_processes_are_identified_by_their_gpus(
    traces: FakeTraces,
    uses: Uses,
    named: dict[int, list[int]],
    ranks: tuple[Identity, ...],
    found: dict[int, Identity],
) -> None:
    for pid, gpus in uses.items():
        traces.compute(pid, *gpus)
    assert (
        users(traces, *ranks).identify({WHOLE[gpu]: pids for gpu, pids in named.items()}) == found
    )


def test_ranks_are_identified_by_the_gpu_that_they_may_see(traces: FakeTraces) -> None:
    for number, rank in enumerate(RANKS):
        traces.compute(rank.pid, 0, 1, 2, visible=str(number))
    assert users(traces).identify({WHOLE[1]: [90_002]}) == {90_002: RANKS[1]}


def test_nothing_is_guessed_once_numbers_were_ours(traces: FakeTraces) -> None:
    traces.compute(40, 0, 1, 2)
    room = users(traces, RANKS[0])
    assert room.identify({WHOLE[0]: [40]}) == {40: RANKS[0]}
    assert room.identify({WHOLE[1]: [90_001]}) == {}


def test_process_without_cuda_is_no_candidate(traces: FakeTraces) -> None:
    traces.devices[40] = frozenset({"/dev/nvidiactl", "/dev/nvidia0"})
    assert users(traces, RANKS[0]).identify({WHOLE[0]: [90_001]}) == {}


def test_gpus_of_a_container_are_those_that_the_run_may_use(traces: FakeTraces) -> None:
    traces.compute(40, 0, 2, visible="0")
    room = users(traces)
    assert [gpu.name for gpu in WHOLE if room.may_use(gpu, tells_pids=True)] == ["gpu0"]


def test_gpus_of_the_host_are_those_where_nvml_names_the_run() -> None:
    traces = FakeTraces()
    traces.compute(40, 0)
    room = users(traces)
    assert not room.may_use(WHOLE[0], tells_pids=True)
    assert room.may_use(WHOLE[0], tells_pids=False)


def test_a_mig_instance_that_is_seen_brings_its_gpu(traces: FakeTraces) -> None:
    traces.compute(40, 0, 1, 2, visible="MIG-2222")
    room = users(traces)
    all_gpus: list[GpuDevice] = [*WHOLE, *PARTS]
    room.take(RANKS, all_gpus)
    used = [gpu.name for gpu in all_gpus if room.may_use(gpu, tells_pids=True)]
    assert used == ["gpu2", "gpu2-mig11"]


def test_devices_are_looked_at_again_after_a_while(traces: FakeTraces) -> None:
    clock = StoppedClock()
    room = GpuUsers(clock, traces)
    room.take(RANKS[:1], WHOLE)
    assert not room.may_use(WHOLE[0], tells_pids=True)
    traces.compute(40, 0)
    clock.advance(9)
    assert not room.may_use(WHOLE[0], tells_pids=True)
    clock.advance(1)
    assert room.may_use(WHOLE[0], tells_pids=True)


def test_real_proc_tells_of_this_very_process() -> None:
    traces = ProcessTraces()
    with open("/dev/full", "wb"):  # noqa: PTH123
        assert "/dev/full" in traces.open_devices(os.getpid())
    assert traces.open_devices(0) == frozenset()
