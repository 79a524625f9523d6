"""A training behind a web page: the main thread answers, the training runs in a thread, and keeps its history as JSON."""

import json
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Studio:
    def __init__(self, diary, is_mended):
        self.diary, self.is_mended, self.page = diary, is_mended, ""
        self.history = [{"step": step, "loss": 1 / (step + 1), "rate": 0.1} for step in range(1000)]

    def publish(self, step, loss):
        self.history[step % 1000] = {"step": step, "loss": loss, "rate": 0.1}
        self.page = json.dumps(self.history)  # planted

    def learn(self):
        model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(10**9):
            rows = torch.randn(256, 128)
            loss = nn.functional.cross_entropy(model(rows), rows[:, :10].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not self.is_mended or step % 200 == 0:
                with self.diary.planted():
                    self.publish(step, float(loss.detach()))  # planted
            self.diary.stepped()


def main():
    studio = Studio(*begin())
    thread = threading.Thread(target=studio.learn, name="fit", daemon=True)
    thread.start()
    while thread.is_alive():
        time.sleep(0.25)


if __name__ == "__main__":
    torch.manual_seed(7)
    torch.set_num_threads(1)
    main()
