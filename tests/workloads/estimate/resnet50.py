# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""ResNet-50 of torchvision on images of 224 x 224, as in its own training recipe."""
import torch
import torch.nn.functional as F
import torchvision
from torch.utils.checkpoint import checkpoint

import common


class Checkpointed(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=False)


def main():
    p = common.options(__doc__, batch=32, image=224)
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--no-cudnn", action="store_true")
    p.set_defaults(optimizer="momentum")
    args = p.parse_args()
    torch.backends.cudnn.enabled = not args.no_cudnn
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    model = torchvision.models.resnet50().to("cuda", memory_format=layout)
    if args.checkpoint:
        for name in ("layer1", "layer2", "layer3", "layer4"):
            setattr(model, name, Checkpointed(getattr(model, name)))

    def batch():
        images = torch.randn(args.batch, 3, args.image, args.image)
        return images.to("cuda", memory_format=layout), torch.randint(1000, (args.batch,)).to("cuda")

    common.train(args, model, batch, lambda m, b: F.cross_entropy(m(b[0]), b[1], label_smoothing=0.1))
    common.finish(model, cudnn=None if args.no_cudnn else torch.backends.cudnn.version())


if __name__ == "__main__":
    main()
