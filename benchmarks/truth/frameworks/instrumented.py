"""A plain loop with what people put around a step: profiler, moving average, metrics, TensorBoard, tqdm, clipping.

Usage: instrumented.py [--epochs N]
"""

import argparse
import tempfile
import time

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
from tqdm import tqdm

CLASSES = 20


def make_network():
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, CLASSES))


def train(loader, epochs, writer, profiler):
    network = make_network()
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.RMSprop(network.parameters(), lr=1e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=epochs * len(loader))
    accuracy, f1_score = MulticlassAccuracy(CLASSES), MulticlassF1Score(CLASSES)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    step = 0
    for epoch in range(epochs):
        progress = tqdm(loader, desc=f"epoch {epoch}", mininterval=0.05)
        for features, labels in progress:
            logits = network(features)
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            average.update_parameters(network)
            accuracy.update(logits, labels)
            f1_score.update(logits, labels)
            writer.add_scalar("loss", loss, step)
            if step % 20 == 0:
                writer.add_histogram("weights", network[0].weight, step)
                progress.set_postfix(accuracy=accuracy.compute().item(), f1=f1_score.compute().item())
            profiler.step()
            step += 1
    return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=16)
    options = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(6400, 256), torch.randint(CLASSES, (6400,))), 128, shuffle=True)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
        plan = schedule(wait=20, warmup=5, active=10, repeat=2)
        with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=lambda _: None) as profiler:
            steps = train(loader, options.epochs, writer, profiler)
    print("steps", steps, "seconds", time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
