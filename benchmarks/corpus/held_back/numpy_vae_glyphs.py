"""A variational autoencoder of glyphs in NumPy alone, with its gradients and Adam by hand.

Nothing is planted: the products of matrices are most of it, and all big arrays are used again.
"""

import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE, HIDDEN, LATENT, BATCH = 24, 512, 24, 384
PIXELS = SIDE * SIDE


def draw_glyphs(rng, count):
    """Draw two strokes each."""
    y, x = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    glyphs = np.zeros((count, SIDE, SIDE), np.float32)
    for glyph in glyphs:
        for angle, shift in zip(rng.uniform(0, np.pi, 2), rng.uniform(-5, 5, 2), strict=True):
            distance = (y - SIDE / 2) * np.cos(angle) + (x - SIDE / 2) * np.sin(angle) - shift
            np.maximum(glyph, np.exp(-(distance**2) / 2), out=glyph)
    return glyphs.reshape(count, PIXELS)


class Adam:
    """Adam that works in place on one flat array of all weights."""

    def __init__(self, weights, lr=1e-3, beta1=0.9, beta2=0.999):
        self.weights, self.lr, self.beta1, self.beta2, self.t = weights, lr, beta1, beta2, 0
        self.first, self.second, self.scratch = (np.zeros_like(weights) for _ in range(3))

    def step(self, grad):
        self.t += 1
        np.subtract(grad, self.first, out=self.scratch)
        self.scratch *= 1 - self.beta1
        self.first += self.scratch
        np.multiply(grad, grad, out=self.scratch)
        self.scratch -= self.second
        self.scratch *= 1 - self.beta2
        self.second += self.scratch
        np.sqrt(self.second, out=self.scratch)
        self.scratch += 1e-8
        np.divide(self.first, self.scratch, out=self.scratch)
        self.scratch *= self.lr * np.sqrt(1 - self.beta2**self.t) / (1 - self.beta1**self.t)
        self.weights -= self.scratch


class VAE:
    SHAPES = {
        "enc": (PIXELS, HIDDEN),
        "mid": (HIDDEN, HIDDEN),
        "stats": (HIDDEN, 2 * LATENT),
        "dec1": (LATENT, HIDDEN),
        "dec2": (HIDDEN, HIDDEN),
        "out": (HIDDEN, PIXELS),
    }

    def __init__(self, rng):
        self.rng = rng
        size = sum(a * b for a, b in self.SHAPES.values())
        self.flat, self.flat_grad = np.empty(size, np.float32), np.empty(size, np.float32)
        self.w, self.g, begun = {}, {}, 0
        for name, (a, b) in self.SHAPES.items():
            self.w[name] = self.flat[begun : begun + a * b].reshape(a, b)
            self.g[name] = self.flat_grad[begun : begun + a * b].reshape(a, b)
            self.w[name][:] = rng.standard_normal((a, b)) * np.sqrt(2 / a)
            begun += a * b
        self.buffers = np.empty((6, BATCH, HIDDEN), np.float32)
        self.error, self.mask = np.empty((BATCH, PIXELS), np.float32), np.empty((BATCH, HIDDEN), bool)

    def loss_and_gradients(self, x):
        w, b, n = self.w, self.buffers, len(x)
        h1 = self._forward("enc", x, b[0])
        h2 = self._forward("mid", h1, b[1])
        mean, logvar = np.split(h2 @ w["stats"], 2, axis=1)
        logvar = np.clip(logvar, -8, 8)
        noise = self.rng.standard_normal(mean.shape, dtype=np.float32)
        z = mean + np.exp(logvar / 2) * noise
        d1 = self._forward("dec1", z, b[2])
        d2 = self._forward("dec2", d1, b[3])
        error = np.matmul(d2, w["out"], out=self.error)
        error -= x
        kl = 0.5 * np.sum(np.exp(logvar) + mean**2 - 1 - logvar) / n
        loss = 0.5 * np.vdot(error, error) / n + kl

        error /= n
        up = self._back("out", d2, error, b[4], is_active=True)
        up = self._back("dec2", d1, up, b[5], is_active=True)
        dz = self._back("dec1", z, up, np.empty_like(z))
        dmean = dz + mean / n
        dlogvar = dz * noise * 0.5 * np.exp(logvar / 2) + 0.5 * (np.exp(logvar) - 1) / n
        up = self._back("stats", h2, np.concatenate([dmean, dlogvar], 1), b[4], is_active=True)
        up = self._back("mid", h1, up, b[5], is_active=True)
        np.matmul(x.T, up, out=self.g["enc"])
        return loss

    def _forward(self, name, inputs, out):
        np.matmul(inputs, self.w[name], out=out)
        return np.maximum(out, 0, out=out)

    def _back(self, name, inputs, up, out, is_active=False):
        np.matmul(inputs.T, up, out=self.g[name])
        np.matmul(up, self.w[name].T, out=out)
        if is_active:
            np.multiply(out, np.greater(inputs, 0, out=self.mask), out=out)
        return out


if __name__ == "__main__":
    diary, _ = begin()
    rng = np.random.default_rng(2)
    glyphs, vae = draw_glyphs(rng, 6000), VAE(rng)
    adam, batch, step = Adam(vae.flat), np.empty((BATCH, PIXELS), np.float32), 0
    while True:
        order = rng.permutation(len(glyphs))
        for begun in range(0, len(glyphs) - BATCH + 1, BATCH):
            glyphs.take(order[begun : begun + BATCH], 0, out=batch, mode="clip")
            loss = vae.loss_and_gradients(batch)
            adam.step(vae.flat_grad)
            diary.stepped()
            step += 1
            if step % 50 == 0:
                print(f"{step} -elbo {loss:.2f}", flush=True)
