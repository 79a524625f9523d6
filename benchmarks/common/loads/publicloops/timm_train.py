"""Steps in the form of huggingface/pytorch-image-models (timm), ``train.py``: batches and updates of an epoch.

``train_one_epoch`` counts batches by ``enumerate`` and updates in ``num_updates``, which goes on from epoch to epoch;
the update is called through a function. Usage: timm_train.py DIARY.
"""

from __future__ import annotations

import diary
import torch
from torch.standin import Network, loader


def train_one_epoch(epoch: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    accum_steps = 2
    batches = loader(160, 0.005)
    updates_per_epoch = (len(batches) + accum_steps - 1) // accum_steps
    num_updates = epoch * updates_per_epoch
    last_batch_idx = len(batches) - 1
    update_sample_count = 0
    model.train()
    optimizer.zero_grad()
    for batch_idx, (images, _target) in enumerate(batches):
        last_batch = batch_idx == last_batch_idx
        need_update = last_batch or (batch_idx + 1) % accum_steps == 0
        update_idx = batch_idx // accum_steps

        def _forward(images: object = images) -> torch.Tensor:
            loss: torch.Tensor = model(images) / accum_steps
            return loss

        def _backward(_loss: torch.Tensor, need_update: bool = need_update) -> None:
            _loss.backward()  # type: ignore[no-untyped-call]
            if need_update:
                optimizer.step()

        loss = _forward()
        _backward(loss)
        diary.batched()
        update_sample_count += len(images)
        if not need_update:
            continue
        num_updates += 1
        optimizer.zero_grad()
        diary.stepped(num_updates)
        if update_idx % 20 == 0:
            share = 100.0 * (update_idx + 1) / updates_per_epoch
            print(
                f"Train: {epoch} [{update_idx:>4d}/{updates_per_epoch} ({share:>3.0f}%)]  Loss: {loss.item():#.3g}",
                flush=True,
            )
        update_sample_count = 0


def validate(model: torch.nn.Module) -> float:
    model.eval()
    total = 0.0
    with torch.no_grad():
        for batch_idx, (images, _target) in enumerate(loader(30, 0.005)):
            total += model(images).item() / (batch_idx + 1)
    return total


def main() -> None:
    model = Network(0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(300):
        train_one_epoch(epoch, model, optimizer)
        validate(model)


diary.begin()
main()
