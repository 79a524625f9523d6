from __future__ import annotations

from pathlib import Path

import pytest
from support.findingruns import (
    BUSY_WORKER,
    HEALTHY,
    IDLE_WORKER,
    IMPORT,
    LOAD_IN_PROCESS,
    Series,
    at_most_without,
    cores,
    diagnose,
    step,
    write_case,
)
from support.synthetic import MAIN, MAIN_TID, STARTED_NS, worker
from support.training_stacks import DATA_WAIT, LIBRARY, OPTIMIZER, TRAIN

from profd.daemon.findings.cpu import cpu_limit, oversubscription
from profd.daemon.findings.finding import CRITICAL, INFO, WARNING
from profd.daemon.findings.gpu import copies, gpu_held_back, gpu_unused
from profd.daemon.findings.loading import idle_workers, load_in_process, saturated_workers
from profd.daemon.findings.memory import allocator_churn, garbage_collection, memory_growth, memory_limit, swapping
from profd.daemon.findings.phases import compilation, small_batches
from profd.daemon.store.records import DeviceSeen, Frame

GPU = "gpu0"
ROOT = (Frame("<module>", TRAIN, 96), Frame("main", TRAIN, 90), Frame("train_epoch", TRAIN, 59))
COPY = (*ROOT, Frame("Module.to", LIBRARY + "torch/nn/modules/module.py", 1300))
COMPILE = (*ROOT, Frame("compile_fx", LIBRARY + "torch/_inductor/compile_fx.py", 1200))


def gpu(utilization: float, throttled: float = 0.0) -> list[Series]:
    """Return the series of a GPU that the training uses."""
    return [
        Series("gpu_utilization_share", utilization, identity=None, device=GPU),
        Series("gpu_throttled_share", throttled, identity=None, device=GPU),
        Series("gpu_process_memory_bytes", 1e9, identity=MAIN, device=GPU),
    ]


