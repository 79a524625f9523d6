"""A Trainer that fine-tunes a text classifier on frozen word vectors, and evaluates it often to keep the best one.

After huggingface/transformers issues 34584 ("Saving checkpoints *only* on improvement") and 31626 ("so that users
don't have to perform saving so often"). With ``load_best_model_at_end`` the strategies of saving and of evaluation
must be the same, so each evaluation is followed by a full checkpoint, weights and optimizer, and most are deleted at
the next. The fix (pull request 31817) is ``save_strategy="best"``: only what improved is written. The source speaks
of 2 TB of writes in a few days and names no time. No transformers here: the saving is rewritten after it, into a
temporary folder that goes when the program ends.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

VOCABULARY, LENGTH, CLASSES = 64_000, 32, 8


@dataclass
class TrainingArguments:
    output_dir: str
    eval_steps: int = 10
    save_strategy: str = "steps"  # planted
    save_steps: int = 10
    save_total_limit: int = 1
    learning_rate: float = 5e-4
    batch_size: int = 16


@dataclass
class TrainerState:
    global_step: int = 0
    best_metric: float | None = None
    best_model_checkpoint: str | None = None


def make_dataset(count, generator):
    """Sentences whose class shows in one word of six; one label of five is wrong."""
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    tokens = torch.randint(0, VOCABULARY, (count, LENGTH), generator=generator)
    told = torch.rand(count, LENGTH, generator=generator) < 1 / 6
    tokens = torch.where(told, labels[:, None] * 64 + tokens % 64, tokens)
    wrong = torch.rand(count, generator=generator) < 0.2
    return TensorDataset(tokens, torch.where(wrong, torch.randint(0, CLASSES, (count,), generator=generator), labels))


class TextClassifier(nn.Module):
    def __init__(self, vectors=256, width=128, layers=1):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, vectors).requires_grad_(requires_grad=False)
        self.project, self.positions = nn.Linear(vectors, width), nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens):
        return self.head(self.encoder(self.project(self.words(tokens)) + self.positions.weight).mean(1))


class Trainer:
    def __init__(self, model, args, train_dataset, eval_dataset, diary):
        self.model, self.args, self.diary, self.state = model, args, diary, TrainerState()
        self.loader = DataLoader(train_dataset, args.batch_size, shuffle=True, drop_last=True)
        self.eval_loader = DataLoader(eval_dataset, 64)
        trained = [one for one in model.parameters() if one.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=args.learning_rate)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        right = sum((self.model(tokens).argmax(1) == labels).sum() for tokens, labels in self.eval_loader)
        self.model.train()
        return int(right) / len(self.eval_loader.dataset)

    def _determine_best_metric(self, metric):
        is_new_best = self.state.best_metric is None or metric > self.state.best_metric
        if is_new_best:
            self.state.best_metric = metric
            self.state.best_model_checkpoint = f"checkpoint-{self.state.global_step}"
        return is_new_best

    def _save_checkpoint(self):
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(self.model.state_dict(), folder / "pytorch_model.bin")  # planted
        torch.save(self.optimizer.state_dict(), folder / "optimizer.pt")  # planted
        (folder / "trainer_state.json").write_text(json.dumps(asdict(self.state)), encoding="utf-8")
        by_age = sorted(Path(self.args.output_dir).glob("checkpoint-*"), key=lambda one: int(one.name[11:]))
        for one in by_age[: -self.args.save_total_limit]:
            if one.name != self.state.best_model_checkpoint:
                shutil.rmtree(one)

    def _maybe_log_save_evaluate(self, loss):
        should_save = self.args.save_strategy == "steps" and self.state.global_step % self.args.save_steps == 0
        if self.state.global_step % self.args.eval_steps == 0:
            metric = self.evaluate()
            is_new_best = self._determine_best_metric(metric)
            should_save = is_new_best if self.args.save_strategy == "best" else should_save
            print(f"step {self.state.global_step}: loss {loss.item():.3f} accuracy {metric:.3f}", flush=True)
        if should_save:
            with self.diary.planted() if self.args.save_strategy == "steps" else contextlib.nullcontext():
                self._save_checkpoint()  # planted

    def train(self, epochs):
        self.model.train()
        for _ in range(epochs):
            for tokens, labels in self.loader:
                loss = functional.cross_entropy(self.model(tokens), labels)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.state.global_step += 1
                self.diary.stepped()
                self._maybe_log_save_evaluate(loss.detach())


def main():
    diary, is_mended = begin()
    args = TrainingArguments(tempfile.mkdtemp(prefix="trainer_save_"))
    if is_mended:
        args.save_strategy = "best"
    signal.signal(signal.SIGTERM, lambda *_: (shutil.rmtree(args.output_dir, ignore_errors=True), os._exit(0)))
    generator = torch.Generator().manual_seed(5)
    train, held_out = make_dataset(8000, generator), make_dataset(64, generator)
    Trainer(TextClassifier(), args, train, held_out, diary).train(10**6)


if __name__ == "__main__":
    torch.manual_seed(10)
    torch.set_num_threads(1)
    main()
