# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The DPOTrainer of trl: a policy and a reference of one class, float16."""
import tempfile

import zoo
from datasets import Dataset
from text import WORDS, Steps, sentence, tokenizer
from transformers import GPT2Config, GPT2LMHeadModel
from trl import DPOConfig, DPOTrainer

policy, reference = (GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=WORDS)) for _ in range(2))
zoo.name(policy, "policy")
zoo.name(reference, "reference")
data = Dataset.from_dict({what: [sentence(i + k, 16) for i in range(200)] for k, what in enumerate(("prompt", "chosen", "rejected"))})
with tempfile.TemporaryDirectory() as folder:
    arguments = DPOConfig(folder, max_steps=10000, per_device_train_batch_size=4, report_to=[], save_strategy="no", logging_steps=10000,
                          disable_tqdm=True, bf16=False, fp16=True, max_length=64)
    DPOTrainer(model=policy, ref_model=reference, args=arguments, train_dataset=data, processing_class=tokenizer(), callbacks=[Steps()]).train()
zoo.end()
