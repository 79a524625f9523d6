"""Fine-tuning of a small chat model with adapters of low rank; the template of talks is compiled for each talk."""

import functools
import os
import random
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from jinja2.sandbox import ImmutableSandboxedEnvironment
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CONTEXT, WIDTH, HEADS, LAYERS, RANK = 160, 128, 4, 3, 8

CHAT_TEMPLATE = """
{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}{%- set talk = messages[1:] %}
{%- else %}{%- set system = 'Be brief.' %}{%- set talk = messages %}{%- endif %}
{{- '<|im_start|>system\n' + system | trim + '<|im_end|>\n' }}
{%- for message in talk %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles take turns') }}{%- endif %}
{%- if message['role'] == 'user' %}{{- '<|im_start|>user\n' + message['content'] | trim + '<|im_end|>\n' }}
{%- elif message['role'] == 'assistant' %}{{- '<|im_start|>assistant\n' + message['content'] | trim + '<|im_end|>\n' }}
{%- elif message['role'] == 'tool' %}{{- '<tool>' + message['content'] | tojson + '</tool>\n' }}
{%- else %}{{- raise_exception('no such role') }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""


def refuse(message):
    raise ValueError(message)


def chat_template():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)  # planted
    environment.globals["raise_exception"] = refuse
    return environment.from_string(CHAT_TEMPLATE)  # planted


class LoraLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.base = nn.Linear(n_in, n_out).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(RANK, n_in) / n_in**0.5)
        self.up = nn.Parameter(torch.zeros(n_out, RANK))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.down), self.up) * 2.0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH).requires_grad_(False) for _ in range(2))
        self.qkv, self.out = LoraLinear(WIDTH, 3 * WIDTH), LoraLinear(WIDTH, WIDTH)
        self.up, self.down = LoraLinear(WIDTH, 4 * WIDTH), LoraLinear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class ChatModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(256, WIDTH).requires_grad_(False)
        self.places = nn.Embedding(CONTEXT, WIDTH).requires_grad_(False)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH).requires_grad_(False)
        nn.init.normal_(self.tokens.weight, std=0.1)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def made_up_talks(count):
    words = "loss rate batch layer norm token weight data epoch model".split()
    return [
        [
            {"role": "user", "content": " ".join(random.choices(words, k=6)) + "?"},
            {"role": "assistant", "content": " ".join(random.choices(words, k=8)) + "."},
        ]
        for _ in range(count)
    ]


if __name__ == "__main__":
    diary, is_mended = begin()
    torch.set_num_threads(1)
    torch.manual_seed(3), random.seed(3)
    talks, model = made_up_talks(2000), ChatModel()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4, weight_decay=0.0)
    template_of = functools.cache(chat_template) if is_mended else chat_template
    for step in range(1_000_000_000):
        ids = torch.zeros(6, CONTEXT + 1, dtype=torch.long)
        for row, talk in enumerate(random.sample(talks, 6)):
            with diary.planted():
                template = template_of()  # planted
            text = template.render(messages=talk, add_generation_prompt=False).encode()[: CONTEXT + 1]
            ids[row, : len(text)] = torch.tensor(list(text))
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        diary.stepped()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
