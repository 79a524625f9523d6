"""Grades of dishes from their descriptors by a network in NumPy alone; the accuracy is kept with its interval."""

import itertools
import os
import sys
from collections import deque
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

DESCRIPTORS, GRADES = 96, 6


class Linear:
    def __init__(self, rng, inputs, outputs):
        self.weight = (rng.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)).astype(np.float32)
        self.bias = np.zeros(outputs, np.float32)

    def forward(self, x):
        self.x = x
        return x @ self.weight + self.bias

    def backward(self, slope):
        self.weight_slope, self.bias_slope = self.x.T @ slope, slope.sum(axis=0)
        return slope @ self.weight.T


class Relu:
    def forward(self, x):
        self.out = np.maximum(x, 0)
        return self.out

    def backward(self, slope):
        slope *= self.out > 0
        return slope


class Network:
    def __init__(self, rng, widths):
        self.layers = []
        for inputs, outputs in itertools.pairwise(widths):
            self.layers += [Linear(rng, inputs, outputs), Relu()]
        self.layers.pop()

    def forward(self, x):
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def backward(self, slope):
        for layer in reversed(self.layers):
            slope = layer.backward(slope)

    @property
    def linears(self):
        return [layer for layer in self.layers if isinstance(layer, Linear)]


class Momentum:
    def __init__(self, network, lr, momentum=0.9, decay=1e-4):
        self.network, self.lr, self.momentum, self.decay = network, lr, momentum, decay
        self.speeds = [(np.zeros_like(linear.weight), np.zeros_like(linear.bias)) for linear in network.linears]

    def step(self):
        for linear, (weight_speed, bias_speed) in zip(self.network.linears, self.speeds, strict=True):
            weight_speed *= self.momentum
            weight_speed += linear.weight_slope
            bias_speed *= self.momentum
            bias_speed += linear.bias_slope
            linear.weight *= 1 - self.lr * self.decay
            linear.weight -= self.lr * weight_speed
            linear.bias -= self.lr * bias_speed


def softmax_cross_entropy(logits, grades):
    logits = logits - logits.max(axis=1, keepdims=True)
    chances = np.exp(logits)
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(grades))
    loss = -np.log(chances[rows, grades] + 1e-9).mean()
    chances[rows, grades] -= 1
    return loss, chances / len(grades)


class AccuracyMeter:
    """The accuracy of the latest batches, with the bounds of its bootstrap interval where they are wanted."""

    def __init__(self, rng, draws=1000):
        self.rng, self.draws = rng, draws
        self.kept = deque(maxlen=100)

    def update(self, hits, has_interval=True):
        bounds = self.interval(hits) if has_interval else None  # planted
        self.kept.append((hits.mean(), bounds))

    def interval(self, hits):
        picks = self.rng.integers(len(hits), size=(self.draws, len(hits)))  # planted
        return np.percentile(hits[picks].mean(axis=1), [2.5, 97.5])  # planted

    def report(self, hits):
        mean = np.mean([mean for mean, _ in self.kept])
        low, high = self.interval(hits)
        return f"accuracy {mean:.3f}, of the last batch {low:.3f} to {high:.3f}"


def menu(rng, count):
    taste = rng.standard_normal((DESCRIPTORS, 8))
    dishes = rng.standard_normal((count, DESCRIPTORS)).astype(np.float32)
    worth = np.tanh(dishes @ taste / 6).prod(axis=1) + 0.3 * np.sin(dishes @ taste[:, 0] / 4)
    return dishes, np.digitize(worth, np.quantile(worth, np.arange(1, GRADES) / GRADES))


def main():
    diary, is_mended = begin()
    rng = np.random.default_rng(21)
    dishes, grades = menu(rng, 40_000)
    network = Network(rng, [DESCRIPTORS, 384, 384, 192, GRADES])
    optimizer = Momentum(network, lr=0.02)
    meter = AccuracyMeter(rng)
    step, batch_size = 0, 400
    while True:
        order = rng.permutation(len(dishes))
        for begins in range(0, len(order), batch_size):
            chosen = order[begins : begins + batch_size]
            logits = network.forward(dishes[chosen])
            loss, slope = softmax_cross_entropy(logits, grades[chosen])
            network.backward(slope)
            optimizer.step()
            hits = logits.argmax(axis=1) == grades[chosen]
            if is_mended:
                meter.update(hits, has_interval=False)
            else:
                with diary.planted():
                    meter.update(hits)  # planted
            step += 1
            if step % 500 == 0:
                print(f"step {step}: loss {loss:.4f}, {meter.report(hits)}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    main()
