"""Minutes of meetings summarized by a small BART, in the style of the no-Trainer examples of Transformers."""

import gc
import random
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader
from transformers import BartConfig, BartForConditionalGeneration, get_scheduler

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

MEETINGS, VOCABULARY, PAD, BOS, EOS = 1200, 2000, 1, 0, 2
ACCUMULATION = 2


def make_meetings():
    """Return dictionaries as a tokenizer returns them: the talk, and its summary as labels."""
    draw = random.Random(21)
    meetings = []
    for _ in range(MEETINGS):
        talk = [draw.randrange(4, VOCABULARY) for _ in range(draw.randint(48, 72))]
        meetings.append({"input_ids": [BOS, *talk, EOS], "labels": [BOS, *talk[::5], EOS]})
    return meetings


class Seq2SeqCollator:
    """Pad talks and labels to the longest of the batch."""

    def pad(self, rows, value):
        width = max(map(len, rows))
        return torch.tensor([row + [value] * (width - len(row)) for row in rows])

    def __call__(self, features):
        input_ids = self.pad([feature["input_ids"] for feature in features], PAD)
        labels = self.pad([feature["labels"] for feature in features], -100)
        return {"input_ids": input_ids, "attention_mask": (input_ids != PAD).long(), "labels": labels}


def free_memory():
    """Give back what the update does not need any more."""
    gc.collect()  # planted
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class RunningLoss:
    def __init__(self):
        self.total, self.count = torch.zeros(()), 0

    def update(self, loss):
        self.total += loss.detach()
        self.count += 1

    def reset(self):
        mean = (self.total / max(1, self.count)).item()
        self.__init__()
        return mean


def make_model():
    config = BartConfig(
        vocab_size=VOCABULARY, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=384, decoder_ffn_dim=384, max_position_embeddings=128, dropout=0.1,
    )  # fmt: skip
    return BartForConditionalGeneration(config)


def group_parameters(model, decay=0.01):
    """Weights decay, biases and norms do not."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    return [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]


def main():
    diary, is_mended = begin()
    torch.manual_seed(21)
    torch.set_num_threads(1)
    loader = DataLoader(make_meetings(), batch_size=14, shuffle=True, collate_fn=Seq2SeqCollator(), drop_last=True)
    model = make_model()
    optimizer = torch.optim.AdamW(group_parameters(model), lr=3e-4)
    scheduler = get_scheduler("linear", optimizer, num_warmup_steps=100, num_training_steps=50_000)
    running, completed, epoch = RunningLoss(), 0, 0
    while True:
        model.train()
        for step, batch in enumerate(loader, start=1):
            loss = model(**batch).loss
            running.update(loss)
            (loss / ACCUMULATION).backward()
            if step % ACCUMULATION == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                completed += 1
                if not is_mended:
                    with diary.planted():
                        free_memory()  # planted
            if step % 100 == 0:
                rate = scheduler.get_last_lr()[0]
                print(f"epoch {epoch} update {completed} loss {running.reset():.4f} lr {rate:.2e}", flush=True)
            diary.stepped()
        epoch += 1


if __name__ == "__main__":
    main()
