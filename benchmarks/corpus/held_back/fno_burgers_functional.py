"""A Fourier neural operator of Burgers' equation with torch.func: parameters are a dictionary, gradients a function.

Nothing is planted: solutions are computed once, by a spectral solver, and the optimizer updates all tensors at once.
"""

import sys
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.func import functional_call, grad_and_value
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

GRID, SAMPLES, HELD = 128, 512, 64
VISCOSITY, DURATION, SOLVER_STEPS = 0.05, 0.25, 200
BATCH, LEARNING_RATE, BETAS = 32, 1e-3, (0.9, 0.999)


def random_fields(count):
    """Return smooth periodic fields."""
    modes = torch.arange(GRID // 2 + 1)
    spectrum = torch.randn(count, len(modes), dtype=torch.complex64) * torch.exp(-0.3 * modes) * GRID
    spectrum[:, 0] = 0
    return torch.fft.irfft(spectrum, n=GRID)


def solve_burgers(field):
    """Advance u_t + u u_x = nu u_xx by an integrating factor and Heun's method."""
    wave = 2j * torch.pi * torch.fft.rfftfreq(GRID, 1 / GRID)
    dt = DURATION / SOLVER_STEPS
    decay = torch.exp(-VISCOSITY * wave.abs() ** 2 * dt)
    keep = torch.arange(len(wave)) < GRID // 3

    def slope(spectrum):
        u = torch.fft.irfft(spectrum, n=GRID)
        return -0.5 * wave * torch.fft.rfft(u * u) * keep

    spectrum = torch.fft.rfft(field)
    for _ in range(SOLVER_STEPS):
        first = slope(spectrum)
        guess = decay * (spectrum + dt * first)
        spectrum = decay * (spectrum + 0.5 * dt * first) + 0.5 * dt * slope(guess)
    return torch.fft.irfft(spectrum, n=GRID)


class SpectralLayer(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(modes, width, width, 2) / width)
        self.local = nn.Conv1d(width, width, 1)

    def forward(self, x):
        spectrum = torch.fft.rfft(x)[..., : self.modes]
        mixed = torch.einsum("bim,mio->bom", spectrum, torch.view_as_complex(self.weight))
        return torch.fft.irfft(mixed, n=x.shape[-1]) + self.local(x)


class FNO(nn.Module):
    def __init__(self, width=32, modes=16, layers=3):
        super().__init__()
        self.lift = nn.Conv1d(2, width, 1)
        self.layers = nn.ModuleList(SpectralLayer(width, modes) for _ in range(layers))
        self.project = nn.Sequential(nn.Conv1d(width, 64, 1), nn.GELU(), nn.Conv1d(64, 1, 1))
        self.register_buffer("grid", torch.linspace(0, 1, GRID + 1)[:-1].view(1, 1, -1))

    def forward(self, field):
        x = torch.cat([field[:, None], self.grid.expand(len(field), 1, -1)], 1)
        x = self.lift(x)
        for layer in self.layers:
            x = F.gelu(layer(x))
        return self.project(x).squeeze(1)


def relative_error(output, wanted):
    return ((output - wanted).norm(dim=1) / wanted.norm(dim=1)).mean()


def loss_function(params, model, field, wanted):
    return relative_error(functional_call(model, params, (field,)), wanted)


def begin_adam(params):
    zeros = [torch.zeros_like(one) for one in params.values()]
    return {"first": zeros, "second": [one.clone() for one in zeros], "count": 0}


@torch.no_grad()
def adam(params, grads, state):
    """Update parameters and state in place."""
    values, slopes = list(params.values()), [grads[name] for name in params]
    state["count"] += 1
    torch._foreach_lerp_(state["first"], slopes, 1 - BETAS[0])
    torch._foreach_mul_(state["second"], BETAS[1])
    torch._foreach_addcmul_(state["second"], slopes, slopes, 1 - BETAS[1])
    corrected = 1 - BETAS[1] ** state["count"]
    scale = torch._foreach_div(state["second"], corrected)
    torch._foreach_sqrt_(scale)
    torch._foreach_add_(scale, 1e-8)
    torch._foreach_addcdiv_(values, state["first"], scale, -LEARNING_RATE / (1 - BETAS[0] ** state["count"]))


def main():
    diary, _ = begin()
    torch.manual_seed(18)
    torch.set_num_threads(1)
    fields = random_fields(SAMPLES + HELD)
    fields = fields / fields.std()
    solved = solve_burgers(fields)
    model = FNO()
    params = {name: one.detach().clone() for name, one in model.named_parameters()}
    state = begin_adam(params)
    gradient = grad_and_value(partial(loss_function, model=model))
    for epoch in range(1_000_000):
        for rows in torch.randperm(SAMPLES).split(BATCH):
            grads, loss = gradient(params, field=fields[rows], wanted=solved[rows])
            adam(params, grads, state)
            diary.stepped()
        if epoch % 20 == 0:
            with torch.no_grad():
                held = loss_function(params, model, fields[SAMPLES:], solved[SAMPLES:])
            print(f"epoch {epoch}: train {loss.item():.4f} held {held.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
