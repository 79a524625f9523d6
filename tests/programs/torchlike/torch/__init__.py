"""A stand-in for torch, for Pythons that have none: the frames of a training step, and next to nothing behind them.

Its files, classes and functions have the paths and names of torch's own (2.15, ``site-packages/torch``), and call each
other in the same order, so that the stack of a step looks alike from outside:

- ``_tensor.py`` ``Tensor.backward``, ``autograd/__init__.py`` ``backward``, ``autograd/graph.py``
  ``_engine_run_backward``;
- ``nn/modules/module.py`` ``Module._wrapped_call_impl`` and ``_call_impl``, then the network's ``forward``;
- ``optim/optimizer.py`` ``profile_hook_step.<locals>.wrapper``, ``_use_grad_for_differentiable.<locals>._use_grad``,
  then ``optim/sgd.py`` ``SGD.step``, ``sgd`` and ``_single_tensor_sgd``;
- ``utils/data/dataloader.py`` ``DataLoader.__iter__``, ``_BaseDataLoaderIter.__next__`` which counts in
  ``_num_yielded``, ``_SingleProcessDataLoaderIter._next_data``, then ``utils/data/_utils/fetch.py``.

Left out are hooks, profiler records, workers, devices, and numbers: a tensor knows how long its backward pass takes.
``standin.py`` has what programs build a training from. It is pure Python, and runs from 3.8 on. Imports within it are
relative: where torch is installed, type checkers take ``import torch`` for that.
"""

from . import amp, autograd, nn, optim, utils
from ._tensor import Tensor
from .autograd.grad_mode import no_grad

__all__ = ["Tensor", "amp", "autograd", "nn", "no_grad", "optim", "utils"]
__version__ = "0.standin"
