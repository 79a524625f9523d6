"""Self-play for Connect Four with a value network that looks one move ahead: each move is tried on a deep copy."""

import copy
import os
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin  # noqa: E402

ROWS, COLUMNS, GAMES, BATCH = 6, 7, 12, 64


@dataclass
class Move:
    player: int
    column: int
    position: np.ndarray


class Game:
    def __init__(self):
        self.board = np.zeros((ROWS, COLUMNS), np.int8)
        self.heights, self.player, self.moves = [0] * COLUMNS, 1, []

    def legal(self):
        return [column for column in range(COLUMNS) if self.heights[column] < ROWS]

    def drop(self, column):
        self.board[self.heights[column], column] = self.player
        self.heights[column] += 1
        self.moves.append(Move(self.player, column, self.encoded()))
        self.player = -self.player

    def undo(self):
        column = self.moves.pop().column
        self.heights[column] -= 1
        self.board[self.heights[column], column] = 0
        self.player = -self.player

    def encoded(self):
        """Planes of the one who moved last and of the other."""
        mover = self.player
        return np.stack([self.board == mover, self.board == -mover]).astype(np.float32)

    def won(self):
        """Whether the last move made four in a row."""
        mover, column = self.moves[-1].player, self.moves[-1].column
        row = self.heights[column] - 1
        planes = self.board[row], self.board[:, column], self.board.diagonal(column - row)
        lines = (*planes, self.board[:, ::-1].diagonal(COLUMNS - 1 - column - row))
        return any(mover.to_bytes(1, "big", signed=True) * 4 in line.tobytes() for line in lines)


def value_net(width=40, depth=3):
    layers = [nn.Conv2d(2, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU()]
    head = [nn.Flatten(), nn.Linear(width * ROWS * COLUMNS, 96), nn.ReLU(), nn.Linear(96, 1), nn.Tanh()]
    return nn.Sequential(*layers, *head, nn.Flatten(0))


class SelfPlay:
    def __init__(self, net, diary, is_mended):
        self.net, self.diary, self.is_mended, self.rng = net, diary, is_mended, np.random.default_rng(5)
        self.games, self.replay, self.finished = [Game() for _ in range(GAMES)], deque(maxlen=8000), 0

    def after(self, game, column):
        """Return what the network sees after a move."""
        if self.is_mended:
            game.drop(column)
            seen = game.moves[-1].position
            game.undo()
            return seen
        with self.diary.planted():
            child = copy.deepcopy(game)  # planted
        child.drop(column)
        return child.moves[-1].position

    def settle(self, number, outcome):
        for ago, move in enumerate(reversed(self.games[number].moves)):
            self.replay.append((move.position, outcome * (-1) ** ago * 0.98**ago))
        self.games[number] = Game()
        self.finished += 1

    @torch.no_grad()
    def move_all(self):
        choices = [(number, column) for number, game in enumerate(self.games) for column in game.legal()]
        seen = np.stack([self.after(self.games[number], column) for number, column in choices])  # planted
        values = self.net(torch.from_numpy(seen)).numpy() + self.rng.gumbel(scale=0.15, size=len(seen))
        best = {}
        for (number, column), value in zip(choices, values, strict=True):
            if number not in best or value > best[number][0]:
                best[number] = (value, column)
        for number, (_, column) in best.items():
            game = self.games[number]
            game.drop(column)
            if game.won():
                self.settle(number, 1.0)
            elif len(game.moves) == ROWS * COLUMNS:
                self.settle(number, 0.0)

    def batch(self):
        rows = [self.replay[i] for i in self.rng.integers(len(self.replay), size=BATCH)]
        return torch.from_numpy(np.stack([p for p, _ in rows])), torch.tensor([value for _, value in rows])


def main(diary, is_mended):
    net = value_net()
    play, optimizer, step = SelfPlay(net, diary, is_mended), torch.optim.Adam(net.parameters(), 5e-4), 0
    while len(play.replay) < 2 * BATCH:
        play.move_all()
    while True:
        play.move_all()  # planted
        boards, outcomes = play.batch()
        loss = F.mse_loss(net(boards), outcomes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()
        step += 1
        if step % 100 == 0:
            print(f"step {step} games {play.finished} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
