"""Energies of argon clusters by an equivariant network; forces are minus its gradient. Nothing is planted."""

import math
import sys
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CUTOFF, ATOMS = 2.5, 13


def lennard_jones(positions):
    """Energies and forces of a batch of clusters, in reduced units."""
    positions = positions.clone().requires_grad_(True)
    i, j = torch.triu_indices(positions.shape[1], positions.shape[1], 1)
    inverse6 = (positions[:, i] - positions[:, j]).square().sum(-1).clamp_min(0.7) ** -3
    energy = (4 * (inverse6**2 - inverse6)).sum(1)
    (gradient,) = torch.autograd.grad(energy.sum(), positions)
    return energy.detach(), -gradient


def sample_clusters(count, sweeps=150):
    """Clusters from damped dynamics with noise, all at once."""
    positions = torch.randn(count, ATOMS, 3) * 1.1
    for sweep in range(sweeps):
        _, forces = lennard_jones(positions)
        heat = 0.04 * (1 - sweep / sweeps) + 0.015
        positions = positions + 0.004 * forces.clamp(-20, 20) + heat * torch.randn_like(positions)
    return positions - positions.mean(1, keepdim=True)


def pairs_of(positions):
    """Neighbors within the cutoff, once for all clusters; the clusters don't move."""
    distance = torch.cdist(positions, positions)
    near = (distance < CUTOFF) & ~torch.eye(ATOMS, dtype=torch.bool)
    return [mask.nonzero().T for mask in near]


def collate(chosen, positions, pairs, energies, forces):
    """Join clusters into one graph, with indices shifted."""
    rows = chosen.tolist()
    sizes = torch.tensor([pairs[row].shape[1] for row in rows])
    edges = torch.cat([pairs[row] for row in rows], dim=1)
    edges = edges + (torch.arange(len(rows)) * ATOMS).repeat_interleave(sizes)
    return positions[chosen].flatten(0, 1), edges, energies[chosen], forces[chosen].flatten(0, 1)


class RadialBasis(nn.Module):
    def __init__(self, number=16):
        super().__init__()
        self.register_buffer("order", torch.arange(1, number + 1) * math.pi / CUTOFF)

    def forward(self, distance):
        envelope = 0.5 * (torch.cos(distance * math.pi / CUTOFF) + 1)
        return torch.sin(distance * self.order) / distance * envelope


class Layer(nn.Module):
    """Messages on pairs change the atoms' features and, along the pairs, the coordinates."""

    def __init__(self, dim, basis):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * dim + basis, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU())
        self.gate = nn.Linear(basis, dim, bias=False)
        self.node = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.along = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1, bias=False))

    def forward(self, h, x, edges, radial, unit):
        i, j = edges
        message = self.edge(torch.cat([h[i], h[j], radial], dim=1)) * self.gate(radial)
        x = x.index_add(0, i, unit * self.along(message) * 0.1)
        gathered = torch.zeros_like(h).index_add(0, i, message)
        return h + self.node(torch.cat([h, gathered], dim=1)), x


class EGNN(nn.Module):
    def __init__(self, dim=48, depth=3, basis=16):
        super().__init__()
        self.species = nn.Parameter(torch.randn(1, dim))
        self.basis = RadialBasis(basis)
        self.layers = nn.ModuleList(Layer(dim, basis) for _ in range(depth))
        self.readout = nn.Sequential(nn.Linear(dim + 1, dim), nn.SiLU(), nn.Linear(dim, 1))

    def forward(self, positions, edges):
        h, x = self.species.expand(len(positions), -1), positions
        for layer in self.layers:
            between = x[edges[0]] - x[edges[1]]
            distance = (between.square().sum(1, keepdim=True) + 1e-8).sqrt()
            h, x = layer(h, x, edges, self.basis(distance), between / (distance + 1))
        moved = (x - positions).square().sum(1, keepdim=True)
        return self.readout(torch.cat([h, moved], dim=1)).view(-1, ATOMS).sum(1)


def energy_and_forces(model, positions, edges, create_graph):
    positions = positions.requires_grad_(True)
    energy = model(positions, edges)
    (gradient,) = torch.autograd.grad(energy.sum(), positions, create_graph=create_graph)
    return energy, -gradient


def main():
    diary, _ = begin()
    torch.manual_seed(9)
    torch.set_num_threads(1)
    clusters = sample_clusters(700)
    energies, forces = lennard_jones(clusters)
    mean, scale = energies.mean(), forces.std()
    data = (clusters, pairs_of(clusters), (energies - mean) / scale, forces / scale)
    train, held_out = torch.arange(640), torch.arange(640, 700)
    model = EGNN()
    ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.995))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, amsgrad=True)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.8, patience=20)
    epoch, begun = 0, time.perf_counter()
    while True:
        total = torch.zeros(())
        for chosen in train[torch.randperm(len(train))].split(8):
            x, edges, energy, force = collate(chosen, *data)
            guess, guessed_force = energy_and_forces(model, x, edges, create_graph=True)
            force_loss = (guessed_force - force).square().mean()
            loss = 0.02 * (guess - energy).square().mean() / ATOMS + force_loss
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            ema.update_parameters(model)
            total += force_loss.detach()
            diary.stepped()
        plateau.step(total)
        epoch += 1
        if epoch % 5 == 0:
            x, edges, _, force = collate(held_out, *data)
            _, guessed_force = energy_and_forces(ema.module, x, edges, create_graph=False)
            mae = ((guessed_force - force).detach().abs().mean() * scale).item()
            rate = epoch * 80 / (time.perf_counter() - begun)
            print(f"epoch {epoch} loss {total.item() / 80:.4f} force mae {mae:.3f} {rate:.1f} steps/s", flush=True)


if __name__ == "__main__":
    main()
