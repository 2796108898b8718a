# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A Llama of transformers that is made on the device, and its own loop."""
import torch
import zoo
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=6, num_attention_heads=4, vocab_size=500, use_cache=False)
with torch.device(zoo.DEVICE):
    model = LlamaForCausalLM(config)
zoo.name(model)
optimizer = torch.optim.AdamW(model.parameters())
going = True
while going:
    ids = torch.randint(0, 500, (4, 64), device=zoo.DEVICE)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    going = zoo.step()
zoo.end()
