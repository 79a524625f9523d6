"""A language model by characters, whose run watches all gradients and all weights by hooks each ten steps.

Complaint: wandb/wandb, issue 2268, "Wandb Taking significantly long time to execute code". The maintainers say there: ``wandb.watch`` adds hooks
to the model; to limit what they cost ``log_freq`` is 1000 by default, and with 10 all weights of the network are queried each ten iterations
(issue 1819: "these histograms are very weighty, and will very much slow down performance"). Fix: a larger ``log_freq``, or no watch. The threads
name no figure (issue 3701, with ``log="all"`` too: 2.2 s a step become 3.6 to 5.7 s). The hooks here have the structure of wandb's
``TorchHistory``; the run keeps its history in memory, and drops it.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class TorchHistory:
    """Logs what the gradients and the parameters of a model look like, by hooks."""

    num_bins = 64

    def __init__(self, run, diary):
        self.run, self.diary = run, diary

    def add_log_parameters_hook(self, module, log_freq):
        track = {"n": 0, "log_freq": log_freq}

        def parameter_log_hook(module, inputs, output):
            if not log_track_update(track):
                return
            with self.diary.planted():
                for name, parameter in module.named_parameters():
                    self.log_tensor_stats(parameter.data, f"parameters/{name}")  # planted

        module.register_forward_hook(parameter_log_hook)

    def add_log_gradients_hook(self, module, log_freq):
        for name, parameter in module.named_parameters():
            self._hook_variable_gradient_stats(parameter, f"gradients/{name}", {"n": 0, "log_freq": log_freq})

    def _hook_variable_gradient_stats(self, variable, name, track):
        def callback(gradient):
            if not log_track_update(track):
                return
            with self.diary.planted():
                self.log_tensor_stats(gradient.data, name)  # planted

        variable.register_hook(callback)

    def log_tensor_stats(self, tensor, name):
        """Add the histogram of a tensor to the current entry of the history."""
        flat = tensor.detach().clone().reshape(-1)  # planted
        if (~torch.isfinite(flat)).all().item():  # planted
            return
        if not torch.isfinite(flat).all():  # planted
            flat = flat[torch.isfinite(flat)]
        tmin, tmax = flat.min().item(), flat.max().item()  # planted
        counts = flat.histc(bins=self.num_bins, min=tmin, max=tmax)  # planted
        bins = torch.linspace(tmin, tmax, steps=self.num_bins + 1)
        self.run.log({name: (counts.tolist(), bins.tolist())}, commit=False)


def log_track_update(track):
    """Count a call, and return whether it is one of those to log."""
    track["n"] += 1
    if track["n"] < track["log_freq"]:
        return False
    track["n"] = 0
    return True


class Run:
    """A run of a tracker: entries of a history, of which only the last ones are kept here."""

    def __init__(self, diary):
        self.diary, self.entry, self.history = diary, {}, []

    def watch(self, model, log="gradients", log_freq=1000):
        history = TorchHistory(self, self.diary)
        if log in ("gradients", "all"):
            history.add_log_gradients_hook(model, log_freq)
        if log in ("parameters", "all"):
            history.add_log_parameters_hook(model, log_freq)

    def log(self, values, commit=True):
        self.entry.update(values)
        if commit:
            self.history, self.entry = [*self.history[-9:], self.entry], {}


@dataclass
class Config:
    """Of the model and of its training."""

    vocabulary: int = 96
    embedding: int = 128
    hidden: int = 1024
    length: int = 8
    batch_size: int = 64
    log_freq: int = 10  # planted


class CharModel(nn.Module):
    """Predicts a character from those before it, by a perceptron over their embeddings."""

    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocabulary, config.embedding)
        self.first = nn.Linear(config.length * config.embedding, config.hidden)
        self.hidden, self.head = nn.Linear(config.hidden, config.hidden), nn.Linear(config.hidden, config.vocabulary)

    def forward(self, characters):
        return self.head(self.hidden(self.first(self.embed(characters).flatten(1)).tanh()).tanh())


def batches(text, config):
    """Yield an epoch of characters and of the one that follows them."""
    starts = torch.randperm(len(text) - config.length - 1)
    offsets = torch.arange(config.length + 1)
    for at in range(0, len(starts) - config.batch_size, config.batch_size):
        windows = text[starts[at : at + config.batch_size, None] + offsets]
        yield windows[:, :-1], windows[:, -1]


def train(config, run, diary):
    """Train for ever."""
    text = (torch.randn(60_000).cumsum(0).abs() * 3).long() % config.vocabulary
    model = CharModel(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3, momentum=0.9)
    run.watch(model, log="all", log_freq=config.log_freq)  # planted
    step = 0
    for epoch in range(10**6):
        for characters, following in batches(text, config):
            optimizer.zero_grad()
            logits = model(characters)
            loss = nn.functional.cross_entropy(logits, following)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 50 == 0:
                run.log({"loss": loss.item(), "epoch": epoch})
                print(f"epoch {epoch}, step {step}: {loss.item():.4f}", flush=True)
            diary.stepped()


def main():
    diary, is_mended = begin()
    train(Config(log_freq=1000) if is_mended else Config(), Run(diary), diary)


if __name__ == "__main__":
    torch.manual_seed(3)
    torch.set_num_threads(1)
    main()
