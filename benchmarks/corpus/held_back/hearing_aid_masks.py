"""A denoiser by masks of spectra; the ratio of signal to noise is logged by a loop over segments."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

N_FFT, HOP, LENGTH, SEGMENT = 256, 128, 8000, 200


def make_batch(size):
    seconds = torch.arange(LENGTH) / 8000
    pitch = 100 + 200 * torch.rand(size, 1)
    clean = sum(torch.sin(2 * torch.pi * pitch * k * seconds) / k for k in (1, 2, 3))
    clean = clean * (torch.sin(2 * torch.pi * 3 * seconds) > -0.3)
    return clean + 0.5 * torch.randn(size, LENGTH), clean


class Masker(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        bins = N_FFT // 2 + 1
        self.register_buffer("window", torch.hann_window(N_FFT))
        self.rnn = nn.GRU(bins, hidden, batch_first=True)
        self.head = nn.Linear(hidden, bins)

    def forward(self, noisy):
        spectrum = torch.stft(noisy, N_FFT, HOP, window=self.window, return_complex=True)
        hidden, _ = self.rnn(spectrum.abs().log1p().transpose(1, 2))
        mask = torch.sigmoid(self.head(hidden)).transpose(1, 2)
        return torch.istft(spectrum * mask, N_FFT, HOP, window=self.window, length=LENGTH)


def segmental_snr(clean, estimate):
    ratios = []
    for target, guess in zip(clean.numpy(), estimate.numpy(), strict=True):
        for start in range(0, LENGTH, SEGMENT):
            signal = target[start : start + SEGMENT]
            noise = signal - guess[start : start + SEGMENT]
            ratio = 10 * np.log10((np.sum(signal**2) + 1e-6) / (np.sum(noise**2) + 1e-6))  # planted
            ratios.append(np.clip(ratio, -10, 35))  # planted
    return float(np.mean(ratios))


def segmental_snr_at_once(clean, estimate):
    signal = clean.view(-1, SEGMENT)
    noise = signal - estimate.view(-1, SEGMENT)
    ratio = 10 * torch.log10((signal.square().sum(1) + 1e-6) / (noise.square().sum(1) + 1e-6))
    return ratio.clamp(-10, 35).mean().item()


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Masker()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    batches = [make_batch(16) for _ in range(24)]
    step, smooth = 0, 0.0
    while True:
        noisy, clean = batches[step % len(batches)]
        estimate = model(noisy)
        loss = (estimate - clean).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if is_mended:
            snr = segmental_snr_at_once(clean, estimate.detach())
        else:
            with diary.planted():
                snr = segmental_snr(clean, estimate.detach())  # planted
        smooth = 0.98 * smooth + 0.02 * snr
        step += 1
        diary.stepped()
        if step % 200 == 0:
            print(f"step {step} loss {loss.item():.4f} segmental SNR {smooth:.2f} dB", flush=True)


if __name__ == "__main__":
    main()
