"""Programs of others that are recorded: got from their repositories, and given small data that is made up here."""

from __future__ import annotations

import os
import random
import struct
import subprocess
from array import array
from pathlib import Path

# Where copies of the repositories may lie already; else they are cloned.
COPIES = os.environ.get("RECORDED_REPOSITORIES")

NANOGPT_OPTIONS = (
    "--dataset=made_up", "--device=cpu", "--compile=False", "--eval_interval=100000", "--eval_iters=2",
    "--log_interval=1", "--block_size=64", "--batch_size=8", "--n_layer=4", "--n_head=4", "--n_embd=128",
    "--gradient_accumulation_steps=2", "--max_iters=100000",
)  # fmt: skip
_TOKENS = 50_000
_VOCABULARY = 1000

WORDS_OPTIONS = (
    "--data", "made_up", "--model", "LSTM", "--emsize", "100", "--nhid", "100", "--batch_size", "10",
    "--log-interval", "10", "--epochs", "1000",
)  # fmt: skip
WORDS_LINE = r"^\| epoch +(\d+) \| +(\d+)/"
# (60,000 words + 2,000 ends of lines) in 10 columns, 35 at a time.
_WORDS, _WORDS_A_LINE = 60_000, 30
WORDS_STEPS = -(-((_WORDS + _WORDS // _WORDS_A_LINE) // 10 - 1) // 35)

MNIST_OPTIONS = ("--no-accel", "--log-interval", "10")
MNIST_LINE = r"^Train Epoch: (\d+) \[(\d+)/"
_IMAGES, _HELD_OUT = 6400, 640
MNIST_STEPS = _IMAGES


def nanogpt(folder: Path) -> Path:
    """Get nanoGPT, with made-up tokens in place of a text."""
    place = _clone("karpathy/nanoGPT", folder)
    data = place / "data" / "made_up"
    data.mkdir()
    chance = random.Random(1)
    for name in ("train", "val"):
        tokens = array("H", (chance.randrange(_VOCABULARY) for _ in range(_TOKENS)))
        (data / f"{name}.bin").write_bytes(tokens.tobytes())
    return place


def word_language_model(folder: Path) -> Path:
    """Get the language model of PyTorch's examples, with made-up words."""
    place = _clone("pytorch/examples", folder) / "word_language_model"
    data = place / "made_up"
    data.mkdir()
    chance = random.Random(2)
    for name, count in (("train", _WORDS), ("valid", 3000), ("test", 3000)):
        words = [f"w{chance.randrange(_VOCABULARY)}" for _ in range(count)]
        lines = [" ".join(words[at : at + _WORDS_A_LINE]) for at in range(0, count, _WORDS_A_LINE)]
        (data / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return place


def mnist(folder: Path) -> Path:
    """Get the MNIST of PyTorch's examples, with made-up images."""
    place = _clone("pytorch/examples", folder) / "mnist"
    data = place.parent / "data" / "MNIST" / "raw"
    data.mkdir(parents=True)
    chance = random.Random(3)
    for name, count in (("train", _IMAGES), ("t10k", _HELD_OUT)):
        images = struct.pack(">4i", 2051, count, 28, 28) + chance.randbytes(count * 28 * 28)
        labels = struct.pack(">2i", 2049, count) + bytes(chance.randrange(10) for _ in range(count))
        (data / f"{name}-images-idx3-ubyte").write_bytes(images)
        (data / f"{name}-labels-idx1-ubyte").write_bytes(labels)
    return place


def _clone(repository: str, folder: Path) -> Path:
    """Return a fresh copy of a repository."""
    place = folder / repository.rpartition("/")[2]
    source = f"{COPIES}/{repository}" if COPIES else f"https://github.com/{repository}"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", source, place], check=True)
    return place
