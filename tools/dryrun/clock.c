// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "clock.h"
#include "props.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Assumptions. Each is stated in docs/internals/DRYRUN.md. */
#define QUEUE 1024		/* pieces of work that a stream takes before a launch waits */
#define LEAST_NS 2000.0		/* every piece of work */
#define THREAD_BYTES 32.0	/* memory that a thread reads and writes */
#define EFFICIENCY 0.7		/* of the peak rates of memory and of products */
#define BUS_BYTES_NS 20.0	/* between host and device */
#define TRANSFER_BYTES_NS 100.0 /* between devices */

#define SPIN_NS 80000u /* sleeping is less exact than this: spin for the rest */

struct clock_line {
	int device;
	bool legacy, blocking;
	uint64_t end;
	uint64_t queue[QUEUE]; /* ends of the last pieces of work */
	unsigned int next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	uint64_t end;	       /* of all work */
	uint64_t blocking_end; /* of work on blocking streams other than the default one */
	struct clock_line *lines[2];
} devices[DRYRUN_MAX_DEVICES];

bool clock__on(void)
{
	return dryrun__config()->clock > 0;
}

uint64_t clock__now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void clock__lock(void)
{
	pthread_mutex_lock(&mutex);
}

void clock__unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

static void say(void)
{
	double factor = dryrun__config()->clock;

	dryrun__log("assumed clock %g", factor);
	fprintf(stderr,
		"memtrace-bpf: dry run: MEMTRACE_DRYRUN_CLOCK=%g: durations of GPU work are "
		"modelled, "
		"not measured\n",
		factor);
}

/* ---- time lines ---- */

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

struct clock_line *clock__line_new(int device, bool blocking)
{
	struct clock_line *line = clock__on() ? calloc(1, sizeof(*line)) : NULL;

	if (line) {
		line->device = device;
		line->blocking = blocking;
	}
	return line;
}

void clock__line_free(struct clock_line *line)
{
	free(line);
}

struct clock_line *clock__line_default(int device, bool of_thread)
{
	struct clock_line **at = &devices[device].lines[of_thread], *line;

	if (!clock__on())
		return NULL;
	clock__lock();
	if (!*at) {
		*at = clock__line_new(device, true);
		if (*at)
			(*at)->legacy = !of_thread;
	}
	line = *at;
	clock__unlock();
	return line;
}

/* When work on a line can begin. Mutex held. */
static uint64_t beginning(const struct clock_line *line)
{
	struct clock_line *legacy = devices[line->device].lines[0];

	if (line->legacy)
		return later(line->end, devices[line->device].blocking_end);
	return line->blocking && legacy ? later(line->end, legacy->end) : line->end;
}

void clock__run(struct clock_line *line, uint64_t ns)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uint64_t now, oldest;

	if (!line || !ns)
		return;
	pthread_once(&once, say);
	now = clock__now();
	clock__lock();
	line->end = later(now, beginning(line)) + ns;
	if (line->blocking && !line->legacy)
		devices[line->device].blocking_end = later(devices[line->device].blocking_end,
							   line->end);
	devices[line->device].end = later(devices[line->device].end, line->end);
	oldest = line->queue[line->next];
	line->queue[line->next] = line->end;
	line->next = (line->next + 1) % QUEUE;
	clock__unlock();
	if (oldest > now)
		clock__wait(oldest);
}

uint64_t clock__end(struct clock_line *line)
{
	uint64_t end;

	if (!line)
		return 0;
	clock__lock();
	end = beginning(line);
	clock__unlock();
	return later(end, clock__now());
}

void clock__after(struct clock_line *line, uint64_t when)
{
	if (!line)
		return;
	clock__lock();
	line->end = later(line->end, when);
	clock__unlock();
}

uint64_t clock__device_end(int device)
{
	uint64_t end;

	if (!clock__on())
		return 0;
	clock__lock();
	end = devices[device].end;
	clock__unlock();
	return end;
}

void clock__wait(uint64_t until)
{
	for (;;) {
		uint64_t now = clock__on() ? clock__now() : until, wake = until - SPIN_NS;

		if (now >= until)
			return;
		if (now < wake) {
			struct timespec t = { .tv_sec = (time_t)(wake / 1000000000u),
					      .tv_nsec = (long)(wake % 1000000000u) };

			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		}
	}
}

/* ---- the model ---- */

static uint64_t duration(double ns)
{
	double factor = dryrun__config()->clock;

	return factor > 0 ? (uint64_t)(factor * (LEAST_NS + ns)) : 0;
}

/* Bytes a ns of the device's memory: two transfers a clock. */
static double memory_rate(void)
{
	const struct arch *a = props__arch();

	return EFFICIENCY * 2.0 * a->memory_khz * a->bus_width / 8 / 1e6;
}

/* Operations a ns of matrix products: a multiplication and an addition are two. */
static double product_rate(unsigned int element)
{
	double of_clock = element <= 1 ? 4096 : element == 2 ? 2048 : element == 4 ? 128 : 64;

	return EFFICIENCY * of_clock * props__processors() * props__arch()->clock_khz / 1e6;
}

uint64_t clock__kernel_ns(uint64_t threads)
{
	return clock__on() ? duration((double)threads * THREAD_BYTES / memory_rate()) : 0;
}

uint64_t clock__product_ns(uint64_t m, uint64_t n, uint64_t k, uint64_t batch, unsigned int element)
{
	double operations, bytes, compute, memory;

	if (!clock__on())
		return 0;
	operations = 2.0 * (double)m * (double)n * (double)k * (double)batch;
	bytes = ((double)m * (double)k + (double)k * (double)n + (double)m * (double)n) *
		(double)batch * element;
	compute = operations / product_rate(element);
	memory = bytes / memory_rate();
	return duration(compute > memory ? compute : memory);
}

static bool of_host(const void *ptr)
{
	struct dryrun_range range;

	dryrun__where(ptr, &range);
	return range.place != PLACE_DEVICE;
}

uint64_t clock__copy_ns(const void *to, const void *from, uint64_t size)
{
	if (!clock__on())
		return 0;
	if (of_host(to) || of_host(from))
		return duration((double)size / BUS_BYTES_NS);
	return duration(2.0 * (double)size / memory_rate());
}

uint64_t clock__fill_ns(uint64_t size)
{
	return clock__on() ? duration((double)size / memory_rate()) : 0;
}

uint64_t clock__transfer_ns(uint64_t size)
{
	return clock__on() ? duration((double)size / TRANSFER_BYTES_NS) : 0;
}

bool clock__copy_waits(const void *to, const void *from, uint64_t size)
{
	struct dryrun_range range;

	if (!clock__on())
		return false;
	dryrun__where(to, &range);
	if (range.place == PLACE_PAGEABLE)
		return true;
	dryrun__where(from, &range);
	return range.place == PLACE_PAGEABLE && size > DRYRUN_SMALL_COPY;
}
