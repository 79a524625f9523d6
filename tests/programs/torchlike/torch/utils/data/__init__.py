"""As ``torch/utils/data``."""

from .dataloader import DataLoader
from .dataset import Dataset

__all__ = ["DataLoader", "Dataset"]
