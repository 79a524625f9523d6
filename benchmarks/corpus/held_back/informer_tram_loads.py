"""Passengers on trams forecast by an encoder and a decoder, in the style of the Informer repository's Exp classes.

The calendar features of a window are parsed from the text of its timestamps each time that it is drawn.
"""

import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

LINES, HOURS = 7, 6000
SEQ_LEN, LABEL_LEN, PRED_LEN = 72, 24, 24


def make_counts(rng):
    hours = np.arange(HOURS)
    daily = np.sin(2 * np.pi * (hours[:, None] - rng.uniform(0, 24, LINES)) / 24)
    weekly = np.where((hours // 24) % 7 < 5, 1.0, 0.4)[:, None]
    counts = weekly * (2 + daily) + 0.2 * rng.normal(size=(HOURS, LINES))
    stamps = [(datetime(2021, 1, 4) + timedelta(hours=int(hour))).strftime("%Y-%m-%d %H:%M:%S") for hour in hours]
    return ((counts - counts.mean(0)) / counts.std(0)).astype(np.float32), stamps


def time_features(stamps):
    marks = []
    for stamp in stamps:
        moment = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S")  # planted
        marks.append(
            (moment.hour / 23 - 0.5, moment.weekday() / 6 - 0.5, moment.day / 31 - 0.5, moment.month / 12 - 0.5)
        )
    return np.array(marks, dtype=np.float32)


class TramDataset(Dataset):
    def __init__(self, diary, is_mended):
        self.counts, self.stamps = make_counts(np.random.default_rng(6))
        self.diary, self.is_mended = diary, is_mended
        self.marks = time_features(self.stamps) if is_mended else None

    def marks_of(self, window):
        if self.is_mended:
            return self.marks[window]
        with self.diary.planted():
            return time_features(self.stamps[window])  # planted

    def __len__(self):
        return HOURS - SEQ_LEN - PRED_LEN

    def __getitem__(self, index):
        past = slice(index, index + SEQ_LEN)
        future = slice(index + SEQ_LEN - LABEL_LEN, index + SEQ_LEN + PRED_LEN)
        return self.counts[past], self.counts[future], self.marks_of(past), self.marks_of(future)  # planted


class Embedding(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.value = nn.Conv1d(LINES, width, 3, padding=1, padding_mode="circular")
        self.mark = nn.Linear(4, width)

    def forward(self, x, marks):
        return self.value(x.transpose(1, 2)).transpose(1, 2) + self.mark(marks)


class Former(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.enc_embedding, self.dec_embedding = Embedding(width), Embedding(width)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, heads, 2 * width, 0.05, "gelu", batch_first=True), 2
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(width, heads, 2 * width, 0.05, "gelu", batch_first=True), 1
        )
        self.projection = nn.Linear(width, LINES)

    def forward(self, x_enc, mark_enc, x_dec, mark_dec):
        memory = self.encoder(self.enc_embedding(x_enc, mark_enc))
        return self.projection(self.decoder(self.dec_embedding(x_dec, mark_dec), memory))[:, -PRED_LEN:]


class ExpForecast:
    def __init__(self, diary, is_mended):
        self.diary = diary
        self.model = Former()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=True)
        self.criterion = nn.MSELoss()
        self.loader = DataLoader(TramDataset(diary, is_mended), batch_size=16, shuffle=True, drop_last=True)

    def process_one_batch(self, batch_x, batch_y, mark_x, mark_y):
        blank = torch.zeros(len(batch_y), PRED_LEN, LINES)
        decoder_input = torch.cat([batch_y[:, :LABEL_LEN], blank], dim=1)
        return self.model(batch_x, mark_x, decoder_input, mark_y), batch_y[:, -PRED_LEN:]

    def train(self):
        epoch = 0
        while True:
            begun = time.time()
            self.model.train()
            for i, batch in enumerate(self.loader):  # planted
                self.optimizer.zero_grad()
                predicted, true = self.process_one_batch(*batch)
                loss = self.criterion(predicted, true)
                loss.backward()
                self.optimizer.step()
                self.diary.stepped()
                if (i + 1) % 100 == 0:
                    speed = (time.time() - begun) / (i + 1)
                    print(f"iters: {i + 1}, epoch: {epoch} | loss: {loss.item():.5f} | {speed:.4f}s/iter", flush=True)
            epoch += 1


if __name__ == "__main__":
    torch.manual_seed(6)
    torch.set_num_threads(1)
    ExpForecast(*begin()).train()
