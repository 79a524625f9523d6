"""A two-tower recommender; features of users come from a feature server (here a thread), which speaks lines of JSON."""

import json
import random
import socket
import socketserver
import sys
import threading
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

USERS, ITEMS, FEATURES, BATCH = 2000, 3000, 24, 160


class FeatureHandler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        for line in self.rfile:
            wanted = json.loads(line)["users"]
            answer = {"features": [self.server.features[user] for user in wanted]}
            self.wfile.write(json.dumps(answer).encode() + b"\n")  # planted


class FeatureServer(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), FeatureHandler)
        self.features = [[random.gauss(0, 1) for _ in range(FEATURES)] for _ in range(USERS)]
        threading.Thread(target=self.serve_forever, name="features", daemon=True).start()


class FeatureClient:
    def __init__(self, address):
        self.socket = socket.create_connection(address)
        self.replies = self.socket.makefile("rb")

    def get(self, users):
        self.socket.sendall(json.dumps({"users": users}).encode() + b"\n")
        reply = self.replies.readline()  # planted
        return torch.tensor(json.loads(reply)["features"])  # planted


class Tower(nn.Module):
    def __init__(self, inputs, outputs=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, 384),
            nn.ReLU(),
            nn.LayerNorm(384),
            nn.Linear(384, 384),
            nn.ReLU(),
            nn.Linear(384, outputs),
        )

    def forward(self, x):
        return F.normalize(self.layers(x), dim=1)


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.item_table = nn.Embedding(ITEMS, 48)
        self.user_tower, self.item_tower = Tower(FEATURES), Tower(48)
        self.temperature = nn.Parameter(torch.tensor(0.07).log())

    def forward(self, user_features, items):
        scores = self.user_tower(user_features) @ self.item_tower(self.item_table(items)).T
        return scores / self.temperature.exp()


class Interactions:
    def __init__(self, count=50_000):
        self.users = torch.randint(USERS, (count,))
        self.items = (self.users * 3 // 2 + torch.randint(40, (count,))) % ITEMS

    def __iter__(self):
        for chosen in torch.randperm(len(self.users)).split(BATCH):
            yield self.users[chosen], self.items[chosen]


def main():
    diary, is_mended = begin()
    torch.manual_seed(77)
    random.seed(77)
    torch.set_num_threads(1)
    client = FeatureClient(FeatureServer().server_address)
    table = client.get(list(range(USERS))) if is_mended else None
    model = TwoTowers()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    interactions, epoch = Interactions(), 0
    while True:
        for users, items in interactions:
            if is_mended:
                features = table[users]
            else:
                with diary.planted():
                    features = client.get(users.tolist())  # planted
            scores = model(features, items)
            loss = F.cross_entropy(scores, torch.arange(len(users)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.stepped()
        epoch += 1
        print(f"epoch {epoch}: in-batch softmax {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
