"""As ``torch/utils/data/_utils``."""
