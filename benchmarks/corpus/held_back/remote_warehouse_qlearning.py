"""Double Q-learning of robots in a warehouse; the simulator is another process, spoken to by TCP as bridges do."""

import multiprocessing
import os
import random
import socket
import struct
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ROBOTS, SIDE, ACTIONS = 8, 12, 5
MOVES = np.array([(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)])
STATE = 3 * SIDE * SIDE


def read_exactly(connection, size):
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))  # planted
        if not part:
            os._exit(0)
        parts += part
    return parts


class Warehouse:
    """Each robot has a shelf to go to, and a map with walls."""

    def __init__(self, rng):
        self.rng = rng
        self.walls = rng.random((ROBOTS, SIDE, SIDE)) < 0.15
        self.robots, self.goals = rng.integers(SIDE, size=(2, ROBOTS, 2))

    def step(self, actions):
        rows = np.arange(ROBOTS)
        wanted = np.clip(self.robots + MOVES[actions], 0, SIDE - 1)
        is_free = ~self.walls[rows, wanted[:, 0], wanted[:, 1]]
        self.robots = np.where(is_free[:, None], wanted, self.robots)
        is_done = (self.robots == self.goals).all(axis=1)
        rewards = np.where(is_done, 1.0, -0.01).astype(np.float32)
        self.goals = np.where(is_done[:, None], self.rng.integers(SIDE, size=(ROBOTS, 2)), self.goals)
        maps = np.zeros((ROBOTS, 3, SIDE, SIDE), dtype=np.float32)
        maps[:, 0] = self.walls
        maps[rows, 1, self.robots[:, 0], self.robots[:, 1]] = 1
        maps[rows, 2, self.goals[:, 0], self.goals[:, 1]] = 1
        return maps.tobytes() + rewards.tobytes() + is_done.astype(np.float32).tobytes()


def serve(listener):
    warehouse, (connection, _) = Warehouse(np.random.default_rng(8)), listener.accept()
    while True:
        (size,) = struct.unpack(">I", read_exactly(connection, 4))
        connection.sendall(warehouse.step(np.frombuffer(read_exactly(connection, size), dtype=np.int64)))


class RemoteEnv:
    def __init__(self, address, is_mended):
        self.connection, self.is_mended = socket.create_connection(address), is_mended

    def step(self, actions):
        payload = actions.astype(np.int64).tobytes()
        header = struct.pack(">I", len(payload))
        if self.is_mended:
            self.connection.sendall(header + payload)
        else:
            self.connection.sendall(header)  # planted
            self.connection.sendall(payload)  # planted
        answer = np.frombuffer(read_exactly(self.connection, ROBOTS * (STATE + 2) * 4), dtype=np.float32)  # planted
        maps, rewards, dones = np.split(answer, [ROBOTS * STATE, ROBOTS * (STATE + 1)])
        return maps.reshape(ROBOTS, 3, SIDE, SIDE), rewards, dones


class Replay:
    def __init__(self, capacity):
        self.capacity, self.count = capacity, 0
        shape = (capacity, 3, SIDE, SIDE)
        self.states, self.following = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
        self.actions = np.zeros(capacity, dtype=np.int64)
        self.rewards, self.dones = np.zeros((2, capacity), dtype=np.float32)

    def add(self, states, actions, rewards, following, dones):
        rows = (self.count + np.arange(len(states))) % self.capacity
        self.states[rows], self.actions[rows], self.rewards[rows] = states, actions, rewards
        self.following[rows], self.dones[rows] = following, dones
        self.count += len(states)

    def sample(self, size):
        rows = np.random.randint(min(self.count, self.capacity), size=size)
        arrays = (self.states, self.actions, self.rewards, self.following, self.dones)
        return [torch.from_numpy(array[rows]) for array in arrays]


def make_q():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
        nn.Conv2d(24, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * SIDE * SIDE // 4, 192), nn.ReLU(), nn.Linear(192, ACTIONS),
    )  # fmt: skip


def learn(online, target, optimizer, batch):
    states, actions, rewards, following, dones = batch
    with torch.no_grad():
        best = online(following).argmax(1, keepdim=True)
        goals = rewards + 0.97 * (1 - dones) * target(following).gather(1, best).squeeze(1)
    loss = F.smooth_l1_loss(online(states).gather(1, actions[:, None]).squeeze(1), goals)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def main():
    diary, is_mended = begin()
    listener = socket.create_server(("127.0.0.1", 0))
    multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True).start()
    env = RemoteEnv(listener.getsockname(), is_mended)
    torch.manual_seed(8)
    torch.set_num_threads(1)
    online, target, replay = make_q(), make_q(), Replay(8000)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=3e-4)
    states, _, _ = env.step(np.zeros(ROBOTS))
    step = 0
    while True:
        actions = np.random.randint(ACTIONS, size=ROBOTS)
        if random.random() > max(0.05, 1 - step / 500):
            with torch.no_grad():
                actions = online(torch.from_numpy(states.copy())).argmax(1).numpy()
        if is_mended:
            following, rewards, dones = env.step(actions)
        else:
            with diary.planted():
                following, rewards, dones = env.step(actions)  # planted
        replay.add(states, actions, rewards, following, dones)
        states = following
        loss = learn(online, target, optimizer, replay.sample(160))
        step += 1
        if step % 200 == 0:
            target.load_state_dict(online.state_dict())
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    main()
