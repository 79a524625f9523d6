"""A deep chain of torch modules, whose leaves add small tensors for a set time."""

from time import perf_counter, time_ns

import diary
import torch
from torch import nn

CALLS = {
    "train": {"Module._wrapped_call_impl"},
    "Module._wrapped_call_impl": {"Module._call_impl"},
    "Module._call_impl": {"Deep.forward", "Light.forward", "Heavy.forward"},
    "Deep.forward": {"Module._wrapped_call_impl", "Module.__getattr__"},
    "Module.__getattr__": set(),
    "Light.forward": {"add_up"},
    "Heavy.forward": {"add_up"},
    "add_up": set(),
}
PHASES = ("Light.forward", "", "Heavy.forward", "")


def add_up(inputs, seconds):
    end = perf_counter() + seconds
    while perf_counter() < end:
        inputs = inputs + 1
    return inputs


class Light(nn.Module):
    def __init__(self, note):
        super().__init__()
        self.note = note

    def forward(self, inputs):
        self.note(time_ns())
        outputs = add_up(inputs, 0.0011)
        self.note(time_ns())
        return outputs


class Heavy(nn.Module):
    def __init__(self, note):
        super().__init__()
        self.note = note

    def forward(self, inputs):
        self.note(time_ns())
        outputs = add_up(inputs, 0.0033)
        self.note(time_ns())
        return outputs


class Deep(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, inputs):
        return self.inner(inputs)


def chain(module):
    for _ in range(20):
        module = Deep(module)
    return module


def train(light, heavy):
    inputs = torch.zeros(8)
    while True:
        light(inputs)
        heavy(inputs)


if __name__ == "__main__":
    torch.set_num_threads(1)
    note = diary.track()
    modules = chain(Light(note)), chain(Heavy(note))
    diary.ready()
    train(*modules)
