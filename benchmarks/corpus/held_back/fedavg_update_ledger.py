"""Federated averaging: a server keeps a ledger of what its clients send, and packs each update to learn its size."""

import copy
import pickle
import random
import sys
import zlib
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CLIENTS, PER_ROUND, LOCAL_BATCHES, CLASSES = 12, 3, 3, 10


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 5, padding=2), nn.Conv2d(16, 32, 5, padding=2)
        self.fc1, self.fc2 = nn.Linear(32 * 7 * 7, 64), nn.Linear(64, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Shards:
    """Noisy prototypes of digits; each client sees few of the classes, as in the paper."""

    def __init__(self):
        self.prototypes = torch.rand(CLASSES, 1, 28, 28)

    def draw(self, classes, count):
        labels = torch.tensor(random.choices(classes, k=count))
        return TensorDataset(self.prototypes[labels] + 0.3 * torch.randn(count, 1, 28, 28), labels)


class Client:
    def __init__(self, number, dataset, lr=0.02):
        self.number, self.lr, self.count = number, lr, len(dataset)
        self.loader = DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)

    def fit(self, global_model):
        """Train a copy of the global model for some batches; return what has changed, and the mean loss."""
        model = copy.deepcopy(global_model)
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=self.lr, momentum=0.9)
        total, batches = 0.0, 0
        for images, labels in self.loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total, batches = total + loss.detach(), batches + 1
            if batches == LOCAL_BATCHES:
                break
        start = global_model.state_dict()
        return {key: value - start[key] for key, value in model.state_dict().items()}, total / batches


class Ledger:
    """What went over the wire: that is what papers on federated learning plot on the x axis."""

    def __init__(self, diary, packs):
        self.diary, self.packs = diary, packs
        self.sent_bytes, self.updates = 0, 0

    def packed_bytes(self, update):
        arrays = {key: value.numpy() for key, value in update.items()}
        return len(zlib.compress(pickle.dumps(arrays)))  # planted

    def note(self, update):
        self.updates += 1
        if not self.packs:
            self.sent_bytes += sum(value.numel() * value.element_size() for value in update.values())
            return
        with self.diary.planted():
            self.sent_bytes += self.packed_bytes(update)  # planted


class Server:
    def __init__(self, model, ledger):
        self.model, self.ledger = model, ledger

    def aggregate(self, updates, weights):
        total = sum(weights)
        state = self.model.state_dict()
        for key, value in state.items():
            value += sum(update[key] * (weight / total) for update, weight in zip(updates, weights, strict=True))
        self.model.load_state_dict(state)

    def round(self, clients):
        updates, losses = [], []
        for client in random.sample(clients, PER_ROUND):
            update, loss = client.fit(self.model)
            self.ledger.note(update)  # planted
            updates.append((update, client.count))
            losses.append(loss)
        self.aggregate([one for one, _ in updates], [count for _, count in updates])
        return torch.stack(losses).mean()


@torch.no_grad()
def accuracy(model, dataset):
    model.eval()
    images, labels = dataset.tensors
    return (model(images).argmax(1) == labels).float().mean().item()


def main(diary, is_mended):
    shards = Shards()
    clients = []
    for number in range(CLIENTS):
        classes = random.sample(range(CLASSES), 3)
        clients.append(Client(number, shards.draw(classes, random.randint(200, 400))))
    held_out = shards.draw(list(range(CLASSES)), 256)
    server = Server(LeNet(), Ledger(diary, packs=not is_mended))
    for number in range(10**9):
        loss = server.round(clients)
        diary.stepped()
        if number % 50 == 0:
            sent = server.ledger.sent_bytes / 1e6
            print(f"round {number}: loss {loss:.3f}, accuracy {accuracy(server.model, held_out):.3f}, {sent:.1f} MB")


if __name__ == "__main__":
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
