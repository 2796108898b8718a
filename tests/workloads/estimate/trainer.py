# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Training loops of libraries: the Trainer of transformers, or a loop on accelerate as in its examples. With evaluation, metrics,
clipping, accumulation, saving and loading of checkpoints.
"""
import os
import tempfile

import torch
import transformers

import common


class Texts(torch.utils.data.Dataset):
    """Random tokens, with a language model's labels."""

    def __init__(self, n, length, vocab):
        g = torch.Generator().manual_seed(1)
        self.ids = torch.randint(vocab, (n, length), generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": torch.ones_like(self.ids[i]), "labels": self.ids[i]}


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions == prediction.label_ids).mean())}


def with_trainer(args, model, train, test, folder):
    settings = transformers.TrainingArguments(
        output_dir=folder, max_steps=args.steps, per_device_train_batch_size=args.batch, per_device_eval_batch_size=args.batch,
        gradient_accumulation_steps=args.accumulate, gradient_checkpointing=args.checkpoint, bf16=args.amp == "bf16", fp16=args.amp == "fp16",
        max_grad_norm=args.clip or 1.0, logging_steps=1, eval_strategy="no" if args.plain else "steps", eval_steps=2,
        save_strategy="no" if args.plain else "steps", save_steps=2, report_to=[], disable_tqdm=True, optim="adamw_torch")
    trainer = transformers.Trainer(model=model, args=settings, train_dataset=train, eval_dataset=test, compute_metrics=accuracy,
                                   preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1))
    trainer.train()
    if args.plain:
        return {"global_step": trainer.state.global_step}
    # Train again from the saved state.
    settings.max_steps += 1
    trainer.train(resume_from_checkpoint=True)
    return {"global_step": trainer.state.global_step, "saved": sorted(d for d in os.listdir(folder) if d.startswith("checkpoint"))}


def with_accelerate(args, model, train, test, folder):
    from accelerate import Accelerator
    accelerator = Accelerator(mixed_precision={"none": "no"}.get(args.amp, args.amp), gradient_accumulation_steps=args.accumulate)
    if args.checkpoint:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = common.OPTIMIZERS[args.optimizer](model.parameters())
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
    loaders = [torch.utils.data.DataLoader(d, batch_size=args.batch, shuffle=True) for d in (train, test)]
    model, optimizer, scheduler, train, test = accelerator.prepare(model, optimizer, scheduler, *loaders)
    best, done = float("inf"), 0
    while done < args.steps:
        model.train()
        for batch in train:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), args.clip or 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            done += accelerator.sync_gradients
            if done >= args.steps:
                break
        model.eval()
        losses = []
        with torch.no_grad():
            for batch in test:
                losses.append(accelerator.gather_for_metrics(model(**batch).loss.repeat(args.batch)))
        mean = torch.cat(losses).mean().item()
        if mean < best:
            best = mean
            accelerator.save_state(folder)
    accelerator.load_state(folder)
    return {"global_step": done, "best": best, "saved": sorted(os.listdir(folder))}


LOOPS = {"trainer": with_trainer, "accelerate": with_accelerate}


def main():
    p = common.options(__doc__, batch=4, length=256, width=256, layers=4, vocab=50257, examples=32)
    p.add_argument("loop", choices=sorted(LOOPS))
    p.add_argument("--plain", action="store_true", help="the Trainer: only its steps")
    p.add_argument("--bert", action="store_true", help="BERT base instead of a small GPT-2")
    p.add_argument("--gpt2", action="store_true", help="GPT-2 124M, as transformers has it")
    args = p.parse_args()
    if args.bert:
        args.vocab = transformers.BertConfig().vocab_size
        model = transformers.BertForMaskedLM(transformers.BertConfig(attn_implementation="eager"))
    elif args.gpt2:
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation="eager"))
        for block in model.transformer.h:  # its place in transformers 4
            block.attn.register_buffer("bias", torch.ones(1, 1, 1024, 1024, dtype=torch.bool).tril(), persistent=False)
            block.attn.register_buffer("masked_bias", torch.tensor(-1e4), persistent=False)
    else:
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=args.layers, n_head=4, n_embd=args.width, n_positions=args.length,
                                                                     vocab_size=args.vocab, use_cache=False))
    train, test = Texts(args.examples, args.length, args.vocab), Texts(2 * args.batch, args.length, args.vocab)
    with tempfile.TemporaryDirectory() as folder:
        facts = LOOPS[args.loop](args, model, train, test, folder)
    common.finish(model, transformers=transformers.__version__, **facts)


if __name__ == "__main__":
    main()
