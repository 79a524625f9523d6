"""A picture that takes on the style of another one by L-BFGS, which calls a closure, as in tutorials.

Nothing is planted: all time goes into the closure's passes.
"""

import itertools
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


def gram_matrix(features):
    batch, channels, height, width = features.shape
    flat = features.view(batch * channels, height * width)
    return flat @ flat.T / flat.numel()


def make_layers():
    widths = (3, 16, 24, 32)
    return nn.ModuleList(
        nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.ReLU()) for before, after in itertools.pairwise(widths)
    ).requires_grad_(False)


def features_of(layers, picture):
    found = []
    for layer in layers:
        picture = layer(picture)
        found.append(picture)
    return found


def transfer(layers, picture, wanted, grams, diary):
    optimizer = torch.optim.LBFGS([picture], max_iter=10)

    def closure():
        optimizer.zero_grad()
        found = features_of(layers, picture)
        content_loss = nn.functional.mse_loss(found[-1], wanted)
        pairs = zip(found, grams, strict=True)
        style_loss = sum(nn.functional.mse_loss(gram_matrix(one), gram) for one, gram in pairs)
        loss = content_loss + 1e4 * style_loss
        loss.backward()
        return loss

    for _ in range(40):
        optimizer.step(closure)
        with torch.no_grad():
            picture.clamp_(0, 1)
        diary.stepped()


def run_style_transfer(diary):
    layers, content, style = make_layers(), torch.rand(1, 3, 64, 64), torch.rand(1, 3, 64, 64)
    wanted = features_of(layers, content)[-1]
    grams = [gram_matrix(one) for one in features_of(layers, style)]
    while True:
        transfer(layers, content.clone().requires_grad_(), wanted, grams, diary)


if __name__ == "__main__":
    torch.manual_seed(2)
    torch.set_num_threads(1)
    run_style_transfer(begin()[0])
