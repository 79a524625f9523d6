"""Extraction of features of image patches for a memory bank; the features are written as text with six digits each."""

import os
import sys
import tempfile
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models.feature_extraction import create_feature_extractor
from torchvision.models.resnet import BasicBlock, ResNet

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class TextBank:
    """A row of text for each patch."""

    suffix = ".csv"

    def __init__(self, folder, shard):
        self.file = (folder / f"shard{shard:02d}{self.suffix}").open("wb")
        self.rows = 0

    def append(self, features):
        for row in features.tolist():
            line = ",".join(f"{value:.6f}" for value in row)  # planted
            self.file.write(line.encode() + b"\n")
        self.rows += len(features)

    def close(self):
        self.file.close()
        print(f"{self.file.name}: {self.rows} rows", flush=True)


class BinaryBank(TextBank):
    """The floats as they are."""

    suffix = ".f32"

    def append(self, features):
        self.file.write(memoryview(features.numpy()).cast("B"))
        self.rows += len(features)


class PatchExtractor(torch.nn.Module):
    """Two middle layers of a residual network, pooled to a few patches and put beside one another."""

    def __init__(self, grid=3):
        super().__init__()
        network = ResNet(BasicBlock, [1, 1, 1, 1])
        self.trunk = create_feature_extractor(network.eval(), {"layer2": "fine", "layer3": "coarse"})
        self.pool = torch.nn.AdaptiveAvgPool2d(grid)

    @torch.inference_mode()
    def forward(self, images):
        maps = self.trunk(images)
        both = torch.cat([self.pool(maps["fine"]), self.pool(maps["coarse"])], 1)
        return both.flatten(2).transpose(1, 2).reshape(-1, both.shape[1]).contiguous()


def made_up_parts(count, size=80):
    base = torch.rand(1, 3, size, size)
    return TensorDataset(base + 0.2 * torch.randn(count, 3, size, size))


def main():
    diary, is_mended = begin()
    torch.set_num_threads(1)
    torch.manual_seed(12)
    extractor = PatchExtractor()
    loader = DataLoader(made_up_parts(384), batch_size=16)
    bank_type = BinaryBank if is_mended else TextBank
    with tempfile.TemporaryDirectory() as folder:
        shard = 0
        while True:
            bank = bank_type(Path(folder), shard % 4)
            for (images,) in loader:
                features = extractor(images)
                with diary.planted():
                    bank.append(features)  # planted
                diary.stepped()
            bank.close()
            shard += 1


if __name__ == "__main__":
    main()
