"""Writes Kineto traces with CUDA by hand, as libkineto does (pytorch/kineto at 114171d, August
2026, libkineto/).

Each fact and where it stands there:

- ``cat``: the names in ``include/ActivityType.h``.
- Work of a GPU: ``pid`` is the GPU and ``tid`` the stream (``src/CuptiActivity.h``,
  ``GpuActivity::deviceId`` and ``resourceId``), and ``args`` repeat them with ``correlation``
  (``visitTypedMetadata``). Copies and fills likewise.
- A call of the runtime or the driver: ``pid`` is the process, ``tid`` the system's thread id, where
  torch has recorded that thread (``src/CuptiActivityProfiler.cpp``, ``handleRuntimeActivity``);
  ``args`` are ``cbid`` and ``correlation``.
- ``External id``: of a call and of work that of the operator which was open, none where none was;
  of ``cuda_sync`` without an operator its own correlation (``src/output_json.cpp``,
  ``excludedTypes``).
- ``gpu_user_annotation``: one a stream, from its first work to its last, with the id of the
  annotation (``src/GenericActivityProfiler.cpp``, ``createUserGpuSpan``); written 1 ns earlier and
  2 ns longer (``src/output_json.cpp``, ``handleActivity``).
- ``overhead`` is of process -1, thread 0, without a correlation (``src/CuptiActivity.h``,
  ``OverheadActivity``).
- All work that a graph launches has the correlation of ``cudaGraphLaunch``, and a ``graph id``
  (``src/CuptiActivity.h``, ``addGraphNodeTypedMetadata``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from support.kinetotraces import TraceScript

PID = 4242


@dataclass
class CudaScript(TraceScript):
    """A trace of one process that uses GPUs; times are microseconds."""

    correlation: int = 1_000_000
    """Far from the ids of operators: torch up to 2.14 takes a call outside of operators for the one
    whose id it has.
    """
    calls: dict[int, tuple[float, int]] = field(default_factory=dict)
    """When the call of a correlation was over, and its thread."""
    work: list[tuple[float, float, int, int]] = field(default_factory=list)
    """Start, end, correlation and GPU of work."""

    def host(
        self, name: str, ts: float, dur: float, id: int, *, tid: int = PID, cat: str = "cpu_op"
    ) -> CudaScript:
        """Add an operator or, as ``user_annotation``, a range."""
        return self.add(cat, name, PID, tid, ts, dur, {"External id": id})

    def launch(
        self,
        name: str,
        ts: float,
        dur: float,
        *work: tuple[float, float],
        op: int = 0,
        gpu: int = 0,
        stream: int = 7,
        tid: int = PID,
        cat: str = "kernel",
        call: str = "cudaLaunchKernel",
    ) -> CudaScript:
        """Add a call, and the work that it launches, each with its start and length.

        More than one is a graph's.
        """
        self.correlation += 1
        link = {"External id": op} if op else {}
        kind = (
            "cuda_driver"
            if call.startswith("cu") and not call.startswith("cuda")
            else "cuda_runtime"
        )
        self.add(
            kind, call, PID, tid, ts, dur, {**link, "cbid": 211, "correlation": self.correlation}
        )
        self.calls[self.correlation] = ts + dur, tid
        for at, length in work:
            self.work.append((at, at + length, self.correlation, gpu))
            place = {"device": gpu, "context": 1, "stream": stream, "correlation": self.correlation}
            graph = {"graph id": 3, "graph node id": 9} if call == "cudaGraphLaunch" else {}
            self.add(cat, name, gpu, stream, at, length, {**link, **place, **graph})
        return self

    def annotation(
        self, name: str, ts: float, dur: float, id: int, *, stream: int = 7
    ) -> CudaScript:
        """Add the range of a device that spans the work of a ``user_annotation``."""
        return self.add(
            "gpu_user_annotation", name, 0, stream, ts - 0.001, dur + 0.002, {"External id": id}
        )

    def sync(self, ts: float, dur: float) -> CudaScript:
        """Add a synchronization that no operator made."""
        self.correlation += 1
        return self.add(
            "cuda_sync", "Stream Sync", 0, 7, ts, dur, {"External id": self.correlation}
        )

    def overhead(self, ts: float, dur: float) -> CudaScript:
        """Add time that CUPTI took."""
        return self.add("overhead", "Activity Buffer Request", -1, 0, ts, dur, {})

    def sweep(self, gpu: int) -> Iterator[tuple[int, int, int | None]]:
        """Yield each microsecond of a GPU, how many things run in it, and the thread that the GPU
        waits for, if any.
        """
        spans = [span for span in self.work if span[3] == gpu]
        for at in range(int(min(span[0] for span in spans)), int(max(span[1] for span in spans))):
            running = sum(start <= at < end for start, end, _, _ in spans)
            over, tid = (
                self.calls[min(span for span in spans if span[0] > at)[2]]
                if not running
                else (0.0, 0)
            )
            yield at, running, tid if over > at else None
