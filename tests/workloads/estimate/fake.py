# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Estimates in another way, for comparison: runs a training script of this folder on PyTorch's fake tensors, which have shapes and
no memory, and adds up the sizes of their storages. Uses nothing of memtrace-bpf.

    python fake.py --tracker memtracker|dispatch [--move] SCRIPT [ARGUMENT...]

memtracker: torch.distributed._tools.mem_tracker.MemTracker, PyTorch's own. dispatch: a mode that sees each operation, adds new
storages of results, and subtracts freed ones; exact sizes. Prints one JSON line: {"peak": bytes} by device, or the script's
error. --move: allows moving modules to the GPU, which PyTorch refuses for fake parameters with weak references.
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
    """Bytes of all storages of results, by device, and their peak."""

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
    # The tracker rejects a second step unless its per-module figures are reset; the peak stays.
    register_optimizer_step_post_hook(lambda *_: tracker.reset_mod_stats())
    return tracker, lambda: {str(d): snap["Total"] for d, snap in tracker.get_tracker_snapshot("peak").items()}


def dispatch():
    mode = Storages()
    return mode, lambda: mode.most


def why(error):
    """The error's text, and the script's innermost line."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if os.path.dirname(os.path.abspath(f.filename)) == HERE and
              os.path.basename(f.filename) != "fake.py"]
    at = " at %s:%d" % (os.path.basename(frames[-1].filename), frames[-1].lineno) if frames else ""
    return "%s%s: %s" % (type(error).__name__, at, " ".join(str(error).split())[:300])


@contextlib.contextmanager
def moves():
    """Allows moving modules of fake parameters: PyTorch's swap of tensors without the check for weak references."""
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
    common.finish = lambda *a, **k: None  # the allocator has no figures in this run
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
