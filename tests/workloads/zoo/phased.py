# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The hooks of memtrace_bpf.phases in their libraries: phased.py FOLDER-OF-phases.py LIBRARY. Prints the
records of its own memory as JSON: "begin train step" and so on."""
import json
import os
import struct
import sys
import tempfile

import torch

folder_of_module, library = sys.argv[1:]
sys.path.insert(0, folder_of_module)
import phases  # noqa: E402

WHAT = {1: "begin", 2: "end", 3: "suspend", 4: "resume"}


def told():
    fd = phases._fd  # pylint: disable=protected-access
    found = []
    for slot in range(phases.ROOM):
        number, _, _, _, what, name, _ = struct.unpack("QQQIHxx80s8xQ", os.pread(fd, 128, 128 * (1 + slot)))
        if number:
            found.append((number, "%s %s" % (WHAT[what], name.rstrip(b"\0").decode())))
    return [text for _, text in sorted(found)]


WORDS = 100


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    words = {w: i for i, w in enumerate(["<pad>", "<eos>", "<unk>", *("w%d" % i for i in range(WORDS - 3))])}
    own = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=own, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", model_max_length=64)


def sentence(i, words):
    return " ".join("w%d" % ((7 * i + j) % (WORDS - 3)) for j in range(words))


def with_transformers():
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
    encode = tokenizer()
    rows = []
    for i in range(16):
        ids = encode(sentence(i, 8))["input_ids"]
        rows.append({"input_ids": torch.tensor(ids), "labels": torch.tensor(ids)})
    model = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=WORDS))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, max_steps=4, per_device_train_batch_size=2, gradient_accumulation_steps=2, eval_strategy="steps",
                                      eval_steps=2, save_strategy="steps", save_steps=2, report_to=[], disable_tqdm=True, use_cpu=True)
        Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:4], callbacks=[phases.trainer_callback()]).train()
        trainer = phases.trainer_phases(Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:4]))
        trainer.evaluate()
        trainer.train()
        trainer.predict(rows[:4])


def with_lightning():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch, _):
            return self.layer(batch[0]).mean()

        validation_step = training_step

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(4, 8)), batch_size=2)
    trainer = lightning.Trainer(max_epochs=2, callbacks=[phases.lightning_callback()], accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, num_sanity_val_steps=0)
    trainer.fit(Module(), data, data)


def with_accelerate():
    from accelerate import Accelerator
    accelerator = phases.accelerate_phases(Accelerator(cpu=True, gradient_accumulation_steps=2))
    layer = torch.nn.Linear(8, 1)
    layer, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
    for _ in range(2):
        with accelerator.accumulate(layer):
            accelerator.backward(layer(torch.randn(2, 8)).mean())
            optimizer.step()
            optimizer.zero_grad()
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)


def with_trl():
    from datasets import Dataset
    from transformers import GPT2Config, GPT2LMHeadModel
    from trl import GRPOConfig, GRPOTrainer
    model = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=WORDS))
    data = Dataset.from_dict({"prompt": [sentence(i, 4) for i in range(8)]})
    with tempfile.TemporaryDirectory() as folder:
        arguments = GRPOConfig(folder, max_steps=2, per_device_train_batch_size=2, num_generations=2, max_completion_length=4, report_to=[],
                               disable_tqdm=True, use_cpu=True, bf16=False, save_strategy="no", logging_steps=10000)
        trainer = GRPOTrainer(model=model, args=arguments, reward_funcs=lambda completions, **_: [float(len(c)) for c in completions],
                              train_dataset=data, processing_class=tokenizer())
        phases.trl_phases(trainer).train()


{"transformers": with_transformers, "lightning": with_lightning, "accelerate": with_accelerate, "trl": with_trl}[library]()
print(json.dumps(told()), flush=True)
