"""What counts as which phase, by the functions of torch and of the frameworks that a program calls.

Laid down by the meaning of the phases in ``docs/phases.md``, with no stack looked at: a second
opinion, by other means than the table of rules that it is to judge.
"""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch._functorch import eager_transforms
from torch.nn import functional
from torch.optim import lr_scheduler, optimizer
from torch.utils.data import dataloader

if TYPE_CHECKING:
    from truth.phaseclock import PhaseClock


def install(clock: PhaseClock, program: str) -> None:
    """Wrap what a program with this text uses."""
    _wrap_torch(clock)
    if "torch.compile(" in program:
        _wrap_compiler(clock)
    else:
        _wrap_modules(clock)
        # What a compiler imports counts for it. The interpreter looks this function up by its name
        # at each import.
        clock.wrap(importlib._bootstrap, "_find_and_load", "startup, import")  # type: ignore[attr-defined]
    if "lightning" in program:
        _wrap_lightning(clock)
    if "transformers" in program:
        _wrap_transformers(clock)
    elif "accelerate" in program:
        _wrap_accelerate(clock)
    if "torch.func" in program:
        clock.wrap(eager_transforms, "_autograd_grad", "backward")
    if "torchmetrics" in program:
        _wrap_metrics(clock)
    if "SummaryWriter" in program:
        _wrap_instruments(clock)


def _wrap_torch(clock: PhaseClock) -> None:
    def loading(iterator: object) -> AbstractContextManager[None]:
        alone = isinstance(iterator, dataloader._SingleProcessDataLoaderIter)
        return clock.phase("data load in process" if alone else "data wait")

    clock.wrap(dataloader._BaseDataLoaderIter, "__next__", loading)
    for owner, name, phase in (
        (dataloader.DataLoader, "__iter__", "data wait"),
        (torch, "save", "checkpoint"),
        (torch.Tensor, "item", "synchronize"),
        (torch.Tensor, "backward", "backward"),
        (functional, "cross_entropy", "loss"),
        (optimizer.Optimizer, "zero_grad", "optimizer"),
        (lr_scheduler.LRScheduler, "step", "optimizer"),
        (torch.nn.utils, "clip_grad_norm_", "optimizer"),
        (builtins, "print", "logging"),
    ):
        clock.wrap(owner, name, phase)
    begin, end = clock.pair("optimizer")
    optimizer.register_optimizer_step_pre_hook(begin)
    optimizer.register_optimizer_step_post_hook(end)


def _wrap_modules(clock: PhaseClock) -> None:
    """Time the outermost call of a module, whichever it is."""
    inner = torch.nn.Module.__call__
    depth = 0

    def timed(module: torch.nn.Module, *words: object, **options: object) -> object:
        nonlocal depth
        if depth:
            return inner(module, *words, **options)
        depth += 1
        try:
            with clock.phase("forward"):
                return inner(module, *words, **options)
        finally:
            depth -= 1

    torch.nn.Module.__call__ = timed  # type: ignore[method-assign]


def _wrap_compiler(clock: PhaseClock) -> None:
    """Time compiled modules, which are traced and so left alone inside, and the compiler by its own
    callbacks.
    """
    from torch._dynamo import OptimizedModule
    from torch._dynamo.callback import callback_handler

    begin, end = clock.pair("compile")
    callback_handler.register_start_callback(begin)
    callback_handler.register_end_callback(end)
    clock.wrap(OptimizedModule, "__call__", "forward")


def _wrap_transformers(clock: PhaseClock) -> None:
    from accelerate import Accelerator, data_loader
    from transformers import Trainer, trainer_callback

    for owner, name, phase in (
        (Trainer, "evaluate", "evaluation"),
        (Trainer, "_save_checkpoint", "checkpoint"),
        (Trainer, "_prepare_inputs", "host-to-device copy"),
        (Trainer, "compute_loss", "forward"),
        (Trainer, "_clip_grad_norm", "optimizer"),
        (Trainer, "get_batch_samples", "data wait"),
        (Trainer, "log", "logging"),
        (Trainer, "floating_point_ops", "logging"),
        (Accelerator, "backward", "backward"),
        (trainer_callback.ProgressCallback, "on_step_end", "logging"),
        (trainer_callback.ProgressCallback, "on_log", "logging"),
        (torch.nn.Module, "zero_grad", "optimizer"),
        (data_loader, "send_to_device", "host-to-device copy"),
    ):
        clock.wrap(owner, name, phase)


