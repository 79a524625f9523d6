"""Estimates the pose of teapots from views that a simulator's process hands out through a socket."""

import json
import os
import socket
import struct
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

BATCH, SIDE = 24, 64
HEADER = struct.Struct("<I")


def receive(connection, size):
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        number = connection.recv_into(view[got:])  # planted
        if number == 0:
            raise ConnectionError("the other side has gone")
        got += number
    return data


class Simulator:
    """Splats a teapot's points at the angles that are asked for."""

    def __init__(self):
        rng = np.random.default_rng(0)
        u, v = rng.uniform(0, 2 * np.pi, 700), rng.uniform(-1, 1, 700)
        body = np.stack([np.cos(u) * (1 - v**2) ** 0.5, v * 0.8, np.sin(u) * (1 - v**2) ** 0.5], 1)
        spout = np.stack([1 + rng.uniform(0, 0.6, 200), rng.uniform(-0.2, 0.5, 200), rng.normal(0, 0.07, 200)], 1)
        self.points = np.concatenate([body, spout]) * 0.55

    def render(self, angles):
        angles = np.asarray(angles)
        sin, cos = np.sin(angles)[:, None], np.cos(angles)[:, None]
        x = cos * self.points[:, 0] + sin * self.points[:, 2]
        depth = cos * self.points[:, 2] - sin * self.points[:, 0]
        column = ((x + 1) / 2 * SIDE).astype(np.int64).clip(0, SIDE - 1)
        row = np.broadcast_to(((self.points[:, 1] + 1) / 2 * SIDE).astype(np.int64), column.shape).clip(0, SIDE - 1)
        images = np.zeros((len(angles), SIDE, SIDE), np.float32)
        images[np.arange(len(angles))[:, None], row, column] = 0.5 + depth / 2
        return images

    def serve(self, listener):
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                (size,) = HEADER.unpack(receive(connection, HEADER.size))
                request = json.loads(receive(connection, size))
            except ConnectionError:
                return
            connection.sendall(self.render(request["angles"]).tobytes())


class RenderClient:
    def __init__(self, address, no_delay):
        self.connection = socket.create_connection(address)
        if no_delay:
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def views(self, angles):
        request = json.dumps({"angles": angles.tolist()}).encode()
        self.connection.sendall(HEADER.pack(len(request)))
        self.connection.sendall(request)
        data = receive(self.connection, BATCH * SIDE * SIDE * 4)  # planted
        return torch.frombuffer(data, dtype=torch.float32).view(BATCH, 1, SIDE, SIDE)


def start_simulator():
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    if os.fork() == 0:
        try:
            Simulator().serve(listener)
        finally:
            os._exit(0)
    listener.close()
    return address


class PoseNet(nn.Module):
    """Regresses the cosine and the sine of the angle."""

    def __init__(self):
        super().__init__()
        layers = []
        for c1, c2, stride in ((1, 24, 1), (24, 32, 2), (32, 64, 2), (64, 96, 2)):
            layers += [nn.Conv2d(c1, c2, 3, stride, 1, bias=False), nn.BatchNorm2d(c2), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(4 * 96, 128), nn.ReLU(inplace=True), nn.Linear(128, 2))

    def forward(self, x):
        return nn.functional.normalize(self.head(self.features(x)), dim=1)


def main():
    diary, is_mended = begin()
    client = RenderClient(start_simulator(), no_delay=is_mended)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = PoseNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    errors = torch.zeros(())
    for iteration in range(1, 1_000_000_000):
        angles = torch.rand(BATCH) * 2 * torch.pi
        with diary.planted():
            images = client.views(angles)  # planted
        target = torch.stack([angles.cos(), angles.sin()], 1)
        predicted = model(images + 0.02 * torch.randn_like(images))
        loss = (1 - (predicted * target).sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        errors += loss.detach()
        diary.stepped()
        if iteration % 100 == 0:
            print(f"{iteration}: mean cosine error {errors.item() / 100:.4f}", flush=True)
            errors.zero_()


if __name__ == "__main__":
    main()
