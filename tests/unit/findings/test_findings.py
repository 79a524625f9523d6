from __future__ import annotations

from typing import Any

import pytest
from support.findingruns import (
    BUSY_WORKER,
    HEALTHY,
    IDLE_WORKER,
    IMPORT,
    LOAD_IN_PROCESS,
    ROOT,
    Case,
    Series,
    Spans,
    at_most_without,
    cores,
    gpu,
    step,
)
from support.present import there
from support.synthetic import MAIN, MAIN_TID, worker
from support.training_stacks import DATA, DATA_WAIT, LIBRARY, OPTIMIZER, TRAIN

from profd.daemon.findings.cpu import cpu_limit, oversubscription
from profd.daemon.findings.finding import CRITICAL, INFO, WARNING
from profd.daemon.findings.loading import idle_workers, load_in_process, saturated_workers
from profd.daemon.findings.memory import (
    allocator_churn,
    garbage_collection,
    memory_growth,
    memory_limit,
    swapping,
)
from profd.daemon.findings.overhead import overhead
from profd.daemon.findings.phases import compilation, small_batches
from profd.daemon.findings.rule import Rule
from profd.daemon.store.records import Frame

COMPILE = (*ROOT, Frame("compile_fx", LIBRARY + "torch/_inductor/compile_fx.py", 1200))


def test_what_helps_against_compiling_is_of_the_compiler_that_takes_most(case: Case) -> None:
    jax = (*ROOT, Frame("backend_compile_and_load", LIBRARY + "jax/_src/compiler.py", 353))
    numba = (*ROOT, Frame("_compile_for_args", LIBRARY + "numba/core/dispatcher.py", 344))
    for costs, advice in (
        ((100, 60, 60), "TORCH_LOGS=recompiles"),
        ((60, 100, 60), "JAX_COMPILATION_CACHE_DIR"),
        ((60, 60, 100), "cache=True"),
    ):
        found = case.finding(compilation, step(*zip((COMPILE, jax, numba), costs, strict=True)))
        assert advice in found.remedy
        assert "compiling takes 44 % of the time" in found.title


def test_a_gpu_that_waits_for_python_wants_larger_batches(case: Case) -> None:
    found = case.finding(small_batches, HEALTHY, series=gpu(0.4))
    assert found.severity == CRITICAL
    # Larger batches make each operation on the GPU more efficient, too: only for those of now there
    # is a bound.
    assert found.gain_bound is None
    assert "speeds steps up by at most 2.5" in found.remedy
    assert case.found(small_batches, HEALTHY, series=gpu(0.95)) is None


def test_without_a_gpu_the_optimizer_tells_that_batches_are_small(case: Case) -> None:
    fused = (*OPTIMIZER[:-1], Frame("_fused_adam", LIBRARY + "torch/optim/adam.py", 790))
    found = case.finding(small_batches, step((fused, 150)))
    assert found.severity == WARNING
    assert "the optimizer takes 32 % of a step (train.py:64)" in found.title
    assert found.gain_bound is None
    assert (
        "one step of the optimizer for several of them (train.py:64) speeds steps up by at most 1.6"
        in found.remedy
    )


def test_an_optimizer_of_sparse_gradients_does_the_more_the_larger_the_batch_is(case: Case) -> None:
    called = Frame("sparse_adam", LIBRARY + "torch/optim/_functional.py", 83)
    sparse = (*ROOT, Frame("step", LIBRARY + "torch/optim/sparse_adam.py", 160), called)
    assert case.found(small_batches, step((sparse, 300))) is None
    adam = Frame("_single_tensor_adam", LIBRARY + "torch/optim/adam.py", 357)
    own = (*ROOT, Frame("train_sparse_autoencoder", ROOT[0].file, 3), adam)
    assert case.finding(small_batches, step((own, 300))).rule == "small-batches"


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


def test_more_threads_than_cores_are_found_where_they_wait_for_them(case: Case) -> None:
    found = case.finding(oversubscription, HEALTHY, series=crowd(pressure=0.6, used=1.8))
    assert found.severity == WARNING
    assert "32 threads of the training share 2 cores, and wait for one another" in found.title


