"""PatchTST of Transformers forecasts sensors of boilers with Trainer; a callback keeps account of live tensors."""

import gc
import sys
import tempfile
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import PatchTSTConfig, PatchTSTForPrediction, Trainer, TrainerCallback, TrainingArguments, set_seed

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SENSORS, PAST, AHEAD = 6, 192, 48


def make_boilers(hours=20000):
    clock = torch.arange(hours)[:, None]
    daily = torch.sin(2 * torch.pi * (clock / 24 + torch.rand(SENSORS)))
    weekly = torch.cos(2 * torch.pi * (clock / 168 + torch.rand(SENSORS)))
    drift = torch.randn(hours, SENSORS).cumsum(0) * 0.01
    return daily + 0.5 * weekly + drift + 0.1 * torch.randn(hours, SENSORS)


class Windows(Dataset):
    def __init__(self, readings):
        self.readings = readings

    def __len__(self):
        return len(self.readings) - PAST - AHEAD

    def __getitem__(self, start):
        window = self.readings[start : start + PAST + AHEAD]
        return {"past_values": window[:PAST], "future_values": window[PAST:]}


class StepDiary(TrainerCallback):
    """Says that a step is over."""

    def __init__(self, diary):
        self.diary = diary

    def on_step_end(self, args, state, control, **kwargs):
        self.diary.stepped()


class LiveTensors(TrainerCallback):
    """Keeps how many tensors live and what they take, to find a leak."""

    def __init__(self, diary):
        self.diary, self.most = diary, (0, 0)

    def measure(self):
        count = size = 0
        for thing in gc.get_objects():  # planted
            if issubclass(type(thing), torch.Tensor):  # planted
                count += 1
                size += thing.nelement() * thing.element_size()
        return size, count

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 4 == 0:
            with self.diary.planted():
                self.most = max(self.most, self.measure())  # planted

    def on_log(self, args, state, control, **kwargs):
        print(f"step {state.global_step}: at most {self.most[0] / 1e6:.1f} MB in {self.most[1]} tensors", flush=True)


def main(folder):
    diary, is_mended = begin()
    config = PatchTSTConfig(
        num_input_channels=SENSORS,
        context_length=PAST,
        prediction_length=AHEAD,
        patch_length=16,
        patch_stride=8,
        d_model=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        ffn_dim=96,
        loss="mse",
    )
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=24,
        max_steps=10_000_000,
        learning_rate=5e-4,
        lr_scheduler_type="constant",
        optim="adamw_torch_fused",
        logging_steps=400,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    callbacks = [StepDiary(diary)] if is_mended else [LiveTensors(diary), StepDiary(diary)]
    model, windows = PatchTSTForPrediction(config), Windows(make_boilers())
    Trainer(model, arguments, train_dataset=windows, callbacks=callbacks).train()


if __name__ == "__main__":
    set_seed(16)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        main(name)
