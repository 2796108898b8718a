# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""RetinaNet of torchvision, images of several sizes."""
import torch
import zoo
from torchvision.models.detection import retinanet_resnet50_fpn

model = retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=5, min_size=96, max_size=128).to(zoo.DEVICE)
zoo.name(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
going = True
while going:
    images = [torch.rand(3, 96 + 16 * i, 112, device=zoo.DEVICE) for i in range(2)]
    targets = [{"boxes": torch.tensor([[10.0, 10.0, 60.0, 60.0]], device=zoo.DEVICE), "labels": torch.tensor([1], device=zoo.DEVICE)} for _ in images]
    sum(model(images, targets).values()).backward()
    optimizer.step()
    optimizer.zero_grad()
    going = zoo.step()
zoo.end()
