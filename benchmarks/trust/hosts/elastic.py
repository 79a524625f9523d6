"""Under torchrun: rank 1 fails some seconds after its first start, and all are started again: elastic.py KNOWN."""

import os
import sys
import threading
import time

import torch
import torch.distributed

sys.path.insert(0, sys.argv[1])
import spinning

FAILS_AFTER_S = 8.0


def fail():
    time.sleep(FAILS_AFTER_S)
    os._exit(13)


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    torch.distributed.all_reduce(torch.ones(1))
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        threading.Thread(target=fail, daemon=True).start()
    spinning.main()
