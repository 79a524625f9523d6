"""Trainings with one planted cause each, and without it, for a day with a GPU: ``gpu_session.py``
runs them.

``python gpu_programs.py NAME [--seconds 25] [--steps N] [--gap MS] [--busy MS] [--profile FOLDER]
[--log FILE]``: trains on the GPU where there is one, and ends with a line of JSON: the step times,
and what the model became. ``--own-profile``, ``--cupti`` and ``--window FOLDER`` have another
profiler beside it, or profd's part in the process.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

HAS_CUDA = torch.cuda.is_available()
DEVICE = "cuda" if HAS_CUDA else "cpu"
Step = Callable[[], object]
MODELS: list[nn.Module] = []


def sized(count: int) -> int:
    """Return a size: without a GPU a small one, so that the program is only tried."""
    return count if HAS_CUDA else min(count, 32)


class Noise(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Images that are made when they are asked for, at a cost."""

    def __init__(self, cost: int) -> None:
        self._cost = cost

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.rand(3, 32, 32)
        for _ in range(self._cost):
            image = image.roll(1, 2)
        return image, index % 10


def convolutions(width: int) -> nn.Module:
    """Return a small network of convolutions."""
    width = sized(width)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(8):
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


class Transformer(nn.Module):
    """An encoder of sequences of vectors, and what class each is of."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(sized(width), 8, 4 * sized(width), batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(sized(width), 10)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        classes: torch.Tensor = self.head(self.encoder(sequences).mean(1))
        return classes


def perceptron(width: int, depth: int) -> nn.Module:
    """Return a network of products."""
    linears = (nn.Linear(sized(width), sized(width)) for _ in range(depth))
    return nn.Sequential(*(layer for linear in linears for layer in (linear, nn.ReLU())))


def training(
    model: nn.Module,
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]],
    *,
    item: bool = False,
    autocast: bool = False,
    hidden_s: float = 0.0,
    **optimizer: Any,  # noqa: ANN401
) -> Step:
    """Return a step: ``item`` asks for the loss each time, ``hidden_s`` is Python's own work
    meanwhile.
    """
    model.to(DEVICE)
    MODELS.append(model)
    adam = torch.optim.AdamW(model.parameters(), **optimizer)
    loss_of = nn.CrossEntropyLoss()

    def step() -> None:
        images, labels = next(batches)
        images, labels = images.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=autocast):
            loss = loss_of(model(images), labels)
        adam.zero_grad()
        loss.backward()
        adam.step()
        if item:
            loss.item()
        until = time.perf_counter() + hidden_s
        while time.perf_counter() < until:
            pass

    return step


def loaded(
    workers: int, batch: int, cost: int, *, pinned: bool = True
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the batches of a DataLoader."""
    loader = torch.utils.data.DataLoader(
        Noise(cost),
        batch,
        num_workers=workers,
        pin_memory=pinned and HAS_CUDA,
        persistent_workers=workers > 0,
    )
    while True:
        yield from loader


