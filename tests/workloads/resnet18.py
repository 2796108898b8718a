# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""ResNet-18 on noise images on CUDA: memory of a convolutional network, step by step. Prints one JSON line with the peaks of
PyTorch's own allocator."""
import argparse
import json
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Two 3x3 convolutions and the shortcut."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        past = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        x += past
        return self.relu(x)


class ResNet18(nn.Module):
    def __init__(self, classes=1000, width=64):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.layers = nn.Sequential(*(
            nn.Sequential(Block(widths[i], widths[i + 1], 1 if i == 0 else 2), Block(widths[i + 1], widths[i + 1], 1))
            for i in range(4)))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.layers(x))
        return self.fc(torch.flatten(x, 1))


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--size", type=int, default=224, help="of an image, in pixels")
    p.add_argument("--width", type=int, default=64, help="channels of the first layer")
    p.add_argument("--optimizer", choices=("sgd", "momentum", "adam"), default="sgd")
    p.add_argument("--no-cudnn", action="store_true")
    p.add_argument("--benchmark", action="store_true", help="let cuDNN choose by measuring")
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--amp", choices=("bf16", "fp16"))
    return p.parse_args()


def main():
    args = parse_args()
    torch.backends.cudnn.enabled = not args.no_cudnn
    torch.backends.cudnn.benchmark = args.benchmark
    model = ResNet18(width=args.width).cuda()
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p),
    }[args.optimizer](model.parameters())
    scaler = torch.cuda.amp.GradScaler(enabled=args.amp == "fp16")
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(args.amp)
    for _ in range(args.steps):
        images = torch.randn(args.batch, 3, args.size, args.size, device="cuda")
        labels = torch.zeros(args.batch, dtype=torch.long, device="cuda")
        if args.channels_last:
            images = images.to(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=kind or torch.bfloat16, enabled=kind is not None):
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    json.dump({"peak": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(),
               "cudnn": torch.backends.cudnn.version() if not args.no_cudnn else None, "torch": torch.__version__}, sys.stdout)
    print(flush=True)
    # An autograd thread that takes the GIL while Python ends can abort the process on a busy machine (pytorch issues 38228,
    # 190489). Nothing is left to do.
    os._exit(0)


if __name__ == "__main__":
    main()
