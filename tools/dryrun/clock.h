/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The virtual clock of devices, with MEMTRACE_DRYRUN_CLOCK. Without it all functions do nothing and
 * return 0. Work is done at once, as always, but it occupies its stream until a time of
 * CLOCK_MONOTONIC: the host waits there when it synchronises. Durations are modelled, not measured:
 * docs/internals/DRYRUN.md, "The clock".
 *
 * Times are ns of CLOCK_MONOTONIC. All functions are thread-safe. Those that wait must be called
 * without any lock of the dry run.
 */
#include "dryrun.h"

/* The time line of a stream: its work runs in order. */
struct clock_line;

bool clock__on(void);
uint64_t clock__now(void);

/* Locks and unlocks all time lines, for fork(). */
void clock__lock(void);
void clock__unlock(void);

/* A new stream's time line; the caller frees it. NULL: the clock is off, or no memory. A blocking
 * stream waits for the device's default stream, which waits for it. */
struct clock_line *clock__line_new(int device, bool blocking);
/* NULL is allowed. Work on the line is still part of its device's. */
void clock__line_free(struct clock_line *line);
/* The time line of a device's default stream, or of its threads' default streams: these share one. */
struct clock_line *clock__line_default(int device, bool of_thread);

/* Adds work of so many ns. Waits while the line has as much work queued as a device takes. */
void clock__run(struct clock_line *line, uint64_t ns);
/* The time at which all work on a line is done; not before now. */
uint64_t clock__end(struct clock_line *line);
/* Later work on a line does not begin before a time. */
void clock__after(struct clock_line *line, uint64_t when);
/* The time at which all work of a device is done. */
uint64_t clock__device_end(int device);

/* The host waits until a time. */
void clock__wait(uint64_t until);

/* ---- durations of the model, in ns; 0 with the clock off ---- */

/* A kernel of so many threads. */
uint64_t clock__kernel_ns(uint64_t threads);
/* A matrix product of m x k and k x n elements, `batch` times. element: bytes of an element. */
uint64_t clock__product_ns(uint64_t m, uint64_t n, uint64_t k, uint64_t batch,
			   unsigned int element);
/* A copy: over the bus if one side is the host's, otherwise within the device. */
uint64_t clock__copy_ns(const void *to, const void *from, uint64_t size);
uint64_t clock__fill_ns(uint64_t size);
/* Data that goes to or comes from other devices. */
uint64_t clock__transfer_ns(uint64_t size);

/* True if the host waits for a copy that it enqueued on a stream: from or to pageable memory.
 * CUDA stages small copies to a device, which does not wait. */
bool clock__copy_waits(const void *to, const void *from, uint64_t size);
