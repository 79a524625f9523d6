"""A score board: a thread joins its rows to a text again and again, while the main thread fits a model to match results."""

import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Board:
    def __init__(self, pause_s):
        self.pause_s, self.rows, self.shown = pause_s, [("loss", 0.0)] * 400, ""

    def redraw(self):
        lines = []
        for number, (name, value) in enumerate(self.rows):  # planted
            lines.append(f"{number:>4} {name:<12} {value:10.4f}")  # planted
        self.shown = "\n".join(lines)

    def run(self):
        while True:
            self.redraw()  # planted
            time.sleep(self.pause_s)


def main():
    diary, is_mended = begin()
    board = Board(0.5 if is_mended else 0.0005)
    threading.Thread(target=board.run, name="board", daemon=True).start()
    model = nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, fused=True)
    while True:
        teams = torch.randn(256, 24)
        loss = nn.functional.cross_entropy(model(teams), teams[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(8)
    torch.set_num_threads(1)
    main()
