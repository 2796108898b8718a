# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The SFTTrainer of trl on a Qwen2: accumulation, sentences of several lengths."""
import tempfile

import zoo
from datasets import Dataset
from text import WORDS, Steps, sentence, tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl import SFTConfig, SFTTrainer

model = Qwen2ForCausalLM(Qwen2Config(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                     vocab_size=WORDS))
zoo.name(model)
data = Dataset.from_dict({"text": [sentence(i, 20 + i % 30) for i in range(200)]})
with tempfile.TemporaryDirectory() as folder:
    arguments = SFTConfig(folder, max_steps=10000, per_device_train_batch_size=4, gradient_accumulation_steps=2, report_to=[], save_strategy="no",
                          logging_steps=10000, disable_tqdm=True, bf16=False, max_length=64, dataset_num_proc=None)
    SFTTrainer(model=model, args=arguments, train_dataset=data, processing_class=tokenizer(), callbacks=[Steps()]).train()
zoo.end()
