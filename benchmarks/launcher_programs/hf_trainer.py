"""Seven steps of the Trainer of transformers, with a model that is made here."""

import tempfile

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from world import report

config = LlamaConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
)
tokens = torch.arange(8)
samples = [{"input_ids": tokens, "labels": tokens} for _ in range(56)]
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    max_steps=7,
    per_device_train_batch_size=2,
    use_cpu=True,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
)
Trainer(LlamaForCausalLM(config), arguments, train_dataset=samples).train()
total = torch.ones(1)
if dist.is_initialized():
    dist.all_reduce(total)
report(arguments.process_index, arguments.world_size, total.item())
if dist.is_initialized():
    dist.destroy_process_group()
