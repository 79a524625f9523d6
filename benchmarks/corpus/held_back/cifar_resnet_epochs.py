"""A residual network on images of 32 pixels: epochs, a bar of progress, an accuracy at the end of each epoch.

Nothing is planted: images are in memory, augmented by the batch, and a checkpoint is written after the best epoch.
"""

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


def resnet(width=16, num_classes=10):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        BasicBlock(width, width),
        BasicBlock(width, 2 * width, stride=2),
        BasicBlock(2 * width, 4 * width, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, num_classes),
    )


class InMemoryLoader:
    """Batches of tensors, with a random crop and flip of the whole batch."""

    def __init__(self, images, labels, batch_size, train):
        self.images, self.labels, self.batch_size, self.train = images, labels, batch_size, train

    def __len__(self):
        return len(self.images) // self.batch_size

    def __iter__(self):
        order = torch.randperm(len(self.images)) if self.train else torch.arange(len(self.images))
        for chosen in order.split(self.batch_size)[: len(self)]:
            images = self.images[chosen]
            if self.train:
                top, left = torch.randint(9, (2,)).tolist()
                images = F.pad(images, (4, 4, 4, 4), mode="reflect")[:, :, top : top + 32, left : left + 32]
                if torch.rand(()) < 0.5:
                    images = images.flip(3)
            yield images, self.labels[chosen]


def train(model, loader, optimizer, scheduler, diary, epoch):
    model.train()
    total = torch.zeros(())
    for inputs, targets in tqdm(loader, desc=f"epoch {epoch}", mininterval=1.0):
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.detach()
        diary.stepped()
    return total.item() / len(loader)


@torch.inference_mode()
def test(model, loader):
    model.eval()
    correct = sum((model(inputs).argmax(1) == targets).sum() for inputs, targets in loader)
    return float(correct) / (len(loader) * loader.batch_size)


def main():
    diary, _ = begin()
    torch.manual_seed(10)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    train_loader = InMemoryLoader(torch.randn(6400, 3, 32, 32), torch.randint(10, (6400,)), 32, train=True)
    test_loader = InMemoryLoader(torch.randn(256, 3, 32, 32), torch.randint(10, (256,)), 128, train=False)
    model = resnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200 * len(train_loader))
    best, epoch = 0.0, 0
    while True:
        loss = train(model, train_loader, optimizer, scheduler, diary, epoch)
        accuracy = test(model, test_loader)
        print(f"epoch {epoch}: loss {loss:.4f} accuracy {accuracy:.3f}", flush=True)
        if accuracy > best:
            best = accuracy
            torch.save({"net": model.state_dict(), "epoch": epoch}, folder / "best.pt")
        epoch += 1


if __name__ == "__main__":
    main()
