/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/gpu_look.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "model/words.h"
#include "watch/ps.h"

#define READY_WITHIN 10000		    /* ms */
#define IDLE_DEFAULT UINT64_C(600000000000) /* ns */
#define TORCH_MOST 4096			    /* PyTorch's figures: processes times devices */
#define HOLDERS_NAMED 3			    /* processes that a text names */
#define COMMAND_WIDTH 40		    /* of a command in a text, in characters */

struct gpu_look *gpu_look__new(bool torch)
{
	struct gpu_look *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	gpus__open();
	gpus__ask_all();
	l->within = READY_WITHIN;
	l->idle = IDLE_DEFAULT;
	l->processes = calloc(1, sizeof(*l->processes));
	if (torch) {
		l->ps = ps__new();
		l->torch = calloc(TORCH_MOST, sizeof(*l->torch));
	}
	if (l->processes && (!torch || (l->ps && l->torch)))
		return l;
	gpu_look__free(l);
	return NULL;
}

static void drop_tables(struct gpu_look *l)
{
	for (unsigned i = 0; i < GPUS_MAX; i++)
		gpu_table__free(&l->table[i]);
}

void gpu_look__stop(struct gpu_look *l)
{
	if (!l->stopped)
		gpus__close();
	l->stopped = true;
	l->answer = NULL;
}

void gpu_look__free(struct gpu_look *l)
{
	if (!l)
		return;
	gpu_look__stop(l);
	drop_tables(l);
	ps__free(l->ps);
	free(l->processes);
	free(l->torch);
	free(l);
}

/* ---- reading ---- */

static bool has_gone(const struct holder_processes *p)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].state == 'X')
			return true;
	return false;
}

static void ask_driver(struct gpu_look *l)
{
	unsigned n = gpus__wait_count(l->within);
	uint64_t mask = n ? UINT64_MAX >> (GPUS_MAX - n) : 0;

	l->answer = NULL;
	l->by_driver = n > 0;
	l->n = n;
	if (mask && gpus__wait_long(mask, clock__monotonic()))
		l->answer = gpus__answer();
	snprintf(l->why, sizeof(l->why), "%s", gpus__why());
	if (!*l->why)
		snprintf(l->why, sizeof(l->why), "the NVIDIA driver was not ready within %u s",
			 l->within / 1000);
}

/* Without the driver, the open device nodes show which GPUs there are. */
static void count_nodes(struct gpu_look *l)
{
	for (size_t i = 0; i < l->processes->n && !l->by_driver; i++)
		for (unsigned m = l->n; m < GPUS_MAX; m++)
			if (l->processes->v[i].nodes >> m & 1)
				l->n = m + 1;
}

static int join(struct gpu_look *l, unsigned gpu)
{
	const struct gpu *g = l->by_driver ? gpus__get(gpu) : NULL;
	struct gpu_table_input in = {
		.answer = l->answer,
		.no_answer = l->why,
		.gpu = gpu,
		.minor = g ? g->minor : (int)gpu,
		.mig = g && g->mig,
		.vgpu = g && g->vgpu,
		.processes = l->processes,
		.torch = l->torch,
		.n_torch = l->n_torch,
		.monotonic = l->monotonic,
		.boottime = l->boottime,
		.idle = l->idle,
	};

	return gpu_table__join(&in, &l->table[gpu]);
}

static void read_torch(struct gpu_look *l)
{
	if (!l->ps)
		return;
	ps__find(l->ps);
	ps__look(l->ps);
	l->n_torch = ps__on_gpus(l->ps, l->torch, TORCH_MOST);
}

int gpu_look__read(struct gpu_look *l)
{
	int err;

	drop_tables(l);
	read_torch(l);
	/* A process that ends in this moment is listed by the driver and has no PID any more. So
	 * ask again about each that is gone. */
	for (int i = 0; i < 2 && (!i || has_gone(l->processes)); i++) {
		ask_driver(l);
		err = holder_processes__read(l->processes, l->answer, &l->lost);
		if (err)
			return err;
	}
	count_nodes(l);
	l->monotonic = clock__monotonic();
	l->boottime = clock__read(CLOCK_BOOTTIME);
	for (unsigned i = 0; i < l->n; i++)
		if (join(l, i))
			return -ENOMEM;
	return 0;
}

/* ---- texts ---- */

struct text {
	char *buf;
	size_t size;
};

/* Adds a part after a comma. */
static void put_part(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put_part(struct text *t, const char *fmt, ...)
{
	size_t at = strlen(t->buf);
	va_list ap;

	if (at && at + 3 < t->size)
		at += (size_t)sprintf(t->buf + at, ", ");
	va_start(ap, fmt);
	vsnprintf(t->buf + at, t->size - at, fmt, ap);
	va_end(ap);
}

static void put_bytes(struct text *t, const char *what, uint64_t bytes)
{
	char text[24];

	if (bytes)
		put_part(t, "%s %s", text__bytes(text, sizeof(text), bytes), what);
}

static void put_holder(struct text *t, const struct gpu_holder *h)
{
	const struct holder_process *p = h->process;
	char bytes[24], command[sizeof(p->command)];

	text__bytes(bytes, sizeof(bytes), h->bytes);
	if (p->state == 'X') {
		put_part(t, "%s by PID %d (no such process)", bytes, (int)p->pid);
		return;
	}
	memcpy(command, p->command, sizeof(command));
	put_part(t, "%s by PID %d (%s: %s)", bytes, (int)p->pid, p->user,
		 words__cut(command, COMMAND_WIDTH));
}

static bool counts(const struct gpu_holder *h, uint32_t slice)
{
	return h->bytes && (slice == GPUS_NO_SLICE || h->slice == slice);
}

/* The row with most bytes after `last` in this order; NULL: there is none. Rows of the same size
 * keep their order. */
static const struct gpu_holder *next_largest(const struct gpu_table *t, uint32_t slice,
					     const struct gpu_holder *last)
{
	const struct gpu_holder *best = NULL;

	for (size_t i = 0; i < t->n; i++) {
		const struct gpu_holder *h = &t->v[i];

		if (!counts(h, slice) || (last && h->bytes > last->bytes) ||
		    (last && h->bytes == last->bytes && h <= last))
			continue;
		if (!best || h->bytes > best->bytes)
			best = h;
	}
	return best;
}

char *gpu_look__say_holders(const struct gpu_table *t, uint32_t slice, char *buf, size_t size)
{
	const struct gpu_holder *h = NULL;
	struct text text = { buf, size };
	char bytes[24], count[48];
	uint64_t rest = 0;
	size_t n = 0;

	*buf = '\0';
	while ((h = next_largest(t, slice, h))) {
		if (n++ < HOLDERS_NAMED)
			put_holder(&text, h);
		else
			rest += h->bytes;
	}
	if (n > HOLDERS_NAMED)
		put_part(&text, "%s by %s more process%s", text__bytes(bytes, sizeof(bytes), rest),
			 text__count(count, sizeof(count), n - HOLDERS_NAMED),
			 n == HOLDERS_NAMED + 1 ? "" : "es");
	if (slice != GPUS_NO_SLICE)
		return buf;
	put_bytes(&text, "by processes that this host does not show", t->hidden);
	put_bytes(&text, "as the driver's reserve", t->reserved);
	if (t->used_known && t->unexplained > 0)
		put_bytes(&text, "not explained", (uint64_t)t->unexplained);
	return buf;
}

size_t gpu_look__left_over(const struct gpu_table *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++)
		n += t->v[i].left_over && t->v[i].bytes;
	return n;
}
