# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Names the phases of a program for memtrace-bpf: who records it sees the memory of each.

    from memtrace_bpf import phase

    with phase("rollout"):
        ...

    @phase("train")
    def train(batch): ...

The decorator also takes coroutines and generators: their phase is suspended while they are. Phases nest, on each thread and in each
task. This file needs nothing but Python 3.8 or newer; you can copy it into a project as memtrace_phases.py. A phase costs about 1.5
us, recorded or not. It writes 128 bytes into memory that a recorder reads from outside: there is no socket, no thread and no privilege.
docs/reference/phases.md describes that memory.
"""
import contextlib
import contextvars
import fcntl
import functools
import inspect
import itertools
import mmap
import os
import struct
import sys
import threading
import time
import warnings

__all__ = ["accelerate_phases", "lightning_callback", "phase", "ray_train_loop", "trainer_callback", "trainer_phases", "trl_phases"]

ROOM = 1024  # records; a recorder reads them every 10 ms
HEAD = struct.Struct("8sIIII104x")
RECORD = struct.Struct("QQQIHxx80s8xQ")  # number, time, phase (begin: the one around), thread, what, name, number
BEGIN, END, SUSPEND, RESUME = 1, 2, 3, 4
FIRST_FD = 1000  # where recorders look for the memory
MAX_NAMES = 4096
SIZE = RECORD.size

_now = time.monotonic_ns
_write = RECORD.pack_into
_local = threading.local()  # tid; a thread without it calls _new_thread()
_current = contextvars.ContextVar("memtrace_phase", default=None)  # the innermost run, which may have ended
_lock = threading.Lock()
_fd = -1
_ring = None  # the records that a recorder reads; None: not made yet
_numbers = None


class _Numbers:
    """Numbers from 1 on, each once. Without the GIL, itertools.count() alone may give one twice."""

    def __init__(self):
        self._count, self._lock = itertools.count(1), threading.Lock()

    def __next__(self):
        with self._lock:
            return next(self._count)


class _Names(dict):
    """Each name's first 80 bytes of UTF-8, without a part of a character."""

    def __missing__(self, name):
        data = str(name).encode("utf-8", "replace")[:80].decode("utf-8", "ignore").encode()
        if len(self) < MAX_NAMES:
            self[name] = data
        return data


_names = _Names()


def _make():
    """Makes the memory that a recorder reads. Without it, phases are written to memory that nobody reads."""
    global _fd, _ring, _numbers
    ring = bytearray(SIZE * ROOM)
    try:
        if hasattr(os, "memfd_create"):  # otherwise it is not Linux: there is no recorder either
            ring = _map()
    except OSError as e:
        warnings.warn("memtrace_bpf: no memory for phases, a recording will lack them: %s" % e, RuntimeWarning, stacklevel=4)
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    _numbers = itertools.count(1) if gil else _Numbers()
    _ring = ring


def _map():
    global _fd
    fd = os.memfd_create("memtrace-phase", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, SIZE * (1 + ROOM))
        memory = mmap.mmap(fd, SIZE * (1 + ROOM))
        memory[:HEAD.size] = HEAD.pack(b"MTPHASE\0", 1, SIZE, ROOM, os.getpid())
        _fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _first_fd())
        return memoryview(memory)[HEAD.size:]
    finally:
        os.close(fd)


def _first_fd():
    import resource  # only here: not every Python has it
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return FIRST_FD if most == resource.RLIM_INFINITY or most > FIRST_FD else most // 2


def _new_thread():
    """At the first phase of a thread. Returns its thread ID."""
    with _lock:
        if _ring is None:
            _make()
    _local.tid = threading.get_native_id()
    return _local.tid


def _after_fork():
    global _fd, _ring, _lock, _local
    _lock = threading.Lock()  # another thread of the parent may have held it
    _local = threading.local()
    if _fd >= 0:
        os.close(_fd)  # the memory is the parent's
    _fd, _ring = -1, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Run:
    """One run of a phase. It is a context manager. Enter and exit are written out, because calls would cost half of their time. Exit
    leaves _current as it is, which costs as much as the clock: who reads it passes those that have ended."""
    __slots__ = ("name", "scope", "outer", "tid", "ring", "more")

    def __init__(self, name):
        self.name, self.scope, self.more = name, None, None  # scope: number of its first record; None: not begun; 0: ended

    def __enter__(self):
        if self.scope is not None:
            return self._again()
        try:
            tid = self.tid = _local.tid
        except AttributeError:
            tid = self.tid = _new_thread()
        ring = self.ring = _ring
        outer = _current.get()
        while outer is not None and not outer.scope:
            outer = outer.outer
        self.outer = outer
        _current.set(self)
        number = self.scope = next(_numbers)
        # A phase with another ring is that of the process that forked this one.
        around = 0 if outer is None or outer.ring is not ring else outer.scope
        _write(ring, number % ROOM * SIZE, number, _now(), around, tid, BEGIN, self.name, number)
        return self

    def __exit__(self, kind=None, value=None, trace=None):
        if self.more is not None and self._end_again():
            return
        if self.ring is _ring:
            number = next(_numbers)
            _write(_ring, number % ROOM * SIZE, number, _now(), self.scope, self.tid, END, self.name, number)
        self.scope = 0

    def _again(self):
        """A further run of an object that began one already, in it, after it or on another thread."""
        self.more = self.more or []
        self.more.append(_Run(self.name).__enter__())
        return self

    def _end_again(self):
        """Ends the last further run, of this thread if there is one. False: it is the first run that ends."""
        tid = threading.get_native_id()
        own = [run for run in self.more if run.tid == tid]
        if not self.more or (not own and self.scope and self.tid == tid):
            return False
        run = own[-1] if own else self.more[-1]
        self.more.remove(run)
        run.__exit__()
        return True

    def write(self, what):
        if self.scope and self.ring is _ring:
            number = next(_numbers)
            _write(_ring, number % ROOM * SIZE, number, _now(), self.scope, threading.get_native_id(), what, self.name, number)


