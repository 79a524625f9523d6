"""Rule: the training stands still while checkpoints are written."""

from __future__ import annotations

from profd.daemon.analyze.findings.phaseloss import PhaseLoss
from profd.daemon.analyze.phases import CHECKPOINT

find = PhaseLoss(
    rule="checkpoint-stalls",
    label="checkpoints",
    phase=CHECKPOINT,
    title="saving takes {share} of the time{at}: saving seldom or in the background brings {gain}",
    cause="The main thread writes the checkpoint itself, and the training waits until it is on the disk.",
    remedy="Save less often{at}, or copy the state and write it in a thread or process of its own "
    "(torch.distributed.checkpoint.async_save).",
)
