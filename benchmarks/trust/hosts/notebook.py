"""Starts a Jupyter kernel, runs the loop of ``known/spinning.py`` in its second cell, and waits: notebook.py KNOWN."""

import sys
from pathlib import Path

from jupyter_client import KernelManager

CELL = """import os
from spinning import spin_fifth, spin_half, spin_third
print("ready", os.getpid(), flush=True)
while True:
    spin_half()
    spin_third()
    spin_fifth()
"""


def main():
    manager = KernelManager()
    # As Jupyter's server does: the kernel's working folder is that of the notebook.
    manager.start_kernel(cwd=str(Path.cwd()))
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=120)
    client.execute(f"import sys; sys.path.insert(0, {sys.argv[1]!r})")
    client.execute(CELL)
    try:
        while True:
            message = client.get_iopub_msg(timeout=600)
            if message["msg_type"] == "stream":
                print(message["content"]["text"], end="", flush=True)
            elif message["msg_type"] == "error":
                print("\n".join(message["content"]["traceback"]), flush=True)
    finally:
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()
