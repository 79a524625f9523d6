"""Two gloo ranks train a masked model of hospital events; each step all logits go to all ranks, for one accuracy."""

import multiprocessing
import os
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

WORLD = 2
CODES, MASK = 1200, 0
PATIENTS, EVENTS, BATCH = 2048, 48, 16
IGNORED = -100


class EventModel(nn.Module):
    def __init__(self, width=48, layers=2):
        super().__init__()
        self.codes = nn.Embedding(CODES, width)
        self.places = nn.Parameter(torch.randn(EVENTS, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, CODES)

    def forward(self, codes):
        return self.head(self.encoder(self.codes(codes) + self.places))


def make_histories():
    generator = torch.Generator().manual_seed(14)
    first = torch.randint(1, CODES, (PATIENTS, 1), generator=generator)
    steps = torch.randint(0, 5, (PATIENTS, EVENTS), generator=generator)
    return (first + steps.cumsum(1)) % (CODES - 1) + 1


def mask_events(codes, share=0.2):
    hidden = torch.rand(codes.shape) < share
    return codes.masked_fill(hidden, MASK), codes.masked_fill(~hidden, IGNORED)


def counts(logits, labels):
    known = labels != IGNORED
    return torch.stack([((logits.argmax(-1) == labels) & known).sum(), known.sum()]).float()


def gathered_accuracy(logits, labels):
    """Return the accuracy over the batches of all ranks."""
    parts = [None] * WORLD
    dist.all_gather_object(parts, (logits.detach(), labels))  # planted
    total = sum(counts(*part) for part in parts)
    return total[0] / total[1]


def reduced_accuracy(logits, labels):
    total = counts(logits.detach(), labels)
    dist.all_reduce(total)
    return total[0] / total[1]


def train(rank, diary, is_mended):
    torch.manual_seed(100 + rank)
    histories = make_histories()
    dataset = TensorDataset(histories)
    sampler = DistributedSampler(dataset, WORLD, rank, shuffle=True, drop_last=True)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(EventModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    step, epoch = 0, 0
    while True:
        sampler.set_epoch(epoch)
        for (codes,) in loader:
            inputs, labels = mask_events(codes)
            logits = model(inputs)
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if is_mended:
                accuracy = reduced_accuracy(logits, labels)
            else:
                with diary.planted() if rank == 0 else nullcontext():
                    accuracy = gathered_accuracy(logits, labels)  # planted
            step += 1
            if rank == 0:
                if step % 50 == 0:
                    print(f"epoch {epoch} step {step}: loss {loss.item():.4f} accuracy {accuracy:.3f}", flush=True)
                diary.stepped()
        epoch += 1


def run_rank(rank, store, diary, is_mended):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    train(rank, diary, is_mended)


def follow(store, is_mended):
    """Be the second rank, until the first one is gone."""
    try:
        run_rank(1, store, None, is_mended)
    except RuntimeError:
        os._exit(0)


def main():
    diary, is_mended = begin()
    store = Path(tempfile.mkdtemp(prefix="ranks-")) / "store"
    multiprocessing.get_context("fork").Process(target=follow, args=(store, is_mended), daemon=True).start()
    run_rank(0, store, diary, is_mended)


if __name__ == "__main__":
    main()
