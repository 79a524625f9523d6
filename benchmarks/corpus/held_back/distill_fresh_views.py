"""A student learns from a teacher on pictures that are changed anew at each step; a validation counts the errors.

Nothing is planted: the teacher has to see the changed pictures, so what it says cannot be kept.
"""

import logging
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torchvision.transforms import v2

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

log = logging.getLogger("distill")


class Params(dict):
    """Settings as a dictionary whose keys are attributes too."""

    __getattr__ = dict.__getitem__


PARAMS = Params(
    batch_size=16, alpha=0.9, temperature=4.0, learning_rate=1e-3, summary_steps=50, evaluate_every=8, channels=20
)


class ConvNet(nn.Module):
    def __init__(self, channels, depth, classes=10):
        super().__init__()
        layers, c_in = [], 3
        for level in range(3):
            c_out = channels * 2**level
            for _ in range(depth):
                layers += [nn.Conv2d(c_in, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(True)]
                c_in = c_out
            layers.append(nn.MaxPool2d(2))
        self.features, self.fc = nn.Sequential(*layers), nn.Linear(c_in, classes)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


class RunningAverage:
    def __init__(self):
        self.steps, self.total = 0, 0.0

    def update(self, value):
        self.total += value
        self.steps += 1

    def __call__(self):
        return self.total / max(self.steps, 1)


def loss_fn_kd(outputs, labels, teacher_outputs, params):
    alpha, T = params.alpha, params.temperature
    soft = F.kl_div(
        F.log_softmax(outputs / T, dim=1),
        F.log_softmax(teacher_outputs / T, dim=1),
        reduction="batchmean",
        log_target=True,
    )
    return alpha * T * T * soft + (1 - alpha) * F.cross_entropy(outputs, labels)


class Stripes:
    """Pictures with stripes: the class is their direction."""

    def __init__(self, size):
        self.labels = torch.randint(10, (size,))
        angle = self.labels[:, None, None] * (torch.pi / 10)
        yy, xx = torch.meshgrid(*[torch.linspace(-8, 8, 32)] * 2, indexing="ij")
        waves = (xx * angle.cos() + yy * angle.sin() + 6 * torch.rand(size, 1, 1)).sin()
        self.images = (
            0.5 + 0.3 * waves[:, None] * torch.rand(size, 3, 1, 1) + 0.1 * torch.rand(size, 3, 32, 32)
        ).clamp(0, 1)

    def batches(self, batch_size):
        for rows in torch.randperm(len(self.labels)).split(batch_size):
            yield self.images[rows], self.labels[rows]


def train_kd(student, teacher, optimizer, data, transform, params, diary):
    student.train()
    teacher.eval()
    loss_avg = RunningAverage()
    for i, (images, labels) in enumerate(data.batches(params.batch_size)):
        images = transform(images)
        with torch.no_grad():
            teacher_outputs = teacher(images)
        loss = loss_fn_kd(student(images), labels, teacher_outputs, params)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % params.summary_steps == 0:
            loss_avg.update(loss.item())
        diary.stepped()
    return loss_avg()


@torch.no_grad()
def evaluate(model, data, params):
    model.eval()
    confusion = torch.zeros(10, 10)
    for images, labels in data.batches(params.batch_size):
        predicted = model(images).argmax(1)
        confusion.index_put_((labels, predicted), torch.ones(len(labels)), accumulate=True)
    return (confusion.diagonal().sum() / confusion.sum()).item()


def main(diary, params):
    train_data, dev_data = Stripes(800), Stripes(96)
    teacher, student = ConvNet(params.channels, 2).requires_grad_(False), ConvNet(params.channels, 1)
    transform = v2.Compose(
        [v2.RandomHorizontalFlip(), v2.RandomCrop(32, padding=4), v2.Normalize([0.5] * 3, [0.25] * 3)]
    )
    optimizer = torch.optim.Adam(student.parameters(), lr=params.learning_rate)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.2)
    best, epoch = 0.0, 0
    while True:
        loss = train_kd(student, teacher, optimizer, train_data, transform, params, diary)
        scheduler.step()
        if epoch % params.evaluate_every == 0:
            accuracy = evaluate(student, dev_data, params)
            best = max(best, accuracy)
            log.info("- Epoch %d: train loss %.3f, dev accuracy %.3f (best %.3f)", epoch, loss, accuracy, best)
        epoch += 1


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s:%(levelname)s: %(message)s")
    torch.manual_seed(230)
    torch.set_num_threads(1)
    main(begin()[0], PARAMS)
