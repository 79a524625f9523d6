"""Steps in the form of huggingface/accelerate, ``examples/nlp_example.py``: an update every so many batches.

The backward pass is called by an accelerator object; the evaluation of an epoch is a loop of the same function, with
the same names. Usage: accelerate_nlp.py DIARY.
"""

from __future__ import annotations

from typing import Any

import diary
import torch
from torch.standin import Network, loader


class Accelerator:
    gradient_accumulation_steps = 2

    def backward(self, loss: Any) -> None:  # noqa: ANN401
        scaled = loss / self.gradient_accumulation_steps
        scaled.backward()


def training_function(num_epochs: int) -> None:
    accelerator = Accelerator()
    model = Network(0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-5)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100)
    train_dataloader, eval_dataloader = loader(230, 0.005), loader(25, 0.005)
    for epoch in range(num_epochs):
        model.train()
        for step, batch in enumerate(train_dataloader):
            loss = model(batch)
            accelerator.backward(loss)
            diary.batched()
            if step % accelerator.gradient_accumulation_steps == 0:
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
                diary.stepped()
        model.eval()
        score = 0.0
        for step, batch in enumerate(eval_dataloader):
            with torch.no_grad():
                outputs = model(batch)
            score += outputs.item() / (step + 1)
        print(f"epoch {epoch}:", {"accuracy": score}, flush=True)


diary.begin()
training_function(num_epochs=1_000)
