# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
A training job: a small GPT on synthetic text, AdamW, CPU tensors unless --device says otherwise.

It has no code for the tracer. It ends after --steps or --seconds, or after the step with a SIGTERM or SIGINT.
With --result it writes a digest of all parameters and losses: two runs with equal seeds and numbers of steps
are equal bit for bit. With --truth it writes its own data on a sample of its tensors.
"""
import argparse
import hashlib
import json
import os
import signal
import struct
import sys
import time

import torch
import torch.nn.functional as F

from model import GPT


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=0, help="end after so many steps (0: no limit)")
    p.add_argument("--seconds", type=float, default=0, help="end after so many seconds (0: no limit)")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--context", type=int, default=128)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--vocab", type=int, default=256)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--device", default="cpu")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--every", type=int, default=20, help="print a line per so many steps")
    p.add_argument("--pause", type=float, default=0, help="wait so many seconds after each step")
    p.add_argument("--warmup", type=int, default=0, help="steps not counted in --times")
    p.add_argument("--truth", metavar="FILE", help="write what is known of a sample of the tensors, as JSON lines")
    p.add_argument("--times", metavar="FILE", help="write begin, end and thread CPU time of each step, as JSON lines")
    p.add_argument("--result", metavar="FILE", help="write a digest of parameters and losses at the end")
    return p.parse_args()


def make_batch(args, generator):
    text = torch.randint(args.vocab, (args.batch, args.context + 1), generator=generator)
    return text[:, :-1], text[:, 1:]


def train_step(model, optimizer, inputs, targets):
    logits = model(inputs)
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()


def digest(model, losses):
    h = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        h.update(name.encode())
        h.update(tensor.numpy().tobytes())
    for loss in losses:
        h.update(struct.pack("<d", loss))
    return h.hexdigest()


def main():
    args = parse_args()
    stop = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.append(True))
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(args.device == "cpu")
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)

    model = GPT(args.vocab, args.width, args.heads, args.layers, args.context).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    truth = None
    if args.truth:
        from truth import Truth
        truth = Truth(args.truth, model)
    times = open(args.times, "w", encoding="utf-8") if args.times else None

    print("pid %d, torch %s, Python %s, %d parameters" % (
        os.getpid(), torch.__version__, sys.version.split()[0], sum(p.numel() for p in model.parameters())), flush=True)
    begin = time.monotonic()
    losses = []
    while not stop:
        step = len(losses)
        if (args.steps and step >= args.steps) or (args.seconds and time.monotonic() - begin >= args.seconds):
            break
        wall, cpu = time.monotonic(), time.thread_time()
        inputs, targets = make_batch(args, generator)
        losses.append(train_step(model, optimizer, inputs.to(args.device), targets.to(args.device)))
        if truth:
            truth.step()
        if times and step >= args.warmup:
            times.write(json.dumps([wall, time.monotonic(), time.thread_time() - cpu]) + "\n")
            times.flush()
        if step % args.every == 0:
            print("step %d  loss %.4f  %.1f s" % (step, losses[-1], time.monotonic() - begin), flush=True)
        if args.pause:
            time.sleep(args.pause)

    if truth:
        truth.close()
    if times:
        times.close()
    print("end after %d steps, %.1f s" % (len(losses), time.monotonic() - begin), flush=True)
    if args.result:
        with open(args.result + ".new", "w", encoding="utf-8") as f:
            json.dump({"steps": len(losses), "digest": digest(model, losses), "loss": losses[-1] if losses else None}, f)
        os.rename(args.result + ".new", args.result)


if __name__ == "__main__":
    main()
