from __future__ import annotations

import pytest

from profd.daemon.supervise.naming import script_name


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
