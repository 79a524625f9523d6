"""A character model of sermons with a memory of the segment before, after Transformer-XL. Nothing is planted."""

import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class RelativeAttention(nn.Module):
    """Attention over the memory and the segment, with a learned bias a head for each distance."""

    def __init__(self, d_model, n_head, tgt_len, mem_len):
        super().__init__()
        self.n_head, self.d_head = n_head, d_model // n_head
        self.q_net = nn.Linear(d_model, d_model, bias=False)
        self.kv_net = nn.Linear(d_model, 2 * d_model, bias=False)
        self.o_net = nn.Linear(d_model, d_model, bias=False)
        self.layer_norm = nn.LayerNorm(d_model)
        self.distance_bias = nn.Parameter(torch.zeros(n_head, tgt_len + mem_len))
        distances = torch.arange(tgt_len)[:, None] + mem_len - torch.arange(tgt_len + mem_len)[None]
        hidden = torch.zeros(tgt_len, tgt_len + mem_len).masked_fill(distances < 0, float("-inf"))
        self.register_buffer("distances", distances.clamp(min=0), persistent=False)
        self.register_buffer("hidden", hidden, persistent=False)

    def _heads(self, x):
        return x.unflatten(-1, (self.n_head, self.d_head)).transpose(1, 2)

    def forward(self, w, mem):
        keys, values = self.kv_net(torch.cat([mem, w], dim=1)).chunk(2, dim=-1)
        bias = self.distance_bias[:, self.distances] + self.hidden
        attended = F.scaled_dot_product_attention(
            self._heads(self.q_net(w)), self._heads(keys), self._heads(values), attn_mask=bias
        )
        return self.layer_norm(w + self.o_net(attended.transpose(1, 2).flatten(2)))


class PositionwiseFF(nn.Module):
    def __init__(self, d_model, d_inner, dropout):
        super().__init__()
        self.core = nn.Sequential(
            nn.Linear(d_model, d_inner), nn.ReLU(), nn.Linear(d_inner, d_model), nn.Dropout(dropout)
        )
        self.layer_norm = nn.LayerNorm(d_model)

    def forward(self, x):
        return self.layer_norm(x + self.core(x))


class MemTransformerLM(nn.Module):
    def __init__(self, n_token, n_layer=3, n_head=4, d_model=96, d_inner=288, tgt_len=48, mem_len=48):
        super().__init__()
        self.mem_len = mem_len
        self.word_emb = nn.Embedding(n_token, d_model)
        self.attentions = nn.ModuleList([RelativeAttention(d_model, n_head, tgt_len, mem_len) for _ in range(n_layer)])
        self.feeds = nn.ModuleList([PositionwiseFF(d_model, d_inner, 0.1) for _ in range(n_layer)])
        self.out = nn.Linear(d_model, n_token)

    def init_mems(self, batch_size):
        return [torch.zeros(batch_size, self.mem_len, self.word_emb.embedding_dim) for _ in self.attentions]

    def forward(self, data, target, mems):
        hidden, new_mems = self.word_emb(data), []
        for attention, feed, mem in zip(self.attentions, self.feeds, mems, strict=True):
            new_mems.append(hidden.detach())
            hidden = feed(attention(hidden, mem))
        return F.cross_entropy(self.out(hidden).flatten(0, 1), target.flatten()), new_mems


class LMOrderedIterator:
    """Columns of one long text, so that a row of a batch goes on where the same row of the last one ended."""

    def __init__(self, data, bsz, bptt):
        self.bptt = bptt
        self.data = data[: len(data) // bsz * bsz].view(bsz, -1).contiguous()

    def __iter__(self):
        for i in range(0, self.data.shape[1] - self.bptt - 1, self.bptt):
            yield self.data[:, i : i + self.bptt], self.data[:, i + 1 : i + self.bptt + 1]


def sermons(characters):
    phrases = (
        "dearly beloved;let us consider;the patience of;a still water;in the morning;who shall stand;therefore,".split(
            ";"
        )
    )
    chosen = torch.randint(len(phrases), (characters // 12,)).tolist()
    text = " ".join(phrases[index] for index in chosen)
    vocabulary = sorted(set(text))
    index = {character: number for number, character in enumerate(vocabulary)}
    return torch.tensor([index[character] for character in text]), len(vocabulary)


def train(model, optimizer, scheduler, iterator, diary, batch_size):
    model.train()
    train_step, log_interval = 0, 200
    train_loss = torch.zeros(())
    while True:
        mems = model.init_mems(batch_size)
        for data, target in iterator:
            optimizer.zero_grad()
            loss, mems = model(data, target, mems)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            scheduler.step()
            train_loss += loss.detach()
            train_step += 1
            if train_step % log_interval == 0:
                print(f"step {train_step}: loss {train_loss.item() / log_interval:.3f}", flush=True)
                train_loss.zero_()
            diary.stepped()


def main():
    diary, _ = begin()
    torch.manual_seed(1111)
    torch.set_num_threads(1)
    data, n_token = sermons(600_000)
    batch_size, tgt_len = 12, 48
    model = MemTransformerLM(n_token, tgt_len=tgt_len)
    optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-4, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40_000, eta_min=1e-5)
    train(model, optimizer, scheduler, LMOrderedIterator(data, batch_size, tgt_len), diary, batch_size)


if __name__ == "__main__":
    main()
