# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A ViT of timm, its optimizer, scaler and moving average: images are channels_last, weights are not."""
import timm
import timm.loss
import timm.optim
import torch
import zoo
from timm.utils import ModelEmaV3, NativeScaler

model = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=10, depth=3).to(zoo.DEVICE)
zoo.name(model, "model")
average = ModelEmaV3(model, decay=0.99)
optimizer = timm.optim.create_optimizer_v2(model, opt="lamb", lr=1e-3)
scaler, smooth = NativeScaler(), timm.loss.LabelSmoothingCrossEntropy()
going = True
while going:
    images = torch.randn(16, 3, 32, 32, device=zoo.DEVICE).contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = smooth(model(images), torch.randint(0, 10, (16,), device=zoo.DEVICE))
    optimizer.zero_grad()
    scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
    average.update(model)
    going = zoo.step()
zoo.end()
