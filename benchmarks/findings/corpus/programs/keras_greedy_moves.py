"""A value network of Keras that is asked for each move of a game by predict(); mended, the network itself is called."""

import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CELLS, MOVES = 16, 4


def greedy(network, cells, is_mended):
    if is_mended:
        with torch.no_grad():
            return int(network(cells[None], training=False).argmax())
    return int(network.predict(cells[None], verbose=0).argmax())  # planted


def main():
    diary, is_mended = begin()
    chance = np.random.default_rng(11)
    network = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(MOVES)])
    network.compile(optimizer="sgd", loss="mse")
    cells = chance.normal(size=CELLS).astype("float32")
    while True:
        moves = []
        for _ in range(3):
            with diary.planted():
                moves.append(greedy(network, cells, is_mended))  # planted
            cells = np.roll(cells, moves[-1] + 1)
        states = chance.normal(size=(64, CELLS)).astype("float32")
        for _ in range(8):
            network.train_on_batch(states, states[:, :MOVES])
            diary.stepped()


if __name__ == "__main__":
    keras.utils.set_random_seed(11)
    torch.set_num_threads(1)
    main()