def test_a_gpu_that_waits_for_python_wants_larger_batches(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", HEALTHY, series=gpu(0.4)), small_batches)

    assert found is not None
    assert found.severity == CRITICAL
    # Larger batches make each operation on the GPU more efficient, too: only for those of now there is a bound.
    assert found.gain_bound is None
    assert "speeds steps up by at most 2.5" in found.remedy
    assert diagnose(write_case(tmp_path / "b.profd", HEALTHY, series=gpu(0.95)), small_batches) is None


def test_without_a_gpu_the_optimizer_tells_that_batches_are_small(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", step((OPTIMIZER, 150))), small_batches)

    assert found is not None
    assert found.severity == WARNING
    assert "the optimizer takes 32 % of a step (train.py:64)" in found.title
    assert found.gain_bound is None
    assert "one step of the optimizer for several of them (train.py:64) speeds steps up by at most 1.6" in found.remedy


def test_an_optimizer_warns_where_a_batch_of_three_times_the_size_spares_a_tenth(tmp_path: Path) -> None:
    """NAdam has no fused form. Another 2 % are that of ``step``; the interval's low end counts."""
    nadam = (*ROOT, Frame("_single_tensor_nadam", LIBRARY + "torch/optim/nadam.py", 357))
    found = [diagnose(write_case(tmp_path / f"{ms}.profd", step((nadam, ms))), small_batches) for ms in (45, 80)]
    assert [one.severity if one else None for one in found] == [INFO, WARNING]


def test_copies_are_a_loss_only_while_the_gpu_has_room(tmp_path: Path) -> None:
    copying = step((COPY, 200))
    found = diagnose(write_case(tmp_path / "a.profd", copying, series=gpu(0.5)), copies)

    assert found is not None
    assert "copying to the GPU takes 40 %" in found.title
    assert diagnose(write_case(tmp_path / "b.profd", copying, series=gpu(0.99)), copies) is None


def test_clocks_that_are_held_down_are_told(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", HEALTHY, series=gpu(0.9, throttled=1.0)), gpu_held_back)

    assert found is not None
    assert "clocks of gpu0 down 100 %" in found.title
    assert diagnose(write_case(tmp_path / "b.profd", HEALTHY, series=gpu(0.9)), gpu_held_back) is None


def test_a_gpu_that_nobody_uses_is_told(tmp_path: Path) -> None:
    device = DeviceSeen(STARTED_NS, GPU, 0, "H100", "GPU-1", 80 * 2**30)
    found = diagnose(write_case(tmp_path / "a.profd", HEALTHY, more=[device]), gpu_unused)

    assert found is not None
    assert "the training runs on the CPU (train.py:61) beside 1 H100" in found.title
    used = write_case(tmp_path / "b.profd", HEALTHY, more=[device], series=gpu(0.9))
    assert diagnose(used, gpu_unused) is None


def test_compiling_in_the_middle_of_the_training_is_told(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", step((COMPILE, 150))), compilation)

    assert found is not None
    assert found.severity == WARNING


def test_a_script_that_trains_nothing_is_not_sent_to_the_gpu(tmp_path: Path) -> None:
    device = DeviceSeen(STARTED_NS, GPU, 0, "H100", "GPU-1", 80 * 2**30)
    path = write_case(tmp_path / "a.profd", ((ROOT, 500),), more=[device])

    assert diagnose(path, gpu_unused) is None


GIB = 2**30


def host(name: str, *values: float) -> Series:
    return Series(name, *values, identity=None)


def crowd(*, pressure: float, used: float, threads: float = 32) -> list[Series]:
    """Return the series of two full cores."""
    return [
        *cores(2),
        host("host_cpu_share", 0.95),
        host("host_cpu_pressure_share", pressure),
        Series("cpu_cores", used),
        Series("threads", threads),
    ]


def test_more_threads_than_cores_are_found_where_they_wait_for_them(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", HEALTHY, series=crowd(pressure=0.6, used=1.8))
    found = diagnose(path, oversubscription)

    assert found is not None
    assert found.severity == WARNING
    assert "32 threads of the training share 2 cores: for 60 % of the time" in found.title


@pytest.mark.parametrize(
    "series",
    [crowd(pressure=0.2, used=1.8), crowd(pressure=0.6, used=0.5), crowd(pressure=0.6, used=1.8, threads=4)],
    ids=["no thread waits", "others fill the machine", "few threads"],
)
def test_a_full_machine_is_not_oversubscribed(tmp_path: Path, series: list[Series]) -> None:
    assert diagnose(write_case(tmp_path / "a.profd", HEALTHY, series=series), oversubscription) is None


def memory(slope: float) -> list[Series]:
    """Return the series of a process that grows by so many bytes a second, on a machine with 16 GiB."""
    return [
        Series("rss_bytes", *(GIB + slope * second for second in range(60)), identity=MAIN),
        host("host_memory_total_bytes", 16 * GIB),
        host("host_memory_used_bytes", 4 * GIB),
    ]


def test_growing_memory_is_grave_where_it_is_full_soon(tmp_path: Path) -> None:
    soon = diagnose(write_case(tmp_path / "a.profd", HEALTHY, series=memory(20e6), seconds=60), memory_growth)
    late = diagnose(write_case(tmp_path / "b.profd", HEALTHY, series=memory(2e6), seconds=60), memory_growth)

    assert soon is not None
    assert late is not None
    assert (soon.severity, late.severity) == (CRITICAL, WARNING)
    assert soon.title == "memory grows: main 4242 takes 20 MB more a second: full in 10 min 44 s"
    measure = soon.evidence.measures[0]
    assert measure.low is not None
    assert measure.high is not None
    assert measure.low <= 20e6 <= measure.high


def test_memory_that_stands_still_is_no_finding(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", HEALTHY, series=memory(0.0), seconds=60)

    assert diagnose(path, memory_growth) is None


def test_memory_that_is_nearly_used_up_is_told(tmp_path: Path) -> None:
    def used(share: float) -> list[Series]:
        total = host("host_memory_total_bytes", 16 * GIB)
        return [Series("rss_bytes", GIB), total, host("host_memory_used_bytes", share * 16 * GIB)]

    found = [
        diagnose(write_case(tmp_path / f"{share}.profd", HEALTHY, series=used(share)), memory_limit)
        for share in (0.5, 0.93, 0.98)
    ]

    assert [one.severity if one else None for one in found] == [None, WARNING, CRITICAL]


def test_a_limit_on_cpu_time_is_found_by_the_periods_that_it_cut_short(tmp_path: Path) -> None:
    limit = Series("cgroup_cpu_limit_cores", 1.5, device="/docker/a")
    path = write_case(tmp_path / "a.profd", HEALTHY, series=[host("cgroup_cpu_throttled_share", 0.5, 0.3), limit])
    found = diagnose(path, cpu_limit)
    rare = write_case(tmp_path / "b.profd", HEALTHY, series=[host("cgroup_cpu_throttled_share", 0.01), limit])

    assert found is not None
    assert "limit of 1.5 cores stopped the training in 31 % of its periods" in found.title
    assert diagnose(rare, cpu_limit) is None


def test_swapping_is_pages_on_disk_that_are_waited_for(tmp_path: Path) -> None:
    def memory(faults: float, swapped: float) -> list[Series]:
        return [Series("major_faults_per_s", faults), Series("swap_bytes", swapped)]

    found = diagnose(write_case(tmp_path / "a.profd", HEALTHY, series=memory(300, 2e9)), swapping)

    assert found is not None
    assert found.title == "swapping: main 4242 has 2.0 GB on disk and waits for 300 pages a second"
    # Files that are read for the first time, and pages that nobody asks for.
    for number, series in enumerate([memory(300, 0), memory(0, 2e9)]):
        path = write_case(tmp_path / f"{number}.profd", HEALTHY, series=series)
        assert diagnose(path, swapping) is None


def test_threads_of_workers_crowd_the_machine_too(tmp_path: Path) -> None:
    series = [
        *crowd(pressure=0.6, used=0.5, threads=4),
        *(Series("threads", 8, identity=worker(number)) for number in (1, 2)),
        *(Series("cpu_cores", 0.6, identity=worker(number)) for number in (1, 2)),
    ]
    workers = dict.fromkeys((1, 2), BUSY_WORKER)
    found = diagnose(write_case(tmp_path / "a.profd", HEALTHY, workers=workers, series=series), oversubscription)

    assert found is not None
    assert "20 threads of the training share 2 cores" in found.title


WAITING = step((DATA_WAIT, 250))


def test_loading_between_steps_is_found_with_its_line_share_and_bound(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 200))), load_in_process)

    assert found is not None
    measure = found.evidence.measures[0]
    assert measure.value == pytest.approx(0.4, abs=0.01)
    assert measure.samples == pytest.approx(1200, abs=30)
    assert found.severity == CRITICAL
    assert measure.low is not None
    assert measure.high is not None
    assert measure.low < 0.4 < measure.high
    # The bound is that of the largest share that there may be, and so no less than that of the share itself.
    assert found.gain_bound == pytest.approx(at_most_without(measure.high))
    assert found.evidence.line is not None
    assert (found.evidence.line.module_path, found.evidence.line.line) == ("train.py", 58)
    assert found.title.startswith("input-bound: the main thread loads data 40 % of the time (train.py:58)")
    assert found.evidence.selection.phase == "data load in process"


@pytest.mark.parametrize(
    ("lost_ms", "severity"), [(10, None), (40, INFO), (90, WARNING), (230, CRITICAL)], ids=lambda value: str(value)
)
def test_severity_goes_by_what_is_sure(tmp_path: Path, lost_ms: int, severity: str | None) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, lost_ms))), load_in_process)

    assert (found.severity if found else None) == severity


