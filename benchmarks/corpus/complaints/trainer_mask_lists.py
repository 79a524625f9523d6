"""A Trainer for a small causal model on packed documents, whose dataset gives each example its own attention mask.

After huggingface/transformers issue 32101, "Using Trainer + a pretrained tokenizer + 4D attention mask is extremely
slow", and the pull request 45852 that closed it. The default collator calls ``tokenizer.pad``, which sends the masks
of (1, length, length) through Python lists (``to_py_obj``) and builds them again with ``torch.tensor(nested list)``,
although it cannot even pad them. The fix keeps such masks out of the padding and stacks them with ``torch.stack``: on
a CPU the step went from 225.6 s to 114.6 s, the collator from 3.65 s to 12 ms a batch. No transformers here: its
parts are rewritten.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

LENGTH, VOCABULARY, WIDTH, HEADS, LAYERS = 320, 1024, 128, 4, 3


def to_py_obj(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()  # planted
    return [to_py_obj(one) for one in value] if isinstance(value, list | tuple) else value


class PackedDocuments(Dataset):
    def __init__(self, count, generator):
        self.documents = (torch.rand(count, LENGTH, generator=generator) < 1 / 60).cumsum(1)
        steps = torch.randint(1, 4, (count, LENGTH), generator=generator)
        self.tokens = (steps.cumsum(1) + 97 * self.documents) % (VOCABULARY - 1) + 1
        self.causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        of = self.documents[index]
        mask = (of[:, None] == of[None, :]) & self.causal
        return {"input_ids": self.tokens[index], "attention_mask": mask[None]}


class Tokenizer:
    pad_token_id = 0

    def __init__(self, diary, is_mended):
        self.diary, self.is_mended = diary, is_mended

    def pad(self, features):
        encoded = {key: [one[key] for one in features] for key in features[0]}
        masks = encoded.pop("attention_mask") if self.is_mended else None
        batch = {}
        for key, values in encoded.items():
            if key == "attention_mask":
                with self.diary.planted():
                    batch[key] = torch.tensor(to_py_obj(values))  # planted
            else:
                longest = max(map(len, values))
                rows = [row.tolist() + [self.pad_token_id] * (longest - len(row)) for row in values]
                batch[key] = torch.tensor(rows)
        return batch if masks is None else {**batch, "attention_mask": torch.stack(masks)}


class DataCollatorForCausalModel:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, features):
        batch = self.tokenizer.pad(features)  # planted
        batch["labels"] = batch["input_ids"].masked_fill(batch["input_ids"] == self.tokenizer.pad_token_id, -100)
        return batch


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, hidden, mask):
        rows, length, _ = hidden.shape
        split = self.qkv(self.before_attention(hidden)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        hidden = hidden + self.out(attended.transpose(1, 2).reshape(rows, length, WIDTH))
        return hidden + self.mlp(self.before_mlp(hidden))


class CausalModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, input_ids, attention_mask, labels):
        hidden = self.tokens(input_ids) + self.positions.weight[: input_ids.shape[1]]
        for block in self.blocks:
            hidden = block(hidden, attention_mask)
        logits = self.head(self.norm(hidden))[:, :-1]
        return functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)


class Trainer:
    def __init__(self, model, train_dataset, data_collator, diary, batch_size=8):
        self.model, self.diary = model, diary
        self.loader = DataLoader(train_dataset, batch_size, shuffle=True, drop_last=True, collate_fn=data_collator)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01)

    def train(self, epochs):
        step = 0
        self.model.train()
        for epoch in range(epochs):
            for inputs in self.loader:  # planted
                loss = self.model(**inputs)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
                step += 1
                self.diary.stepped()
                if step % 20 == 0:
                    print(f"epoch {epoch} step {step}: loss {loss.item():.3f}", flush=True)


def main():
    diary, is_mended = begin()
    tokenizer = Tokenizer(diary, is_mended)
    dataset = PackedDocuments(2000, torch.Generator().manual_seed(1))
    Trainer(CausalModel(), dataset, DataCollatorForCausalModel(tokenizer), diary).train(10**6)


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    main()
