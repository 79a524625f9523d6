"""The clock of a driver: whichever it is, its samples are put at their times on the run's clock."""

from __future__ import annotations

import pytest
from support.gpusets import GpuRoom
from support.gpusim import SimulatedDriver, Timeline

from profd.daemon.gpu.driverclock import DriverClock

UTILIZATION = "gpu_utilization_share"
UPTIME_S = 58 * 86_400.0
MILLISECOND = 1_000_000


def begin(driver: SimulatedDriver, **values: float) -> GpuRoom:
    """Return a GPU that computes for 0.7 s and waits for 0.3 s, by a clock of its own."""
    driver.add_gpu(memory_used_bytes=1, memory_total_bytes=2)
    for name, value in values.items():
        driver.add(name, value, "gpu0")
    driver.run(Timeline.steps(400, 0.7, 0.3))
    return GpuRoom(driver, everything=True)


def errors_ms(room: GpuRoom, period_s: float) -> list[float]:
    """Return by how much each sample is beside the end of a period of the device, in milliseconds."""
    times = [at_s for at_s, _ in room.series(UTILIZATION)]
    return [1000 * (at_s - round(at_s / period_s) * period_s) for at_s in times]


@pytest.mark.parametrize("period_s", [0.1, 0.167, 0.2, 1.0])
@pytest.mark.parametrize(
    "offset_s",
    [0.0, -1_795_176_000 + UPTIME_S, 3600.0],
    ids=["wall clock", "since boot", "an hour ahead"],
)
def test_samples_are_at_their_times_by_whichever_clock(
    driver: SimulatedDriver, period_s: float, offset_s: float
) -> None:
    room = begin(driver, clock_offset_s=offset_s, sample_period_s=period_s)
    room.go_on(10)
    errors = errors_ms(room, period_s)
    assert len(errors) >= 9 / period_s - 1
    assert all(-0.1 <= error <= 21 for error in errors), errors


@pytest.mark.parametrize("drift_ppm", [100, -100])
def test_a_clock_that_drifts_is_followed(driver: SimulatedDriver, drift_ppm: float) -> None:
    room = begin(driver, clock_drift_ppm=drift_ppm, sample_period_s=0.2)
    room.go_on(300)
    errors = errors_ms(room, 0.2)[-100:]
    assert all(-7 <= error <= 28 for error in errors), errors


@pytest.mark.parametrize("leap_s", [3600, -3600])
def test_a_clock_that_is_set_during_the_run_moves_no_sample(
    driver: SimulatedDriver, leap_s: int
) -> None:
    room = begin(driver, sample_period_s=0.25)
    room.go_on(5)
    driver.add("clock_offset_s", leap_s, "gpu0", at_s=5)
    room.clock.jump_ns = leap_s * 10**9
    room.go_on(20)
    times = [at_s for at_s, _ in room.series(UTILIZATION)]
    assert all(-0.1 <= error <= 21 for error in errors_ms(room, 0.25))
    assert len(times) >= 24 * 4
    assert times == sorted(set(times))


def test_the_offset_is_the_least_delay_and_what_came_before_the_first_look_counts_for_nothing() -> (
    None
):
    clock = DriverClock(0)
    clock.look(900 * MILLISECOND, [1_000], has_waited=False)
    assert clock.offset_ns is None
    for look, stamp_us in enumerate(range(201_000, 2_300_000, 200_000), start=1):
        delay_ns = (7 + look % 3) * MILLISECOND
        clock.look(stamp_us * 1000 + delay_ns, [stamp_us], has_waited=True)
    assert clock.offset_ns == 7 * MILLISECOND


def test_nothing_is_known_where_nothing_came_while_it_was_estimated() -> None:
    clock = DriverClock(0)
    clock.look(0, [1_000], has_waited=False)
    clock.look(3_000 * MILLISECOND, [], has_waited=True)
    assert (clock.offset_ns, clock.estimates_until_ns) == (None, None)
