/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Prints the state that user/inspect/cudaalloc.h reads from a process, for tests: one JSON document
 * per pass. Each line on standard input starts a pass. "calibrate" calibrates first; otherwise
 * calibration runs when needed. "quiet" omits blocks and segments.
 *
 *   alloc_dump PID
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "inspect/cudaalloc.h"
#include "inspect/proc.h"

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void totals(struct json *j, const char *key, const struct cuda_totals *t)
{
	json__open_object(j, key);
	json__uint(j, "allocated", t->allocated);
	json__uint(j, "reserved", t->reserved);
	json__uint(j, "active", t->active);
	json__uint(j, "requested", t->requested);
	json__uint(j, "count", t->count);
	json__close_object(j);
}

static void lists(struct json *j, const struct cudaalloc_state *s)
{
	static const char *const states[] = { "active_allocated", "active_pending_free",
					      "inactive" };

	json__open_array(j, "segments");
	for (size_t i = 0; i < s->nsegments; i++) {
		const struct cuda_segment *g = &s->segments[i];

		json__open_object(j, NULL);
		json__uint(j, "address", g->addr);
		json__uint(j, "size", g->size);
		json__uint(j, "stream", g->stream);
		json__uint(j, "device", g->device);
		json__uint(j, "pool0", g->pool[0]);
		json__uint(j, "pool1", g->pool[1]);
		json__uint(j, "first", g->first);
		json__uint(j, "blocks", g->nblocks);
		json__bool(j, "small", g->small);
		json__bool(j, "expandable", g->expandable);
		json__bool(j, "whole", g->whole);
		json__close_object(j);
	}
	json__close_array(j);
	json__open_array(j, "blocks");
	for (size_t i = 0; i < s->nblocks; i++) {
		const struct cuda_block *b = &s->blocks[i];

		json__open_array(j, NULL);
		json__uint(j, NULL, b->addr);
		json__uint(j, NULL, b->size);
		json__uint(j, NULL, b->requested);
		json__string(j, NULL, states[b->state]);
		json__uint(j, NULL, b->stream);
		json__uint(j, NULL, b->device);
		json__uint(j, NULL, b->segment);
		json__close_array(j);
	}
	json__close_array(j);
}

static void pass(struct cudaalloc *a, struct json *j, bool quiet)
{
	struct cudaalloc_state s;
	double begin = now_ms();
	int err = cudaalloc__read(a, &s);

	json__double(j, "read_ms", now_ms() - begin, 3);
	if (err) {
		json__int(j, "error", err);
		json__string(j, "why", cudaalloc__why(a));
		return;
	}
	json__bool(j, "consistent", s.consistent);
	json__string(j, "why", s.why);
	json__uint(j, "nsegments", s.nsegments);
	json__uint(j, "nblocks", s.nblocks);
	json__open_array(j, "devices");
	for (size_t i = 0; i < s.ndevices; i++) {
		json__open_object(j, NULL);
		totals(j, "before", &s.devices[i].before);
		totals(j, "after", &s.devices[i].after);
		json__bool(j, "more_known", s.devices[i].more_known);
		json__bool(j, "consistent", s.devices[i].consistent);
		json__string(j, "why", s.devices[i].why);
		json__close_object(j);
	}
	json__close_array(j);
	if (!quiet)
		lists(j, &s);
	cudaalloc_state__free(&s);
}

static void answer(struct cudaalloc *a, const char *line)
{
	struct json *j = json__new(stdout, false);
	double begin = now_ms();
	int err = 0;

	if (!j)
		exit(1);
	json__open_object(j, NULL);
	if (strstr(line, "calibrate") || !cudaalloc__calibrated(a)) {
		err = cudaalloc__calibrate(a);
		json__double(j, "calibrate_ms", now_ms() - begin, 3);
	}
	json__string(j, "backend", alloc_backend__name(cudaalloc__backend(a)));
	json__string(j, "type", cudaalloc__type(a));
	json__int(j, "known_devices", cudaalloc__devices(a));
	if (err) {
		json__int(j, "error", err);
		json__string(j, "why", cudaalloc__why(a));
	} else {
		pass(a, j, strstr(line, "quiet"));
	}
	json__close_object(j);
	json__free(j);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct cudaalloc *a;
	struct proc *p;
	struct maps m;
	const char *why;
	char line[64];

	if (argc != 2) {
		fprintf(stderr, "usage: alloc_dump PID\n");
		return 64;
	}
	p = proc__open(atoi(argv[1]));
	if (!p || proc__maps(p, &m)) {
		perror("alloc_dump");
		return 1;
	}
	a = cudaalloc__open(p, &m, &why);
	if (!a) {
		fprintf(stderr, "alloc_dump: %s: %s\n", why, strerror(errno));
		return 1;
	}
	while (fgets(line, sizeof(line), stdin))
		answer(a, line);
	cudaalloc__free(a);
	maps__free(&m);
	proc__free(p);
	return 0;
}
