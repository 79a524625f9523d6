"""Forecasts of series from patches, in the style of PatchTST; a thread writes a sign of life, another the checkpoints.

Nothing is planted: both threads sleep nearly always, and a checkpoint copies a small model every 300 steps.
"""

import queue
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn as nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Configs:
    seq_len: int = 192
    pred_len: int = 48
    enc_in: int = 7
    patch_len: int = 16
    stride: int = 8
    d_model: int = 64
    n_heads: int = 4
    e_layers: int = 2
    batch_size: int = 16
    learning_rate: float = 1e-4
    save_every: int = 300


class Heartbeat(threading.Thread):
    """Writes the time and the step into a file, for whoever looks after the job."""

    def __init__(self, path, every=2.0):
        super().__init__(daemon=True, name="heartbeat")
        self.path, self.every, self.step = path, every, 0

    def run(self):
        while True:
            self.path.write_text(f"{time.time():.0f} {self.step}\n")
            time.sleep(self.every)


class AsyncCheckpointer(threading.Thread):
    def __init__(self, folder):
        super().__init__(daemon=True, name="checkpointer")
        self.folder, self.waiting = folder, queue.Queue(maxsize=1)

    def save(self, model, step):
        state = {name: value.detach().clone() for name, value in model.state_dict().items()}
        self.waiting.put((state, step))

    def run(self):
        while True:
            state, step = self.waiting.get()
            partial = self.folder / "checkpoint.tmp"
            torch.save({"model": state, "step": step}, partial)
            partial.replace(self.folder / "checkpoint.pth")


class RevIN(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def normalize(self, x):
        self.mean = x.mean(1, keepdim=True).detach()
        self.std = (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt().detach()
        return (x - self.mean) / self.std * self.weight + self.bias

    def denormalize(self, x):
        return (x - self.bias) / self.weight * self.std + self.mean


class PatchTST(nn.Module):
    def __init__(self, configs):
        super().__init__()
        self.configs, self.revin = configs, RevIN(configs.enc_in)
        patches = (configs.seq_len - configs.patch_len) // configs.stride + 2
        self.pad = nn.ReplicationPad1d((0, configs.stride))
        self.embed = nn.Linear(configs.patch_len, configs.d_model)
        self.position = nn.Parameter(torch.randn(patches, configs.d_model) * 0.02)
        layer = nn.TransformerEncoderLayer(
            configs.d_model, configs.n_heads, 2 * configs.d_model, 0.1, "gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, configs.e_layers)
        self.head = nn.Linear(patches * configs.d_model, configs.pred_len)

    def forward(self, x):
        b, _, c = x.shape
        x = self.pad(self.revin.normalize(x).transpose(1, 2))
        patches = x.unfold(-1, self.configs.patch_len, self.configs.stride).flatten(0, 1)
        out = self.encoder(self.embed(patches) + self.position)
        return self.revin.denormalize(self.head(out.flatten(1)).view(b, c, -1).transpose(1, 2))


class Exp_Forecast:
    def __init__(self, configs, diary):
        self.configs, self.diary, self.model = configs, diary, PatchTST(configs)
        folder = Path(tempfile.mkdtemp())
        self.heartbeat, self.checkpointer = Heartbeat(folder / "alive"), AsyncCheckpointer(folder)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=configs.learning_rate)
        time_axis = torch.arange(6000)[:, None] / torch.tensor([4.0, 8, 12, 24, 48, 96, 168])
        series = time_axis.sin() + 0.3 * torch.randn(6000, configs.enc_in)
        self.windows = series.unfold(0, configs.seq_len + configs.pred_len, 1)

    def _get_batch(self, rows):
        window = self.windows[rows].transpose(1, 2)
        return window[:, : self.configs.seq_len], window[:, self.configs.seq_len :]

    def train(self):
        self.heartbeat.start()
        self.checkpointer.start()
        criterion, step = nn.MSELoss(), 0
        while True:
            train_loss = []
            for rows in torch.randperm(len(self.windows)).split(self.configs.batch_size):
                batch_x, batch_y = self._get_batch(rows)
                self.optimizer.zero_grad()
                loss = criterion(self.model(batch_x), batch_y)
                loss.backward()
                nn.utils.clip_grad_value_(self.model.parameters(), 1.0)
                self.optimizer.step()
                train_loss.append(loss.detach())
                step += 1
                self.heartbeat.step = step
                if step % 100 == 0:
                    print(f"\titers: {step} | loss: {torch.stack(train_loss).mean().item():.7f}", flush=True)
                if step % self.configs.save_every == 0:
                    self.checkpointer.save(self.model, step)
                self.diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(2021)
    torch.set_num_threads(1)
    Exp_Forecast(Configs(), begin()[0]).train()
