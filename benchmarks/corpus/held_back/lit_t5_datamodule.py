"""A small T5 learns to sum with words, in Lightning: a data module has its texts tokenized once, in `setup`.

Nothing is planted: what is left for a batch is to pad it.
"""

import logging
import random
import sys
import warnings
from pathlib import Path

import lightning as L
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import T5Config, T5ForConditionalGeneration

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
ONES += "seventeen eighteen nineteen".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
SIGNS = ["plus", "minus", "calculate", ":", "hundred", "and"]
PAD, EOS = 0, 1


def in_words(number):
    if number < 0:
        return f"minus {in_words(-number)}"
    if number < 20:
        return ONES[number]
    if number < 100:
        return TENS[number // 10 - 2] + (f" {ONES[number % 10]}" if number % 10 else "")
    rest = number % 100
    return f"{ONES[number // 100]} hundred" + (f" and {in_words(rest)}" if rest else "")


def make_tokenizer():
    words = ["<pad>", "</s>", "<unk>", *ONES, *TENS, *SIGNS]
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


class SumsDataModule(L.LightningDataModule):
    def __init__(self, batch_size=16, sizes=(4000, 64)):
        super().__init__()
        self.batch_size, self.sizes = batch_size, sizes
        self.tokenizer = make_tokenizer()

    def prepare_data(self):
        """There's nothing to download: the examples are made in `setup`."""

    def setup(self, stage=None):
        rng = random.Random(0)
        self.splits = []
        for size in self.sizes:
            examples = []
            for _ in range(size):
                a, b, sign = rng.randrange(500), rng.randrange(500), rng.choice((1, -1))
                words = f"calculate : {in_words(a)} {'plus' if sign > 0 else 'minus'} {in_words(b)}"
                examples.append((words, in_words(a + sign * b)))
            self.splits.append(self.tokenize(examples))

    def tokenize(self, examples):
        sources, targets = zip(*examples, strict=True)
        encoded = [self.tokenizer.encode_batch(list(texts)) for texts in (sources, targets)]
        rows = zip(*encoded, strict=True)
        return [tuple(torch.tensor([*one.ids, EOS]) for one in row) for row in rows]

    @staticmethod
    def collate(rows):
        sources, targets = zip(*rows, strict=True)
        input_ids = pad_sequence(sources, batch_first=True, padding_value=PAD)
        labels = pad_sequence(targets, batch_first=True, padding_value=-100)
        return {"input_ids": input_ids, "attention_mask": (input_ids != PAD).long(), "labels": labels}

    def train_dataloader(self):
        return DataLoader(self.splits[0], self.batch_size, shuffle=True, drop_last=True, collate_fn=self.collate)

    def val_dataloader(self):
        return DataLoader(self.splits[1], self.batch_size, collate_fn=self.collate)


class LitT5(L.LightningModule):
    def __init__(self, vocabulary, learning_rate=1e-3):
        super().__init__()
        config = T5Config(
            vocab_size=vocabulary,
            d_model=96,
            d_kv=24,
            d_ff=256,
            num_layers=2,
            num_decoder_layers=2,
            num_heads=4,
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=PAD,
        )
        self.model, self.learning_rate = T5ForConditionalGeneration(config), learning_rate

    def training_step(self, batch, batch_idx):
        return self.model(**batch).loss

    def validation_step(self, batch, batch_idx):
        output = self.model(**batch)
        known = batch["labels"] != -100
        right = (output.logits.argmax(-1) == batch["labels"])[known].float().mean()
        self.log_dict({"val_loss": output.loss, "val_accuracy": right}, on_epoch=True, batch_size=len(known))

    def on_validation_epoch_end(self):
        metrics = self.trainer.callback_metrics
        print({key: round(value.item(), 4) for key, value in metrics.items()}, flush=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.learning_rate, weight_decay=0.01)
        warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 200))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": warm, "interval": "step"}}


class DiaryCallback(L.Callback):
    def __init__(self, diary):
        self.diary = diary

    def on_train_batch_end(self, *_):
        self.diary.stepped()


def main(diary, _):
    data = SumsDataModule()
    model = LitT5(data.tokenizer.get_vocab_size())
    trainer = L.Trainer(
        max_epochs=-1,
        accelerator="cpu",
        gradient_clip_val=1.0,
        callbacks=[DiaryCallback(diary)],
        check_val_every_n_epoch=4,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=data)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    L.seed_everything(0, verbose=False)
    main(*begin())
