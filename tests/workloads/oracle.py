# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
The view of PyTorch's own allocator on a job, to compare recordings with.

A job is an endless generator: it builds its objects, and each yield ends a step. main() runs it for --steps steps and keeps all
its objects alive. With --oracle FILE the allocator's own history is on from the first block, and FILE receives, as a pickle: the
trace, segments and blocks of _snapshot(), memory_stats() and the peaks at the last step's end. Nothing uses CUDA after that: the
process waits for a line on standard input (--wait) and exits without clean-up.

For attaching in the middle: --stop-before N waits there for a line, notes the same facts at that moment and resets the peaks;
--until-told continues at full speed until a line comes.

torch >= 2.1, Python >= 3.8.
"""
import argparse
import gc
import os
import pickle
import select
import sys
import time
import warnings

import torch


def arguments(doc, **defaults):
    """A parser with the common options."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=defaults.get("steps", 6))
    p.add_argument("--device", default="cuda", help="cuda, or cpu to see whether the job itself is right")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--oracle", metavar="FILE", help="write what the allocator knows at the end")
    p.add_argument("--snapshot", metavar="FILE", help="write a memory snapshot of PyTorch at the end")
    p.add_argument("--history", choices=("all", "state", "legacy"), default="all", help="what of the snapshot's history is kept; legacy: the call "
                   "of PyTorch 2.0")
    p.add_argument("--stacks", choices=("python", "all"), default="python", help="of the snapshot")
    p.add_argument("--pinned", action="store_true", help="the history has pinned host memory, too; torch >= 2.15")
    p.add_argument("--each-way", action="store_true",
                   help="write FILE.hand, too: _snapshot() pickled with the oldest protocol, and FILE.list: memory_snapshot(), pickled")
    p.add_argument("--no-history", action="store_true", help="its totals only: for runs of very many events")
    p.add_argument("--stop-before", type=int, metavar="N", help="say ready and wait for a line before step N")
    p.add_argument("--until-told", action="store_true", help="go on until a line comes; says ready after --steps steps")
    p.add_argument("--pause", type=float, default=0, help="seconds between two steps")
    p.add_argument("--wait", action="store_true", help="say done and wait for a line at the end")
    return p


def devices():
    return range(torch.cuda.device_count() if torch.cuda.is_available() else 0)


def say(text):
    print(text, flush=True)


def told(wait):
    """True if a line or the end of standard input has come; wait: blocks until then."""
    if not wait and not select.select([sys.stdin], [], [], 0)[0]:
        return False
    sys.stdin.readline()
    return True


def backend():
    return torch.cuda.get_allocator_backend()


def segments():
    """[{device, address, size, stream, pool, small, expandable, blocks: [(address, size, requested, state)]}]"""
    result = []
    for s in torch.cuda.memory._snapshot()["segments"]:
        at, blocks = s["address"], []
        for b in s["blocks"]:  # blocks fill the segment; the snapshot has their addresses from 2.4 on
            blocks.append((at, b["size"], b.get("requested_size", 0), b["state"]))
            at += b["size"]
        result.append({"device": s["device"], "address": s["address"], "size": s["total_size"], "stream": s["stream"],
                       "pool": tuple(s.get("segment_pool_id", (0, 0))), "small": s["segment_type"] == "small",
                       "expandable": s.get("is_expandable", False), "blocks": blocks})
    return result


def traces(snapshot):
    """Per device, in order: (action, address, size, stream); for an oom the address is the free memory."""
    return [[(e["action"], e.get("addr", e.get("device_free")), e["size"], e["stream"]) for e in of_device]
            for of_device in snapshot["device_traces"]]


def frames(snapshot):
    """Likewise, the Python frames of each event, innermost first: (file, line)."""
    return [[[(f["filename"], f["line"]) for f in e.get("frames", ())] for e in of_device] for of_device in snapshot["device_traces"]]


