"""Heights of tides by boosted trees of LightGBM, round by round. Nothing is planted."""

import sys
from pathlib import Path

import lightgbm
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


def main():
    diary, _ = begin()
    chance = np.random.default_rng(12)
    hours = chance.uniform(0, 1000, size=(60_000, 12))
    heights = np.sin(hours[:, 0] / 12.4) + 0.3 * np.cos(hours[:, 1] / 24) + 0.1 * chance.normal(size=len(hours))
    data = lightgbm.Dataset(hours, heights)
    options = {"objective": "regression", "num_leaves": 63, "num_threads": 1, "verbose": -1}
    lightgbm.train(options, data, num_boost_round=100_000, callbacks=[lambda _: diary.stepped()])


if __name__ == "__main__":
    main()