def memory(slope: float) -> list[Series]:
    """Return the series of a process that grows by so many bytes a second, on a machine with 16
    GiB.
    """
    return [
        Series("rss_bytes", *(GIB + slope * second for second in range(60)), identity=MAIN),
        host("host_memory_total_bytes", 16 * GIB),
        host("host_memory_used_bytes", 4 * GIB),
    ]


def test_growing_memory_is_grave_where_it_is_full_soon(case: Case) -> None:
    soon = case.finding(memory_growth, HEALTHY, series=memory(20e6), seconds=60)
    late = case.finding(memory_growth, HEALTHY, series=memory(2e6), seconds=60)
    assert (soon.severity, late.severity) == (CRITICAL, WARNING)
    assert soon.title == "memory grows: main 4242 takes 20 MB more a second: full in 10 min 44 s"
    measure = soon.evidence.measures[0]
    assert there(measure.low) <= 20e6 <= there(measure.high)


@pytest.mark.parametrize(("share", "severity"), [(0.5, None), (0.93, WARNING), (0.98, CRITICAL)])
def test_memory_that_is_nearly_used_up_is_a_finding(
    case: Case, share: float, severity: str | None
) -> None:
    used = [
        host("host_memory_total_bytes", 16 * GIB),
        host("host_memory_used_bytes", share * 16 * GIB),
    ]
    assert (
        case.severity(memory_limit, HEALTHY, series=[Series("rss_bytes", GIB), *used]) == severity
    )


@pytest.mark.parametrize(
    ("main_gib", "worker_gib", "says"),
    [(0.4, 0.1, "and this training holds at most 644 MB of it"), (9, 0.1, ""), (2, 3, "")],
    ids=["others hold it", "the training holds it", "its workers hold it"],
)
def test_memory_that_is_nearly_used_up_is_told_by_whom(
    case: Case, main_gib: float, worker_gib: float, says: str
) -> None:
    series = [
        Series("rss_bytes", main_gib * GIB),
        *(Series("rss_bytes", worker_gib * GIB, identity=worker(number)) for number in (1, 2)),
        host("host_memory_total_bytes", 16 * GIB),
        host("host_memory_used_bytes", 15 * GIB),
    ]
    workers = dict.fromkeys((1, 2), BUSY_WORKER)
    title = case.title(memory_limit, HEALTHY, workers=workers, series=series)
    assert title.endswith(says or "of the machine is in use")


def test_a_limit_on_cpu_time_is_found_by_the_periods_that_it_cut_short(case: Case) -> None:
    limit = Series("cgroup_cpu_limit_cores", 1.5, device="/docker/a")
    title = case.title(
        cpu_limit, HEALTHY, series=[host("cgroup_cpu_throttled_share", 0.5, 0.3), limit]
    )
    assert "limit of 1.5 cores stopped the training in 31 % of its periods" in title
    assert (
        case.found(cpu_limit, HEALTHY, series=[host("cgroup_cpu_throttled_share", 0.01), limit])
        is None
    )


def test_swapping_is_pages_on_disk_that_are_waited_for(case: Case) -> None:
    def memory(faults: float, swapped: float) -> list[Series]:
        return [Series("major_faults_per_s", faults), Series("swap_bytes", swapped)]

    title = case.title(swapping, HEALTHY, series=memory(300, 2e9))
    assert title == "swapping: main 4242 has 2.0 GB on disk and waits for 300 pages a second"
    # Files that are read for the first time, and pages that nobody asks for.
    assert [case.found(swapping, HEALTHY, series=memory(*one)) for one in ((300, 0), (0, 2e9))] == [
        None,
        None,
    ]


def test_threads_of_workers_crowd_the_machine_too(case: Case) -> None:
    series = [
        *crowd(pressure=0.6, used=0.5, threads=4),
        *(Series("threads", 8, identity=worker(number)) for number in (1, 2)),
        *(Series("cpu_cores", 0.6, identity=worker(number)) for number in (1, 2)),
    ]
    workers = dict.fromkeys((1, 2), BUSY_WORKER)
    assert "20 threads of the training share 2 cores" in case.title(
        oversubscription, HEALTHY, workers=workers, series=series
    )


