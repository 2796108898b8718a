# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The jobs used to check estimates, one per line. Standard library only."""


class Job:
    """A script of this folder with its arguments, and the modules it needs besides torch."""

    def __init__(self, name, line, needs=(), gib=1):
        self.name = name
        self.script, *self.arguments = line.split()
        self.needs = needs
        self.gib = gib  # approximate host memory needed


HF = ("transformers",)

JOBS = (
    Job("GPT-2 124M", "gpt2.py"),
    Job("GPT-2 124M, bf16", "gpt2.py --amp bf16"),
    Job("GPT-2 124M, fp16, loss scaled", "gpt2.py --amp fp16 --clip 1"),
    Job("GPT-2 124M, checkpoints", "gpt2.py --checkpoint"),
    Job("GPT-2 124M, bf16, 4 batches a step", "gpt2.py --amp bf16 --accumulate 4"),
    Job("GPT-2 124M, fused AdamW", "gpt2.py --optimizer adamw-fused"),
    Job("GPT-2 124M, SGD", "gpt2.py --optimizer sgd"),
    Job("GPT-2 355M, bf16", "gpt2.py --size 355M --amp bf16"),
    Job("GPT-2 774M, bf16, checkpoints", "gpt2.py --size 774M --amp bf16 --checkpoint"),
    Job("GPT-2 1.5B, bf16, checkpoints", "gpt2.py --size 1.5B --amp bf16 --checkpoint"),
    Job("HF GPT-2 124M", "hf.py gpt2", HF),
    Job("HF GPT-2 124M, bf16, checkpoints", "hf.py gpt2 --amp bf16 --checkpoint", HF),
    Job("HF GPT-2 355M, bf16", "hf.py gpt2 --size 355M --amp bf16", HF),
    Job("HF GPT-2 774M, bf16, checkpoints", "hf.py gpt2 --size 774M --amp bf16 --checkpoint", HF),
    Job("HF GPT-2 1.5B, bf16, checkpoints", "hf.py gpt2 --size 1.5B --amp bf16 --checkpoint", HF),
    Job("HF BERT base, 8 x 512", "hf.py bert --batch 8 --length 512", HF),
    Job("HF BERT large, bf16, 16 x 512", "hf.py bert --size large --batch 16 --length 512 --amp bf16", HF),
    Job("HF Llama 6.7B, weights bf16, 1 x 2048", "hf.py llama --dtype bf16 --batch 1 --length 2048", HF, gib=8),
    Job("HF Llama 6.7B, weights bf16, 1 x 2048, checkpoints", "hf.py llama --dtype bf16 --batch 1 --length 2048 --checkpoint", HF, gib=8),
    Job("HF Trainer, fp16, evaluation, saving", "trainer.py trainer --amp fp16 --accumulate 2 --steps 4", HF),
    Job("HF Trainer, bf16, checkpoints", "trainer.py trainer --amp bf16 --checkpoint --steps 4", HF),
    Job("HF Trainer, BERT base, 2 x 16", "trainer.py trainer --bert --plain --batch 2 --length 16 --examples 500 --steps 5", HF),
    Job("HF Trainer, GPT-2 124M, 2 x 16", "trainer.py trainer --gpt2 --plain --batch 2 --length 16 --examples 500 --steps 5", HF),
    Job("accelerate, fp32, evaluation, saving", "trainer.py accelerate --accumulate 2 --steps 4", ("transformers", "accelerate")),
    Job("ResNet-50, 32 images", "resnet50.py", ("torchvision",)),
    Job("ResNet-50, bf16, channels last, 128 images", "resnet50.py --amp bf16 --channels-last --batch 128", ("torchvision",)),
    Job("ResNet-50, AdamW, checkpoints, 64 images", "resnet50.py --optimizer adamw --checkpoint --batch 64", ("torchvision",)),
)
