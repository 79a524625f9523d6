"""Direct preference optimization of a small language model, with a trainer in the manner of TRL.

After huggingface/trl pull request 885, "[DPO] use ref model logprobs if it exists in the data". The reference model
never changes, and yet the trainer runs it over each batch of each epoch beside the policy. The fix is the flag
``precompute_ref_log_probs``: its log probabilities are computed once, when the loader is made, and kept as columns of
the dataset. The thread names no figure; hamishivi/EasyLM pull request 4 says of the same change that it "saves lots
of time during training since we don't repeat the forward pass every epoch". No trl here: the trainer is rewritten
after it.
"""

import copy
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

VOCABULARY, PROMPT, ANSWER, WIDTH = 1024, 24, 48, 128


@dataclass
class DPOConfig:
    beta: float = 0.1
    learning_rate: float = 5e-5
    batch_size: int = 8
    precompute_ref_log_probs: bool = False  # planted
    logging_steps: int = 25


class PreferenceDataset(Dataset):
    """Prompts with an answer that was chosen (it counts upwards) and one that was rejected."""

    def __init__(self, count, generator):
        prompts = torch.randint(0, VOCABULARY, (count, PROMPT), generator=generator)
        steps = torch.randint(1, 3, (count, ANSWER), generator=generator)
        chosen = (prompts[:, -1:] + steps.cumsum(1)) % VOCABULARY
        rejected = torch.randint(0, VOCABULARY, (count, ANSWER), generator=generator)
        self.columns = {"chosen": torch.cat([prompts, chosen], 1), "rejected": torch.cat([prompts, rejected], 1)}

    def add_column(self, name, values):
        self.columns[name] = values

    def __len__(self):
        return len(self.columns["chosen"])

    def __getitem__(self, index):
        return {name: column[index] for name, column in self.columns.items()}


class LanguageModel(nn.Module):
    def __init__(self, layers=3, heads=4):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(PROMPT + ANSWER, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, heads, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, input_ids):
        length = input_ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.tokens(input_ids) + self.positions.weight[:length]
        return self.head(self.layers(hidden, mask, is_causal=True))


class DPOTrainer:
    def __init__(self, model, args, train_dataset, diary):
        self.model, self.args, self.train_dataset, self.diary = model, args, train_dataset, diary
        self.ref_model = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)

    def concatenated_forward(self, model, batch):
        """Return the log probabilities of the chosen and of the rejected answers, from one forward pass."""
        input_ids = torch.cat([batch["chosen"], batch["rejected"]])
        logits = model(input_ids)[:, PROMPT - 1 : -1]
        labels = input_ids[:, PROMPT:].unsqueeze(2)
        log_probs = logits.gather(2, labels).squeeze(2) - logits.logsumexp(2)
        return log_probs.sum(1).chunk(2)

    def compute_ref_log_probs(self, batch):
        with torch.no_grad():
            return self.concatenated_forward(self.ref_model, batch)  # planted

    def get_train_dataloader(self):
        if self.args.precompute_ref_log_probs:
            in_order = DataLoader(self.train_dataset, self.args.batch_size)
            columns = zip(*(self.compute_ref_log_probs(batch) for batch in in_order), strict=True)
            for name, column in zip(("ref_chosen_logps", "ref_rejected_logps"), columns, strict=True):
                self.train_dataset.add_column(name, torch.cat(column))
        return DataLoader(self.train_dataset, self.args.batch_size, shuffle=True, drop_last=True)

    def get_batch_loss_metrics(self, batch):
        chosen, rejected = self.concatenated_forward(self.model, batch)
        if "ref_chosen_logps" in batch:
            ref_chosen, ref_rejected = batch["ref_chosen_logps"], batch["ref_rejected_logps"]
        else:
            with self.diary.planted():
                ref_chosen, ref_rejected = self.compute_ref_log_probs(batch)  # planted
        chosen_rewards = self.args.beta * (chosen - ref_chosen)
        rejected_rewards = self.args.beta * (rejected - ref_rejected)
        margins = chosen_rewards - rejected_rewards
        return -functional.logsigmoid(margins).mean(), {"margin": margins.detach().mean()}

    def train(self, epochs):
        step = 0
        loader = self.get_train_dataloader()
        for epoch in range(epochs):
            for batch in loader:
                loss, metrics = self.get_batch_loss_metrics(batch)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
                step += 1
                self.diary.stepped()
                if step % self.args.logging_steps == 0:
                    print(
                        f"epoch {epoch} step {step}: loss {loss.item():.3f} margin {metrics['margin'].item():.2f}",
                        flush=True,
                    )


def main():
    diary, is_mended = begin()
    dataset = PreferenceDataset(320, torch.Generator().manual_seed(3))
    args = DPOConfig()
    if is_mended:
        args.precompute_ref_log_probs = True
    DPOTrainer(LanguageModel(), args, dataset, diary).train(10**6)


if __name__ == "__main__":
    torch.manual_seed(7)
    torch.set_num_threads(1)
    main()
