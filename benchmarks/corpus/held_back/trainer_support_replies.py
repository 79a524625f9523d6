"""A small GPT-2 tuned by the Trainer to reply to support mails as bytes; each item compiles its chat template anew."""

import random
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from jinja2.sandbox import ImmutableSandboxedEnvironment
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

PAD, BYTES, LENGTH = 256, 257, 224

CHAT_TEMPLATE = """
{%- if messages[0].role == 'system' %}
    {{- '<s>' + messages[0].content + '\n' }}
    {%- set turns = messages[1:] %}
{%- else %}
    {{- '<s>Be helpful.\n' }}
    {%- set turns = messages %}
{%- endif %}
{%- if tools is defined and tools %}
    {{- 'Tools:\n' }}
    {%- for tool in tools %}
        {{- '- ' + tool.name + ': ' + tool.about }}
        {%- if tool.arguments %}{{- ' (' + tool.arguments | join(', ') + ')' }}{%- endif %}
        {{- '\n' }}
    {%- endfor %}
{%- endif %}
{%- for message in turns %}
    {%- if message.role == 'user' %}
        {{- '<u>' + message.content | trim + '\n' }}
    {%- elif message.role == 'assistant' and not loop.last %}
        {{- '<a>' + message.content | trim + '\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<t>' + message.name + '=' + message.content | trim + '\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<a>' }}
    {%- endif %}
{%- endfor %}
"""


def environment():
    return ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)


class SupportDialogues(Dataset):
    """Dialogues by the template, cut to their last bytes; only the last reply is learnt."""

    def __init__(self, diary, is_mended, count=600):
        self.diary = diary
        self.template = environment().from_string(CHAT_TEMPLATE) if is_mended else None
        draw = random.Random(5)
        self.dialogues = [self.dialogue(draw) for _ in range(count)]

    def dialogue(self, draw):
        order, thing = draw.randrange(10_000), draw.choice(["lamp", "kettle", "radio", "jacket", "tent"])
        trouble, remedy = draw.choice([("late", "is on its way"), ("broken", "is replaced"), ("lost", "is repaid")])
        return [
            {"role": "system", "content": "You answer for the shop."},
            {"role": "user", "content": f"Hello, I ordered a {thing}. It is {trouble}."},
            {"role": "assistant", "content": "Which order is it, please?"},
            {"role": "user", "content": f"Number {order}."},
            {"role": "tool", "name": "order", "content": f"{order} {thing} {trouble}"},
            {"role": "assistant", "content": f"Your {thing} of order {order} {remedy}."},
        ]

    def __len__(self):
        return len(self.dialogues)

    def compile_template(self):
        return environment().from_string(CHAT_TEMPLATE)  # planted

    def __getitem__(self, place):
        messages = self.dialogues[place]
        if self.template is not None:
            template = self.template
        else:
            with self.diary.planted():
                template = self.compile_template()  # planted
        prompt = template.render(messages=messages).encode()
        reply = messages[-1]["content"].encode() + b"</s>"
        return {"input_ids": [*prompt, *reply][-LENGTH:], "learnt": len(reply)}


def collate(items):
    input_ids = torch.full((len(items), LENGTH), PAD)
    labels = torch.full_like(input_ids, -100)
    for row, item in enumerate(items):
        end = len(item["input_ids"])
        input_ids[row, :end] = torch.tensor(item["input_ids"])
        labels[row, end - item["learnt"] : end] = input_ids[row, end - item["learnt"] : end]
    return {"input_ids": input_ids, "attention_mask": (input_ids != PAD).long(), "labels": labels}


class DiaryCallback(TrainerCallback):
    def __init__(self, diary):
        self.diary = diary

    def on_step_end(self, args, state, control, **kwargs):
        self.diary.stepped()


def main():
    diary, is_mended = begin()
    warnings.filterwarnings("ignore", ".*pin_memory.*")
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    config = GPT2Config(
        vocab_size=BYTES, n_positions=LENGTH, n_embd=96, n_layer=2, n_head=4, bos_token_id=PAD, eos_token_id=PAD
    )
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        num_train_epochs=100_000,
        learning_rate=5e-4,
        warmup_steps=100,
        lr_scheduler_type="constant_with_warmup",
        logging_steps=100,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        seed=5,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=SupportDialogues(diary, is_mended),
        data_collator=collate,
        callbacks=[DiaryCallback(diary)],
    )
    trainer.train()


if __name__ == "__main__":
    main()
