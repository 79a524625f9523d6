"""A sweep of rates and widths that stops early at rungs; the journal that decides on it is read anew in each step."""

import json
import math
import random
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

RUNG, LONGEST = 100, 800
FEATURES, BATCH = 32, 256
EARLIER_TRIALS = 250


class Journal:
    """A file of JSON lines that several workers of a sweep append to, one line a rung of a trial."""

    def __init__(self, path):
        self.path = path
        self.read_to = 0
        self.by_rung = defaultdict(list)

    def append(self, record):
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def load(self):
        """Return the values of all trials by rung."""
        by_rung = defaultdict(list)
        with self.path.open() as file:
            for line in file:
                record = json.loads(line)  # planted
                by_rung[record["rung"]].append(record["value"])
        return by_rung

    def follow(self):
        """Return the same, having read only what is new."""
        if self.path.stat().st_size > self.read_to:
            with self.path.open() as file:
                file.seek(self.read_to)
                for line in iter(file.readline, ""):
                    record = json.loads(line)
                    self.by_rung[record["rung"]].append(record["value"])
                self.read_to = file.tell()
        return self.by_rung


def earlier_sweeps(journal):
    """Write what earlier trials left in the journal."""
    draw = random.Random(6)
    lines = []
    for trial in range(EARLIER_TRIALS):
        for rung in range(1, draw.randint(2, LONGEST // RUNG) + 1):
            params = {"lr": 10 ** draw.uniform(-4, -1), "width": draw.choice([64, 128, 256]), "decay": draw.random()}
            value = 0.4 + draw.random() / rung
            lines.append(json.dumps({"trial": trial, "rung": rung, "value": value, "params": params, "worker": "w1"}))
    journal.path.write_text("\n".join(lines) + "\n")


class Trial:
    def __init__(self, number, draw):
        self.number = number
        self.params = {"lr": 10 ** draw.uniform(-3.5, -2), "width": draw.choice([312, 320, 328]), "decay": 1e-4}
        width = self.params["width"]
        self.model = nn.Sequential(
            nn.Linear(FEATURES, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=self.params["lr"], weight_decay=self.params["decay"]
        )
        self.smoothed = None

    def train_step(self, inputs, targets):
        loss = F.mse_loss(self.model(inputs).squeeze(1), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        value = loss.item()
        self.smoothed = value if self.smoothed is None else 0.95 * self.smoothed + 0.05 * value


def should_stop(by_rung, step, value):
    """Stop what is far worse than the median of others at the last rung, or what diverged."""
    others = by_rung.get(step // RUNG)
    return not math.isfinite(value) or bool(others and value > 4 * statistics.median(others))


def run_trial(trial, journal, data, diary, is_mended):
    inputs, targets = data
    for step in range(1, LONGEST + 1):
        rows = torch.randint(len(targets), (BATCH,))
        trial.train_step(inputs[rows], targets[rows])
        if step % RUNG == 0:
            record = {"trial": trial.number, "rung": step // RUNG, "value": trial.smoothed, "params": trial.params}
            journal.append({**record, "worker": "w0"})
        if is_mended:
            by_rung = journal.follow()
        else:
            with diary.planted():
                by_rung = journal.load()  # planted
        diary.stepped()
        if step > RUNG and should_stop(by_rung, step, trial.smoothed):
            print(f"trial {trial.number}: stopped at step {step}", flush=True)
            return
    print(f"trial {trial.number}: {trial.smoothed:.4f} with {trial.params}", flush=True)


def main():
    diary, is_mended = begin()
    torch.manual_seed(6)
    torch.set_num_threads(1)
    inputs = torch.randn(20_000, FEATURES)
    targets = torch.sin(inputs[:, :4].sum(1)) + 0.3 * inputs[:, 5] * inputs[:, 6] + 0.1 * torch.randn(len(inputs))
    journal = Journal(Path(tempfile.mkdtemp(prefix="sweep-")) / "journal.jsonl")
    earlier_sweeps(journal)
    draw = random.Random(60)
    number = EARLIER_TRIALS
    while True:
        run_trial(Trial(number, draw), journal, (inputs, targets), diary, is_mended)
        number += 1


if __name__ == "__main__":
    main()
