"""A recognizer of speech with CTC: the collator makes log-spectra of the padded waves, as torchaudio's recipes do.

Nothing is planted.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

WINDOW = torch.hann_window(400)


class Utterances(Dataset):
    def __init__(self, count=400):
        generator = torch.Generator().manual_seed(5)
        self.waves = [torch.randn(8000 + 400 * (i % 6), generator=generator) for i in range(count)]

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, n):
        return self.waves[n], torch.arange(1, 9 + n % 4)


def collate_fn(rows):
    waves = nn.utils.rnn.pad_sequence([wave for wave, _ in rows], batch_first=True)
    power = torch.stft(waves, 400, 200, window=WINDOW, return_complex=True).abs().square()[:, ::4]
    lengths = torch.tensor([len(words) for _, words in rows])
    return power.clamp_min(1e-6).log().transpose(1, 2), torch.cat([words for _, words in rows]), lengths


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.subsample = nn.Conv1d(51, 192, 3, 2, 1)
        self.encoder = nn.LSTM(192, 192, 2, batch_first=True, bidirectional=True)
        self.output = nn.Linear(384, 28)

    def forward(self, features):
        hidden = torch.relu(self.subsample(features.transpose(1, 2))).transpose(1, 2)
        return self.output(self.encoder(hidden)[0]).log_softmax(-1).transpose(0, 1)


class Recipe:
    def __init__(self, diary):
        self.diary, self.model = diary, Recognizer()
        self.criterion = nn.CTCLoss(zero_infinity=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 3e-4)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1000)

    def fit_batch(self, batch):
        features, targets, target_lengths = batch
        log_probs = self.model(features)
        input_lengths = torch.full((log_probs.size(1),), log_probs.size(0), dtype=torch.long)
        loss = self.criterion(log_probs, targets, input_lengths, target_lengths)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        self.scheduler.step()
        return loss.detach()

    def fit(self, loader):
        step = 0
        while True:
            for batch in loader:
                loss = self.fit_batch(batch)
                step += 1
                self.diary.stepped()
                if step % 100 == 0:
                    print("step", step, "loss", round(loss.item(), 3), flush=True)


if __name__ == "__main__":
    recipe_diary, _ = begin()
    torch.set_num_threads(1)
    Recipe(recipe_diary).fit(DataLoader(Utterances(), batch_size=16, shuffle=True, collate_fn=collate_fn))