WAITING = step((DATA_WAIT, 250))


def test_loading_between_steps_is_found_with_its_line_share_and_bound(case: Case) -> None:
    found = case.finding(load_in_process, step((LOAD_IN_PROCESS, 200)))
    measure = found.evidence.measures[0]
    assert measure.value == pytest.approx(0.4, abs=0.01)
    assert measure.samples == pytest.approx(1200, abs=30)
    assert found.severity == CRITICAL
    assert there(measure.low) < 0.4 < there(measure.high)
    # The bound is that of the largest share that there may be, and so no less than that of the
    # share itself.
    assert found.gain_bound == pytest.approx(at_most_without(there(measure.high)))
    line = there(found.evidence.line)
    assert (line.module_path, line.line) == ("train.py", 58)
    assert found.title.startswith(
        "input-bound: the main thread loads data 40 % of the time (train.py:58)"
    )
    assert found.evidence.selection.phase == "data load in process"
    # Below the loop of a framework it is the line of the dataset.
    trainer = (
        *LOAD_IN_PROCESS[:3],
        Frame("Trainer._inner_training_loop", LIBRARY + "transformers/trainer.py", 2400),
    )
    assert "(augment.py:33)" in case.title(
        load_in_process, step(((*trainer, *LOAD_IN_PROCESS[3:]), 200))
    )


def test_the_function_with_most_of_the_loading_is_named(case: Case) -> None:
    decode = (*LOAD_IN_PROCESS, Frame("decode", DATA, 40))
    found = case.finding(load_in_process, step((decode, 150), (LOAD_IN_PROCESS, 50)))
    assert (
        "See whether decode (augment.py:40) can cost less: it takes 30 % of the time."
        in found.remedy
    )
    crop = (*LOAD_IN_PROCESS, Frame("crop", DATA, 50))
    found = case.finding(load_in_process, step((decode, 100), (crop, 100)))
    assert (
        "See whether Photos.__getitem__ (augment.py:33) can cost less: it takes 40 % of the time."
        in found.remedy
    )
    library = (
        *LOAD_IN_PROCESS[:-1],
        Frame("default_collate", LIBRARY + "torch/utils/data/_utils/collate.py", 398),
    )
    assert "See whether" not in case.finding(load_in_process, step((library, 200))).remedy


@pytest.mark.parametrize(
    ("per_s", "severity", "advice"),
    [(50, WARNING, "num_workers=1"), (100, INFO, "batch_size=None in the DataLoader")],
)
def test_a_batch_that_is_made_as_soon_as_it_is_handed_over_needs_no_worker(
    case: Case, per_s: int, severity: str, advice: str
) -> None:
    # 30 % of the time: 6 ms a step at 50 steps a second, 3 ms at 100.
    series = [Series("step_count", *(float(second * per_s) for second in range(60)))]
    found = case.finding(load_in_process, step((LOAD_IN_PROCESS, 150)), series=series)
    assert (found.severity, advice in found.remedy) == (severity, True)
    assert ("3.0 ms a step" in found.cause) == (severity == INFO)
    # A stream is read by no list of indices, and workers share it.
    fetch = Frame("_IterableDatasetFetcher.fetch", LIBRARY + "torch/utils/data/_utils/fetch.py", 33)
    stream = (*LOAD_IN_PROCESS[:5], fetch, Frame("ClickLog.__iter__", TRAIN, 30))
    assert (
        "get_worker_info"
        in case.finding(load_in_process, step((stream, 150)), series=series).remedy
    )
    assert "get_worker_info" not in found.remedy
    fastai = (*stream, Frame("DataLoader.create_batches", LIBRARY + "fastai/data/load.py", 200))
    assert "get_worker_info" not in case.finding(load_in_process, step((fastai, 150))).remedy


