# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Another way to estimate: runs a training script of this folder on PyTorch's fake tensors, which have shapes and no memory, and adds up
what their storages would take. Something to compare with; nothing of memtrace-bpf is made of it.

    python fake.py --tracker memtracker|dispatch [--move] SCRIPT [ARGUMENT...]

memtracker: torch.distributed._tools.mem_tracker.MemTracker, PyTorch's own. dispatch: a mode that sees each operation, adds each new
storage of its results, and takes it off when the storage is gone; sizes as they are. Prints one JSON line: {"peak": bytes} by device,
or what the script failed with. --move: modules can be moved to the GPU, which PyTorch refuses fake parameters that have weak
references.
"""
import argparse
import contextlib
import json
import os
import runpy
import sys
import traceback
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class Storages(TorchDispatchMode):
    """Bytes of all storages that results of operations had, by device; the most at any time."""

    def __init__(self):
        super().__init__()
        self.known = {}
        self.now, self.most = {}, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for t in tree_iter(result):
            if isinstance(t, torch.Tensor):
                self.add(t)
        return result

    def add(self, tensor):
        storage = tensor.untyped_storage()
        key = storage._cdata
        size = storage.nbytes()
        device = str(tensor.device)
        if self.known.get(key, (None, None))[0] == device:
            return
        self.known[key] = device, size
        self.now[device] = self.now.get(device, 0) + size
        self.most[device] = max(self.most.get(device, 0), self.now[device])
        weakref.finalize(storage, self.gone, key)

    def gone(self, key):
        device, size = self.known.pop(key, (None, 0))
        if device:
            self.now[device] -= size


def memtracker():
    from torch.distributed._tools.mem_tracker import MemTracker
    from torch.optim.optimizer import register_optimizer_step_post_hook
    tracker = MemTracker()
    # It refuses a second step unless its figures by module are forgotten; the peak stays.
    register_optimizer_step_post_hook(lambda *_: tracker.reset_mod_stats())
    return tracker, lambda: {str(d): snap["Total"] for d, snap in tracker.get_tracker_snapshot("peak").items()}


def dispatch():
    mode = Storages()
    return mode, lambda: mode.most


def why(error):
    """The error's text, and the innermost line that is the script's."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if os.path.dirname(os.path.abspath(f.filename)) == HERE and
              os.path.basename(f.filename) != "fake.py"]
    at = " at %s:%d" % (os.path.basename(frames[-1].filename), frames[-1].lineno) if frames else ""
    return "%s%s: %s" % (type(error).__name__, at, " ".join(str(error).split())[:300])


@contextlib.contextmanager
def moves():
    """Modules of fake parameters can be moved: PyTorch's swap of tensors without its check for weak references, of which they have some."""
    theirs = torch.utils.swap_tensors

    def swap(a, b):
        a.__class__, b.__class__ = b.__class__, a.__class__
        a.__dict__, b.__dict__ = b.__dict__, a.__dict__
        torch._C._swap_tensor_impl(a, b)

    torch.utils.swap_tensors = swap
    try:
        yield
    finally:
        torch.utils.swap_tensors = theirs


HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tracker", choices=("memtracker", "dispatch"), required=True)
    p.add_argument("--move", action="store_true")
    p.add_argument("script")
    p.add_argument("arguments", nargs=argparse.REMAINDER)
    args = p.parse_args()
    sys.path.insert(0, HERE)
    import common
    common.finish = lambda *a, **k: None  # the allocator has nothing to say of this run
    sys.argv = [args.script, *args.arguments]
    tracker, peaks = {"memtracker": memtracker, "dispatch": dispatch}[args.tracker]()
    line = {"tracker": args.tracker, "torch": torch.__version__, "cuda": torch.cuda.is_available()}
    helped = moves() if args.move else contextlib.nullcontext()
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), helped, tracker:
            runpy.run_path(args.script, run_name="__main__")
    except Exception as e:
        line["error"] = why(e)
    try:
        line["peak"] = {d: n for d, n in peaks().items() if n}
    except Exception as e:
        line.setdefault("error", why(e))
    print(json.dumps(line), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
