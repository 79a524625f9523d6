"""Mel spectrograms of church bells through a bottleneck, in the style of tacotron repositories, with audible previews.

The previews are turned into sound with Griffin and Lim's method far too often.
"""

import math
import sys
import tempfile
import wave
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

hparams = {
    "sample_rate": 16_000,
    "n_fft": 512,
    "hop_length": 128,
    "n_mels": 64,
    "batch_size": 6,
    "learning_rate": 1e-3,
    "griffin_lim_iters": 60,
    "preview_every": 5,
}
STRIKES, SAMPLES = 96, 12_288


def mel_filters(n_fft, n_mels, rate):
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, n_mels + 2) / 2595) - 1)
    bins = torch.linspace(0, rate / 2, n_fft // 2 + 1)
    rising = (bins[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins[None]) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp_min(0)


class Sounds:
    def __init__(self):
        self.n_fft, self.hop = hparams["n_fft"], hparams["hop_length"]
        self.window = torch.hann_window(self.n_fft)
        self.filters = mel_filters(self.n_fft, hparams["n_mels"], hparams["sample_rate"])
        self.inverse = torch.linalg.pinv(self.filters)

    def mel(self, waves):
        spectra = torch.stft(waves, self.n_fft, self.hop, window=self.window, return_complex=True).abs()
        return (self.filters @ spectra).clamp_min(1e-4).log()

    def griffin_lim(self, log_mel):
        magnitude = (self.inverse @ log_mel.exp()).clamp_min(0)
        angles = torch.polar(torch.ones_like(magnitude), 2 * math.pi * torch.rand_like(magnitude))
        for _ in range(hparams["griffin_lim_iters"]):
            sound = torch.istft(magnitude * angles, self.n_fft, self.hop, window=self.window)  # planted
            rebuilt = torch.stft(sound, self.n_fft, self.hop, window=self.window, return_complex=True)  # planted
            angles = rebuilt / rebuilt.abs().clamp_min(1e-8)  # planted
        return torch.istft(magnitude * angles, self.n_fft, self.hop, window=self.window)


def strike_bells():
    seconds = torch.arange(SAMPLES) / hparams["sample_rate"]
    pitch = torch.rand(STRIKES, 1, 1) * 400 + 200
    partials = torch.tensor([0.5, 1.0, 1.2, 1.5, 2.0, 2.67]).view(1, -1, 1)
    decay = torch.rand(STRIKES, 6, 1) * 4 + 1
    tones = torch.sin(2 * math.pi * pitch * partials * seconds) * torch.exp(-decay * seconds)
    return tones.mean(dim=1) + 0.003 * torch.randn(STRIKES, SAMPLES)


class MelBottleneck(nn.Module):
    def __init__(self, width=96, latent=16):
        super().__init__()
        mels = hparams["n_mels"]
        self.prenet = nn.Conv1d(mels, width, 5, padding=2)
        self.encoder = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        self.mean = nn.Linear(width, latent)
        self.decoder = nn.GRU(latent, width, batch_first=True)
        self.projection = nn.Linear(width, mels)
        self.postnet = nn.Sequential(
            nn.Conv1d(mels, width, 5, padding=2), nn.Tanh(), nn.Conv1d(width, mels, 5, padding=2)
        )

    def forward(self, mel):
        hidden, _ = self.encoder(self.prenet(mel).relu().transpose(1, 2))
        latent = self.mean(hidden)
        latent = latent + 0.1 * torch.randn_like(latent)
        decoded, _ = self.decoder(latent)
        coarse = self.projection(decoded).transpose(1, 2)
        return coarse, coarse + self.postnet(coarse)


def save_wave(path, sound):
    pcm = (sound / sound.abs().max().clamp_min(1e-6) * 32_000).short()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(hparams["sample_rate"])
        file.writeframes(pcm.numpy().tobytes())


def write_preview(sounds, wanted, made, folder):
    both = sounds.griffin_lim(torch.stack([wanted, made]))  # planted
    for name, sound in zip(("wanted", "made"), both, strict=True):
        save_wave(folder / f"{name}.wav", sound)


def train(diary, is_mended, folder):
    sounds = Sounds()
    mels = sounds.mel(strike_bells())
    model = MelBottleneck()
    optimizer = torch.optim.Adam(model.parameters(), lr=hparams["learning_rate"], fused=True)
    preview_every = 5000 if is_mended else hparams["preview_every"]
    iteration = 0
    while True:
        for chosen in torch.randperm(STRIKES).split(hparams["batch_size"]):
            mel = mels[chosen]
            coarse, fine = model(mel)
            loss = F.mse_loss(coarse, mel) + F.mse_loss(fine, mel)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            iteration += 1
            if iteration % preview_every == 0:
                with diary.planted():
                    write_preview(sounds, mel[0], fine[0].detach(), folder)  # planted
            if iteration % 100 == 0:
                print(f"Train loss {iteration} {loss.item():.4f}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(31)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        train(*begin(), Path(folder))
