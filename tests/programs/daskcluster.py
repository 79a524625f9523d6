"""A Dask scheduler with two worker processes; writes its address, and ends when its input does."""

import sys

from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as made:
        print(made.scheduler_address, flush=True)
        sys.stdin.read()
