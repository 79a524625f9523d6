"""The stacks of a small training run with a DataLoader: what its threads stand in, and for how long
a step.
"""

from __future__ import annotations

from collections.abc import Mapping

from profd.daemon.store.records import Frame, FrameDescription

LIBRARY = "/usr/lib/python3/site-packages/"
TRAIN = "/home/ada/cifar/train.py"
DATA = "/home/ada/cifar/augment.py"

SOURCES: dict[tuple[str, int], str] = {
    (TRAIN, 58): "for images, labels in loader:",
    (TRAIN, 60): "optimizer.zero_grad()",
    (TRAIN, 61): "logits = model(images)",
    (TRAIN, 62): "loss = criterion(logits, labels)",
    (TRAIN, 63): "loss.backward()",
    (TRAIN, 64): "optimizer.step()",
    (TRAIN, 65): "running_loss += loss.item()",
    (TRAIN, 77): "for value in values:",
    (TRAIN, 78): "total += value * value",
    (TRAIN, 80): "freed += gc.collect()",
    (TRAIN, 90): "train_epoch(model, loader, optimizer, criterion)",
    (TRAIN, 96): "main()",
    (LIBRARY + "pykeen/training/training_loop.py", 493): "gc.collect()",
    (DATA, 21): "image = self.load(path)",
    (DATA, 33): "return elastic_deform(image, self.alpha)",
}
"""The text of the user's lines."""
WITHOUT_GRADIENTS = {(TRAIN, 72), (TRAIN, 74)}
"""The lines in blocks that have gradients switched off."""


def _library(function: str, module_path: str, line: int) -> Frame:
    return Frame(function, LIBRARY + module_path, line)


_ROOT = (Frame("<module>", TRAIN, 96), Frame("main", TRAIN, 90))
_CALL = (
    _library("Module._wrapped_call_impl", "torch/nn/modules/module.py", 1773),
    _library("Module._call_impl", "torch/nn/modules/module.py", 1784),
)
_RESNET = (
    *_CALL,
    _library("ResNet.forward", "torchvision/models/resnet.py", 285),
    _library("ResNet._forward_impl", "torchvision/models/resnet.py", 273),
)


def _step(line: int, *frames: Frame) -> tuple[Frame, ...]:
    return (*_ROOT, Frame("train_epoch", TRAIN, line), *frames)


DATA_WAIT = _step(
    58,
    _library("_BaseDataLoaderIter.__next__", "torch/utils/data/dataloader.py", 732),
    _library("_MultiProcessingDataLoaderIter._next_data", "torch/utils/data/dataloader.py", 1488),
    _library("_MultiProcessingDataLoaderIter._get_data", "torch/utils/data/dataloader.py", 1440),
    _library(
        "_MultiProcessingDataLoaderIter._try_get_data", "torch/utils/data/dataloader.py", 1275
    ),
    Frame("Queue.get", "/usr/lib/python3.11/queue.py", 180),
    Frame("Condition.wait", "/usr/lib/python3.11/threading.py", 331),
)
CONV = _step(
    61,
    *_RESNET,
    *_CALL,
    _library("Conv2d.forward", "torch/nn/modules/conv.py", 548),
    _library("Conv2d._conv_forward", "torch/nn/modules/conv.py", 543),
)
BATCH_NORM = _step(
    61,
    *_RESNET,
    *_CALL,
    _library("_BatchNorm.forward", "torch/nn/modules/batchnorm.py", 193),
    _library("batch_norm", "torch/nn/functional.py", 2817),
)
LOSS = _step(
    62,
    *_CALL,
    _library("CrossEntropyLoss.forward", "torch/nn/modules/loss.py", 1385),
    _library("cross_entropy", "torch/nn/functional.py", 3458),
)
BACKWARD = _step(
    63,
    _library("Tensor.backward", "torch/_tensor.py", 630),
    _library("backward", "torch/autograd/__init__.py", 364),
    _library("_engine_run_backward", "torch/autograd/graph.py", 865),
)
OPTIMIZER = _step(
    64,
    _library("Optimizer.profile_hook_step.<locals>.wrapper", "torch/optim/optimizer.py", 517),
    _library("_use_grad_for_differentiable.<locals>._use_grad", "torch/optim/optimizer.py", 82),
    _library("Adam.step", "torch/optim/adam.py", 247),
    _library("_single_tensor_adam", "torch/optim/adam.py", 476),
)
ZERO_GRAD = _step(60, _library("Optimizer.zero_grad", "torch/optim/optimizer.py", 989))
SYNCHRONIZE = _step(65)

STEP: tuple[tuple[tuple[Frame, ...], int], ...] = (
    (DATA_WAIT, 200),
    (ZERO_GRAD, 10),
    (CONV, 70),
    (BATCH_NORM, 30),
    (LOSS, 30),
    (BACKWARD, 100),
    (OPTIMIZER, 40),
    (SYNCHRONIZE, 20),
)
"""What the main thread does in each step: (stack, milliseconds)."""
PHASE_SHARES = {
    "data wait": 0.40,
    "forward": 0.20,
    "backward": 0.20,
    "optimizer": 0.10,
    "loss": 0.06,
    "synchronize": 0.04,
}

PIN_MEMORY = (
    Frame("Thread._bootstrap", "/usr/lib/python3.11/threading.py", 995),
    Frame("Thread._bootstrap_inner", "/usr/lib/python3.11/threading.py", 1038),
    Frame("Thread.run", "/usr/lib/python3.11/threading.py", 975),
    _library("_pin_memory_loop", "torch/utils/data/_utils/pin_memory.py", 52),
    _library("_pin_memory_loop.<locals>.do_one_step", "torch/utils/data/_utils/pin_memory.py", 27),
    Frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 103),
    Frame("_ConnectionBase.recv_bytes", "/usr/lib/python3.11/multiprocessing/connection.py", 216),
)
_WORKER = (
    *_ROOT,
    Frame("train_epoch", TRAIN, 58),
    _library("DataLoader.__iter__", "torch/utils/data/dataloader.py", 500),
    _library("_MultiProcessingDataLoaderIter.__init__", "torch/utils/data/dataloader.py", 1160),
    Frame("BaseProcess.start", "/usr/lib/python3.11/multiprocessing/process.py", 121),
    Frame("Popen._launch", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 71),
    Frame("BaseProcess._bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314),
    _library("_worker_loop", "torch/utils/data/_utils/worker.py", 349),
    _library("_MapDatasetFetcher.fetch", "torch/utils/data/_utils/fetch.py", 52),
)
DEFORM = (*_WORKER, Frame("Photos.__getitem__", DATA, 33), Frame("elastic_deform", DATA, 12))
LOAD = (
    *_WORKER,
    Frame("Photos.__getitem__", DATA, 21),
    _library("ImageFile.load", "PIL/ImageFile.py", 293),
)
WORKER_STEP: tuple[tuple[tuple[Frame, ...], int], ...] = ((LOAD, 100), (DEFORM, 400))
"""What a DataLoader worker does in half a second."""


def describe(frame: Frame, texts: Mapping[tuple[str, int], str] = SOURCES) -> FrameDescription:
    """Tell the synthetic user's files from the synthetic installation's."""
    is_library = not frame.file.startswith("/home/")
    module_path = frame.file.removeprefix(LIBRARY).removeprefix("/usr/lib/python3.11/")
    return FrameDescription(
        module_path=module_path.rsplit("/", 1)[-1] if not is_library else module_path,
        is_library=is_library,
        source=texts.get((frame.file, frame.line)),
        is_without_gradients=(frame.file, frame.line) in WITHOUT_GRADIENTS,
    )
