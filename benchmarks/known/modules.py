"""A deep chain of torch modules, whose leaves add small tensors for a set time."""

import time

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
SHARES = {"Light.forward": 0.25, "Heavy.forward": 0.75}


def add_up(inputs, seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        inputs = inputs + 1
    return inputs


class Light(nn.Module):
    def forward(self, inputs):
        return add_up(inputs, 0.0011)


class Heavy(nn.Module):
    def forward(self, inputs):
        return add_up(inputs, 0.0033)


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
    modules = chain(Light()), chain(Heavy())
    print("ready", flush=True)
    train(*modules)