def resident(
    batch: int, *shape: int, pinned: bool | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield one batch again and again: from the GPU, or where ``pinned`` is given from the host's
    memory.
    """
    images, labels = (
        torch.rand(sized(batch), *map(sized, shape)),
        torch.randint(10, (sized(batch),)),
    )
    if pinned is None:
        images, labels = images.to(DEVICE), labels.to(DEVICE)
    elif pinned and HAS_CUDA:
        images, labels = images.pin_memory(), labels.pin_memory()
    while True:
        yield images, labels


def half_python() -> Step:
    """Return a step that the GPU bounds, with Python's own work in a third of it."""
    bare = training(perceptron(2048, 12), resident(4096, 2048), item=True)
    for _ in range(20):  # the first ones are slower by far
        bare()
    begun = time.perf_counter()
    bare()
    return training(
        perceptron(2048, 12), resident(4096, 2048), hidden_s=0.3 * (time.perf_counter() - begun)
    )


def filled() -> Step:
    """Return a step on a GPU of whose memory 2 % are left."""
    if HAS_CUDA:
        free, whole = torch.cuda.mem_get_info()
        filled.kept = torch.empty(
            max(free - whole // 50 - (2 << 30), 0), dtype=torch.uint8, device=DEVICE
        )  # type: ignore[attr-defined]
    return training(perceptron(1024, 8), resident(1024, 1024))


def channels_last() -> Step:
    """Return a step with channels last, in bfloat16."""
    model = convolutions(128).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return training(model, resident(256, 3, 32, 32), autocast=True)


# By name what is planted; those with a plus have it mended.
PROGRAMS: dict[str, Callable[[], Step]] = {
    "in-process": lambda: training(convolutions(64), loaded(0, 64, 20)),
    "in-process+": lambda: training(convolutions(256), loaded(8, 64, 1)),
    "item": lambda: training(perceptron(256, 40), resident(64, 256), item=True),
    "item+": lambda: training(perceptron(4096, 8), resident(4096, 4096)),
    "unpinned": lambda: training(perceptron(4096, 1), resident(16384, 4096, pinned=False)),
    "unpinned+": lambda: training(perceptron(4096, 8), resident(1024, 4096, pinned=True)),
    "tiny-batch": lambda: training(convolutions(32), resident(2, 3, 32, 32)),
    "tiny-batch+": lambda: training(convolutions(256), resident(512, 3, 32, 32)),
    "fp32": lambda: training(perceptron(4096, 8), resident(4096, 4096)),
    "fp32+": lambda: training(perceptron(4096, 8), resident(4096, 4096), autocast=True),
    "planes": lambda: training(convolutions(128), resident(256, 3, 32, 32), autocast=True),
    "planes+": channels_last,
    "foreach": lambda: training(perceptron(512, 200), resident(64, 512), foreach=True),
    "foreach+": lambda: training(perceptron(512, 200), resident(64, 512), fused=True),
    "hidden+": half_python,
    "full-power+": lambda: training(perceptron(8192, 8), resident(8192, 8192), autocast=True),
    "memory": filled,
    "launch-bound": lambda: training(perceptron(64, 60), resident(16, 64)),
    "tiny": lambda: training(perceptron(64, 2), resident(16, 64), item=True),
    "transformer": lambda: training(Transformer(512, 6), resident(32, 256, 512)),
    "gpu-bound": lambda: training(convolutions(256), resident(256, 3, 32, 32)),
}


def gaps(busy_ms: float, gap_ms: float) -> Step:
    """Return a step that keeps the GPU busy for a time, waits for it, and leaves it idle for
    another.
    """
    per_ms = _cycles_per_ms()

    def work() -> None:
        if HAS_CUDA:
            torch.cuda._sleep(int(busy_ms * per_ms))  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
        else:
            time.sleep(busy_ms / 1000)

    def load() -> None:
        time.sleep(gap_ms / 1000)

    def step() -> None:
        load()
        work()

    return step


def _cycles_per_ms() -> float:
    if not HAS_CUDA:
        return 0.0
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):  # the first one wakes the clocks
        first.record()
        torch.cuda._sleep(100_000_000)  # type: ignore[no-untyped-call]
        last.record()
        torch.cuda.synchronize()
    return 100_000_000 / first.elapsed_time(last)


def context() -> Step:
    """Return a step that does nothing, beside a context on the GPU."""
    context.kept = torch.zeros(1, device=DEVICE)  # type: ignore[attr-defined]
    return lambda: time.sleep(0.1)


def subscribe() -> int:
    """Be a client of CUPTI, as a profiler is; returns CUPTI's code, 0 where that was granted."""
    import nvidia

    paths = [path for folder in nvidia.__path__ for path in Path(folder).rglob("libcupti.so.*")]
    library = ctypes.CDLL(str(paths[0]))
    subscribe.kept = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p
    )(  # type: ignore[attr-defined]
        lambda *_: None
    )
    handle = ctypes.c_void_p()
    return int(library.cuptiSubscribe(ctypes.byref(handle), subscribe.kept, None))  # type: ignore[attr-defined]