NADAM = (*ROOT, Frame("_single_tensor_nadam", LIBRARY + "torch/optim/nadam.py", 357))
"""It has no fused form. Another 2 % are that of ``step``; the interval's low end counts."""
SEVERITIES: dict[str, tuple[Rule, tuple[Frame, ...], int, str | None]] = {
    "2 % may be nothing": (load_in_process, LOAD_IN_PROCESS, 10, None),
    "8 %": (load_in_process, LOAD_IN_PROCESS, 40, INFO),
    "18 %": (load_in_process, LOAD_IN_PROCESS, 90, WARNING),
    "46 %": (load_in_process, LOAD_IN_PROCESS, 230, CRITICAL),
    "compiling in the middle of the training": (compilation, COMPILE, 150, WARNING),
    "an optimizer that is slow by itself is warned of once": (small_batches, OPTIMIZER, 150, INFO),
    "an optimizer below a quarter of a step": (small_batches, NADAM, 100, INFO),
    "an optimizer above it": (small_batches, NADAM, 140, WARNING),
}


@pytest.mark.parametrize(
    ("rule", "stack", "lost_ms", "severity"), SEVERITIES.values(), ids=SEVERITIES
)
def test_severity_goes_by_what_is_sure(
    case: Case, rule: Rule, stack: tuple[Frame, ...], lost_ms: int, severity: str | None
) -> None:
    assert case.severity(rule, step((stack, lost_ms))) == severity


def test_startup_is_no_part_of_what_a_share_is_one_of(case: Case) -> None:
    steps = [((IMPORT, 500),)] * 20 + [step((LOAD_IN_PROCESS, 200))] * 20
    found = case.finding(load_in_process, *steps, seconds=40)
    assert found.evidence.measures[0].value == pytest.approx(0.4, abs=0.01)


def test_bound_is_no_more_than_the_cores_allow(case: Case) -> None:
    busy = Series("cpu_cores", 1.0, tid=MAIN_TID)
    found = case.finding(load_in_process, step((LOAD_IN_PROCESS, 400)), series=[busy, *cores(2)])
    assert found.gain_bound == pytest.approx(2.0, abs=0.02)
    assert "num_workers=2 " in found.remedy


def test_saturated_workers_tell_how_many_would_do(case: Case) -> None:
    workers = {1: BUSY_WORKER, 2: BUSY_WORKER}
    found = case.finding(saturated_workers, WAITING, workers=workers)
    # Two workers that are busy all the time, for steps that would take half the time.
    assert "having more workers speeds steps up by at most 2.3" in found.title
    assert (
        "keeps 2 workers (augment.py:12) busy 100 % of the time. That is enough for" in found.cause
    )
    assert "enough for 2.0 steps/s, and" in found.cause
    assert "num_workers=4-5 " in found.remedy
    assert "train.py:58" in found.remedy
    assert "(augment.py:12)" in found.cause
    waiting = [Series("cpu_cores", 0.05, identity=worker(number)) for number in workers]
    assert (
        "storage" in case.finding(saturated_workers, WAITING, workers=workers, series=waiting).cause
    )
    for other in (idle_workers, load_in_process):
        assert case.found(other, WAITING, workers=workers) is None


def test_more_workers_are_not_advised_where_no_core_is_left(case: Case) -> None:
    busy = [Series("cpu_cores", 0.5, tid=MAIN_TID)]
    busy += [Series("cpu_cores", 0.98, identity=worker(number)) for number in (1, 2)]
    found = case.finding(
        saturated_workers,
        WAITING,
        workers={1: BUSY_WORKER, 2: BUSY_WORKER},
        series=[*busy, *cores(2)],
    )
    assert "loading at less cost speeds" in found.title
    assert "No core is left" in found.cause
    assert "num_workers" not in found.remedy


def test_no_more_workers_are_advised_than_find_a_core(case: Case) -> None:
    busy = [Series("cpu_cores", 0.5, tid=MAIN_TID), Series("cpu_cores", 0.98, identity=worker(1))]
    spans, workers = step((DATA_WAIT, 450)), {1: BUSY_WORKER}

    def number(*series: Series) -> str:
        return case.finding(
            saturated_workers, spans, workers=workers, series=[*busy, *series]
        ).remedy.split()[1]

    assert number() == "num_workers=10-11"
    assert number(*cores(8)) == "num_workers=8"
    assert number(*cores(4)) == "num_workers=4"


