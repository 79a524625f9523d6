"""A small OPT is tuned on sea shanties by a Trainer, with packed blocks and a schedule. Nothing is planted."""

import random
import sys
import tempfile
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import OPTConfig, OPTForCausalLM, Trainer, TrainerCallback, TrainingArguments, default_data_collator

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

BLOCK = 96
NOUNS = "sailor captain whale anchor barrel harbour lantern maiden mate rope tide wind".split()
VERBS = "haul sing drink row heave roll weigh".split()


def shanty(rng):
    """Write a verse with a refrain."""
    lines = []
    for _ in range(4):
        lines.append(f"{rng.choice(VERBS)} the {rng.choice(NOUNS)} and {rng.choice(VERBS)} away")
        lines.append(f"oh {rng.choice(VERBS)} my {rng.choice(NOUNS)} o")
    return "\n".join(lines) + "\n\n"


class Packed(Dataset):
    """All text as characters in one row, cut to blocks once."""

    def __init__(self, text):
        letters = sorted(set(text))
        self.vocabulary = len(letters) + 3
        number = {letter: index + 3 for index, letter in enumerate(letters)}
        ids = torch.tensor([number[letter] for letter in text])
        self.blocks = ids[: len(ids) // BLOCK * BLOCK].view(-1, BLOCK)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        return {"input_ids": self.blocks[index], "labels": self.blocks[index]}


class Steps(TrainerCallback):
    def __init__(self, diary):
        self.diary = diary

    def on_step_end(self, args, state, control, **kwargs):
        self.diary.stepped()


def main():
    diary, _ = begin()
    torch.set_num_threads(1)
    rng = random.Random(6)
    data = Packed("".join(shanty(rng) for _ in range(1500)))
    config = OPTConfig(
        vocab_size=data.vocabulary,
        hidden_size=128,
        ffn_dim=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=BLOCK,
        word_embed_proj_dim=128,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=12,
        learning_rate=5e-4,
        warmup_steps=100,
        weight_decay=0.05,
        lr_scheduler_type="cosine",
        max_steps=1_000_000,
        logging_steps=100,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(
        model=OPTForCausalLM(config),
        args=arguments,
        train_dataset=data,
        data_collator=default_data_collator,
        callbacks=[Steps(diary)],
    )
    trainer.train()


if __name__ == "__main__":
    main()
