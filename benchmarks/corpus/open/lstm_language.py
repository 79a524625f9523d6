"""A word-level LSTM after pytorch/examples' word_language_model, with truncated backpropagation. Nothing is planted."""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

diary, _ = begin()
torch.manual_seed(1111)
torch.set_num_threads(1)
ntokens, emsize, nhid, bptt, batch_size, lr = 2_000, 96, 96, 20, 16, 5.0


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.rnn = nn.Embedding(ntokens, emsize), nn.LSTM(emsize, nhid, 2)
        self.decoder = nn.Linear(nhid, ntokens)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.encoder(input), hidden)
        return self.decoder(output).view(-1, ntokens), hidden


def repackage_hidden(h):
    return tuple(v.detach() for v in h)


def get_batch(source, i):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


train_data = batchify(torch.randint(ntokens, (200_000,)), batch_size)
model, criterion = RNNModel(), nn.CrossEntropyLoss()


def train(epoch):
    hidden = (torch.zeros(2, batch_size, nhid), torch.zeros(2, batch_size, nhid))
    for batch, i in enumerate(range(0, train_data.size(0) - 1, bptt)):
        data, targets = get_batch(train_data, i)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        diary.stepped()
        if batch % 200 == 0:
            print(f"| epoch {epoch} | {batch} batches | loss {loss.item():5.2f}", flush=True)


for epoch in range(1, 1_000_000):
    train(epoch)
