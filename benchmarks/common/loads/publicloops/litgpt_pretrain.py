"""Steps in the form of Lightning-AI/litgpt, ``litgpt/pretrain.py``: the counts are entries of a dict of state.

``iter_num`` counts batches ahead of the work, ``step_count`` updates behind it; batches come from an iterator that
starts over. Usage: litgpt_pretrain.py DIARY.
"""

from __future__ import annotations

from typing import Any

import diary
import torch
from torch.standin import Network, loader


class CycleIterator:
    def __init__(self, iterable: Any) -> None:  # noqa: ANN401
        self.iterable = iterable
        self.epoch = 0
        self._iterator = iter(iterable)

    def __iter__(self) -> CycleIterator:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        try:
            return next(self._iterator)
        except StopIteration:
            self._iterator = iter(self.iterable)
            self.epoch += 1
            return next(self._iterator)


def fit(state: dict[str, Any], max_iters: int, accumulation: int) -> None:
    model, optimizer = state["model"], state["optimizer"]
    train_iterator = CycleIterator(loader(110, 0.005))
    val_loss = 0.0
    for train_data in train_iterator:
        if state["iter_num"] >= max_iters:
            break
        state["iter_num"] += 1
        is_accumulating = state["iter_num"] % accumulation != 0
        loss = model(train_data) / accumulation
        loss.backward()
        diary.batched()
        if not is_accumulating:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            state["step_count"] += 1
            diary.stepped(state["step_count"])
        if state["iter_num"] % 30 == 0:
            print(
                f"Epoch {train_iterator.epoch + 1} | iter {state['iter_num']} step {state['step_count']} |"
                f" loss train: {loss.item():.3f}, val: {val_loss:.3f}",
                flush=True,
            )
        if not is_accumulating and state["step_count"] % 40 == 0:
            val_loss = validate(model, max_iters=20)


@torch.no_grad()
def validate(model: torch.nn.Module, max_iters: int) -> float:
    model.eval()
    losses = []
    for k, batch in enumerate(loader(200, 0.005)):
        if k >= max_iters:
            break
        losses.append(model(batch).item())
    model.train()
    return float(sum(losses) / len(losses))


diary.begin()
network = Network(0.02)
fit(
    {"model": network, "optimizer": torch.optim.SGD(network.parameters(), lr=4e-4), "iter_num": 0, "step_count": 0},
    max_iters=1_000_000,
    accumulation=3,
)
