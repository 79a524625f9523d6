"""Ray Train with two workers over gloo, each of which runs ``known/spinning.py``: ray_train.py KNOWN."""

import os
import sys

import ray
from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def work(options):
    import torch
    import torch.distributed

    sys.path.insert(0, options["known"])
    import spinning

    sum_of_ranks = torch.ones(1)
    torch.distributed.all_reduce(sum_of_ranks)
    print("all", int(sum_of_ranks.item()), "ranks are there", flush=True)
    torch.distributed.barrier()
    spinning.main()


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20)
    print("driver", os.getpid(), flush=True)
    trainer = TorchTrainer(
        work,
        train_loop_config={"known": sys.argv[1]},
        scaling_config=ScalingConfig(num_workers=2),
        torch_config=TorchConfig(backend="gloo"),
    )
    trainer.fit()
