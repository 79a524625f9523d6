"""A DataLoader whose worker opens a sample that never comes, as on a file server that does not answer."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from torch.utils.data import DataLoader, Dataset


class Samples(Dataset[int]):
    """Numbers, the third of which is behind a named pipe that nobody writes."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 3:
            print("ready", flush=True)
            return len(Path(sys.argv[1]).read_bytes())
        return index


os.mkfifo(sys.argv[1])
for _ in DataLoader(Samples(), num_workers=1):
    pass
