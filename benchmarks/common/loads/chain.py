"""A chain of digests: one step lost or done wrong shows in all that follow. Usage: chain.py FILE."""

import hashlib
import sys

ROUNDS = 20_000


def link(digest: bytes) -> bytes:
    """Return the digest after so many rounds."""
    for _ in range(ROUNDS):
        digest = hashlib.sha256(digest).digest()
    return digest


def main() -> None:
    """Write one link after the other, for ever."""
    with open(sys.argv[1], "w", buffering=1) as file:  # noqa: PTH123
        digest = b"profd"
        print("ready", flush=True)
        while True:
            digest = link(digest)
            file.write(digest.hex() + "\n")


if __name__ == "__main__":
    main()
