"""minGPT's Trainer with its table of callbacks, which learns to sort digits; a random sampler with replacement.

Nothing is planted.
"""

import sys
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class SortDataset(Dataset):
    def __init__(self, length=12, digits=8):
        self.length, self.digits = length, digits

    def __len__(self):
        return 10_000

    def __getitem__(self, idx):
        inp = torch.randint(self.digits, (self.length,))
        cat = torch.cat((inp, inp.sort()[0]))
        x, y = cat[:-1].clone(), cat[1:].clone()
        y[: self.length - 1] = -1
        return x, y


class TinyGPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(config.vocab, config.width), nn.Embedding(32, config.width)
        layer = nn.TransformerEncoderLayer(
            config.width, 4, 4 * config.width, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.head = nn.Linear(config.width, config.vocab)

    def configure_optimizers(self, config):
        return torch.optim.AdamW(self.parameters(), lr=config.learning_rate, betas=(0.9, 0.95))

    def forward(self, idx, targets):
        mask = nn.Transformer.generate_square_subsequent_mask(idx.size(1))
        x = self.blocks(self.tokens(idx) + self.positions.weight[: idx.size(1)], mask=mask, is_causal=True)
        logits = self.head(x)
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


class Trainer:
    def __init__(self, config, model, train_dataset):
        self.config, self.model, self.train_dataset = config, model, train_dataset
        self.callbacks = defaultdict(list)
        self.iter_num, self.iter_time, self.iter_dt = 0, 0.0, 0.0

    def add_callback(self, onevent, callback):
        self.callbacks[onevent].append(callback)

    def trigger_callbacks(self, onevent):
        for callback in self.callbacks.get(onevent, []):
            callback(self)

    def run(self):
        model, config = self.model, self.config
        self.optimizer = model.configure_optimizers(config)
        train_loader = DataLoader(
            self.train_dataset,
            sampler=RandomSampler(self.train_dataset, replacement=True, num_samples=int(1e6)),
            batch_size=config.batch_size,
            num_workers=0,
        )
        model.train()
        data_iter = iter(train_loader)
        self.iter_time = time.time()
        while True:
            try:
                batch = next(data_iter)
            except StopIteration:
                data_iter = iter(train_loader)
                batch = next(data_iter)
            x, y = batch
            _, self.loss = model(x, y)
            model.zero_grad(set_to_none=True)
            self.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_norm_clip)
            self.optimizer.step()
            self.trigger_callbacks("on_batch_end")
            self.iter_num += 1
            tnow = time.time()
            self.iter_dt, self.iter_time = tnow - self.iter_time, tnow


def main():
    diary, _ = begin()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    config = SimpleNamespace(vocab=8, width=96, layers=3, batch_size=64, learning_rate=5e-4, grad_norm_clip=1.0)
    trainer = Trainer(config, TinyGPT(config), SortDataset())

    def batch_end_callback(trainer):
        diary.stepped()
        if trainer.iter_num % 100 == 0:
            print(
                f"iter_dt {trainer.iter_dt * 1000:.2f}ms; iter {trainer.iter_num}: {trainer.loss.item():.5f}",
                flush=True,
            )

    trainer.add_callback("on_batch_end", batch_end_callback)
    trainer.run()


if __name__ == "__main__":
    main()
