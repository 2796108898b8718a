# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Programs with one planted fault each: `python faults.py NAME`, see job.py. leak.py next to this folder has more.
Each docstring says the fault. tests/e2e/test_diagnose.py has the finding that `diagnose` has to name first.
"""
import collections
import copy
import functools
import gc
import logging.handlers
import os
import random
import threading

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
from torch.utils.data import DataLoader, Dataset

from job import MIB, WIDTH, main, net, print_retries, program

# ---- a container that grows ----

answers = {}
kept = []


@program
def in_dict(job):
    """A dict keeps the output of each step."""
    seen = {}
    for i in job.steps():
        job.train()
        seen[i] = job.predict()


class Session:
    open = []

    def __init__(self, x):
        self.x = x
        Session.open.append(self)


@program
def class_attribute(job):
    """Sessions register themselves in their class and never leave it."""
    for _ in job.steps():
        job.train()
        Session(job.predict())


@functools.lru_cache(maxsize=None)
def sample(i, device):
    return torch.full((64, WIDTH), float(i), device=device)


@program
def lru_cache(job):
    """A cache without a bound keeps each sample."""
    for i in job.steps():
        job.learn(job.model(sample(i, job.device)).pow(2).mean())


def answer(job, i):
    with torch.inference_mode():
        answers[i] = job.model(job.batch())


@program
def thread_per_request(job):
    """A server with a thread for each request keeps the answers."""
    for i in job.steps():
        thread = threading.Thread(target=answer, args=(job, i))
        thread.start()
        thread.join()


@program
def forward_hook(job):
    """A hook keeps the activations of a layer."""
    features = []
    job.model[1].register_forward_hook(lambda module, args, output: features.append(output.detach()))
    for _ in job.steps():
        job.train()


@program
def gradient_hook(job):
    """A hook keeps the gradients of a parameter."""
    gradients = []
    job.model[0].weight.register_hook(lambda gradient: gradients.append(gradient.clone()))
    for _ in job.steps():
        job.train()


@program
def log_records(job):
    """A log handler without a target keeps the arguments of each record."""
    log = logging.getLogger("job")
    log.propagate = False
    log.addHandler(logging.handlers.MemoryHandler(10**6))
    for _ in job.steps():
        job.train()
        log.warning("output %s", job.predict())


class Metric:
    def __init__(self):
        self.predicted, self.targets = [], []

    def update(self, predicted, targets):
        self.predicted.append(predicted)
        self.targets.append(targets)


@program
def metric(job):
    """A metric on the device is never reset."""
    accuracy = Metric()
    for _ in job.steps():
        job.train()
        accuracy.update(job.predict(), job.batch(8))


@program
def views(job):
    """A kept column keeps the whole output."""
    columns = []
    for _ in job.steps():
        job.train()
        columns.append(job.predict(256)[:, :4])


def fail(job):
    activations = job.predict()
    raise ValueError(len(activations))


@program
def tracebacks(job):
    """Kept exceptions keep the variables of the frames that they came through."""
    errors = []
    for _ in job.steps():
        job.train()
        try:
            fail(job)
        except ValueError as e:
            errors.append(e)


@program
def kv_sessions(job):
    """A server keeps the key-value caches of sessions that are over."""
    sessions = {}
    for i in job.steps():
        cache = sessions[i] = []
        for _ in range(8):
            cache.append(job.predict(8))


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH)
        self.adapters = nn.ModuleDict()

    def forward(self, x, name):
        return self.base(x) + self.adapters[name](x)


@program
def adapters(job):
    """Adapters of users stay in the model."""
    model = Adapted().to(job.device).eval()
    for i in job.steps():
        name = "user%d" % (i // 4)
        if name not in model.adapters:
            model.adapters[name] = nn.Linear(WIDTH, WIDTH).to(job.device)
        with torch.no_grad():
            model(job.batch(), name)


class Cyclic(nn.Module):
    def __init__(self):
        super().__init__()
        self.big = nn.Linear(WIDTH, WIDTH)
        self.register_forward_hook(lambda module, args, output: self.note(output))

    def note(self, output):
        self.shape = output.shape

    def forward(self, x):
        return self.big(x)


@program
def cycles(job):
    """Models in reference cycles stay, because the garbage collector is off."""
    gc.disable()
    for _ in job.steps():
        with torch.no_grad():
            Cyclic().to(job.device)(job.batch())


# ---- autograd's graph ----


@program
def running_sum(job):
    """The sum of losses keeps the graph of each."""
    total = 0
    for _ in job.steps():
        job.train()
        total = total + job.loss()


@program
def create_graph(job):
    """Gradients with a graph are not reset."""
    optimizer = torch.optim.SGD(job.model.parameters(), lr=1e-3)
    for _ in job.steps():
        job.loss().backward(create_graph=True)
        optimizer.step()


@program
def functional_update(job):
    """Parameters are updated outside of no_grad, so the graphs of all steps hang together."""
    parameters = dict(job.model.named_parameters())
    for _ in job.steps():
        loss = functional_call(job.model, parameters, (job.batch(),)).pow(2).mean()
        gradients = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
        parameters = {k: p - 0.1 * g for (k, p), g in zip(parameters.items(), gradients)}


class Worker:
    def __init__(self, job):
        self.job, self.state = job, job.batch()

    def loop(self):
        for _ in self.job.steps():
            self.state = torch.tanh(self.job.model(self.state))


@program
def state_in_thread(job):
    """no_grad() holds for the thread that calls it, and another thread computes."""
    with torch.no_grad():
        worker = Worker(job)
        thread = threading.Thread(target=worker.loop)
        thread.start()
        thread.join()


@program
def evaluation(job):
    """Evaluation without no_grad keeps the graphs of its outputs."""
    for i in job.steps():
        job.train()
        if i % 10 == 0:
            outputs = [job.model(job.batch()) for _ in range(60)]
            torch.cat(outputs)
            del outputs


def count_positive(model, batch):
    return (model(batch) > 0).sum().item()  # FAULT thrown_graphs


@program
def thrown_graphs(job):
    """Evaluation without no_grad builds a graph in each call and throws it away."""
    job.model = net(WIDTH, 8).to(job.device)
    for _ in job.steps():
        count_positive(job.model, job.batch(512))


# ---- more than one of something ----


@program
def best_models(job):
    """Each better model is kept."""
    best = {}
    for i in job.steps():
        job.train()
        if i % 5 == 0:
            best[i] = copy.deepcopy(job.model)


@program
def best_model(job):
    """A copy of the model stays on the device."""
    job.model = net(1024).to(job.device)
    best = copy.deepcopy(job.model)
    for _ in job.steps():
        job.learn(job.model(job.batch(64, 1024)).pow(2).mean())
    del best


@program
def average(job):
    """A moving average of the weights is a second model."""
    job.model = net(1024).to(job.device)
    mean = copy.deepcopy(job.model)
    for _ in job.steps():
        job.learn(job.model(job.batch(64, 1024)).pow(2).mean())
        with torch.no_grad():
            for a, b in zip(mean.parameters(), job.model.parameters()):
                a.lerp_(b, 0.01)


@program
def second_state(job):
    """The optimizer's state of a checkpoint stays on the device."""
    job.model = net(1024).to(job.device)
    job.learn(job.model(job.batch(64, 1024)).pow(2).mean())
    checkpoint = {"optimizer": copy.deepcopy(job.optimizer.state_dict())}
    for _ in job.steps():
        job.learn(job.model(job.batch(64, 1024)).pow(2).mean())
    del checkpoint


