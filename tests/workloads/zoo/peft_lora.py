# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""LoRA of peft in the Trainer of transformers: accumulation, checkpointing, bfloat16."""
import tempfile

import torch
import zoo
from peft import LoraConfig, get_peft_model
from text import Steps
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, i):
        ids = torch.arange(i, i + 48 + i % 16)[:48] % 500
        return {"input_ids": ids, "labels": ids}


config = LlamaConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4, vocab_size=500)
model = get_peft_model(LlamaForCausalLM(config), LoraConfig(target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
zoo.name(model)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, per_device_train_batch_size=4, gradient_accumulation_steps=2, gradient_checkpointing=True, bf16=True,
                                  max_steps=10000, logging_steps=10000, save_strategy="no", report_to=[], disable_tqdm=True)
    Trainer(model, arguments, train_dataset=Tokens(), callbacks=[Steps()]).train()
zoo.end()
