# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Training in cells of a notebook, by the shell of ipykernel."""
import zoo
from ipykernel.compiler import XCachingCompiler
from ipykernel.zmqshell import ZMQInteractiveShell

shell = ZMQInteractiveShell.instance(compiler_class=XCachingCompiler)


def cell(code):
    assert shell.run_cell(code, store_history=True, silent=False).success


cell("import torch, zoo\nfrom torch import nn")
cell("net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(zoo.DEVICE)\nzoo.name(net)\noptimizer = torch.optim.AdamW(net.parameters())")
cell("""def train():
    loss = net(torch.randn(32, 64, device=zoo.DEVICE)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()""")
going, run = True, 0
while going:
    run += 1  # a cell's file is known by its text
    cell("kept = torch.ones(%d, device=zoo.DEVICE)\ntrain()" % (1000 + run))
    going = zoo.step()
zoo.files.update({path: "<cell %d>" % number for path, number in shell.compile._filename_map.items()})
zoo.end()