@program
def two_optimizers(job):
    """An optimizer that is not used any more has state of the parameters, too."""
    job.model = net(WIDTH, 8).to(job.device)
    job.train()
    kept.append(job.optimizer)
    job.optimizer = torch.optim.AdamW(job.model.parameters(), lr=1e-4)
    for _ in job.steps():
        job.train()


@program
def checkpoint(job):
    """A checkpoint stays next to the model that was loaded from it."""
    job.model = net(WIDTH, 8).to(job.device)
    kept.append({"model": copy.deepcopy(job.model.state_dict()), "step": 1})
    job.model.load_state_dict(kept[0]["model"])
    for _ in job.steps():
        job.train()


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.ones(1024, 1024).tril())

    def forward(self, x):
        return self.linear(x)


@program
def masks(job):
    """Each layer has a buffer of its own with the same mask."""
    job.model = nn.Sequential(*[Masked() for _ in range(6)]).to(job.device)
    for _ in job.steps():
        job.train()


# ---- memory at the peak ----


@program
def late_zero_grad(job):
    """The gradients of the last step are there until backward."""
    job.model = nn.Sequential(nn.Embedding(16384, WIDTH), *[nn.Sigmoid() for _ in range(8)]).to(job.device)
    optimizer = torch.optim.SGD(job.model.parameters(), lr=1e-3)
    for _ in job.steps():
        loss = job.model(torch.randint(16384, (2048,), device=job.device)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(8000, 64)
        self.head = nn.Linear(64, 8000, bias=False)

    def forward(self, ids):
        return self.head(self.tokens(ids))


@program
def float_logits(job):
    """Logits of all tokens are cast to float32."""
    job.model = Language().to(job.device).bfloat16()
    for _ in job.steps():
        ids = torch.randint(8000, (256,), device=job.device)
        job.learn(F.cross_entropy(job.model(ids).float(), ids))


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * self.weight


@program
def output_variable(job):
    """A variable keeps an output during backward that autograd does not need."""
    job.model = Scale().to(job.device)
    for _ in job.steps():
        output = job.model(job.batch(8192))
        job.learn(torch.tanh(output).mean())


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(512, 512)

    def forward(self, h):
        return torch.tanh(self.mix(h))


@program
def autocast(job):
    """Autocast without its cache casts the weight in each of 16 calls."""
    job.model = Cell().to(job.device)
    for _ in job.steps():
        h = job.batch(4, 512)
        with torch.autocast(job.device, torch.bfloat16, cache_enabled=False):
            for _ in range(16):
                h = job.model(h)
            loss = h.float().pow(2).mean()
        job.learn(loss)


@program
def growing_inputs(job):
    """Batches get larger."""
    for i in job.steps():
        job.train(64 + 16 * i)


@program
def oom_inputs(job):
    """Each 20th batch does not fit."""
    for i in job.steps():
        try:
            job.train(64 << (i % 20))
        except torch.cuda.OutOfMemoryError:
            print("skipped a batch that does not fit", flush=True)


@program
def oom_leak(job):
    """A list grows until an allocation fails, and is then emptied."""
    history = []
    for _ in job.steps():
        job.train()
        try:
            history.append(torch.empty(80 * MIB, dtype=torch.uint8, device=job.device))
        except torch.cuda.OutOfMemoryError:
            history.clear()


# ---- memory without a tensor in it ----


@program
def burst(job):
    """The allocator keeps the memory of a large tensor that was there once."""
    del_me = torch.empty(1024 * MIB, dtype=torch.uint8, device=job.device)
    del del_me
    for _ in job.steps():
        job.train()


@program
def retries(job):
    """The cache is in pieces that are too small, so that the allocator gives it back. The device has to be small."""
    for _ in job.steps():
        parts = [torch.empty(20 * MIB, dtype=torch.uint8, device=job.device) for _ in range(20)]
        del parts
        block = torch.empty(600 * MIB, dtype=torch.uint8, device=job.device)  # FAULT retries
        del block
    print_retries()


@program
def handle_retries(job):
    """Another stream's cache has the memory that an expandable segment needs. The device has to be small."""
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    stream = torch.cuda.Stream()
    for _ in job.steps():
        with torch.cuda.stream(stream):
            torch.empty(600 * MIB, dtype=torch.uint8, device=job.device)
        torch.empty(600 * MIB, dtype=torch.uint8, device=job.device)  # FAULT handle_retries
    print_retries()


@program
def handle_oom(job):
    """The device is too full for an expandable segment, with or without the cache. The device has to be small."""
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    kept.append(torch.empty(600 * MIB, dtype=torch.uint8, device=job.device))
    for _ in job.steps():
        try:
            torch.empty(600 * MIB, dtype=torch.uint8, device=job.device)
        except torch.cuda.OutOfMemoryError:
            pass
    print_retries()


@program
def graph_pools(job):
    """A CUDA graph is captured for each request, and each has a pool of its own."""
    graphs, x = [], job.batch()
    for _ in job.steps():
        job.train()
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]), torch.no_grad():
            x + 1


