"""Profiles three training steps of a model with torch.profiler: writes the trace, and torch's own tables of it as JSON.

profiled.py MODEL TRACE TABLES
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


def resnet18() -> tuple[nn.Module, torch.Tensor]:
    from torchvision.models import resnet18

    return resnet18(num_classes=10), torch.randn(2, 3, 32, 32)


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


MODELS = {"resnet18": resnet18, "mlp": mlp, "transformer": transformer}


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
            "flops": row.flops,
        }
        for row in averages
    ]


def main(name: str, trace: Path, tables: Path) -> None:
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
        with_flops=True,
        with_stack=stacks,
        experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True),
    ) as profiler:
        for _ in range(3):
            train(model, inputs, optimizer)
            profiler.step()
    profiler.export_chrome_trace(str(trace))
    both = {"by_name": profiler.key_averages(), "by_shape": profiler.key_averages(group_by_input_shape=True)}
    tables.write_text(json.dumps({kind: table(averages) for kind, averages in both.items()}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
