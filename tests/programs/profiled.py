"""Profiles three training steps of each model with torch.profiler: writes traces, and torch's own tables as JSON.

profiled.py FOLDER    for MODEL.trace.json and MODEL.tables.json
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import torch
from torch import nn
from torch.autograd.profiler_util import EventList
from torch.profiler import ProfilerActivity, profile, record_function


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(8)])
        self.shortcut, self.head = nn.Conv2d(3, 8, 1), nn.Linear(8, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = torch.relu(self.norms[0](self.first(images)))
        features = torch.relu_(self.norms[1](self.second(features)) + self.shortcut(images))
        scores: torch.Tensor = self.head(nn.functional.adaptive_avg_pool2d(features, 1).flatten(1))
        return scores


def residual() -> tuple[nn.Module, torch.Tensor]:
    return Residual(), torch.randn(2, 3, 32, 32)


def mlp() -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 10)]
    return nn.Sequential(*layers), torch.randn(16, 20)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, dim_feedforward=64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.encoder(words).mean(1))
        return scores


def transformer() -> tuple[nn.Module, torch.Tensor]:
    return Transformer(), torch.randn(4, 12, 32)


MODELS = {"residual": residual, "mlp": mlp, "transformer": transformer}


def train(model: nn.Module, inputs: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    with record_function("forward"), record_function("forward"):  # torch counts a range within itself once
        loss = nn.functional.cross_entropy(model(inputs), torch.arange(len(inputs), device=inputs.device) % 10)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    # Ranges of one name that call more than each other, and operators of a second thread meanwhile.
    with record_function("again"), record_function("again"):
        torch.ones(4).add(1)
        with record_function("again"):
            thread = threading.Thread(target=lambda: torch.cat([torch.ones(64, 64), torch.ones(64, 64)]).sum())
            thread.start()
            thread.join()


def table(averages: EventList) -> list[dict[str, object]]:
    return [
        {
            "name": row.key,
            "device": str(row.device_type).rpartition(".")[2].lower(),
            "is_annotation": row.is_user_annotation,
            "input_shapes": str(row.input_shapes),
            "calls": row.count,
            "self_cpu_us": row.self_cpu_time_total,
            "cpu_total_us": row.cpu_time_total,
            "self_cuda_us": row.self_device_time_total,
            "cuda_total_us": row.device_time_total,
            "self_cpu_bytes": row.self_cpu_memory_usage,
            "cpu_bytes": row.cpu_memory_usage,
            "self_cuda_bytes": row.self_device_memory_usage,
            "cuda_bytes": row.device_memory_usage,
        }
        for row in averages
    ]


def main(name: str, folder: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, inputs = MODELS[name]()
    optimizer = torch.optim.Adam(model.parameters())
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
        model, inputs = model.cuda(), inputs.cuda()
    train(model, inputs, optimizer)
    stacks = name == "mlp"  # with the frames of Python among the events
    with profile(
        activities=activities,
        record_shapes=True,
        profile_memory=True,
        with_stack=stacks,
        experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True),
    ) as profiler:
        for _ in range(3):
            train(model, inputs, optimizer)
            profiler.step()
    profiler.export_chrome_trace(str(folder / f"{name}.trace.json"))
    both = {"by_name": profiler.key_averages(), "by_shape": profiler.key_averages(group_by_input_shape=True)}
    (folder / f"{name}.tables.json").write_text(json.dumps({kind: table(averages) for kind, averages in both.items()}))


if __name__ == "__main__":
    for name in MODELS:
        main(name, Path(sys.argv[1]))