def _suspend(run):
    """Suspends a run and those inside it, which are of the same coroutine. Returns the innermost."""
    inner = at = _current.get()
    while at is not None and at is not run:
        at.write(SUSPEND)
        at = at.outer
    if at is None:  # the context is another one
        inner = run
    run.write(SUSPEND)
    _current.set(run.outer)
    return inner


def _resume(run, inner):
    run.outer = _current.get()
    _current.set(inner)
    run.write(RESUME)
    while inner is not None and inner is not run:
        inner.write(RESUME)
        inner = inner.outer


def _drive(name, inner):
    """Runs a coroutine or generator in a phase that is suspended where it is: a generator that yields what the inner one yields."""
    run = _Run(name).__enter__()
    try:
        step, value = inner.send, None
        while True:
            try:
                got = step(value)
            except StopIteration as e:
                return e.value
            top = _suspend(run)
            try:
                value = yield got
                step = inner.send
            except GeneratorExit:
                _resume(run, top)
                inner.close()
                raise
            except BaseException as e:  # noqa: BLE001: it is thrown into the inner one
                step, value = inner.throw, e
            _resume(run, top)
    finally:
        run.__exit__()


class _Awaitable:
    def __init__(self, generator):
        self._generator = generator

    def __await__(self):
        return self._generator


async def _drive_async(name, inner):
    """As _drive(), for an asynchronous generator: suspended where it waits, and where it yields."""
    run = _Run(name).__enter__()
    step, value = inner.asend, None
    try:
        while True:
            try:
                got = await _Awaitable(_within(run, step(value).__await__()))
            except StopAsyncIteration:
                return
            top = _suspend(run)
            try:
                value = yield got
                step = inner.asend
            except GeneratorExit:
                _resume(run, top)
                await inner.aclose()
                raise
            except BaseException as e:  # noqa: BLE001
                step, value = inner.athrow, e
            _resume(run, top)
    finally:
        run.__exit__()


def _within(run, inner):
    """Passes on what an awaitable yields, and suspends the run there."""
    value = None
    try:
        got = inner.send(None) if hasattr(inner, "send") else next(inner)
        while True:
            top = _suspend(run)
            try:
                value = yield got
            except BaseException as e:  # noqa: BLE001
                _resume(run, top)
                got = inner.throw(e)
                continue
            _resume(run, top)
            got = inner.send(value)
    except StopIteration as e:
        return e.value


class phase(_Run):  # noqa: N801: reads as a statement
    """A phase of the program: `with phase("rollout"):`, or `@phase("train")` before a function, coroutine or generator.

    A `with` in a coroutine stays open while that waits: other tasks' memory then counts for it. Use the decorator there. Names are
    cut to 80 bytes.
    """
    __slots__ = ()

    def __init__(self, name):
        self.name, self.scope, self.more = _names[name], None, None

    async def __aenter__(self):
        return self.__enter__()

    async def __aexit__(self, *_):
        self.__exit__()

    def __call__(self, function):
        name = self.name
        if inspect.iscoroutinefunction(function):
            async def call(*args, **kwargs):
                return await _Awaitable(_drive(name, function(*args, **kwargs)))
        elif inspect.isasyncgenfunction(function):
            def call(*args, **kwargs):
                return _drive_async(name, function(*args, **kwargs))
        elif inspect.isgeneratorfunction(function):
            def call(*args, **kwargs):
                return _drive(name, function(*args, **kwargs))
        else:
            def call(*args, **kwargs):
                with _Run(name):
                    return function(*args, **kwargs)
        return functools.wraps(function)(call)


# ---- phases of libraries. Each function imports its library when it is called. ----

class _Open:
    """Phases by name that hooks begin and end."""

    def __init__(self):
        self._runs = {}

    def begin(self, name):
        if name not in self._runs:
            self._runs[name] = phase(name).__enter__()

    def end(self, name):
        run = self._runs.pop(name, None)
        if run is not None:
            run.__exit__()

    def end_all(self):
        for name in list(self._runs):
            self.end(name)


