"""Trains for ever on batches that two DataLoader workers make. Prints "ready" after the first batch."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class SlowDataset(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return decode_image(index)


def decode_image(index: int) -> torch.Tensor:
    end = time.monotonic() + 0.005
    while time.monotonic() < end:
        pass
    return torch.full((8,), float(index))


def main() -> None:
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step, batch in enumerate(DataLoader(SlowDataset(), batch_size=4, num_workers=2)):
        loss = model(batch * 1e-6).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0:
            print("ready", flush=True)


if __name__ == "__main__":
    main()
