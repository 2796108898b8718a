# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Pairs of sentences with negatives from the batch, by sentence-transformers."""
import tempfile

import zoo
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
from sentence_transformers.models import Pooling, Transformer
from text import WORDS, Steps, sentence, tokenizer
from transformers import BertConfig, BertModel

with tempfile.TemporaryDirectory() as folder:
    BertModel(BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=WORDS)).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    model = SentenceTransformer(modules=[Transformer(folder), Pooling(64)], device=zoo.DEVICE)
    zoo.name(model, "model")
    data = Dataset.from_dict({"one": [sentence(i, 20) for i in range(200)], "other": [sentence(i + 1, 25) for i in range(200)]})
    arguments = SentenceTransformerTrainingArguments(folder, max_steps=10000, per_device_train_batch_size=8, report_to=[], save_strategy="no",
                                                     logging_steps=10000, disable_tqdm=True)
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=losses.MultipleNegativesRankingLoss(model),
                               callbacks=[Steps()]).train()
zoo.end()
