"""GPT-2 fine-tuned on tavern tales with Accelerate; every tenth step a tale is sampled for the log."""

import random
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel, get_scheduler

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

WORDS = (
    "<|end|> the old innkeeper poured ale for a stranger who told of wolves beyond the river and snow on hills "
    "while his dog slept near embers then laughed at every song about lost gold kings bakers millers or far coasts"
).split()
BLOCK, BATCH = 96, 6
PREVIEW_STEPS, PREVIEW_TOKENS = 10, 64


def make_tales(count, seed=11):
    rng = random.Random(seed)
    follows = [rng.sample(range(1, len(WORDS)), 4) for _ in WORDS]
    tales = []
    for _ in range(count):
        word, tale = 1, []
        for _ in range(BLOCK):
            tale.append(word)
            word = rng.choice(follows[word]) if rng.random() < 0.97 else 0
        tales.append(tale)
    return torch.tensor(tales)


def preview(accelerator, model, prompt):
    """Return how the model goes on after a few words."""
    bare = accelerator.unwrap_model(model)
    bare.eval()
    with torch.no_grad():
        ids = bare.generate(  # planted
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=PREVIEW_TOKENS,
            do_sample=True,
            top_k=20,
            pad_token_id=0,
        )
    bare.train()
    return " ".join(WORDS[index] for index in ids[0].tolist())


def main(diary, is_mended):
    torch.set_num_threads(1)
    set_seed(11)
    accelerator = Accelerator(cpu=True)
    config = GPT2Config(
        vocab_size=len(WORDS),
        n_positions=2 * BLOCK,
        n_embd=128,
        n_layer=2,
        n_head=4,
        bos_token_id=0,
        eos_token_id=None,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    model = GPT2LMHeadModel(config)
    loader = DataLoader(TensorDataset(make_tales(2_000)), batch_size=BATCH, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01, fused=True)
    scheduler = get_scheduler("cosine", optimizer, num_warmup_steps=100, num_training_steps=50_000)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    prompt = torch.tensor([[1, 2, 3]])

    completed_steps = 0
    while True:
        model.train()
        for (ids,) in loader:
            with accelerator.accumulate(model):
                loss = model(input_ids=ids, labels=ids).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            completed_steps += 1
            if completed_steps % PREVIEW_STEPS == 0 and not is_mended:
                with diary.planted():
                    tale = preview(accelerator, model, prompt)  # planted
                accelerator.print(f"step {completed_steps}: {tale}")
            if completed_steps % 200 == 0:
                accelerator.print(f"step {completed_steps} loss {loss.item():.4f}")
            diary.stepped()


if __name__ == "__main__":
    main(*begin())
