"""Group-relative policy optimization of a small Llama-like model, whose completions it generates itself.

After huggingface/trl pull request 1586: a training step takes 85.4 s in training mode, of which generation takes 81.7 s.
In evaluation mode it takes 25.4 s, and generation 23.4 s. Issue 3683 shows the reason: "Caching is incompatible with
gradient checkpointing … Setting past_key_value=None". With gradient checkpointing, a model in training mode drops its key
and value cache, so that each new token is computed over the whole sequence again. The fix generates in evaluation mode.
meta-pytorch/torchtune pull request 2066 reports the same for PPO: with a cache and other changes, 13.1 h became 5.4 h. This program needs neither
trl nor transformers: it has parts of its own after theirs.
"""

import contextlib
import sys
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

VOCABULARY, PROMPT, COMPLETION, WIDTH, HEADS, LAYERS = 512, 48, 20, 128, 4, 2


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_norm, self.post_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate_up, self.down = nn.Linear(WIDTH, 6 * WIDTH, bias=False), nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, hidden, past):
        rows, length, _ = hidden.shape
        split = self.qkv(self.input_norm(hidden)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
        hidden = hidden + self.out(attended.transpose(1, 2).reshape(rows, length, WIDTH))
        gate, up = self.gate_up(self.post_norm(hidden)).chunk(2, -1)
        return hidden + self.down(functional.silu(gate) * up), (key, value)


class CausalModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(PROMPT + COMPLETION, WIDTH)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(LAYERS))
        self.norm, self.lm_head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.gradient_checkpointing = False

    def forward(self, input_ids, past_key_values=None, *, use_cache=True):
        if self.gradient_checkpointing and self.training and use_cache:
            warnings.warn("Caching is incompatible with gradient checkpointing. Setting use_cache=False", stacklevel=2)
            use_cache = False  # planted
        start = past_key_values[0][0].shape[2] if past_key_values else 0
        hidden = self.tokens(input_ids) + self.positions.weight[start : start + input_ids.shape[1]]
        presents = []
        for number, layer in enumerate(self.layers):
            past = past_key_values[number] if past_key_values else None
            if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
                hidden, present = checkpoint(layer, hidden, past, use_reentrant=False)
            else:
                hidden, present = layer(hidden, past)
            presents.append(present)
        return self.lm_head(self.norm(hidden)), presents if use_cache else None

    @torch.no_grad()
    def generate(self, input_ids, diary):
        sequences, past = input_ids, None
        for number in range(COMPLETION):
            inputs = sequences[:, -1:] if past else sequences
            wasted = number > 0 and not past
            with diary.planted() if wasted else contextlib.nullcontext():
                logits, past = self(inputs, past)  # planted
            chosen = torch.multinomial(logits[:, -1].softmax(-1), 1)
            sequences = torch.cat([sequences, chosen], 1)
        return sequences


@contextlib.contextmanager
def fast_eval_mode(model):
    model.eval()
    yield model
    model.train()


class GRPOTrainer:
    def __init__(self, model, diary, is_mended, prompts=4, num_generations=6, num_iterations=4, epsilon=0.2):
        self.model, self.diary, self.is_mended = model, diary, is_mended
        self.prompts, self.num_generations = prompts, num_generations
        self.num_iterations, self.epsilon = num_iterations, epsilon
        self.model.gradient_checkpointing = True
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def generate_and_score(self):
        prompts = torch.randint(0, VOCABULARY, (self.prompts, PROMPT)).repeat_interleave(self.num_generations, 0)
        if self.is_mended:
            with fast_eval_mode(self.model) as model:
                sequences = model.generate(prompts, self.diary)
        else:
            sequences = self.model.generate(prompts, self.diary)  # planted
        rewards = (sequences[:, PROMPT:] % 2 == 0).float().mean(1).view(self.prompts, self.num_generations)
        advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
        return sequences, advantages.view(-1, 1), rewards.mean()

    def compute_loss(self, sequences, advantages, old_logps):
        logits = self.model(sequences, use_cache=False)[0][:, PROMPT - 1 : -1]
        logps = logits.gather(2, sequences[:, PROMPT:].unsqueeze(2)).squeeze(2) - logits.logsumexp(2)
        ratio = (logps - (logps.detach() if old_logps is None else old_logps)).exp()
        clipped = ratio.clamp(1 - self.epsilon, 1 + self.epsilon)
        return -torch.minimum(ratio * advantages, clipped * advantages).mean(), logps.detach()

    def train(self, rounds):
        self.model.train()
        for number in range(rounds):
            sequences, advantages, reward = self.generate_and_score()  # planted
            old_logps = None
            for _ in range(self.num_iterations):
                loss, logps = self.compute_loss(sequences, advantages, old_logps)
                old_logps = logps if old_logps is None else old_logps
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.diary.stepped()
            if number % 10 == 0:
                print(f"round {number}: reward {reward.item():.3f} loss {loss.item():.4f}", flush=True)


def main():
    diary, is_mended = begin()
    GRPOTrainer(CausalModel(), diary, is_mended).train(10**6)


if __name__ == "__main__":
    torch.manual_seed(8)
    torch.set_num_threads(1)
    main()
