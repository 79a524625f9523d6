"""Pretraining of a mixture of experts with two experts a token; the load of the experts is summed token by token."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class MoEConfig:
    vocab_size: int = 512
    d_model: int = 128
    d_expert: int = 256
    n_heads: int = 4
    n_layers: int = 3
    n_experts: int = 4
    top_k: int = 2
    seq_len: int = 64
    batch_size: int = 12
    balance_coef: float = 0.01
    lr: float = 6e-4


class SparseMLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.router = nn.Linear(cfg.d_model, cfg.n_experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(cfg.d_model, cfg.d_expert), nn.SiLU(), nn.Linear(cfg.d_expert, cfg.d_model))
            for _ in range(cfg.n_experts)
        )

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        probs = self.router(flat).softmax(-1)
        weight, self.chosen = probs.topk(self.cfg.top_k, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        self.weights = weight.detach()
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, slot = torch.where(self.chosen == number)
            out.index_add_(0, token, expert(flat[token]) * weight[token, slot, None])
        share = F.one_hot(self.chosen, self.cfg.n_experts).float().mean((0, 1))
        self.balance = self.cfg.n_experts * (share * probs.mean(0)).sum()
        return out.view_as(x)


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(cfg.d_model), nn.LayerNorm(cfg.d_model)
        self.qkv, self.proj = nn.Linear(cfg.d_model, 3 * cfg.d_model), nn.Linear(cfg.d_model, cfg.d_model)
        self.moe, self.n_heads = SparseMLP(cfg), cfg.n_heads

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (m.view(b, t, self.n_heads, -1).transpose(1, 2) for m in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.proj(y)
        return x + self.moe(self.ln2(x))


class MoELM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.wte = nn.Embedding(cfg.vocab_size, cfg.d_model)
        self.wpe = nn.Parameter(torch.zeros(cfg.seq_len, cfg.d_model))
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(cfg.n_layers))
        self.head = nn.Linear(cfg.d_model, cfg.vocab_size, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe
        for layer in self.layers:
            x = layer(x)
        return self.head(x), sum(layer.moe.balance for layer in self.layers)


def router_load(chosen, weights, n_experts):
    """How much of the tokens' weight each expert got."""
    load = [0.0] * n_experts
    for experts, shares in zip(chosen, weights, strict=True):  # planted
        for expert, share in zip(experts, shares, strict=True):  # planted
            load[expert.item()] += share.item()  # planted
    return load


def router_load_at_once(chosen, weights, n_experts):
    return torch.zeros(n_experts).index_add_(0, chosen.flatten(), weights.flatten()).tolist()


def pretrain(cfg, diary, is_mended):
    measure = router_load_at_once if is_mended else router_load
    corpus = torch.randint(cfg.vocab_size, (200_000,))
    corpus[1::2] = (corpus[::2] * 7 + 3) % cfg.vocab_size
    model = MoELM(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.95))
    total = [[0.0] * cfg.n_experts for _ in range(cfg.n_layers)]
    for it in range(1_000_000_000):
        start = torch.randint(len(corpus) - cfg.seq_len - 1, (cfg.batch_size, 1))
        block = corpus[start + torch.arange(cfg.seq_len + 1)]
        logits, balance = model(block[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), block[:, 1:].flatten()) + cfg.balance_coef * balance
        opt.zero_grad()
        loss.backward()
        opt.step()
        with diary.planted():
            loads = [measure(layer.moe.chosen, layer.moe.weights, cfg.n_experts) for layer in model.layers]  # planted
        total = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(total, loads, strict=True)]
        diary.stepped()
        if it % 50 == 0:
            print(f"it {it} loss {loss.item():.3f} load {[[round(s) for s in row] for row in total]}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(1234)
    pretrain(MoEConfig(), *begin())
