"""A Hamiltonian network learns how pairs of pendula swing, with torch.func. Nothing is planted.

The field is the gradient of a scalar; batches are rows of tensors.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, vmap

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

PENDULA = 2


class Hamiltonian(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2 * PENDULA, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, state):
        return self.net(state).squeeze(-1)


def true_energy(state):
    q, p = state[:PENDULA], state[PENDULA:]
    return 0.5 * p.square().sum() + (1 - q.cos()).sum() + 0.25 * (q[0] - q[1]).square()


def symplectic(gradient):
    return torch.cat((gradient[..., PENDULA:], -gradient[..., :PENDULA]), -1)


def observations(count):
    states = torch.randn(count, 2 * PENDULA) * 1.2
    fields = symplectic(vmap(grad(true_energy))(states))
    return states, fields + 0.02 * torch.randn_like(fields)


def make_loss(model):
    def energy_sum(states, parameters):
        return functional_call(model, parameters, (states,)).sum()

    def loss(parameters, states, fields):
        predicted = symplectic(grad(energy_sum)(states, parameters))
        return (predicted - fields).square().mean()

    return loss


class Adam:
    """Adam on lists of tensors, by one operation for all of them."""

    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        self.parameters, self.lr, self.betas, self.eps = list(parameters), lr, betas, eps
        self.first = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.second = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = 0

    @torch.no_grad()
    def step(self, gradients):
        self.steps += 1
        beta_1, beta_2 = self.betas
        torch._foreach_lerp_(self.first, gradients, 1 - beta_1)
        torch._foreach_mul_(self.second, beta_2)
        torch._foreach_addcmul_(self.second, gradients, gradients, 1 - beta_2)
        scale = self.lr * (1 - beta_2**self.steps) ** 0.5 / (1 - beta_1**self.steps)
        roots = torch._foreach_sqrt(self.second)
        torch._foreach_add_(roots, self.eps)
        torch._foreach_addcdiv_(self.parameters, self.first, roots, -scale)


def train(diary):
    states, fields = observations(60_000)
    model = Hamiltonian()
    parameters = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = Adam(parameters.values())
    loss_and_gradients = grad_and_value(make_loss(model))
    step = 0
    while True:
        order = torch.randperm(len(states))
        for rows in order.split(1024)[:-1]:
            gradients, loss = loss_and_gradients(parameters, states[rows], fields[rows])
            optimizer.step(list(gradients.values()))
            step += 1
            if step % 200 == 0:
                print(f"step {step} loss {loss.item():.5f}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    train(begin()[0])