def _wrap_accelerate(clock: PhaseClock) -> None:
    from accelerate import Accelerator, data_loader
    from accelerate.data_loader import DataLoaderShard
    from accelerate.optimizer import AcceleratedOptimizer
    from accelerate.scheduler import AcceleratedScheduler

    iterate = DataLoaderShard.__iter__

    def timed(loader: DataLoaderShard) -> Iterator[object]:
        """Make each batch in the phase of loading: a generator around the loader's own."""
        phase = "data wait" if loader.num_workers else "data load in process"
        batches = iterate(loader)
        while True:
            with clock.phase(phase):
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch

    DataLoaderShard.__iter__ = timed
    for owner, name, phase in (
        (Accelerator, "backward", "backward"),
        (Accelerator, "clip_grad_norm_", "optimizer"),
        (Accelerator, "print", "logging"),
        (AcceleratedOptimizer, "step", "optimizer"),
        (AcceleratedOptimizer, "zero_grad", "optimizer"),
        (AcceleratedScheduler, "step", "optimizer"),
        (data_loader, "send_to_device", "host-to-device copy"),
    ):
        clock.wrap(owner, name, phase)


def _wrap_lightning(clock: PhaseClock) -> None:
    from lightning import pytorch
    from lightning.pytorch.callbacks import (
        LearningRateMonitor,
        ModelCheckpoint,
        RichProgressBar,
        TQDMProgressBar,
    )
    from lightning.pytorch.loops import evaluation_loop
    from lightning.pytorch.loops.optimization.automatic import Closure
    from lightning.pytorch.strategies import Strategy
    from lightning.pytorch.trainer.connectors.logger_connector import _LoggerConnector

    # The optimizer's step stands around the closure, with the forward and the backward pass.
    clock.wrap(Closure, "closure", lambda *_: clock.apart())
    for owner, name, phase in (
        (evaluation_loop._EvaluationLoop, "run", "evaluation"),
        (pytorch.Trainer, "save_checkpoint", "checkpoint"),
        (Strategy, "training_step", "forward"),
        (Strategy, "backward", "backward"),
        (Strategy, "batch_to_device", "host-to-device copy"),
        (pytorch.LightningModule, "log", "logging"),
        (pytorch.LightningModule, "clip_gradients", "optimizer"),
        (_LoggerConnector, "on_batch_start", "logging"),
        (_LoggerConnector, "on_batch_end", "logging"),
        (_LoggerConnector, "update_train_step_metrics", "logging"),
        (_LoggerConnector, "update_train_epoch_metrics", "logging"),
    ):
        clock.wrap(owner, name, phase)
    bars = (RichProgressBar, TQDMProgressBar, LearningRateMonitor)
    for callback, phase in ((ModelCheckpoint, "checkpoint"), *((bar, "logging") for bar in bars)):
        for name in [name for name in vars(callback) if name.startswith("on_")]:
            clock.wrap(callback, name, phase)


def _wrap_metrics(clock: PhaseClock) -> None:
    """Time what is computed to be reported.

    A metric wraps its own methods when it is made, and so are these.
    """
    from torchmetrics import Metric

    clock.wrap(Metric, "forward", "logging")
    made = Metric.__init__

    def make(metric: Metric, *words: object, **options: object) -> None:
        made(metric, *words, **options)
        clock.wrap(metric, "update", "logging")
        clock.wrap(metric, "compute", "logging")

    Metric.__init__ = make


def _wrap_instruments(clock: PhaseClock) -> None:
    from torch.optim.swa_utils import AveragedModel
    from torch.profiler import profile
    from torch.utils.tensorboard import SummaryWriter
    from tqdm import tqdm

    for owner, name, phase in (
        (AveragedModel, "update_parameters", "optimizer"),
        (profile, "step", "logging"),
        (profile, "stop", "logging"),
        (SummaryWriter, "add_scalar", "logging"),
        (SummaryWriter, "add_histogram", "logging"),
        (SummaryWriter, "close", "logging"),
        (tqdm, "update", "logging"),
        (tqdm, "refresh", "logging"),
        (tqdm, "set_postfix", "logging"),
        (tqdm, "close", "logging"),
    ):
        clock.wrap(owner, name, phase)
