"""A vessel segmenter driven by an engine with events, as in ignite; its report of each step is sent in two parts."""

import json
import multiprocessing
import socket
import sys
from collections import defaultdict
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE, FUNDI, BATCH = 80, 360, 4


def collect(listener):
    """Be the lab's collector of metrics: acknowledge each message, and keep the last."""
    connection, _ = listener.accept()
    stream, last = connection.makefile("rb"), {}
    with suppress(ConnectionError):
        while head := stream.read(4):
            last.update(json.loads(stream.read(int.from_bytes(head, "big"))))
            connection.sendall(b"\x06")


class MetricsClient:
    def __init__(self, address, is_mended):
        self.socket = socket.create_connection(address)
        self.send = self.send_at_once if is_mended else self.send_in_parts

    def send_in_parts(self, body):
        self.socket.sendall(len(body).to_bytes(4, "big"))
        self.socket.sendall(body)
        return self.socket.recv(1)  # planted

    def send_at_once(self, body):
        self.socket.sendall(len(body).to_bytes(4, "big") + body)
        return self.socket.recv(1)


class Events(Enum):
    ITERATION_COMPLETED = auto()
    EPOCH_COMPLETED = auto()


class Engine:
    def __init__(self, process_function):
        self.process_function = process_function
        self.handlers = defaultdict(list)
        self.iteration, self.epoch, self.output = 0, 0, None

    def on(self, event):
        return self.handlers[event].append

    def fire(self, event):
        for handler in self.handlers[event]:
            handler(self)

    def run(self, data):
        while True:
            for batch in data:
                self.output = self.process_function(self, batch)
                self.iteration += 1
                self.fire(Events.ITERATION_COMPLETED)  # planted
            self.epoch += 1
            self.fire(Events.EPOCH_COMPLETED)


class Fundi:
    """Dark discs with bright, winding vessels, in random order, flipped by chance."""

    def __init__(self):
        places = torch.linspace(-1, 1, SIDE)
        rows, columns = torch.meshgrid(places, places, indexing="ij")
        phase, turns = torch.rand(2, FUNDI, 3, 1, 1) * 6
        paths = 0.5 * torch.sin(phase + turns * rows) + torch.linspace(-0.5, 0.5, 3).view(1, 3, 1, 1)
        self.vessels = ((columns - paths).abs() < 0.05).any(1, keepdim=True).float()
        disc = (rows**2 + columns**2 < 0.9).float()
        self.images = 0.4 * disc + 0.25 * self.vessels * disc + 0.08 * torch.randn(FUNDI, 3, SIDE, SIDE)

    def __iter__(self):
        for picked in torch.randperm(FUNDI).split(BATCH):
            images, vessels = self.images[picked], self.vessels[picked]
            if torch.rand(()) < 0.5:
                images, vessels = images.flip(3), vessels.flip(3)
            yield images, vessels


class Double(nn.Sequential):
    def __init__(self, inputs, outputs):
        first, second = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        super().__init__(first, nn.GroupNorm(4, outputs), nn.SiLU(), second, nn.GroupNorm(4, outputs), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down, self.bottom = Double(3, width), Double(width, 2 * width)
        self.up, self.head = Double(3 * width, width), nn.Conv2d(width, 1, 1)

    def forward(self, x):
        fine = self.down(x)
        coarse = F.interpolate(self.bottom(F.max_pool2d(fine, 2)), scale_factor=2)
        return self.head(self.up(torch.cat([coarse, fine], 1)))


def soft_dice(logits, vessels):
    found = logits.sigmoid()
    both = (found * vessels).sum((1, 2, 3))
    return 1 - (2 * both + 1) / (found.sum((1, 2, 3)) + vessels.sum((1, 2, 3)) + 1)


def main():
    diary, is_mended = begin()
    listener = socket.create_server(("127.0.0.1", 0))
    multiprocessing.get_context("fork").Process(target=collect, args=(listener,), daemon=True).start()
    client = MetricsClient(listener.getsockname(), is_mended)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = UNet()
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-3)

    def update(engine, batch):
        images, vessels = batch
        logits = model(images)
        dice = soft_dice(logits, vessels).mean()
        loss = dice + F.binary_cross_entropy_with_logits(logits, vessels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss.item(), "dice": 1 - dice.item()}

    trainer = Engine(update)

    @trainer.on(Events.ITERATION_COMPLETED)
    def report(engine):
        body = json.dumps({"iteration": engine.iteration, **engine.output}).encode()
        if is_mended:
            client.send(body)
        else:
            with diary.planted():
                client.send(body)  # planted
        diary.stepped()

    @trainer.on(Events.EPOCH_COMPLETED)
    def show(engine):
        if engine.epoch % 5 == 0:
            print(f"epoch {engine.epoch}: {engine.output}", flush=True)

    trainer.run(Fundi())


if __name__ == "__main__":
    main()
