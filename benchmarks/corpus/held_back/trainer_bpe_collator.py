"""Classification of texts with the Trainer of Transformers; the collator splits texts into byte pairs, in Python."""

import random
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

PAD, CLS, OFFSET = 0, 1, 2


class BytePairTokenizer:
    """Merges the most frequent pair of bytes again and again."""

    def __init__(self, max_length=48):
        self.merges, self.max_length = {}, max_length

    @staticmethod
    def merge(ids, pair, new):
        out, k = [], 0
        while k < len(ids):
            if k + 1 < len(ids) and (ids[k], ids[k + 1]) == pair:
                out.append(new)
                k += 2
            else:
                out.append(ids[k])
                k += 1
        return out

    def train(self, text, vocab_size):
        ids = list(text.encode())
        for new in range(256, vocab_size):
            pair, _ = Counter(pairwise(ids)).most_common(1)[0]
            ids = self.merge(ids, pair, new)
            self.merges[pair] = new

    def encode(self, text):
        ids = list(text.encode())
        while len(ids) > 1:
            pair = min(pairwise(ids), key=lambda p: self.merges.get(p, 10**9))  # planted
            if pair not in self.merges:
                break
            ids = self.merge(ids, pair, self.merges[pair])  # planted
        return [CLS, *(OFFSET + i for i in ids)][: self.max_length]


class Reviews(Dataset):
    def __init__(self, texts, labels, encoded=None):
        self.texts, self.labels, self.encoded = texts, labels, encoded

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        ids = self.encoded[index] if self.encoded else None
        return {"text": self.texts[index], "input_ids": ids, "labels": self.labels[index]}


class CollatorWithTokenizer:
    def __init__(self, tokenizer, diary):
        self.tokenizer, self.diary = tokenizer, diary

    def __call__(self, features):
        rows = [feature["input_ids"] for feature in features]
        if rows[0] is None:
            with self.diary.planted():
                rows = [self.tokenizer.encode(feature["text"]) for feature in features]  # planted
        longest = max(map(len, rows))
        input_ids = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
        labels = torch.tensor([feature["labels"] for feature in features])
        return {"input_ids": input_ids, "attention_mask": (input_ids != PAD).long(), "labels": labels}


class DiaryCallback(TrainerCallback):
    def __init__(self, diary):
        self.diary = diary

    def on_step_end(self, args, state, control, **kwargs):
        self.diary.stepped()


def make_reviews(rng, count):
    good = ["great", "lovely", "bright", "warm", "clever", "touching"]
    bad = ["dull", "weak", "tired", "cold", "messy", "boring"]
    plain = "the film was and a with actors story music scenes of this in long evening many people said about".split()
    texts, labels = [], []
    for _ in range(count):
        label = rng.randint(0, 1)
        words = [rng.choice((bad, good)[label] if rng.random() < 0.25 else plain) for _ in range(rng.randint(14, 24))]
        texts.append(" ".join(words))
        labels.append(label)
    return texts, labels


def main(diary, is_mended):
    rng = random.Random(5)
    texts, labels = make_reviews(rng, 600)
    tokenizer = BytePairTokenizer()
    tokenizer.train(" ".join(texts[:60]), vocab_size=400)
    encoded = [tokenizer.encode(text) for text in texts] if is_mended else None
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=402,
            hidden_size=128,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=512,
            max_position_embeddings=64,
        )
    )
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=16,
        learning_rate=3e-4,
        num_train_epochs=10**5,
        logging_steps=100,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        use_cpu=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Reviews(texts, labels, encoded),
        data_collator=CollatorWithTokenizer(tokenizer, diary),
        callbacks=[DiaryCallback(diary)],
    )
    trainer.train()


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    main(*begin())
