"""Self-play of connect four with a value network and a look ahead of one move; each move is tried on a deep copy."""

import copy
import os
import random
import sys
from collections import deque
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ROWS, COLUMNS, GAMES, BATCH = 6, 7, 6, 112


def all_fours():
    fours = []
    for row in range(ROWS):
        for column in range(COLUMNS):
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                cells = [(row + k * down, column + k * right) for k in range(4)]
                if all(r < ROWS and 0 <= c < COLUMNS for r, c in cells):
                    fours.append(cells)
    return fours


class Game:
    def __init__(self):
        self.board = [[0] * COLUMNS for _ in range(ROWS)]
        self.heights = [0] * COLUMNS
        self.player, self.winner, self.moves = 1, 0, []
        self.fours = all_fours()

    def legal(self):
        return [column for column in range(COLUMNS) if self.heights[column] < ROWS]

    def play(self, column):
        row = self.heights[column]
        self.board[row][column] = self.player
        self.heights[column] += 1
        self.moves.append(column)
        for cells in self.fours:
            if (row, column) in cells and all(self.board[r][c] == self.player for r, c in cells):
                self.winner = self.player
        self.player = -self.player

    def over(self):
        return self.winner != 0 or len(self.moves) == ROWS * COLUMNS

    def encode(self):
        """Return the board as he sees it who has moved."""
        board = np.array(self.board, dtype=np.float32) * -self.player
        return np.stack([board > 0, board < 0]).astype(np.float32)

    def clone(self):
        other = object.__new__(Game)
        other.board, other.heights = [row[:] for row in self.board], self.heights[:]
        other.player, other.winner, other.moves, other.fours = self.player, self.winner, self.moves[:], self.fours
        return other


def fork(game):
    return copy.deepcopy(game)  # planted


class ValueNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.stem = nn.Conv2d(2, width, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.head = nn.Linear(width * ROWS * COLUMNS, 1)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for conv in self.convs:
            x = F.relu(x + conv(x))
        return torch.tanh(self.head(x.flatten(1))).squeeze(1)


def choose(values, epsilon=0.1):
    return random.randrange(len(values)) if random.random() < epsilon else int(np.argmax(values))


if __name__ == "__main__":
    diary, is_mended = begin()
    torch.set_num_threads(1)
    random.seed(4), torch.manual_seed(4)
    copy_game = Game.clone if is_mended else fork
    net = ValueNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    games, paths = [Game() for _ in range(GAMES)], [[] for _ in range(GAMES)]
    memory, step = deque(maxlen=20_000), 0
    while True:
        with diary.planted():
            trials = [[copy_game(game) for _ in game.legal()] for game in games]  # planted
        for game, after in zip(games, trials, strict=True):
            for move, trial in zip(game.legal(), after, strict=True):
                trial.play(move)
        states = np.stack([trial.encode() for after in trials for trial in after])
        with torch.inference_mode():
            values = net(torch.from_numpy(states)).numpy()
        begun = 0
        for number, after in enumerate(trials):
            best = choose(values[begun : begun + len(after)] + [2.0 * (trial.winner != 0) for trial in after])
            games[number] = after[best]
            paths[number].append((states[begun + best], -after[best].player))
            begun += len(trials[number])
            if games[number].over():
                memory.extend((state, float(games[number].winner * player)) for state, player in paths[number])
                games[number], paths[number] = Game(), []
        if len(memory) < 4 * BATCH:
            continue
        rows = random.sample(memory, BATCH)
        target = torch.tensor([row[1] for row in rows])
        loss = F.mse_loss(net(torch.from_numpy(np.stack([row[0] for row in rows]))), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()
        step += 1
        if step % 100 == 0:
            print(f"step {step} positions {len(memory)} loss {loss.item():.3f}", flush=True)
