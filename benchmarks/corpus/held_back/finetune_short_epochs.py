"""Fine-tuning on a folder of few pictures: the loader starts its workers anew for each epoch of a few steps."""

import io
import sys
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import models, transforms

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CONFIG = {
    "data": {"images_per_class": 6, "classes": 8, "image_size": 64, "batch_size": 8, "num_workers": 2},
    "optimizer": {"lr": 1e-3, "momentum": 0.9, "weight_decay": 1e-4},
    "scheduler": {"step_size": 200, "gamma": 0.5},
}


class FewImages(Dataset):
    """Pictures as JPEG files have them, held in memory."""

    def __init__(self, classes, images_per_class, image_size):
        self.samples = []
        for label in range(classes):
            base = torch.randint(0, 255, (6, 6, 3), dtype=torch.uint8).numpy()
            for _ in range(images_per_class):
                buffer = io.BytesIO()
                Image.fromarray(base).resize((80, 80), Image.BICUBIC).save(buffer, "JPEG", quality=90)
                self.samples.append((buffer.getvalue(), label))
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(image_size, scale=(0.6, 1.0)),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        encoded, label = self.samples[index]
        return self.transform(Image.open(io.BytesIO(encoded)).convert("RGB")), label


class DataModule:
    def __init__(self, config, diary, is_mended):
        self.diary = diary
        dataset = FewImages(config["classes"], config["images_per_class"], config["image_size"])
        self.loader = DataLoader(
            dataset,
            config["batch_size"],
            shuffle=True,
            num_workers=config["num_workers"],
            persistent_workers=is_mended,
        )

    def epoch(self):
        with self.diary.planted():
            batches = iter(self.loader)  # planted
            first = next(batches)  # which waits for workers that have just been started
        yield first
        for _ in range(len(self.loader) - 1):
            yield next(batches)
        with self.diary.planted():
            next(batches, None)  # planted


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.total, self.count = torch.zeros(()), 0

    def update(self, value):
        self.total += value.detach()
        self.count += 1

    @property
    def average(self):
        return self.total.item() / max(self.count, 1)


class Finetuner:
    def __init__(self, config, diary, is_mended):
        self.diary, self.data = diary, DataModule(config["data"], diary, is_mended)
        self.model = models.squeezenet1_1(num_classes=config["data"]["classes"])
        self.freeze(self.model.features[:6])
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.SGD(parameters, **config["optimizer"])
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, **config["scheduler"])
        self.criterion, self.losses, self.top1 = nn.CrossEntropyLoss(label_smoothing=0.1), Meter(), Meter()

    @staticmethod
    def freeze(module):
        for parameter in module.parameters():
            parameter.requires_grad_(False)

    def train_one_epoch(self, epoch):
        self.model.train()
        for meter in (self.losses, self.top1):
            meter.reset()
        for images, labels in self.data.epoch():  # planted
            logits = self.model(images)
            loss = self.criterion(logits, labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.update(loss)
            self.top1.update((logits.argmax(1) == labels).float().mean())
            self.diary.stepped()
        self.scheduler.step()
        if epoch % 10 == 0:
            print(f"[{epoch}] loss={self.losses.average:.3f} top1={self.top1.average:.2f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(42)
    torch.set_num_threads(1)
    finetuner = Finetuner(CONFIG, *begin())
    for number in range(10**7):
        finetuner.train_one_epoch(number)
