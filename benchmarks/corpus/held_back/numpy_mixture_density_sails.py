"""A mixture density network for the speed of sailing boats in NumPy, gradients by hand. Nothing is planted."""

import itertools
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

COMPONENTS, INPUTS = 8, 24


def init_params(rng, widths):
    params = {}
    for number, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        params[f"W{number}"] = (rng.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
        params[f"b{number}"] = np.zeros(outputs, np.float32)
    return params


def forward(params, x, depth):
    """Return the outputs, and the values of the layers on the way."""
    values = [x]
    for number in range(depth - 1):
        h = values[-1] @ params[f"W{number}"]
        h += params[f"b{number}"]
        values.append(np.tanh(h, out=h))
    return values[-1] @ params[f"W{depth - 1}"] + params[f"b{depth - 1}"], values


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def mixture_loss(outputs, y):
    """Return the mean negative log likelihood of a mixture of Gaussians, and its gradient by the outputs."""
    logits, means, log_sigmas = np.split(outputs, 3, axis=1)
    log_sigmas = np.clip(log_sigmas, -4, 3)
    off = (y[:, None] - means) * np.exp(-log_sigmas)
    logits = logits - logits.max(axis=1, keepdims=True)
    log_pi = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    joint = log_pi - 0.5 * off**2 - log_sigmas - 0.9189385
    peak = joint.max(axis=1, keepdims=True)
    log_likelihood = peak[:, 0] + np.log(np.exp(joint - peak).sum(axis=1))
    duty = softmax(joint)
    slope = np.concatenate(
        [np.exp(log_pi) - duty, -duty * off * np.exp(-log_sigmas), duty * (1 - off**2)], axis=1
    ) / len(y)
    return -log_likelihood.mean(), slope.astype(np.float32)


def backward(params, values, slope, depth):
    grads = {}
    for number in reversed(range(depth)):
        grads[f"W{number}"] = values[number].T @ slope
        grads[f"b{number}"] = slope.sum(axis=0)
        if number:
            slope = slope @ params[f"W{number}"].T
            slope *= 1 - values[number] ** 2
    return grads


class Nesterov:
    def __init__(self, params, lr, momentum):
        self.lr, self.momentum = lr, momentum
        self.velocity = {name: np.zeros_like(value) for name, value in params.items()}

    def update(self, params, grads):
        norm = np.sqrt(sum(float(np.vdot(grad, grad)) for grad in grads.values()))
        shrink = min(1.0, 5.0 / (norm + 1e-6))
        for name, grad in grads.items():
            grad *= shrink
            velocity = self.velocity[name]
            velocity *= self.momentum
            velocity += grad
            grad += self.momentum * velocity
            grad *= self.lr
            params[name] -= grad


def voyages(rng, count):
    """Make up readings on board, and the speed made: two points of sail give two speeds for the same wind."""
    x = rng.standard_normal((count, INPUTS)).astype(np.float32)
    wind = np.abs(x[:, 0]) + 0.5 * np.sin(x[:, 1])
    tack = rng.random(count) < 0.5
    y = np.where(tack, 1.5 * wind, 0.6 * wind - 1) + 0.2 * x[:, 2] * x[:, 3] + 0.1 * rng.standard_normal(count)
    return x, y.astype(np.float32)


def main():
    diary, _ = begin()
    rng = np.random.default_rng(17)
    x_train, y_train = voyages(rng, 60_000)
    x_test, y_test = voyages(rng, 2000)
    widths = [INPUTS, 320, 320, 320, 3 * COMPONENTS]
    depth = len(widths) - 1
    params = init_params(rng, widths)
    optimizer = Nesterov(params, lr=0.01, momentum=0.9)
    batch_size, epoch = 384, 0
    while True:
        order = rng.permutation(len(x_train))
        total = 0.0
        for begins in range(0, len(order), batch_size):
            chosen = order[begins : begins + batch_size]
            outputs, values = forward(params, x_train[chosen], depth)
            loss, slope = mixture_loss(outputs, y_train[chosen])
            grads = backward(params, values, slope, depth)
            optimizer.update(params, grads)
            total += loss * len(chosen)
            diary.stepped()
        epoch += 1
        if epoch % 4 == 0:
            test_loss, _ = mixture_loss(forward(params, x_test, depth)[0], y_test)
            print(f"epoch {epoch}: train {total / len(order):.4f}, test {test_loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
