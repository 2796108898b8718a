# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Keeps 4 MB a step in a list of main(), for 30 steps that take next to no time without a GPU. Then it ends."""
import torch


def main():
    keep = []
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(30):
        loss = model(torch.randn(64, 1024, device="cuda")).square().mean()
        loss.backward()
        keep.append(loss.detach().expand(1000, 1000).clone())  # the leak
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