def storages():
    """Live tensors known to Python's garbage collector: {(device, address): bytes} of their storages."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some objects warn on access
        for o in gc.get_objects():
            if issubclass(type(o), torch.Tensor) and o.is_cuda:
                s = o.untyped_storage()
                if s.nbytes():
                    found[s.device.index, s.data_ptr()] = s.nbytes()
    return found


def look(history):
    """The allocator's current state. history: what begin() returned."""
    facts = {"stats": [dict(torch.cuda.memory_stats(d)) for d in devices()],
             "free": [torch.cuda.mem_get_info(d) for d in devices()],
             "segments": None, "traces": None}
    if history:
        snapshot = torch.cuda.memory._snapshot()
        facts["segments"], facts["traces"] = segments(), traces(snapshot)
        if history == "frames":
            facts["frames"] = frames(snapshot)
    elif backend() == "native":
        facts["segments"] = segments()
    else:
        facts["storages"] = storages()
    return facts


def begin_snapshot(args):
    """Turns on the history of --snapshot."""
    if args.history == "legacy":
        return torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=1 << 22, trace_alloc_record_context=True,
                                                        record_context_cpp=args.stacks == "all")
    more = {"record_pinned_host_memory": True} if args.pinned else {}
    return torch.cuda.memory._record_memory_history(enabled=args.history, context="all", stacks=args.stacks, **more)


def write_snapshot(args):
    torch.cuda.memory._dump_snapshot(args.snapshot)
    if not args.each_way:
        return
    with open(args.snapshot + ".hand", "wb") as f:
        pickle.dump(torch.cuda.memory._snapshot(), f, 0)
    with open(args.snapshot + ".list", "wb") as f:
        pickle.dump(torch.cuda.memory_snapshot(), f)


def begin(args, with_frames=False):
    """Turns the allocator's history on. with_frames: with Python's stacks, torch >= 2.3. Returns whether it is: False, True or "frames"."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    if not args.device.startswith("cuda"):
        return False
    torch.cuda.init()
    if args.snapshot and backend() == "native":
        begin_snapshot(args)
        return False
    if not args.oracle or args.no_history or backend() != "native":
        return False
    if not with_frames:
        torch.cuda.memory._record_memory_history(enabled="all", context=None)
        return True
    torch.cuda.memory._record_memory_history(enabled="all", context="all", stacks="python", max_entries=1 << 22)
    return "frames"


def end(args, truth, history):
    """Writes what the allocator knows, and ends the process."""
    cuda = args.device.startswith("cuda")
    if cuda:
        torch.cuda.synchronize()
        truth["backend"] = backend()
        truth["end"] = look(history)
    if args.snapshot:
        write_snapshot(args)
    if args.oracle:
        with open(args.oracle, "wb") as f:
            pickle.dump(truth, f, 4)
    if args.wait:
        say("done")
        told(wait=True)
    elif not args.oracle:
        say("%d steps in %.2f s" % (truth["steps"], truth["seconds"]))
        if cuda:
            for d in devices():
                say("cuda:%d  peak %.1f MiB allocated, %.1f MiB reserved" % (
                    d, torch.cuda.max_memory_allocated(d) / 2**20, torch.cuda.max_memory_reserved(d) / 2**20))
    sys.stdout.flush()
    os._exit(0)  # no destructor may free anything after the file is written


def new_truth():
    return {"torch": str(torch.__version__), "pid": os.getpid(), "attach": None}


def main(job, args):
    history, truth = begin(args), new_truth()
    cuda = args.device.startswith("cuda")
    start = time.monotonic()
    job = job(args)
    step = 0
    while args.until_told or step < args.steps:
        if step == args.stop_before:
            if cuda:
                torch.cuda.synchronize()
                truth["attach"] = look(history)
                for d in devices():
                    torch.cuda.reset_peak_memory_stats(d)
            say("ready")
            told(wait=True)
        if args.until_told and step == args.steps:
            say("ready")
        if args.until_told and step >= args.steps and told(wait=False):
            break
        next(job)
        step += 1
        if args.pause:
            time.sleep(args.pause)
    truth["steps"], truth["seconds"] = step, time.monotonic() - start
    end(args, truth, history)
