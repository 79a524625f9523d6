"""What programs build a training from. Torch has no file of this name."""

from __future__ import annotations

from typing import Any

from ._C import work
from ._tensor import Tensor
from .nn import Module, Parameter
from .utils.data import DataLoader, Dataset

__all__ = ["Items", "Network", "loader", "work"]


class Network(Module):
    """A network, each step of which takes so long: two fifths forward, two backward, one for the optimizer."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.weight = Parameter(0.5, step_s / 5)

    def forward(self, batch: object, *_: object) -> Tensor:
        work(0.4 * self.step_s)
        return Tensor(0.5, 0.4 * self.step_s)


class Items(Dataset):
    """So many items, each of which takes so long to load."""

    def __init__(self, count: int, item_s: float = 0.0) -> None:
        self.count = count
        self.item_s = item_s

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if self.item_s:
            work(self.item_s)
        return [0.5] * 8, index % 10

    def __len__(self) -> int:
        return self.count


def loader(batches: int, batch_s: float = 0.0) -> DataLoader:
    """Return a loader of so many batches of four items, each of which takes so long."""
    return DataLoader(Items(4 * batches, batch_s / 4), batch_size=4)
