"""A loop in NumPy alone: a network of two layers with gradients written by hand, momentum, and noisy batches.

Usage: numeric.py [--steps N]
"""

import argparse
import time

import numpy as np

INPUTS, HIDDEN, OUTPUTS, BATCH = 784, 512, 10, 128


def draw(rng, images, digits):
    chosen = rng.integers(len(images), size=BATCH)
    return images[chosen] + 0.1 * rng.standard_normal((BATCH, INPUTS)), digits[chosen]


def predict(weights, images):
    hidden = np.tanh(images @ weights[0])
    scores = np.exp(hidden @ weights[1])
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def gradients(weights, images, digits, hidden, scores):
    scores[np.arange(BATCH), digits] -= 1
    scores /= BATCH
    below = scores @ weights[1].T * (1 - hidden**2)
    return images.T @ below, hidden.T @ scores


def descend(weights, momenta, found):
    for weight, momentum, one in zip(weights, momenta, found, strict=True):
        momentum *= 0.9
        momentum += one
        weight -= 0.05 * momentum


def accuracy(weights, images, digits):
    return (predict(weights, images)[1].argmax(axis=1) == digits).mean()


def train(steps):
    rng = np.random.default_rng(0)
    images, digits = rng.random((8192, INPUTS)), rng.integers(OUTPUTS, size=8192)
    weights = [rng.standard_normal((INPUTS, HIDDEN)) * 0.05, rng.standard_normal((HIDDEN, OUTPUTS)) * 0.05]
    momenta = [np.zeros_like(weight) for weight in weights]
    for step in range(steps):
        batch, labels = draw(rng, images, digits)
        hidden, scores = predict(weights, batch)
        descend(weights, momenta, gradients(weights, batch, labels, hidden, scores))
        if step % 200 == 199:
            print(f"step {step}: right {accuracy(weights, batch, labels):.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    started = time.perf_counter()
    train(options.steps)
    print("steps", options.steps, "seconds", time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