def trainer_callback():
    """A callback for transformers.Trainer and the trainers of TRL: train step, evaluate, save.

        Trainer(..., callbacks=[trainer_callback()])

    A step has all its batches of gradient accumulation. The library does not tell a callback when trainer.evaluate() that you call
    yourself begins: trainer_phases() has that, too.
    """
    from transformers import TrainerCallback

    class MemtraceCallback(TrainerCallback):
        memtrace_steps_only = False  # the methods of the trainer are in phases themselves

        def __init__(self):
            self._open = _Open()

        def _next(self, evaluates, saves):
            """What follows a step or an epoch, in this order."""
            if evaluates and not self.memtrace_steps_only:
                self._open.begin("evaluate")
            elif saves and not self.memtrace_steps_only:
                self._open.begin("save")

        def on_step_begin(self, args, state, control, **kwargs):
            self._open.begin("train step")

        def on_step_end(self, args, state, control, **kwargs):
            self._open.end("train step")
            self._next(control.should_evaluate, control.should_save)

        def on_epoch_end(self, args, state, control, **kwargs):
            self._open.end("train step")
            self._next(control.should_evaluate, control.should_save)

        def on_evaluate(self, args, state, control, **kwargs):
            self._open.end("evaluate")
            self._next(False, control.should_save)

        def on_save(self, args, state, control, **kwargs):
            self._open.end("save")

        def on_train_end(self, args, state, control, **kwargs):
            self._open.end_all()

    return MemtraceCallback()


def trainer_phases(trainer):
    """Names the phases of a transformers.Trainer, or one of TRL: train step, evaluate, predict, save. Also those that you call yourself.

        trainer = trainer_phases(Trainer(...))
    """
    own = [c for c in trainer.callback_handler.callbacks if hasattr(c, "memtrace_steps_only")]
    if not own:
        own = [trainer_callback()]
        trainer.add_callback(own[0])
    for callback in own:
        callback.memtrace_steps_only = True
    return _wrap(trainer, {"evaluate": "evaluate", "predict": "predict", "_save_checkpoint": "save"})


def lightning_callback():
    """A callback for Lightning's Trainer: train step, validate, test, predict.

        Trainer(..., callbacks=[lightning_callback()])
    """
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

    class MemtraceCallback(Callback):
        def __init__(self):
            self._open = _Open()

        def on_train_batch_start(self, *args, **kwargs):
            self._open.begin("train step")

        def on_train_batch_end(self, *args, **kwargs):
            self._open.end("train step")

        def on_validation_start(self, *args, **kwargs):
            self._open.begin("validate")

        def on_validation_end(self, *args, **kwargs):
            self._open.end("validate")

        def on_test_start(self, *args, **kwargs):
            self._open.begin("test")

        def on_test_end(self, *args, **kwargs):
            self._open.end("test")

        def on_predict_start(self, *args, **kwargs):
            self._open.begin("predict")

        def on_predict_end(self, *args, **kwargs):
            self._open.end("predict")

        def on_exception(self, *args, **kwargs):
            self._open.end_all()

        def teardown(self, *args, **kwargs):
            self._open.end_all()

    return MemtraceCallback()


def _wrap(owner, names):
    """Puts methods of an object into phases; those that it lacks are left out. names: method -> phase. Returns the object."""
    for method, name in names.items():
        function = getattr(owner, method, None)
        if callable(function):
            setattr(owner, method, phase(name)(function))
    return owner


def accelerate_phases(accelerator):
    """Names phases of an Accelerator: accumulate (a batch, in `with accelerator.accumulate(model)`), backward, save.

        accelerator = accelerate_phases(Accelerator())
    """
    accumulate = accelerator.accumulate

    @contextlib.contextmanager
    def accumulate_in_phase(*models):
        with phase("accumulate"), accumulate(*models):
            yield

    accelerator.accumulate = accumulate_in_phase
    return _wrap(accelerator, {"backward": "backward", "save_state": "save", "save_model": "save"})


def trl_phases(trainer):
    """Names the phases of a TRL trainer that generates (GRPO, RLOO, OnlineDPO): those of trainer_phases(), and rollout, generate, weight
    sync, loss.

        trainer = trl_phases(GRPOTrainer(...))
    """
    trainer_phases(trainer)
    _wrap(trainer, {"_generate_and_score_completions": "rollout", "_generate_single_turn": "generate", "_move_model_to_vllm": "weight sync",
                    "compute_loss": "loss"})
    engine = getattr(trainer, "vllm_generation", None)
    if engine is not None:
        _wrap(engine, {"sync_weights": "weight sync"})
    return trainer


def ray_train_loop(function):
    """Names the phases of a training function of Ray Train: round (from one ray.train.report() to the next), report.

        TorchTrainer(ray_train_loop(train_loop_per_worker), ...)

    The workers need this module. The function calls ray.train.report by this name.
    """
    @functools.wraps(function)
    def loop(*args, **kwargs):
        import ray.train
        report, opened = ray.train.report, _Open()

        def report_in_phase(*a, **k):
            opened.end("round")
            with phase("report"):
                result = report(*a, **k)
            opened.begin("round")
            return result

        ray.train.report = report_in_phase
        opened.begin("round")
        try:
            return function(*args, **kwargs)
        finally:
            ray.train.report = report
            opened.end_all()

    return loop
