"""A keyword spotter on speech whose augmentation shifts the pitch, and builds the kernel of the resampler anew for each batch.

Complaint: pytorch/audio, issue 2359, "Cache Resample kernel inside transform.PitchShift()": PitchShift and Resample are slower than librosa's on
the CPU; Resample catches up at its second call, when its kernel is cached, and PitchShift never does, as it calls the functional ``resample``,
which rebuilds the kernel each time. Fix (pull requests 2441 and 2468): ``transforms.PitchShift`` builds the kernel at its first call and keeps
it. No figure for a training is named (issue 2414: the loop that builds the kernel could be 9 times faster). The functions here follow
torchaudio 0.11, which has that loop.
"""

import math
import random
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SAMPLE_RATE = 16_000


def _get_sinc_resample_kernel(orig_freq, new_freq, gcd, lowpass_filter_width=6, rolloff=0.99):
    orig_freq, new_freq = orig_freq // gcd, new_freq // gcd
    kernels = []
    base_freq = min(orig_freq, new_freq) * rolloff
    width = math.ceil(lowpass_filter_width * orig_freq / base_freq)
    idx = torch.arange(-width, width + orig_freq, dtype=torch.float64)
    for i in range(new_freq):  # planted
        t = (-i / new_freq + idx / orig_freq) * base_freq  # planted
        t = t.clamp_(-lowpass_filter_width, lowpass_filter_width)  # planted
        window = torch.cos(t * math.pi / lowpass_filter_width / 2) ** 2  # planted
        t *= math.pi  # planted
        kernel = torch.where(t == 0, torch.tensor(1.0).to(t), torch.sin(t) / t)  # planted
        kernel.mul_(window)  # planted
        kernels.append(kernel)
    kernels = torch.stack(kernels).view(new_freq, 1, -1).mul_(base_freq / orig_freq)  # planted
    return kernels.to(torch.float32), width


def _apply_sinc_resample_kernel(waveform, orig_freq, new_freq, gcd, kernel, width):
    orig_freq, new_freq = orig_freq // gcd, new_freq // gcd
    count, length = waveform.shape
    waveform = nn.functional.pad(waveform, (width, width + orig_freq))
    resampled = nn.functional.conv1d(waveform[:, None], kernel, stride=orig_freq)
    return resampled.transpose(1, 2).reshape(count, -1)[..., : math.ceil(new_freq * length / orig_freq)]


def phase_vocoder(spectrum, rate, phase_advance):
    """Stretch a spectrum in time, and leave its pitch."""
    steps = torch.arange(0, spectrum.size(-1), rate)
    alphas, at = steps % 1.0, steps.long()
    spectrum_0, padded = spectrum[..., :1], nn.functional.pad(spectrum, (0, 2))
    before, after = padded.index_select(-1, at), padded.index_select(-1, at + 1)
    phase = after.angle() - before.angle() - phase_advance
    phase = phase - 2 * math.pi * torch.round(phase / (2 * math.pi)) + phase_advance
    phase = torch.cumsum(torch.cat([spectrum_0.angle(), phase[..., :-1]], -1), -1)
    return torch.polar(alphas * after.abs() + (1 - alphas) * before.abs(), phase)


class PitchShift(nn.Module):
    """Shifts the pitch of a batch of waveforms by ``n_steps`` semitones."""

    def __init__(self, diary, n_steps, caches, n_fft=512, bins_per_octave=12):
        super().__init__()
        self.diary, self.caches, self.cached = diary, caches, None
        self.n_fft, self.hop = n_fft, n_fft // 4
        self.rate = 2.0 ** (-float(n_steps) / bins_per_octave)
        self.orig_freq = int(SAMPLE_RATE / self.rate) // 20 * 20
        self.register_buffer("window", torch.hann_window(n_fft))

    def _kernel(self, gcd):
        if self.cached is not None:
            return self.cached
        with self.diary.planted():
            kernel = _get_sinc_resample_kernel(self.orig_freq, SAMPLE_RATE, gcd)  # planted
        if self.caches:
            self.cached = kernel
        return kernel

    def forward(self, waveform):
        length = waveform.size(-1)
        spectrum = torch.stft(waveform, self.n_fft, self.hop, window=self.window, return_complex=True)
        advance = torch.linspace(0, math.pi * self.hop, spectrum.size(-2))[..., None]
        stretched = phase_vocoder(spectrum, self.rate, advance)
        waveform = torch.istft(stretched, self.n_fft, self.hop, window=self.window, length=round(length / self.rate))
        gcd = math.gcd(self.orig_freq, SAMPLE_RATE)
        kernel, width = self._kernel(gcd)  # planted
        shifted = _apply_sinc_resample_kernel(waveform, self.orig_freq, SAMPLE_RATE, gcd, kernel, width)
        return nn.functional.pad(shifted[..., :length], (0, max(0, length - shifted.size(-1))))


class Augment(nn.Module):
    """Shifts a part of each batch by one of some intervals."""

    def __init__(self, shifts, count):
        super().__init__()
        self.shifts, self.count = nn.ModuleList(shifts), count

    @torch.no_grad()
    def forward(self, waveform):
        shift = random.choice(self.shifts)
        return torch.cat([shift(waveform[: self.count]), waveform[self.count :]])  # planted


class M5(nn.Module):
    """A net of convolutions over the raw waveform."""

    def __init__(self, classes=12, width=32):
        super().__init__()
        layers, channels = [], 1
        for kernel, stride, wide in ((80, 8, width), (3, 1, width), (3, 1, 2 * width), (3, 1, 4 * width)):
            layers += [nn.Conv1d(channels, wide, kernel, stride), nn.BatchNorm1d(wide), nn.ReLU(), nn.MaxPool1d(4)]
            channels = wide
        self.net, self.head = nn.Sequential(*layers), nn.Linear(channels, classes)

    def forward(self, waveform):
        return self.head(self.net(waveform[:, None]).mean(-1))


def load_commands(count, classes=12):
    """Return a second of tones with noise each, and which tone it is."""
    labels = torch.randint(0, classes, (count,))
    time = torch.arange(SAMPLE_RATE) / SAMPLE_RATE
    tones = torch.sin(2 * math.pi * (200 + 90 * labels[:, None]) * time)
    return tones + 0.3 * torch.randn(count, SAMPLE_RATE), labels


def main():
    diary, is_mended = begin()
    waveforms, labels = load_commands(1500)
    augment = Augment([PitchShift(diary, steps, caches=is_mended) for steps in (2, 3, 4)], count=8)
    model = M5()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    for epoch in range(10**6):
        seen = correct = 0
        for batch in torch.randperm(len(labels)).split(32):
            inputs = augment(waveforms[batch])  # planted
            optimizer.zero_grad()
            logits = model(inputs)
            nn.functional.cross_entropy(logits, labels[batch]).backward()
            optimizer.step()
            seen, correct = seen + len(batch), correct + (logits.argmax(1) == labels[batch]).sum()
            diary.stepped()
        print(f"epoch {epoch}: {correct / seen:.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(3)
    torch.set_num_threads(1)
    main()
