"""A convolutional network with NumPy only, in the style of the CS231n assignments: each layer with a backward."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

IMAGES, SIDE, CLASSES, BATCH = 2000, 16, 10, 40


def patch_indices(channels, side, size=3):
    """Return which channel, row and column each element of each patch has."""
    rows = np.tile(np.repeat(np.arange(size), size), channels)[:, None] + np.repeat(np.arange(side), side)
    columns = np.tile(np.arange(size), size * channels)[:, None] + np.tile(np.arange(side), side)
    return np.repeat(np.arange(channels), size * size)[:, None], rows, columns


def im2col(x, size=3):
    """Return the patches of (N, C, H, W), padded by one, as (C * size * size, N * H * W)."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
    return windows.transpose(1, 4, 5, 0, 2, 3).reshape(x.shape[1] * size * size, -1)


def col2im_indices(columns, shape):
    """Add every element of the patches to the pixel that it came from."""
    count, channels, side, _ = shape
    padded = np.zeros((count, channels, side + 2, side + 2), dtype=columns.dtype)
    channel, row, column = patch_indices(channels, side)
    patches = columns.reshape(channels * 9, count, side * side).transpose(1, 0, 2)
    np.add.at(padded, (slice(None), channel, row, column), patches)  # planted
    return padded[:, :, 1:-1, 1:-1]


def col2im_slices(columns, shape):
    """Add the patches one offset of the kernel at a time."""
    count, channels, side, _ = shape
    padded = np.zeros((channels, count, side + 2, side + 2), dtype=columns.dtype)
    patches = columns.reshape(channels, 3, 3, count, side, side)
    for row in range(3):
        for column in range(3):
            padded[:, :, row : row + side, column : column + side] += patches[:, row, column]
    return padded.transpose(1, 0, 2, 3)[:, :, 1:-1, 1:-1]


class Convolution:
    def __init__(self, rng, inputs, outputs, diary, is_mended, is_first=False):
        self.w = rng.normal(0, np.sqrt(2 / (9 * inputs)), size=(outputs, 9 * inputs)).astype(np.float32)
        self.b = np.zeros((outputs, 1), dtype=np.float32)
        self.diary, self.is_mended, self.is_first = diary, is_mended, is_first

    def forward(self, x):
        self.shape, self.columns = x.shape, im2col(x)
        out = self.w @ self.columns + self.b
        return np.ascontiguousarray(out.reshape(len(self.w), len(x), *x.shape[2:]).transpose(1, 0, 2, 3))

    def backward(self, dout):
        flat = dout.transpose(1, 0, 2, 3).reshape(len(self.w), -1)
        self.dw, self.db = flat @ self.columns.T, flat.sum(axis=1, keepdims=True)
        if self.is_first:
            return None  # nobody learns from the gradient of images
        dcolumns = self.w.T @ flat
        if self.is_mended:
            return col2im_slices(dcolumns, self.shape)
        with self.diary.planted():
            return col2im_indices(dcolumns, self.shape)  # planted


class Relu:
    def forward(self, x):
        self.mask = x > 0
        return x * self.mask

    def backward(self, dout):
        return dout * self.mask


class MaxPool:
    def forward(self, x):
        count, channels, side, _ = x.shape
        tiles = x.reshape(count, channels, side // 2, 2, side // 2, 2)
        out = np.maximum(np.maximum(tiles[:, :, :, 0, :, 0], tiles[:, :, :, 0, :, 1]),
                         np.maximum(tiles[:, :, :, 1, :, 0], tiles[:, :, :, 1, :, 1]))  # fmt: skip
        self.mask = tiles == out[:, :, :, None, :, None]
        return out

    def backward(self, dout):
        spread = self.mask * dout[:, :, :, None, :, None]
        count, channels, half, _, _, _ = spread.shape
        return spread.reshape(count, channels, 2 * half, 2 * half)


class Affine:
    def __init__(self, rng, inputs, outputs):
        self.w = rng.normal(0, np.sqrt(2 / inputs), size=(inputs, outputs)).astype(np.float32)
        self.b = np.zeros(outputs, dtype=np.float32)

    def forward(self, x):
        self.shape, self.x = x.shape, x.reshape(len(x), -1)
        return self.x @ self.w + self.b

    def backward(self, dout):
        self.dw, self.db = self.x.T @ dout, dout.sum(axis=0)
        return (dout @ self.w.T).reshape(self.shape)


def softmax_loss(scores, y):
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities = shifted / shifted.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(probabilities[rows, y] + 1e-9).mean()
    probabilities[rows, y] -= 1
    return loss, probabilities / len(y)


def sgd_momentum(layers, velocity, rate=0.01):
    for number, layer in enumerate(layers):
        for name in ("w", "b") if hasattr(layer, "w") else ():
            moving = velocity.setdefault((number, name), np.zeros_like(getattr(layer, name)))
            moving *= 0.9
            moving -= rate * getattr(layer, f"d{name}")
            getattr(layer, name).__iadd__(moving)


def main():
    diary, is_mended = begin()
    rng = np.random.default_rng(231)
    images, labels = rng.normal(size=(IMAGES, 3, SIDE, SIDE)).astype(np.float32), rng.integers(CLASSES, size=IMAGES)
    first, second, third = 12, 32, 48
    layers = [
        Convolution(rng, 3, first, diary, is_mended, is_first=True), Relu(),
        Convolution(rng, first, second, diary, is_mended), Relu(), MaxPool(),
        Convolution(rng, second, third, diary, is_mended), Relu(), MaxPool(),
        Affine(rng, third * SIDE * SIDE // 16, 96), Relu(), Affine(rng, 96, CLASSES),
    ]  # fmt: skip
    velocity, step = {}, 0
    while True:
        rows = rng.integers(IMAGES, size=BATCH)
        x = images[rows]
        for layer in layers:
            x = layer.forward(x)
        loss, gradient = softmax_loss(x, labels[rows])
        for layer in reversed(layers):
            gradient = layer.backward(gradient)  # planted
        sgd_momentum(layers, velocity)
        step += 1
        if step % 100 == 0:
            print(f"(Iteration {step}) loss: {loss:.4f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    main()
