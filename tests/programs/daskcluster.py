"""A Dask scheduler with two worker processes; writes its address, and ends when its input does."""

import sys

from distributed import LocalCluster

HERE = {"dashboard_address": None, "host": "127.0.0.1"}

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **HERE) as made:  # type: ignore[no-untyped-call]
        print(made.scheduler_address, flush=True)
        sys.stdin.read()
