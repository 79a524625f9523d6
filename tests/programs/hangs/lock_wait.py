"""Two threads that each hold what the other wants."""

from __future__ import annotations

import threading


def main() -> None:
    first, second, held = threading.Lock(), threading.Lock(), threading.Event()

    def other() -> None:
        with second:
            held.set()
            with first:
                pass

    with first:
        threading.Thread(target=other, daemon=True).start()
        held.wait()
        print("ready", flush=True)
        with second:
            pass


main()
