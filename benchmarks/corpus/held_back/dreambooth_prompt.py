"""Fine-tuning of a diffusion model on pictures of one thing; the frozen text encoder reads its prompt at each step."""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class TrainingArguments:
    instance_prompt: str = "a photo of sks dog"
    train_batch_size: int = 4
    learning_rate: float = 5e-6
    max_grad_norm: float = 1.0
    num_train_timesteps: int = 1000
    logging_steps: int = 25


class WordTokenizer:
    model_max_length = 77

    def __call__(self, prompts):
        rows = [[1, *(2 + sum(map(ord, word)) % 996 for word in prompt.split())] for prompt in prompts]
        return torch.tensor([row + [0] * (self.model_max_length - len(row)) for row in rows])


class TextEncoder(nn.Module):
    """In the shape of CLIP's: causal, normalized before."""

    def __init__(self, width=128, layers=4):
        super().__init__()
        self.tokens = nn.Embedding(1000, width)
        self.positions = nn.Parameter(torch.randn(WordTokenizer.model_max_length, width) * 0.01)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)

    def forward(self, input_ids):
        mask = nn.Transformer.generate_square_subsequent_mask(input_ids.shape[1])
        return self.encoder(self.tokens(input_ids) + self.positions, mask=mask, is_causal=True)


class ResnetBlock2D(nn.Module):
    def __init__(self, channels, temb=128):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, channels), nn.GroupNorm(8, channels)
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(temb, channels)

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(temb)[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(h)))


class CrossAttnBlock2D(nn.Module):
    def __init__(self, channels, context=128):
        super().__init__()
        self.resnet, self.norm = ResnetBlock2D(channels), nn.LayerNorm(channels)
        self.attn = nn.MultiheadAttention(channels, 4, kdim=context, vdim=context, batch_first=True)

    def forward(self, x, temb, context):
        x = self.resnet(x, temb)
        tokens = x.flatten(2).transpose(1, 2)
        tokens = tokens + self.attn(self.norm(tokens), context, context, need_weights=False)[0]
        return tokens.transpose(1, 2).reshape(x.shape)


class UNet2DConditionModel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 128))
        self.conv_in, self.down = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, width, 3, 2, 1)
        self.top, self.middle, self.last = CrossAttnBlock2D(width), CrossAttnBlock2D(width), ResnetBlock2D(width)
        self.conv_out = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, latents, timesteps, encoder_hidden_states):
        angles = timesteps[:, None] * torch.exp(-torch.arange(32) * 0.29)
        temb = F.silu(self.time(torch.cat([angles.sin(), angles.cos()], -1)))
        top = self.top(self.conv_in(latents), temb, encoder_hidden_states)
        middle = self.middle(self.down(top), temb, encoder_hidden_states)
        return self.conv_out(self.last(top + F.interpolate(middle, scale_factor=2), temb))


class DDPMScheduler:
    def __init__(self, steps):
        self.alphas_cumprod = torch.cumprod(1 - torch.linspace(0.00085**0.5, 0.012**0.5, steps) ** 2, 0)

    def add_noise(self, latents, noise, timesteps):
        signal = self.alphas_cumprod[timesteps].view(-1, 1, 1, 1)
        return signal.sqrt() * latents + (1 - signal).sqrt() * noise


def encode_prompt(text_encoder, input_ids):
    with torch.no_grad():
        return text_encoder(input_ids)  # planted


def main(diary, is_mended):
    args, tokenizer = TrainingArguments(), WordTokenizer()
    text_encoder, unet = TextEncoder().requires_grad_(False), UNet2DConditionModel()
    noise_scheduler = DDPMScheduler(args.num_train_timesteps)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=args.learning_rate, weight_decay=1e-2)
    latents = torch.randn(20, 4, 24, 24)
    input_ids = tokenizer([args.instance_prompt] * args.train_batch_size)
    pre_computed = encode_prompt(text_encoder, input_ids) if is_mended else None
    global_step = 0
    while True:
        for rows in torch.randperm(len(latents)).split(args.train_batch_size):
            noise = torch.randn_like(latents[rows])
            timesteps = torch.randint(args.num_train_timesteps, (len(rows),))
            noisy = noise_scheduler.add_noise(latents[rows], noise, timesteps)
            if pre_computed is None:
                with diary.planted():
                    encoder_hidden_states = encode_prompt(text_encoder, input_ids)  # planted
            else:
                encoder_hidden_states = pre_computed
            loss = F.mse_loss(unet(noisy, timesteps, encoder_hidden_states), noise)
            loss.backward()
            nn.utils.clip_grad_norm_(unet.parameters(), args.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad()
            global_step += 1
            if global_step % args.logging_steps == 0:
                print({"step": global_step, "loss": round(loss.item(), 4)}, flush=True)
            diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(11)
    torch.set_num_threads(1)
    main(*begin())
