"""A surrogate of a stirred reactor in NumPy alone: three layers and Adam by hand, a log that flows in.

The last transitions are kept, and batches drawn from them. Planted: what arrives is appended by
concatenation, so that all that is kept is copied in each step. Mended: it is written over the oldest rows.
"""

import os
import sys
from itertools import pairwise
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

INPUTS, OUTPUTS = 10, 6


def reactor_log(rows, rng):
    """Return transitions: concentrations, temperatures and controls, then how they change."""
    state = np.abs(rng.normal(1.0, 0.3, (rows, OUTPUTS)))
    control = rng.uniform(0.0, 1.0, (rows, INPUTS - OUTPUTS))
    rate = state[:, :1] * np.exp(-1.5 / (0.2 + state[:, 3:4]))
    change = np.hstack(
        (control[:, :1] - state[:, :1] - rate, rate - state[:, 1:2], -0.3 * state[:, 2:3] * control[:, 1:2])
    )
    heat = np.hstack((1.8 * rate - control[:, 2:3], control[:, 3:4] - state[:, 4:5], 0.1 * np.sin(state[:, 5:6])))
    return np.hstack((state, control, change, heat))


class ShiftedHistory:
    def __init__(self, rows):
        self.table = rows.copy()

    def append(self, rows):
        self.table = np.concatenate((self.table[len(rows) :], rows))  # planted


class RingHistory:
    def __init__(self, rows):
        self.table, self.next = rows.copy(), 0

    def append(self, rows):
        self.table[(self.next + np.arange(len(rows))) % len(self.table)] = rows
        self.next = (self.next + len(rows)) % len(self.table)


class Network:
    def __init__(self, sizes, rng):
        self.weights = [rng.normal(0, (2 / inputs) ** 0.5, (inputs, outputs)) for inputs, outputs in pairwise(sizes)]
        self.biases = [np.zeros(outputs) for outputs in sizes[1:]]

    def parameters(self):
        return [*self.weights, *self.biases]

    def forward(self, x):
        self.activations = [x]
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight
            x += bias
            if number + 1 < len(self.weights):
                np.tanh(x, out=x)
            self.activations.append(x)
        return x

    def backward(self, delta):
        weights, biases = [], []
        for number in reversed(range(len(self.weights))):
            inputs = self.activations[number]
            weights.append(inputs.T @ delta)
            biases.append(delta.sum(0))
            if number:
                delta = delta @ self.weights[number].T
                delta *= 1 - inputs * inputs
        return [*reversed(weights), *reversed(biases)]


class Adam:
    def __init__(self, parameters, lr):
        self.parameters, self.lr, self.t = parameters, lr, 0
        self.first = [np.zeros_like(parameter) for parameter in parameters]
        self.second = [np.zeros_like(parameter) for parameter in parameters]

    def step(self, gradients):
        self.t += 1
        rate = self.lr * (1 - 0.999**self.t) ** 0.5 / (1 - 0.9**self.t)
        for parameter, gradient, first, second in zip(self.parameters, gradients, self.first, self.second, strict=True):
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient * gradient - second)
            parameter -= rate * first / (np.sqrt(second) + 1e-8)


def arrivals(log, size):
    """Yield what the plant has measured since the last call."""
    while True:
        for begin_row in range(0, len(log) - size + 1, size):
            yield log[begin_row : begin_row + size]


def train(diary, mended):
    rng = np.random.default_rng(31)
    log = reactor_log(400_000, rng)
    history = (RingHistory if mended else ShiftedHistory)(log[:240_000])
    network = Network((INPUTS, 192, 192, OUTPUTS), rng)
    optimizer = Adam(network.parameters(), lr=1e-3)
    average = 0.0
    for step, rows in enumerate(arrivals(log[240_000:], 200), start=1):
        with diary.planted():
            history.append(rows)  # planted
        batch = history.table[rng.integers(len(history.table), size=1024)]
        error = network.forward(batch[:, :INPUTS]) - batch[:, INPUTS:]
        gradients = network.backward(error * (2 / error.size))
        optimizer.step(gradients)
        average += 0.02 * (float(np.vdot(error, error)) / error.size - average)
        if step % 250 == 0:
            print(f"{step:7d} mse {average:.5f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    train(*begin())
