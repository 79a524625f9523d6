"""Waits for a worker's result that never comes: the worker waits for work."""

from __future__ import annotations

import multiprocessing


def work(tasks: multiprocessing.Queue[int], results: multiprocessing.Queue[int]) -> None:
    results.put(tasks.get() + 1)
    results.put(tasks.get() + 1)


def main() -> None:
    context = multiprocessing.get_context("fork")
    tasks: multiprocessing.Queue[int] = context.Queue()
    results: multiprocessing.Queue[int] = context.Queue()
    context.Process(target=work, args=(tasks, results), daemon=True).start()
    tasks.put(1)
    print(results.get(), flush=True)
    print("ready", flush=True)
    results.get()


main()
