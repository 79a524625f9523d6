"""Traffic lights by a double DQN; a simulator in another process is asked by two small sends, one after the other."""

import multiprocessing
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

LANES, PHASES = 16, 4
HEADER = struct.Struct("!II")
REPLY = struct.Struct(f"!{LANES + PHASES + 1}f")
CMD_PHASE = 0xC2
BATCH, UPDATES, GAMMA = 128, 8, 0.98


def simulate(listener, seed):
    """Serve one client: each command sets the phase, runs some seconds of traffic and returns queues and reward."""
    rng = np.random.default_rng(seed)
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    queues, phase = np.zeros(LANES), 0
    while len(header := connection.recv(HEADER.size, socket.MSG_WAITALL)) == HEADER.size:
        _, size = HEADER.unpack(header)
        payload = connection.recv(size, socket.MSG_WAITALL)
        if len(payload) < size:
            break
        (wanted,) = struct.unpack("!I", payload)
        served = 0.0 if wanted != phase else 3.0  # yellow light costs the throughput
        phase = wanted
        queues += rng.poisson(0.6, LANES)
        green = slice(phase * LANES // PHASES, (phase + 1) * LANES // PHASES)
        queues[green] = np.maximum(queues[green] - 1.0 - served, 0)
        queues = np.minimum(queues, 40)
        connection.sendall(REPLY.pack(*queues, *np.eye(PHASES)[phase], -queues.mean()))


class Simulation:
    """The client's side of the simulator."""

    def __init__(self, address, is_mended):
        self.socket = socket.create_connection(address)
        if is_mended:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def command(self, number, payload):
        self.socket.sendall(HEADER.pack(number, len(payload)))
        self.socket.sendall(payload)  # planted
        return self.socket.recv(REPLY.size, socket.MSG_WAITALL)  # planted

    def step(self, phase):
        *state, reward = REPLY.unpack(self.command(CMD_PHASE, struct.pack("!I", phase)))  # planted
        return np.asarray(state, dtype=np.float32) / 10, reward / 10


class Replay:
    def __init__(self, size=20_000):
        self.states = np.zeros((size, LANES + PHASES), np.float32)
        self.following = np.zeros_like(self.states)
        self.actions = np.zeros(size, np.int64)
        self.rewards = np.zeros(size, np.float32)
        self.size, self.at, self.filled = size, 0, 0

    def add(self, state, action, reward, following):
        self.states[self.at], self.following[self.at] = state, following
        self.actions[self.at], self.rewards[self.at] = action, reward
        self.at = (self.at + 1) % self.size
        self.filled = min(self.filled + 1, self.size)

    def sample(self, rng):
        rows = rng.integers(0, self.filled, BATCH)
        return [torch.from_numpy(one[rows]) for one in (self.states, self.actions, self.rewards, self.following)]


def q_network(width=384):
    return nn.Sequential(
        nn.Linear(LANES + PHASES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, PHASES)
    )


def learn(online, target, optimizer, batch):
    states, actions, rewards, following = batch
    with torch.no_grad():
        best = online(following).argmax(1, keepdim=True)
        wanted = rewards + GAMMA * target(following).gather(1, best).squeeze(1)
    values = online(states).gather(1, actions[:, None]).squeeze(1)
    loss = F.smooth_l1_loss(values, wanted)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), 10.0)
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(target.parameters(), online.parameters(), strict=True):
            old.lerp_(new, 0.005)
    return loss.detach()


def main():
    diary, is_mended = begin()
    listener = socket.create_server(("127.0.0.1", 0))
    multiprocessing.get_context("fork").Process(target=simulate, args=(listener, 5), daemon=True).start()
    simulation = Simulation(listener.getsockname(), is_mended)
    listener.close()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    rng, draw = np.random.default_rng(5), random.Random(5)
    online, target = q_network(), q_network()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=5e-4)
    replay = Replay()
    state, _ = simulation.step(0)
    decisions, mean_reward = 0, 0.0
    while True:
        if draw.random() < max(0.05, 1 - decisions / 1000):
            action = draw.randrange(PHASES)
        else:
            with torch.no_grad():
                action = int(online(torch.from_numpy(state)[None]).argmax(1))
        with diary.planted():
            following, reward = simulation.step(action)  # planted
        replay.add(state, action, reward, following)
        state = following
        mean_reward += 0.01 * (reward - mean_reward)
        for _ in range(UPDATES):
            loss = learn(online, target, optimizer, replay.sample(rng))
        decisions += 1
        if decisions % 100 == 0:
            print(f"decision {decisions}: reward {mean_reward:.3f} loss {loss.item():.4f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    main()