@program
def fragments(job):
    """Small results stay between large blocks of all sizes, so that the next large block does not fit."""
    random.seed(0)
    kept = collections.deque(maxlen=12)
    for _ in job.steps():
        job.train()
        large = torch.empty(random.randrange(20, 200) * MIB, dtype=torch.uint8, device=job.device)
        kept.append(torch.empty(random.randrange(2, 12) * MIB, dtype=torch.uint8, device=job.device))
        del large


@program
def pieces(job):
    """What lasts is put into segments of what was there before, so that a large block finds only pieces. The device has to be small."""
    for _ in job.steps():
        blocks = []
        for _ in range(12):
            before = torch.empty(100 * MIB, dtype=torch.uint8, device=job.device)
            del before
            blocks.append(torch.empty(60 * MIB, dtype=torch.uint8, device=job.device))
        try:
            torch.empty(400 * MIB, dtype=torch.uint8, device=job.device)
        except torch.cuda.OutOfMemoryError:
            print("a large block does not fit", flush=True)
        del blocks


@program
def pinned_sizes(job):
    """Each step pins more buffers, and PyTorch keeps the memory of all."""
    for i in job.steps():
        job.train()
        buffers = [torch.ones(MIB, dtype=torch.uint8).pin_memory() for _ in range(1 + i // 2)]
        del buffers


@program
def free_heap(job):
    """malloc keeps the memory of many small tensors that are gone."""
    many = [torch.ones(25_000) for _ in range(3000)]
    pins = [[object() for _ in range(1000)] for _ in range(50)]
    del many
    for _ in job.steps():
        job.train()
    del pins


# ---- host memory ----


@program
def numpy_frames(job):
    """A list keeps arrays of numpy."""
    import numpy
    frames = []
    for i in job.steps():
        job.train()
        frames.append(numpy.full((480, 640, 3), i % 255, numpy.uint8))


@program
def byte_strings(job):
    """A list keeps what was read."""
    bodies = []
    for _ in job.steps():
        job.train()
        bodies.append(os.urandom(MIB))


class Rows(Dataset):
    def __init__(self):
        self.items = [("file-%07d.jpg" % i, i % 1000) for i in range(600_000)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        name, label = self.items[i]
        return torch.tensor([label, len(name)])


@program
def worker(job):
    """A worker of the DataLoader copies the pages of a list of objects that it reads."""
    loader = DataLoader(Rows(), batch_size=256, num_workers=1)
    for i, _ in zip(job.steps(), loader):
        job.train()
        if i == 1:
            with open("/proc/self/task/%d/children" % os.getpid(), encoding="ascii") as f:
                print("attach", f.read().split()[-1], flush=True)


# ---- several processes: torchrun --nproc-per-node 2 faults.py one_rank ----


@program
def one_rank(job):
    """One rank of a job keeps its outputs."""
    torch.distributed.init_process_group("gloo")
    job.model = nn.parallel.DistributedDataParallel(job.model)
    history = []
    for _ in job.steps():
        job.train()
        if torch.distributed.get_rank() == 1:
            history.append(job.predict())


if __name__ == "__main__":
    main(globals())
