from __future__ import annotations

from pathlib import Path

import pytest

from profd.daemon.naming import script_folder, script_name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --lr 1", "train"),
        ("/usr/bin/python3 -u -X dev /home/ada/cifar/train.py other.py", "train"),
        ("python -m app.train --config x.py", "app.train"),
        ("python train.py -m 3", "train"),
        ("torchrun --nproc-per-node 2 train.py", "train"),
        ("python -m torch.distributed.run train.py", "train"),
        ("python -c pass", "python"),
        ("/opt/bin/trainer --fast", "trainer"),
        ("", "run"),
    ],
)
def test_run_is_called_after_the_script(command: str, name: str) -> None:
    assert script_name(command.split()) == name


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        (("python", "train.py"), "/work"),
        (("python", "-u", "src/train.py", "--out", "x"), "/work/src"),
        (("python", "../other/train.py"), "/other"),
        (("python", "/abs/train.py"), "/abs"),
        (("python", "-m", "app.train"), None),
    ],
)
def test_the_folder_of_the_script(command: tuple[str, ...], folder: str | None) -> None:
    assert script_folder(command, "/work") == (Path(folder) if folder else None)