def test_what_may_be_less_is_not_warned_of(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 54)), seconds=10), load_in_process)

    assert found is not None
    assert found.evidence.measures[0].value > 0.1
    assert found.severity == INFO


def test_startup_is_no_part_of_the_step(tmp_path: Path) -> None:
    steps = [((IMPORT, 500),)] * 20 + [step((LOAD_IN_PROCESS, 200))] * 20
    found = diagnose(write_case(tmp_path / "a.profd", *steps, seconds=40), load_in_process)

    assert found is not None
    assert found.evidence.measures[0].value == pytest.approx(0.4, abs=0.01)


def test_few_samples_say_nothing(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 200)), seconds=1)

    assert diagnose(path, load_in_process) is None


def test_bound_is_no_more_than_the_cores_allow(tmp_path: Path) -> None:
    busy = Series("cpu_cores", 1.0, tid=MAIN_TID)
    path = write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 400)), series=[busy, *cores(2)])
    found = diagnose(path, load_in_process)

    assert found is not None
    assert found.gain_bound == pytest.approx(2.0, abs=0.02)
    assert "num_workers=1 " in found.remedy


def test_saturated_workers_tell_how_many_would_do(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", WAITING, workers={1: BUSY_WORKER, 2: BUSY_WORKER})
    found = diagnose(path, saturated_workers)

    assert found is not None
    # Two workers that are busy all the time, for steps that would take half the time.
    assert "both workers are 100 % busy: adding 2 speeds steps up by at most 2.3" in found.title
    assert "num_workers=4 " in found.remedy
    assert "train.py:58" in found.remedy
    assert "(augment.py:12)" in found.cause
    assert diagnose(path, idle_workers) is None
    assert diagnose(path, load_in_process) is None


def test_more_workers_are_not_advised_where_no_core_is_left(tmp_path: Path) -> None:
    busy = [Series("cpu_cores", 0.5, tid=MAIN_TID)]
    busy += [Series("cpu_cores", 0.98, identity=worker(number)) for number in (1, 2)]
    path = write_case(
        tmp_path / "a.profd", WAITING, workers={1: BUSY_WORKER, 2: BUSY_WORKER}, series=[*busy, *cores(2)]
    )
    found = diagnose(path, saturated_workers)

    assert found is not None
    assert "no core is left for more" in found.title
    assert "num_workers" not in found.remedy


def test_workers_that_wait_for_storage_are_told_from_those_that_compute(tmp_path: Path) -> None:
    series = [Series("cpu_cores", 0.05, identity=worker(1))]
    path = write_case(tmp_path / "a.profd", WAITING, workers={1: BUSY_WORKER}, series=series)
    found = diagnose(path, saturated_workers)

    assert found is not None
    assert "storage" in found.cause


def test_a_wait_beside_idle_workers_is_not_for_want_of_workers(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", WAITING, workers={1: IDLE_WORKER, 2: IDLE_WORKER})
    found = diagnose(path, idle_workers)

    assert found is not None
    assert "its workers are 20 % busy" in found.title
    assert "prefetch_factor" in found.remedy
    assert diagnose(path, saturated_workers) is None


def test_workers_started_anew_each_epoch_should_persist(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", WAITING, workers={1: IDLE_WORKER}, generations=6)
    found = diagnose(path, idle_workers)

    assert found is not None
    assert "persistent_workers=True" in found.remedy


def test_batches_that_are_slow_to_take_over_are_no_matter_of_prefetching(tmp_path: Path) -> None:
    # The same wait, but the main thread is busy with a batch that it has.
    rebuild = (*DATA_WAIT[:-2], Frame("rebuild_storage_fd", DATA_WAIT[-1].file, 9))
    path = write_case(tmp_path / "a.profd", step((rebuild, 250)), workers={1: IDLE_WORKER})
    found = diagnose(path, idle_workers)

    assert found is not None
    assert "smaller types" in found.remedy


def test_a_healthy_run_is_not_input_bound(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", HEALTHY, workers={1: BUSY_WORKER, 2: BUSY_WORKER})

    for rule in (load_in_process, saturated_workers, idle_workers):
        assert diagnose(path, rule) is None


def test_workers_that_may_be_saturated_are_not_called_idle(tmp_path: Path) -> None:
    at_the_limit = ((BUSY_WORKER[0][0], 400), (IDLE_WORKER[1][0], 100))
    path = write_case(tmp_path / "a.profd", WAITING, workers={1: at_the_limit})

    assert diagnose(path, idle_workers) is None


COLLECT = (Frame("<module>", TRAIN, 96), Frame("main", TRAIN, 90), Frame("train_epoch", TRAIN, 80))


def test_calls_of_the_garbage_collector_are_found_with_their_line(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", step((COLLECT, 150))), garbage_collection)

    assert found is not None
    assert found.severity == WARNING
    assert found.title.startswith("garbage collection: gc.collect() takes 30 % of the time (train.py:80)")
    assert found.gain_bound == pytest.approx(at_most_without(0.3), rel=0.03)
    assert diagnose(write_case(tmp_path / "b.profd", HEALTHY), garbage_collection) is None


def faulting(faults: float, *, system: float, user: float = 0.7) -> list[Series]:
    """Return how many pages a process asks for a second, and its CPU time in the kernel and outside."""
    return [
        Series("minor_faults_per_s", faults),
        Series("cpu_system_cores", system),
        Series("cpu_user_cores", user),
    ]


def test_pages_that_are_taken_anew_are_told_by_their_faults(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", HEALTHY, series=faulting(150_000, system=0.3))
    found = diagnose(path, allocator_churn)

    assert found is not None
    assert found.severity == WARNING
    assert "614 MB of memory a second are taken from the kernel anew, for 29 % of the time" in found.title
    assert "MALLOC_TRIM_THRESHOLD_" in found.remedy
    # In a step without the 2 % for which it waits for data, and with what 150,000 faults take outside of the kernel.
    assert found.gain_bound == pytest.approx(at_most_without(0.98 * 0.3 + 0.03), rel=0.01)


@pytest.mark.parametrize(
    "series",
    [faulting(10_000, system=0.04, user=0.06), faulting(30_000, system=0.3), faulting(150_000, system=0.02)],
    ids=["few faults", "too few for that time", "little time"],
)
def test_a_busy_kernel_is_no_churn_by_itself(tmp_path: Path, series: list[Series]) -> None:
    assert diagnose(write_case(tmp_path / "a.profd", HEALTHY, series=series), allocator_churn) is None
