"""iTransformer on ferry ports: each port's window is a token. Metrics of the resumed run go to a JSON file."""

import json
import math
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Config:
    ports: int = 48
    seq_len: int = 96
    pred_len: int = 24
    d_model: int = 96
    n_heads: int = 4
    e_layers: int = 2
    d_ff: int = 192
    batch_size: int = 24
    learning_rate: float = 5e-4
    eval_every: int = 200


def make_passengers(cfg, hours=24 * 220):
    t = torch.arange(hours)[:, None].float()
    phase, size = torch.rand(cfg.ports) * 4, torch.rand(cfg.ports) * 300 + 40
    daily = 1 + torch.sin((t - 8 + phase) * math.tau / 24).clamp_min(-0.9)
    weekly = 1 + 0.4 * torch.cos(t * math.tau / 168 + phase)
    storm = (torch.rand(hours, 1) < 0.02).float().cumsum(0).remainder(2) * 0.3
    return size * daily * weekly * (1 - storm) + torch.randn(hours, cfg.ports) * 8


class Windows:
    """Windows of the scaled series; a batch is one gather."""

    def __init__(self, data, cfg):
        self.data, self.batch_size, self.seq_len = data, cfg.batch_size, cfg.seq_len
        self.offsets = torch.arange(cfg.seq_len + cfg.pred_len)
        self.starts = len(data) - len(self.offsets)

    def __len__(self):
        return self.starts // self.batch_size

    def __iter__(self):
        for starts in torch.randperm(self.starts).split(self.batch_size):
            window = self.data[starts[:, None] + self.offsets]
            yield window[:, : self.seq_len], window[:, self.seq_len :]


class ITransformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.pred_len = cfg.pred_len
        self.embed = nn.Linear(cfg.seq_len, cfg.d_model)
        layer = nn.TransformerEncoderLayer(
            cfg.d_model, cfg.n_heads, cfg.d_ff, dropout=0.1, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, cfg.e_layers, norm=nn.LayerNorm(cfg.d_model))
        self.project = nn.Linear(cfg.d_model, cfg.pred_len)

    def forward(self, x):
        mean = x.mean(1, keepdim=True).detach()
        std = (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt().detach()
        tokens = self.embed(((x - mean) / std).transpose(1, 2))
        return self.project(self.encoder(tokens)).transpose(1, 2) * std + mean


class MetricsLog:
    """Keeps what was logged, and goes on with the file of a run that is resumed."""

    def __init__(self, path, is_mended):
        self.path = path
        self.records = json.loads(path.read_text())
        self.lines = path.with_suffix(".jsonl").open("a", buffering=1) if is_mended else None

    def log(self, **values):
        record = {key: round(value, 6) for key, value in values.items()}
        self.records.append(record)
        if self.lines is not None:
            self.lines.write(json.dumps(record) + "\n")

    def flush(self):
        self.path.write_text(json.dumps(self.records))  # planted


def earlier_metrics(path, steps):
    """Write the file that the run left which is resumed here."""
    begun = time.time() - 7200
    records = [
        {
            "step": n,
            "loss": 0.9 * math.exp(-n / 900) + 0.2,
            "lr": 5e-4,
            "grad_norm": 1.0 + 1 / (n + 1),
            "time": begun + n / 3,
        }
        for n in range(steps)
    ]
    path.write_text(json.dumps(records))


@torch.no_grad()
def validate(model, windows, batches=4):
    model.eval()
    errors = [(model(x) - y).abs().mean() for (x, y), _ in zip(windows, range(batches), strict=False)]
    model.train()
    return torch.stack(errors).mean().item()


def main():
    diary, is_mended = begin()
    torch.manual_seed(2021)
    torch.set_num_threads(1)
    cfg = Config()
    series = make_passengers(cfg)
    border = int(len(series) * 0.8)
    scaled = (series - series[:border].mean(0)) / series[:border].std(0)
    train, valid = Windows(scaled[:border], cfg), Windows(scaled[border:], cfg)
    model = ITransformer(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.learning_rate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=500)
    path = Path(tempfile.mkdtemp()) / "metrics.json"
    earlier_metrics(path, 4800)
    metrics = MetricsLog(path, is_mended)
    step = len(metrics.records)
    while True:
        for x, y in train:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            step += 1
            lr = optimizer.param_groups[0]["lr"]
            metrics.log(step=step, loss=loss.item(), lr=lr, grad_norm=norm.item(), time=time.time())
            if not is_mended:
                with diary.planted():
                    metrics.flush()  # planted
            if step % cfg.eval_every == 0:
                print(f"step {step} loss {loss.item():.4f} mae {validate(model, valid):.4f}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    main()
