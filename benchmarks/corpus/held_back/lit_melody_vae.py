"""A recurrent VAE of melodies as a LightningModule, with annealed divergence and validation. Nothing is planted."""

import logging
import sys
import tempfile
import warnings
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

PITCHES, NOTES, MELODIES, BATCH = 64, 32, 3_000, 48
SCALE = torch.tensor([0, 2, 4, 5, 7, 9, 11])


class MelodyDataModule(L.LightningDataModule):
    """Melodies that walk up and down the scale of a key, and come home at the end."""

    def setup(self, stage):
        generator = torch.Generator().manual_seed(9)
        keys = torch.randint(12, (MELODIES, 1), generator=generator)
        strides = torch.randint(-2, 3, (MELODIES, NOTES), generator=generator)
        degrees = (14 + strides.cumsum(1)).clamp(0, 27)
        degrees[:, -1] = 14
        pitches = (keys + SCALE[degrees % 7] + 12 * (degrees // 7)).clamp(max=PITCHES - 1)
        self.train, self.validation = random_split(TensorDataset(pitches), [MELODIES - 288, 288], generator)

    def train_dataloader(self):
        return DataLoader(self.train, BATCH, shuffle=True, drop_last=True, num_workers=1, persistent_workers=True)

    def val_dataloader(self):
        return DataLoader(self.validation, 96, num_workers=1, persistent_workers=True)


class MelodyVAE(L.LightningModule):
    def __init__(self, width=128, latent=24, beta=0.2, warmup=2_000):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Embedding(PITCHES + 1, 48)
        self.encoder = nn.GRU(48, width // 2, bidirectional=True, batch_first=True)
        self.moments = nn.Linear(width, 2 * latent)
        self.start = nn.Linear(latent, width)
        self.decoder = nn.GRU(48 + latent, width, batch_first=True)
        self.pitch = nn.Linear(width, PITCHES)

    def encode(self, melodies):
        _, ends = self.encoder(self.embed(melodies))
        return self.moments(torch.cat([*ends], dim=1)).chunk(2, dim=1)

    def decode(self, z, melodies):
        """Tell each note from the ones before, some of which are dropped, and from the latent vector."""
        before = F.pad(melodies[:, :-1], (1, 0), value=PITCHES)
        if self.training:
            before = before.masked_fill(torch.rand(before.shape) < 0.25, PITCHES)
        inputs = torch.cat([self.embed(before), z[:, None].expand(-1, NOTES, -1)], dim=2)
        hidden, _ = self.decoder(inputs, torch.tanh(self.start(z))[None])
        return self.pitch(hidden)

    def losses(self, melodies):
        mean, log_variance = self.encode(melodies)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp() if self.training else mean
        reconstruction = F.cross_entropy(self.decode(z, melodies).flatten(0, 1), melodies.flatten())
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean() / NOTES
        return reconstruction, divergence

    def training_step(self, batch, index):
        reconstruction, divergence = self.losses(*batch)
        weight = self.hparams.beta * min(1.0, self.global_step / self.hparams.warmup)
        loss = reconstruction + weight * divergence
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=BATCH)
        return loss

    def validation_step(self, batch, index):
        reconstruction, divergence = self.losses(*batch)
        self.log("val_loss", reconstruction + self.hparams.beta * divergence, batch_size=len(batch[0]))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=2e-3)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)
        return [optimizer], [scheduler]


class DiaryCallback(Callback):
    def __init__(self, diary):
        self.diary = diary

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.diary.stepped()

    def on_train_epoch_end(self, trainer, module):
        losses = {name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch}: {losses}", flush=True)


def main():
    diary, _ = begin()
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*Checkpoint directory.*")
    torch.set_num_threads(1)
    L.seed_everything(9)
    best = ModelCheckpoint(tempfile.mkdtemp(), monitor="val_loss", save_top_k=1, save_weights_only=True)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=-1,
        check_val_every_n_epoch=5,
        num_sanity_val_steps=0,
        gradient_clip_val=1.0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[best, DiaryCallback(diary)],
    )
    trainer.fit(MelodyVAE(), MelodyDataModule())


if __name__ == "__main__":
    main()
