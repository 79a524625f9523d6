"""A service that fits a model in a thread: its event loop asks again and again whether that is done."""

import asyncio
import concurrent.futures
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


def fit(diary, batches):
    model = nn.Sequential(nn.Linear(40, 96), nn.ELU(), nn.Linear(96, 96), nn.ELU(), nn.Linear(96, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, fused=True)
    for _ in range(batches):
        meters = torch.randn(192, 40)
        loss = (model(meters) - meters.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()


async def nights(diary, is_mended):
    with concurrent.futures.ThreadPoolExecutor(1, "fit") as pool:
        while True:
            task = pool.submit(fit, diary, 100_000)
            if is_mended:
                await asyncio.wrap_future(task)
            while not task.done():  # planted
                await asyncio.sleep(0)  # planted


if __name__ == "__main__":
    torch.manual_seed(9)
    torch.set_num_threads(1)
    asyncio.run(nights(*begin()))
