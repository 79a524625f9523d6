"""As ``torch/nn``."""

from . import functional, utils
from .modules.loss import CrossEntropyLoss
from .modules.module import Module
from .parameter import Parameter

__all__ = ["CrossEntropyLoss", "Module", "Parameter", "functional", "utils"]