def test_a_wait_beside_idle_workers_is_not_for_want_of_workers(case: Case) -> None:
    workers = {1: IDLE_WORKER, 2: IDLE_WORKER}
    found = case.finding(idle_workers, WAITING, workers=workers)
    assert "its workers have time to spare" in found.title
    assert "prefetch_factor" in found.remedy
    assert case.found(saturated_workers, WAITING, workers=workers) is None


def test_idle_workers_should_hand_over_smaller_types_or_be_done_without(case: Case) -> None:
    # The same wait, but the main thread is busy with a batch that it has.
    rebuild = (*DATA_WAIT[:-2], Frame("rebuild_storage_fd", DATA_WAIT[-1].file, 9))
    found = case.finding(
        idle_workers, step((rebuild, 250)), workers={1: IDLE_WORKER, 2: IDLE_WORKER}
    )
    assert "smaller types" in found.remedy
    # A worker that works 20 % of the time makes batches in less time than the main thread takes
    # them, 50 % of it.
    found = case.finding(idle_workers, step((rebuild, 250)), workers={1: IDLE_WORKER})
    assert "num_workers=0 in the DataLoader (train.py:58)" in found.remedy


COLLECT = (*ROOT[:-1], Frame("train_epoch", TRAIN, 80))


def test_calls_of_the_garbage_collector_are_found_with_their_line(case: Case) -> None:
    found = case.finding(garbage_collection, step((COLLECT, 150)))
    assert found.severity == WARNING
    assert found.title.startswith(
        "garbage collection: gc.collect() takes 30 % of the time (train.py:80)"
    )
    assert found.gain_bound == pytest.approx(at_most_without(0.3), rel=0.03)
    assert case.found(overhead, step((COLLECT, 150))) is None
    assert case.found(garbage_collection, HEALTHY) is None


def test_a_library_that_collects_garbage_is_named_as_its_call_cannot_be_left_out(
    case: Case,
) -> None:
    collect = (
        *ROOT,
        Frame("TrainingLoop._train_epoch", LIBRARY + "pykeen/training/training_loop.py", 493),
    )
    remedy = case.finding(garbage_collection, step((collect, 150))).remedy
    assert "pykeen makes the call" in remedy
    assert "gc.freeze() once, before the line that trains (train.py:" in remedy


def test_what_is_loaded_while_a_program_starts_up_is_nothing_to_mend(case: Case) -> None:
    assert case.found(load_in_process, [(IMPORT, 400), (LOAD_IN_PROCESS, 100)]) is None
    assert case.found(load_in_process, [(IMPORT, 300), (LOAD_IN_PROCESS, 200)]) is not None


def test_what_python_collects_while_a_program_starts_up_is_nothing_to_mend(case: Case) -> None:
    shares = [Series("garbage_collection_share", 0.4)]
    assert case.found(garbage_collection, ((IMPORT, 500),), series=shares) is None
    assert (
        case.found(garbage_collection, ((IMPORT, 200), (COLLECT[:-1], 300)), series=shares)
        is not None
    )


def test_collections_that_python_makes_by_itself_are_found_by_its_flag(case: Case) -> None:
    shares = Series("garbage_collection_share", 0.4)
    found = case.finding(garbage_collection, HEALTHY, series=[shares])
    assert found.title.startswith(
        "garbage collection: Python collects garbage by itself for 40 % of the time: doing"
    )
    assert (found.severity, found.evidence.line) == (CRITICAL, None)
    assert found.gain_bound == pytest.approx(at_most_without(0.4), rel=0.05)
    called = case.title(garbage_collection, step((COLLECT, 150)), series=[shares])
    assert called.startswith("garbage collection: gc.collect() takes 30 % of the time")