def window_of_profd(folder: Path) -> threading.Thread:
    """Begin a window of five steps by profd's code that runs in a training, without what brings it
    there.
    """
    from profd.daemon.windows import intarget

    folder.mkdir(exist_ok=True)
    order = intarget.Order(
        str(folder), 5, None, shapes=True, memory=False, stacks=False, patience_s=30.0
    )
    thread = threading.Thread(target=intarget.take, args=(order,))
    thread.start()
    return thread


def what_became() -> str | None:
    """Return a digest of all parameters: the same where not a bit differs."""
    digest = hashlib.sha256()
    for model in MODELS:
        for parameter in model.parameters():
            digest.update(parameter.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest() if MODELS else None


def profiled(step: Step, folder: Path) -> None:
    """Take five steps with torch.profiler: its trace, and its own table."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if HAS_CUDA else [])]
    with profile(activities=kinds, record_shapes=True) as taken:
        for _ in range(5):
            step()
        if HAS_CUDA:
            torch.cuda.synchronize()
    taken.export_chrome_trace(str(folder / "trace.json"))
    rows = [
        {"name": row.key, "calls": row.count, "self_cpu_us": row.self_cpu_time_total, "device": str(row.device_type),
         "self_device_us": row.self_device_time_total}
        for row in taken.key_averages()
    ]  # fmt: skip
    (folder / "table.json").write_text(json.dumps(rows))


def main() -> None:
    """Train, and print what the steps took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[*PROGRAMS, "gaps", "graph", "context"])
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--steps", type=int, default=1 << 40)
    parser.add_argument("--gap", type=float, default=100)
    parser.add_argument("--busy", type=float, default=100)
    parser.add_argument("--profile", type=Path)
    parser.add_argument(
        "--log",
        type=Path,
        help="write when each step ended, by the monotonic clock, and its length",
    )
    parser.add_argument("--own-profile", action="store_true", help="profile all steps")
    parser.add_argument("--cupti", action="store_true", help="be another client of CUPTI")
    parser.add_argument(
        "--window", type=Path, help="take a window by profd's part in the process after a third"
    )
    options = parser.parse_args()
    torch.manual_seed(0)
    subscribed = subscribe() if options.cupti else None
    step = gaps(options.busy, options.gap) if options.name == "gaps" else _program(options.name)
    for _ in range(3):
        step()
    if options.profile:
        profiled(step, options.profile)
    log = options.log.open("w") if options.log else None
    own = torch.profiler.profile() if options.own_profile else contextlib.nullcontext()
    times, begun, memory = [], time.perf_counter(), [free_memory()]
    window = None
    own.__enter__()
    while time.perf_counter() < begun + options.seconds and len(times) < options.steps:
        before = time.perf_counter()
        if options.window and window is None and len(times) >= options.steps // 3:
            window = window_of_profd(options.window)
        step()
        times.append(time.perf_counter() - before)
        if log is not None:
            print(json.dumps([time.monotonic(), times[-1]]), file=log, flush=True)
    if HAS_CUDA:
        torch.cuda.synchronize()
    took = time.perf_counter() - begun
    own.__exit__(None, None, None)
    if window is not None:
        window.join()
    said = {
        "steps": len(times),
        "seconds": took,
        "median_s": statistics.median(times) if times else None,
        "longest_s": max(times, default=None),
        "memory": [*memory, free_memory()],
        "cuda": HAS_CUDA,
        "became": what_became(),
        "cupti": subscribed,
        "own_rows": len(own.key_averages()) if isinstance(own, torch.profiler.profile) else None,
    }
    print(json.dumps(said))


def free_memory() -> list[int]:
    """Return the free memory of each GPU, in bytes."""
    return [torch.cuda.mem_get_info(number)[0] for number in range(torch.cuda.device_count())]


def _program(name: str) -> Step:
    if name == "context":
        return context()
    if name != "graph":
        return PROGRAMS[name]()
    inner = training(perceptron(256, 40), resident(64, 256), capturable=HAS_CUDA)
    if not HAS_CUDA:
        return inner
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for _ in range(3):
            inner()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inner()
    return graph.replay


if __name__ == "__main__":
    main()
