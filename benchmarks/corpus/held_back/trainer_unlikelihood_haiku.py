"""A small GPT-2 on haiku with a Trainer of our own loss: tokens that came before are pushed down, place by place."""

import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

VOCABULARY, LENGTH = 400, 64


class Haiku(Dataset):
    """Lines of made-up syllables, where each leans on the one before."""

    def __init__(self, count=3000):
        generator = torch.Generator().manual_seed(5)
        jumps = torch.randint(1, 40, (count, LENGTH), generator=generator)
        self.ids = (jumps.cumsum(1) + torch.randint(VOCABULARY, (count, 1), generator=generator)) % VOCABULARY

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def candidates_by_position(ids):
    """Mark at each position which tokens stand before it."""
    mask = torch.zeros(*ids.shape, VOCABULARY)
    for row, tokens in enumerate(ids.tolist()):
        for position in range(1, len(tokens)):
            earlier = set(tokens[:position]) - {tokens[position]}
            mask[row, position, list(earlier)] = 1.0  # planted
    return mask


def candidates_at_once(ids):
    seen = torch.zeros(*ids.shape, VOCABULARY)
    seen[:, 1:].scatter_(2, ids[:, :-1].unsqueeze(2), 1.0)
    mask = seen.cummax(1).values
    return mask.scatter_(2, ids.unsqueeze(2), 0.0)


class UnlikelihoodTrainer(Trainer):
    def __init__(self, *args, diary, is_mended, alpha=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.diary, self.is_mended, self.alpha = diary, is_mended, alpha

    def compute_loss(self, model, inputs, return_outputs=False, **_):
        outputs = model(input_ids=inputs["input_ids"])
        logits, targets = outputs.logits[:, :-1], inputs["labels"][:, 1:]
        log_p = F.log_softmax(logits, -1)
        likelihood = F.nll_loss(log_p.reshape(-1, VOCABULARY), targets.reshape(-1))
        if self.is_mended:
            mask = candidates_at_once(targets)
        else:
            with self.diary.planted():
                mask = candidates_by_position(targets)  # planted
        unlikely = -(torch.log1p(-log_p.exp().clamp(max=1 - 1e-5)) * mask).sum(-1).mean()
        loss = likelihood + self.alpha * unlikely
        return (loss, outputs) if return_outputs else loss


class Steps(TrainerCallback):
    def __init__(self, diary):
        self.diary = diary

    def on_step_end(self, args, state, control, **kwargs):
        self.diary.stepped()


def main():
    diary, is_mended = begin()
    torch.set_num_threads(1)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=96, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=16,
        learning_rate=3e-4,
        max_steps=1_000_000,
        logging_steps=100,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = UnlikelihoodTrainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=Haiku(),
        callbacks=[Steps(diary)],
        diary=diary,
        is_mended=is_mended,
    )
    trainer.train()


if __name__ == "__main__":
    main()
