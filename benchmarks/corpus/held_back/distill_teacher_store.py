"""Distillation of a large network, whose answers were written to a database beforehand, into a small one."""

import sqlite3
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CLASSES, SAMPLES, TEMPERATURE, ALPHA = 20, 6000, 4.0, 0.7


class TeacherStore:
    """The logits of the teacher, one row a sample."""

    def __init__(self, path):
        self.connection = sqlite3.connect(path)

    def fill(self, names):
        logits = np.random.default_rng(1).normal(size=(len(names), CLASSES)).astype(np.float32)
        rows = [(name, row.tobytes()) for name, row in zip(names, logits, strict=True)]
        self.connection.execute("CREATE TABLE logits (sample TEXT, value BLOB)")
        self.connection.executemany("INSERT INTO logits VALUES (?, ?)", rows)
        self.connection.commit()

    def lookup(self, name):
        cursor = self.connection.execute("SELECT value FROM logits WHERE sample = ? LIMIT 1", (name,))  # planted
        return np.frombuffer(cursor.fetchone()[0], dtype=np.float32)  # planted

    def batch(self, names):
        return torch.from_numpy(np.stack([self.lookup(name) for name in names]))  # planted

    def everything(self):
        rows = self.connection.execute("SELECT sample, value FROM logits")
        return {name: torch.frombuffer(bytearray(value), dtype=torch.float32) for name, value in rows}


class NamedImages(Dataset):
    def __init__(self):
        self.images = torch.rand(SAMPLES, 3, 24, 24)
        self.labels = torch.randint(CLASSES, (SAMPLES,))
        self.names = [f"train/{index % 37:03d}/img_{index:06d}.jpg" for index in range(SAMPLES)]

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.names[index], self.images[index], self.labels[index]


def student(width=24):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * width, CLASSES),
    )


def distillation_loss(logits, teacher_logits, labels):
    soft = F.kl_div(
        F.log_softmax(logits / TEMPERATURE, dim=1),
        F.softmax(teacher_logits / TEMPERATURE, dim=1),
        reduction="batchmean",
    )
    return ALPHA * TEMPERATURE**2 * soft + (1 - ALPHA) * F.cross_entropy(logits, labels)


def run(diary, is_mended):
    dataset = NamedImages()
    store = TeacherStore(Path(tempfile.mkdtemp()) / "teacher.db")
    store.fill(dataset.names)
    in_memory = store.everything() if is_mended else {}
    loader = DataLoader(dataset, batch_size=40, shuffle=True, drop_last=True)
    model = student()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    epoch = 0
    while True:
        for names, images, labels in loader:
            if is_mended:
                teacher_logits = torch.stack([in_memory[name] for name in names])
            else:
                with diary.planted():
                    teacher_logits = store.batch(names)  # planted
            loss = distillation_loss(model(images), teacher_logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.stepped()
        epoch += 1
        if epoch % 5 == 0:
            print(f"[{epoch}] loss={loss.item():.3f}", flush=True)


if __name__ == "__main__":
    diary, is_mended = begin()
    torch.manual_seed(12)
    torch.set_num_threads(1)
    run(diary, is_mended)
