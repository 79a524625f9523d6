"""Adapters of a low rank in a GPT-2 of Transformers, with Accelerate, gradients accumulated and clipped.

Nothing is planted: the texts are tokens already, and the bar is drawn every five seconds.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm
from transformers import GPT2Config, GPT2LMHeadModel, get_scheduler
from transformers.pytorch_utils import Conv1D

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class LoraConfig:
    r: int = 8
    lora_alpha: int = 16
    lora_dropout: float = 0.05
    target_modules: tuple = ("c_attn", "c_proj")


@dataclass
class TrainConfig:
    seed: int = 0
    block_size: int = 96
    per_device_train_batch_size: int = 4
    gradient_accumulation_steps: int = 2
    learning_rate: float = 2e-4
    max_grad_norm: float = 1.0
    logging_steps: int = 50
    lora: LoraConfig = field(default_factory=LoraConfig)


class LoraLayer(nn.Module):
    def __init__(self, base, config):
        super().__init__()
        rows, columns = base.weight.shape
        self.base, self.scaling = base, config.lora_alpha / config.r
        self.lora_A, self.lora_B = nn.Linear(rows, config.r, bias=False), nn.Linear(config.r, columns, bias=False)
        self.dropout = nn.Dropout(config.lora_dropout)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        return self.base(x) + self.lora_B(self.lora_A(self.dropout(x))) * self.scaling


def get_peft_model(model, config):
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Conv1D) and name in config.target_modules:
                setattr(module, name, LoraLayer(child, config))
    return model


def trainable_parameters(model):
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    everything = sum(p.numel() for p in model.parameters())
    return f"trainable params: {trainable:,} || all params: {everything:,} || {100 * trainable / everything:.2f}%"


class GroupedTexts(Dataset):
    """Tokens in blocks: the texts repeat phrases, so that there is something to learn."""

    def __init__(self, config, vocab_size, blocks=800):
        phrases = torch.randint(vocab_size, (64, 8))
        order = torch.randint(64, (blocks, config.block_size // 8))
        self.blocks = phrases[order].flatten(1)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        return {"input_ids": self.blocks[index], "labels": self.blocks[index]}


def main(diary, _):
    config = TrainConfig()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=config.gradient_accumulation_steps)
    set_seed(config.seed)
    base = GPT2LMHeadModel(GPT2Config(vocab_size=2000, n_positions=128, n_embd=192, n_layer=4, n_head=6))
    model = get_peft_model(base, config.lora)
    accelerator.print(trainable_parameters(model))
    loader = DataLoader(GroupedTexts(config, 2000), config.per_device_train_batch_size, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=config.learning_rate)
    scheduler = get_scheduler("constant_with_warmup", optimizer, num_warmup_steps=50)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    progress = tqdm(desc="Steps", mininterval=5.0, disable=not accelerator.is_local_main_process)
    model.train()
    step, total = 0, torch.zeros(())
    while True:
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                total += loss.detach()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), config.max_grad_norm)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                progress.update(1)
                if step % config.logging_steps == 0:
                    passes = config.logging_steps * config.gradient_accumulation_steps
                    progress.set_postfix(loss=total.item() / passes, lr=scheduler.get_last_lr()[0])
                    total.zero_()
                diary.stepped()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*begin())
