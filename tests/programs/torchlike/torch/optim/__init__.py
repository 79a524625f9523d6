"""As ``torch/optim``."""

from . import lr_scheduler
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["SGD", "Optimizer", "lr_scheduler"]
