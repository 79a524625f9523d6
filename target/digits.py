"""Teach a small network to read digits, in pure Python: a training loop that needs no package.

Two processes draw the digits and blur them, and the training waits for them.
"""

import argparse
import math
import multiprocessing
import random

SIDE = 16
# The segments of each digit from 0 on, lettered as on a calculator's display.
SEGMENTS = ["abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abfgcd"]


def draw(digit, noise):
    """Return the pixels of a digit, as numbers from 0 to 1."""
    pixels = [[random.random() * noise for _ in range(SIDE)] for _ in range(SIDE)]
    for segment in SEGMENTS[digit]:
        row = {"a": 2, "g": 7, "d": 12}.get(segment)
        if row is not None:
            for column in range(4, 12):
                pixels[row][column] = 1.0
            continue
        column = 4 if segment in "ef" else 11
        for row in range(2, 8) if segment in "fb" else range(7, 13):
            pixels[row][column] = 1.0
    return pixels


def blur(pixels, radius):
    """Return the pixels, each the mean of those around it."""
    side = len(pixels)
    blurred = []
    for row in range(side):
        line = []
        for column in range(side):
            total = count = 0
            for other in range(max(row - radius, 0), min(row + radius + 1, side)):
                for place in range(max(column - radius, 0), min(column + radius + 1, side)):
                    total += pixels[other][place]
                    count += 1
            line.append(total / count)
        blurred.append(line)
    return blurred


def soften(pixels, scale):
    """Return the pixels with soft edges: enlarged, blurred, and made as small again."""
    large = [[value for value in line for _ in range(scale)] for line in pixels for _ in range(scale)]
    return [line[::scale] for line in blur(large, radius=scale // 2)[::scale]]


def make_batch(size):
    """Return the pixels of digits, and which digits they are."""
    digits = [random.randrange(10) for _ in range(size)]
    images = [soften(draw(digit, noise=0.3), scale=3) for digit in digits]
    return [[value for line in image for value in line] for image in images], digits


def work(batches, size):
    """Make batches for ever, in a process of its own."""
    while True:
        batches.put(make_batch(size))


class Network:
    def __init__(self, rate=0.1):
        self.weights = [[random.gauss(0, 0.05) for _ in range(SIDE * SIDE)] for _ in range(10)]
        self.rate = rate

    def forward(self, image):
        scores = [sum(map(float.__mul__, row, image)) for row in self.weights]
        powers = [math.exp(score - max(scores)) for score in scores]
        return [power / sum(powers) for power in powers]

    def backward(self, image, chances, digit):
        errors = [chance - (number == digit) for number, chance in enumerate(chances)]
        return [[error * value for value in image] for error in errors]

    def step(self, gradients):
        for row, gradient in zip(self.weights, gradients):
            row[:] = [weight - self.rate * slope for weight, slope in zip(row, gradient)]


def train(network, batches, steps):
    for step in range(1, steps + 1):
        images, digits = batches.get()
        right = 0
        for image, digit in zip(images, digits):
            chances = network.forward(image)
            right += max(range(10), key=chances.__getitem__) == digit
            network.step(network.backward(image, chances, digit))
        if step % 20 == 0:
            print(f"step {step}: {right} of {len(digits)} right", flush=True)


def main():
    args = parse_args()
    batches = multiprocessing.Queue(maxsize=4)
    for _ in range(args.workers):
        multiprocessing.Process(target=work, args=(batches, args.batch_size), daemon=True).start()
    train(Network(), batches, args.steps)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
