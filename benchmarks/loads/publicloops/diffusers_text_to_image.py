"""Steps in the form of huggingface/diffusers, ``examples/text_to_image/train_text_to_image.py``: a bar by hand.

Batches of an epoch are enumerated; ``global_step`` and the bar move where gradients are synchronized, which a context
manager decides. Usage: diffusers_text_to_image.py DIARY.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import diary
import torch
from torch.standin import Network, loader
from tqdm import tqdm


class Accelerator:
    def __init__(self, accumulation: int) -> None:
        self.accumulation = accumulation
        self.step = 0
        self.sync_gradients = False

    @contextlib.contextmanager
    def accumulate(self) -> Iterator[None]:
        self.step += 1
        self.sync_gradients = self.step % self.accumulation == 0
        yield

    def backward(self, loss: Any) -> None:  # noqa: ANN401
        loss.backward()


def main() -> None:
    accelerator = Accelerator(4)
    unet = Network(0.02)
    optimizer = torch.optim.SGD(unet.parameters(), lr=1e-4)
    train_dataloader = loader(240, 0.006)
    global_step = 0
    nowhere = open(os.devnull, "w")  # noqa: PTH123, SIM115
    progress_bar = tqdm(range(15_000), initial=global_step, desc="Steps", file=nowhere)
    for _epoch in range(100):
        train_loss = 0.0
        for step, batch in enumerate(train_dataloader):
            with accelerator.accumulate():
                loss = unet(batch)
                train_loss += loss.item() / 4
                accelerator.backward(loss)
                diary.batched()
                if accelerator.sync_gradients:
                    torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
            if accelerator.sync_gradients:
                progress_bar.update(1)
                global_step += 1
                diary.stepped(global_step)
                train_loss = 0.0
            progress_bar.set_postfix(step_loss=loss.item(), lr=1e-4 + 0.0 * step)


diary.begin()
main()
