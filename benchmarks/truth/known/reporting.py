"""Alternates between operations of torch, which stand still for a reader, and Python that calls all the time."""

import json
import logging
import os
from time import perf_counter, time_ns

import diary
import torch

CALLS = {"main": {"multiply", "report", "parse"}, "multiply": set()}
PHASES = ("multiply", "report", "multiply", "parse")


def multiply(inputs, seconds):
    end = perf_counter() + seconds
    while perf_counter() < end:
        inputs @ inputs


def report(seconds):
    end = perf_counter() + seconds
    while perf_counter() < end:
        logging.info("step %d: %s", 7, json.dumps({"layers": list(range(50))}))


def parse(seconds):
    end = perf_counter() + seconds
    while perf_counter() < end:
        [os.path.normpath("folder/" + name) for name in ("one", "two/..", "./three")]


def main(note):
    logging.basicConfig(filename=os.devnull, level=logging.INFO)
    inputs = torch.rand(700, 700)
    while True:
        note(time_ns())
        multiply(inputs, 0.012)
        note(time_ns())
        report(0.035)
        note(time_ns())
        multiply(inputs, 0.008)
        note(time_ns())
        parse(0.015)


if __name__ == "__main__":
    torch.set_num_threads(1)
    diary.ready()
    main(diary.track())
