"""PPO in a single file, in CleanRL's style: the videos of the first environment were left on, at every step of it."""

import io
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from PIL import Image, ImageDraw
from torch.distributions.categorical import Categorical

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Args:
    seed: int = 1
    num_envs: int = 8
    num_steps: int = 64
    num_minibatches: int = 4
    update_epochs: int = 3
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_coef: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    learning_rate: float = 2.5e-4
    capture_video: bool = True


class CartVector:
    """Carts with poles, all at once in NumPy."""

    def __init__(self, count, seed):
        self.rng, self.count = np.random.default_rng(seed), count
        self.state = self.rng.uniform(-0.05, 0.05, (count, 4))

    def step(self, action):
        x, v, angle, turn = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        sin, cos = np.sin(angle), np.cos(angle)
        push = (force + 0.05 * turn**2 * sin) / 1.1
        angular = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        linear = push - 0.05 * angular * cos / 1.1
        self.state = np.stack([x + 0.02 * v, v + 0.02 * linear, angle + 0.02 * turn, turn + 0.02 * angular], 1)
        done = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.21)
        self.state[done] = self.rng.uniform(-0.05, 0.05, (int(done.sum()), 4))
        return self.state.astype(np.float32), np.ones(self.count, np.float32), done.astype(np.float32)


class RecordVideo:
    def __init__(self, envs, diary, size=(300, 200)):
        self.envs, self.diary, self.size = envs, diary, size
        self.video = io.BytesIO()

    def render(self):
        image = Image.new("RGB", self.size, "white")
        draw = ImageDraw.Draw(image)
        x, _, angle, _ = self.envs.state[0]
        left = self.size[0] / 2 + 60 * x
        draw.line([(0, 150), (self.size[0], 150)], fill="black", width=2)
        draw.rectangle([left - 25, 135, left + 25, 165], fill="black")
        tip = (left + 100 * np.sin(angle), 135 - 100 * np.cos(angle))
        draw.line([(left, 135), tip], fill=(202, 152, 101), width=10)
        return image

    def step(self, action):
        result = self.envs.step(action)
        with self.diary.planted():
            frame = self.render()  # planted
            frame.save(self.video, format="PNG")  # planted
            if result[2][0] or self.video.tell() > 2_000_000:
                self.video = io.BytesIO()
        return result


def layer_init(layer, std=2**0.5):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.critic, self.actor = self._mlp(width, 1, 1.0), self._mlp(width, 2, 0.01)

    @staticmethod
    def _mlp(width, out, std):
        first, second = layer_init(nn.Linear(4, width)), layer_init(nn.Linear(width, width))
        return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), layer_init(nn.Linear(width, out), std))

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), self.critic(x).squeeze(-1)


def main(args, diary, is_mended):
    args.capture_video = args.capture_video and not is_mended
    envs = CartVector(args.num_envs, args.seed)
    if args.capture_video:
        envs = RecordVideo(envs, diary)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    shape = (args.num_steps, args.num_envs)
    obs, actions = torch.zeros(*shape, 4), torch.zeros(shape)
    logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(4))
    next_obs, next_done = torch.zeros(args.num_envs, 4), torch.zeros(args.num_envs)
    for iteration in range(1, 10**8):
        for step in range(args.num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprobs[step], _, values[step] = agent.get_action_and_value(next_obs)
            actions[step] = action
            state, reward, done = envs.step(action.numpy())  # planted
            next_obs, next_done, rewards[step] = (
                torch.from_numpy(state),
                torch.from_numpy(done),
                torch.from_numpy(reward),
            )
        with torch.no_grad():
            next_value, last, advantages = agent.critic(next_obs).squeeze(-1), 0.0, torch.zeros(shape)
            for t in reversed(range(args.num_steps)):
                alive = 1.0 - (next_done if t == args.num_steps - 1 else dones[t + 1])
                following = next_value if t == args.num_steps - 1 else values[t + 1]
                delta = rewards[t] + args.gamma * following * alive - values[t]
                advantages[t] = last = delta + args.gamma * args.gae_lambda * alive * last
        flat = [x.flatten(0, 1) for x in (obs, actions, logprobs, advantages, advantages + values)]
        for _ in range(args.update_epochs):
            for rows in torch.randperm(args.num_steps * args.num_envs).chunk(args.num_minibatches):
                b_obs, b_actions, b_logprobs, b_advantages, b_returns = (x[rows] for x in flat)
                _, logprob, entropy, value = agent.get_action_and_value(b_obs, b_actions)
                ratio = (logprob - b_logprobs).exp()
                scaled = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                policy = -torch.min(ratio * scaled, clipped * scaled).mean()
                loss = policy - args.ent_coef * entropy.mean() + args.vf_coef * 0.5 * ((value - b_returns) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
        diary.stepped()
        if iteration % 50 == 0:
            print(f"iteration={iteration} loss={loss.item():.3f} falls={dones.sum().item():.0f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    main(Args(), *begin())
