"""A small ViT that tells land use on satellite tiles, with the Trainer and mixup in a worker. Nothing is planted."""

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils.data import Dataset, Subset
from transformers import Trainer, TrainerCallback, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE, BANDS, TILES, HELD_OUT = 48, 4, 1_600, 160
LAND_USES = ["forest", "crops", "meadow", "town", "water", "quarry", "orchard", "road"]


class SatelliteTiles(Dataset):
    """Tiles of four bands: each land use has its spectrum, and furrows of its own width and direction."""

    def __init__(self, rng):
        spectra = rng.uniform(40, 200, (len(LAND_USES), BANDS))
        self.labels = rng.integers(0, len(LAND_USES), TILES)
        across, down = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
        angles = np.linspace(0, np.pi, len(LAND_USES), endpoint=False)[self.labels] + rng.normal(0, 0.1, TILES)
        waves = np.linspace(0.3, 1.2, len(LAND_USES))[self.labels]
        turned = np.cos(angles)[:, None, None] * across + np.sin(angles)[:, None, None] * down
        furrows = 25 * np.sin(waves[:, None, None] * turned)[:, None]
        noise = rng.normal(0, 35, (TILES, BANDS, SIDE, SIDE))
        self.tiles = (spectra[self.labels][:, :, None, None] + furrows + noise).clip(0, 255).astype(np.uint8)

    def __len__(self):
        return TILES

    def __getitem__(self, index):
        return {"tile": self.tiles[index], "label": self.labels[index]}


class MixupCollator:
    """Stacks tiles, turns the batch as a whole, and mixes it with itself in another order."""

    def __init__(self, alpha=0.2):
        self.mixing = torch.distributions.Beta(alpha, alpha)

    def __call__(self, items):
        tiles = torch.from_numpy(np.stack([item["tile"] for item in items])).float().div_(127.5).sub_(1)
        labels = F.one_hot(torch.tensor([item["label"] for item in items]), len(LAND_USES)).float()
        tiles = tiles.rot90(int(torch.randint(4, ())), (2, 3))
        share, order = self.mixing.sample(), torch.randperm(len(items))
        return {
            "pixel_values": torch.lerp(tiles[order], tiles, share),
            "labels": torch.lerp(labels[order], labels, share),
        }


class SoftLabelTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(pixel_values=inputs["pixel_values"])
        loss = F.cross_entropy(outputs.logits, inputs["labels"], label_smoothing=0.1)
        return (loss, outputs) if return_outputs else loss


class DiaryCallback(TrainerCallback):
    def __init__(self, diary):
        self.diary = diary

    def on_step_end(self, args, state, control, **kwargs):
        self.diary.stepped()


class PrintCallback(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        print(f"step {state.global_step}: {logs}", flush=True)


def compute_metrics(prediction):
    """Mixed tiles count for the land use that is the larger part of them."""
    return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids.argmax(1)).mean())}


def main():
    diary, _ = begin()
    warnings.filterwarnings("ignore", ".*pin_memory.*")
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    set_seed(17)
    config = ViTConfig(
        hidden_size=96, num_hidden_layers=4, num_attention_heads=4, intermediate_size=256, image_size=SIDE,
        patch_size=8, num_channels=BANDS, num_labels=len(LAND_USES), hidden_dropout_prob=0.1,
    )  # fmt: skip
    tiles = SatelliteTiles(np.random.default_rng(17))
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=24,
        per_device_eval_batch_size=40,
        max_steps=1_000_000,
        learning_rate=1e-3,
        weight_decay=0.05,
        warmup_steps=200,
        lr_scheduler_type="constant_with_warmup",
        logging_steps=100,
        eval_strategy="steps",
        eval_steps=500,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_num_workers=1,
        dataloader_persistent_workers=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    trainer = SoftLabelTrainer(
        model=ViTForImageClassification(config),
        args=arguments,
        data_collator=MixupCollator(),
        train_dataset=Subset(tiles, range(TILES - HELD_OUT)),
        eval_dataset=Subset(tiles, range(TILES - HELD_OUT, TILES)),
        compute_metrics=compute_metrics,
        callbacks=[DiaryCallback(diary), PrintCallback()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
