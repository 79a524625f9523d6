"""Topics of recipes by online matrix factorization in NumPy, as an estimator with partial_fit after scikit-learn.

Nothing is planted: a batch's activations and the sufficient statistics are products of matrices, and scores are rare.
"""

import os
import sys
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

RECIPES, INGREDIENTS, TOPICS = 7200, 1500, 48
EPSILON = 1e-8


def make_recipes(rng):
    """Return counts of ingredients: mixtures of a few sparse topics."""
    topics = rng.dirichlet(np.full(INGREDIENTS, 0.02), TOPICS)
    mixtures = rng.dirichlet(np.full(TOPICS, 0.1), RECIPES)
    return rng.poisson(60 * mixtures @ topics).astype(np.float32)


def tfidf(counts):
    frequency = (counts > 0).sum(axis=0)
    weighted = counts * (np.log((1 + len(counts)) / (1 + frequency)) + 1).astype(np.float32)
    return weighted / np.maximum(np.linalg.norm(weighted, axis=1, keepdims=True), EPSILON)


class MiniBatchNMF:
    """Non-negative factors of rows that come in batches (Frobenius norm, multiplicative updates).

    Parameters
    ----------
    n_components
        The number of topics.
    forget_factor
        How much of the statistics of earlier batches is kept with each new one.
    inner_iterations
        How often activations of a batch are updated.

    """

    def __init__(self, n_components=TOPICS, forget_factor=0.98, inner_iterations=25, random_state=0):
        self.n_components = n_components
        self.forget_factor = forget_factor
        self.inner_iterations = inner_iterations
        self.rng = np.random.default_rng(random_state)

    def _begin(self, n_features):
        self.components_ = self.rng.random((self.n_components, n_features), dtype=np.float32) / n_features**0.5
        self._numerator = self.components_.copy()
        self._gram = np.eye(self.n_components, dtype=np.float32)
        self.n_steps_ = 0

    def transform(self, rows):
        """Return activations of rows, with components as they are."""
        products = rows @ self.components_.T
        gram = self.components_ @ self.components_.T
        activations = np.full(products.shape, 0.1, np.float32)
        for _ in range(self.inner_iterations):
            activations *= products / (activations @ gram + EPSILON)
        return activations

    def partial_fit(self, rows):
        if not hasattr(self, "components_"):
            self._begin(rows.shape[1])
        activations = self.transform(rows)
        self._numerator *= self.forget_factor
        self._numerator += activations.T @ rows
        self._gram *= self.forget_factor
        self._gram += activations.T @ activations
        self.components_ *= self._numerator / (self._gram @ self.components_ + EPSILON)
        self.n_steps_ += 1
        return self

    def score(self, rows):
        """Return the share of the rows' norm that is not explained."""
        rest = rows - self.transform(rows) @ self.components_
        return float(np.linalg.norm(rest) / np.linalg.norm(rows))


def batches(rows, size, rng):
    while True:
        order = rng.permutation(len(rows))
        for begun in range(0, len(order) - size + 1, size):
            yield rows[order[begun : begun + size]]


def main():
    diary, _ = begin()
    rng = np.random.default_rng(15)
    rows = tfidf(make_recipes(rng))
    held, train = rows[:200], rows[200:]
    model = MiniBatchNMF(random_state=15)
    for step, batch in enumerate(batches(train, 1200, rng), start=1):
        model.partial_fit(batch)
        if step % 500 == 0:
            print(f"step {step}: unexplained {model.score(held):.4f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    main()
