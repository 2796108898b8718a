# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""CUDA graphs: captured into a private pool, replayed, and deleted from time to time."""
import torch

from common import mlp, oracle


def capture(model, x):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        model(x).sum().backward()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    model.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        out = model(x)
        out.sum().backward()
    return graph, out


def job(args):
    cuda = args.device.startswith("cuda")
    model = mlp(512, 3).to(args.device)
    x = torch.zeros(128, 512, device=args.device)
    step = 0
    graph = out = None
    while True:
        if cuda and step % 3 == 0:
            graph = out = None
            graph, out = capture(model, x)
        x.copy_(torch.randn(128, 512))
        if cuda:
            graph.replay()
        else:
            model(x).sum().backward()
        kept = [torch.ones(n * 5000, device=args.device) for n in range(1, 20)]
        step += 1
        yield
        del kept


if __name__ == "__main__":
    oracle.main(job, oracle.arguments(__doc__, steps=7).parse_args())
