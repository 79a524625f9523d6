"""What takes long in a training and is no hang: a checkpoint, a child that compiles, a download. Four seconds each."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
import time

PHASE_S = 4.0
COMPILE = f"import time; end = time.monotonic() + {PHASE_S}\nwhile time.monotonic() < end: sum(range(1000))"


def write_checkpoint() -> None:
    end_s = time.monotonic() + PHASE_S
    with tempfile.TemporaryFile() as file:
        while time.monotonic() < end_s:
            file.write(bytes(1 << 20))
            file.flush()
            time.sleep(0.25)


def compile_kernels() -> None:
    subprocess.run([sys.executable, "-c", COMPILE], check=True)


def download() -> None:
    here, there = socket.socketpair()

    def send() -> None:
        end_s = time.monotonic() + PHASE_S
        while time.monotonic() < end_s:
            there.send(b"x")
            time.sleep(0.05)
        there.close()

    threading.Thread(target=send, daemon=True).start()
    while here.recv(100):
        pass


print("ready", flush=True)
for phase in (write_checkpoint, compile_kernels, download):
    phase()
