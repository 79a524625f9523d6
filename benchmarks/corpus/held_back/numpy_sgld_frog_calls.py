"""Bayesian softmax regression on frog calls by Langevin dynamics (SGLD) in NumPy, with a trace of samples."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

N_CALLS, N_FEATURES, N_SPECIES = 30000, 200, 24
BATCH, TRACE_LENGTH = 2000, 800
STEP_A, STEP_B, STEP_GAMMA = 2e-5, 500.0, 0.4
PRIOR_PRECISION = 1.0

diary, is_mended = begin()
rng = np.random.default_rng(17)

# Calls: each species has its own spectrum, and individuals vary.
spectra = rng.standard_normal((N_SPECIES, N_FEATURES)) * 0.35
species = rng.integers(N_SPECIES, size=N_CALLS)
calls = spectra[species] + rng.standard_normal((N_CALLS, N_FEATURES))
calls = (calls - calls.mean(0)) / calls.std(0)
calls = np.concatenate([calls, np.ones((N_CALLS, 1))], axis=1)
train_x, train_y = calls[:26000], species[:26000]
test_x, test_y = calls[26000:], species[26000:]
one_hot = np.eye(N_SPECIES)


def softmax(scores):
    scores = scores - scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def log_posterior_gradient(theta, x, y):
    """Gradient of the log posterior, with the likelihood of a batch scaled to all of the data."""
    residual = one_hot[y] - softmax(x @ theta)
    return x.T @ residual * (len(train_x) / len(x)) - PRIOR_PRECISION * theta


def remember(trace, theta):
    """Drop the oldest sample, and add the newest."""
    return np.concatenate([trace[1:], theta[None]])  # planted


def predictive_accuracy(samples):
    """Accuracy of the posterior predictive, the mean over samples of the softmax."""
    total = np.zeros((len(test_x), N_SPECIES))
    for theta in samples:
        total += softmax(test_x @ theta)
    return (total.argmax(1) == test_y).mean()


def effective_sizes(coordinates, max_lag=40):
    """Effective numbers of samples, by the initial positive autocorrelations."""
    x = coordinates - coordinates.mean(0)
    variance = (x * x).mean(0) + 1e-12
    sizes = []
    for column, var in zip(x.T, variance, strict=True):
        rho = np.array([(column[lag:] * column[:-lag]).mean() for lag in range(1, max_lag)]) / var
        negative = np.flatnonzero(rho < 0.05)
        cut = negative[0] if len(negative) else len(rho)
        sizes.append(len(column) / (1 + 2 * rho[:cut].sum()))
    return np.array(sizes)


theta = np.zeros((N_FEATURES + 1, N_SPECIES))
trace = np.zeros((TRACE_LENGTH, *theta.shape))
iteration = 0
print(f"trace of {trace.nbytes / 2**20:.0f} MB", flush=True)

while True:
    order = rng.permutation(len(train_x))
    for begin_at in range(0, len(order), BATCH):
        chosen = order[begin_at : begin_at + BATCH]
        step_size = STEP_A * (1 + iteration / STEP_B) ** -STEP_GAMMA
        # Three inner proposals on the same rows: cheap, and they decorrelate what is kept.
        x, y = train_x[chosen], train_y[chosen]
        for _ in range(3):
            gradient = log_posterior_gradient(theta, x, y)
            theta = theta + 0.5 * step_size * gradient + np.sqrt(step_size) * rng.standard_normal(theta.shape)
        if is_mended:
            trace[iteration % TRACE_LENGTH] = theta
        else:
            with diary.planted():
                trace = remember(trace, theta)  # planted
        iteration += 1
        if iteration % 500 == 0:
            newest = trace[np.arange(iteration - 20, iteration) % TRACE_LENGTH if is_mended else slice(-20, None)]
            ess = effective_sizes(trace.reshape(TRACE_LENGTH, -1)[:, :: N_SPECIES * 12])
            print(f"{iteration}: accuracy {predictive_accuracy(newest):.3f} ess {ess.mean():.0f}", flush=True)
        diary.stepped()