def faulting(faults: float, *, system: float, user: float = 0.7) -> list[Series]:
    """Return how many pages a process asks for a second, and its CPU time in the kernel and
    outside.
    """
    return [
        Series("minor_faults_per_s", faults),
        Series("cpu_system_cores", system),
        Series("cpu_user_cores", user),
    ]


def test_pages_taken_anew_are_found_by_their_faults(case: Case) -> None:
    found = case.finding(allocator_churn, HEALTHY, series=faulting(150_000, system=0.3))
    assert found.severity == WARNING
    assert "freed memory is taken from the kernel again and again, 29 % of the time" in found.title
    assert "MALLOC_TRIM_THRESHOLD_" in found.remedy
    # In a step without the 2 % for which it waits for data, and with what 150,000 faults take
    # outside of the kernel.
    assert found.gain_bound == pytest.approx(at_most_without(0.98 * 0.3 + 0.03), rel=0.01)


# Readings of two trainings on a machine that others filled: faults a second, CPU time in the kernel
# and outside. Alone, and with the memory kept, the first makes 1.10 times as many steps a second,
# the second 1.31 times.
FEW_FAULTS = (
    (30427, 35311, 40644, 39937, 36206, 31110, 43550, 40809),
    (0.097, 0.099, 0.098, 0.095, 0.084, 0.082, 0.120, 0.110),
    (0.780, 0.684, 0.880, 0.857, 0.807, 0.696, 0.861, 0.858),
)
MANY_FAULTS = (
    (85050, 96530, 94189, 88387, 93452, 85377, 71937, 38628),
    (0.170, 0.227, 0.211, 0.204, 0.241, 0.202, 0.155, 0.092),
    (0.599, 0.698, 0.670, 0.646, 0.690, 0.633, 0.568, 0.343),
)


@pytest.mark.parametrize(("readings", "severity"), [(FEW_FAULTS, None), (MANY_FAULTS, WARNING)])
def test_a_busy_machine_makes_no_churn_of_faults(
    case: Case, readings: tuple[tuple[float, ...], ...], severity: str | None
) -> None:
    names = ("minor_faults_per_s", "cpu_system_cores", "cpu_user_cores")
    series = [Series(name, *values) for name, values in zip(names, readings, strict=True)]
    assert (
        case.severity(allocator_churn, step(), series=series, seconds=len(readings[0]) + 1)
        == severity
    )


BY_HAND = (((*ROOT, Frame("sgd", TRAIN, 4)), 200), ((*ROOT, Frame("backward", TRAIN, 5)), 300))
NOTHING: dict[str, tuple[Rule, Spans, dict[str, Any]]] = {
    "a full machine: no thread waits": (
        oversubscription,
        HEALTHY,
        {"series": crowd(pressure=0.2, used=1.8)},
    ),
    "a full machine: others fill it": (
        oversubscription,
        HEALTHY,
        {"series": crowd(pressure=0.6, used=0.5)},
    ),
    "a full machine: few threads": (
        oversubscription,
        HEALTHY,
        {"series": crowd(pressure=0.6, used=1.8, threads=4)},
    ),
    "memory that stands still": (memory_growth, HEALTHY, {"series": memory(0.0), "seconds": 60}),
    "an optimizer by hand, which may be slow by itself": (small_batches, BY_HAND, {}),
    "few samples": (load_in_process, step((LOAD_IN_PROCESS, 200)), {"seconds": 1}),
    "few faults": (allocator_churn, HEALTHY, {"series": faulting(10_000, system=0.04, user=0.06)}),
    "too few faults for that time": (
        allocator_churn,
        HEALTHY,
        {"series": faulting(30_000, system=0.3)},
    ),
    "faults that take little time": (
        allocator_churn,
        HEALTHY,
        {"series": faulting(150_000, system=0.02)},
    ),
}


@pytest.mark.parametrize(("rule", "spans", "more"), NOTHING.values(), ids=NOTHING)
def test_a_rule_finds_nothing(case: Case, rule: Rule, spans: Spans, more: dict[str, Any]) -> None:
    assert case.found(rule, spans, **more) is None
