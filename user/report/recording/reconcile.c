/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A list from the driver's figure for the process down to the bytes that tensors requested. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/words.h"
#include "report/recording/pools.h"
#include "report/text.h"

#define FIGURE 12 /* columns of a number and its unit */
#define OTHERS_SHOWN 10

struct lines {
	FILE *out;
	size_t width;
	char text[REPORT_TEXT];
};

/* Prints "  15.00 GiB  words", cut to the width; "unknown" if the figure is not known. */
static void line(struct lines *l, bool known, uint64_t bytes, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static void line(struct lines *l, bool known, uint64_t bytes, const char *fmt, ...)
{
	char figure[24];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(l->text, sizeof(l->text), fmt, ap);
	va_end(ap);
	fprintf(l->out, "%*s  %s\n", FIGURE,
		known ? text__bytes(figure, sizeof(figure), bytes) : "unknown",
		words__cut(l->text, l->width - FIGURE - 2));
}

static const char *moment(char *buf, size_t size, const struct report_text_opts *o,
			  const struct model_device *d)
{
	char time[24];

	if (o->when == ROWS_NOW)
		return "now";
	if (o->at == AT_PEAK || o->at == AT_END)
		return o->at == AT_PEAK ? "at the peak" : "at the end";
	snprintf(buf, size, "at %s",
		 text__time(time, sizeof(time), o->at == AT_OOM ? d->mark_time : o->at_time));
	return buf;
}

static void print_used(struct lines *l, const struct model_segments *s,
		       const struct report_below *b)
{
	char time[24];

	if (!s->used_known) {
		line(l, false, 0, "used by the process: no figure from the driver");
		return;
	}
	line(l, true, s->used, "used by the process, as the driver reported at %s",
	     text__time(time, sizeof(time), s->used_time));
	if (b->not_seen >= 0)
		line(l, true, b->not_seen, "not seen by memtrace-bpf (CUDA context, libraries)");
}

static void print_reserved(struct lines *l, const struct model_segments *s, const struct facts *f)
{
	char a[24], b[24], c[24], pool[REPORT_POOLS_TEXT];
	const char *allocator = facts__get(f, "allocator");
	bool calls = !s->has_totals && s->allocated && !(allocator && !strcmp(allocator, "native"));

	if (calls && allocator && !strcmp(allocator, "none"))
		line(l, true, s->allocated, "allocated: blocks are calls into CUDA");
	else if (calls)
		line(l, true, s->allocated, "allocated: blocks are %s calls",
		     allocator && !strcmp(allocator, "pluggable") ? "the pluggable allocator's"
								  : "cudaMallocAsync");
	if (calls && facts__get(f, "allocator_block"))
		line(l, true, words__fact_number(f, "allocator_block"),
		     "in the largest block, and %s in all tensors found: the allocator hands out "
		     "parts of blocks",
		     text__bytes(a, sizeof(a), words__fact_number(f, "allocator_tensors")));
	if (!s->has_totals)
		return;
	line(l, true, s->reserved, "reserved = %s allocated + %s cached",
	     text__bytes(a, sizeof(a), s->allocated),
	     text__bytes(b, sizeof(b),
			 s->reserved > s->allocated ? s->reserved - s->allocated : 0));
	if (s->unmapped)
		line(l, true, s->unmapped,
		     "of this without memory: other code unmapped it, last at %s (sleep mode)",
		     text__time(a, sizeof(a), s->unmapped_time));
	if (s->n) {
		line(l, true, s->releasable, "cached, can be returned to CUDA");
		line(l, true, s->stuck,
		     "cached, cannot be returned (blocks in use), largest gap %s",
		     text__bytes(c, sizeof(c), s->largest_gap));
	}
	for (int k = 0; k < PRIVATE_NR; k++)
		if (s->private[k].free)
			line(l, true, s->private[k].free, "%s", report_pools__say_free(s, k, pool));
}

/* Prints the largest ones by function. */
static void print_others_by_function(struct lines *l, const struct model_segments *s,
				     const char *cwd)
{
	char where[REPORT_TEXT], n[32];
	uint64_t rest = s->others_bytes;
	size_t shown = 0;

	for (size_t i = 0; i < s->nothers && shown < OTHERS_SHOWN; i++) {
		if (s->others[i].how == MEM_MANAGED)
			continue;
		words__location(where, &s->others[i].row, cwd, 60);
		line(l, true, s->others[i].row.bytes, "taken by other code: %s, %s", where,
		     facts__how_name(s->others[i].how));
		rest -= s->others[i].row.bytes;
		shown++;
	}
	if (rest)
		line(l, true, rest, "taken by other code: + %s more",
		     text__count(n, sizeof(n), s->nothers - shown));
}

static void print_others(struct lines *l, const struct model_segments *s, const char *cwd,
			 enum frame_choice which_line)
{
	char where[REPORT_TEXT], more[48] = "", n[32];
	size_t first = 0;

	while (first < s->nothers && s->others[first].how == MEM_MANAGED)
		first++;
	if (which_line == FRAMES_NATIVE) {
		print_others_by_function(l, s, cwd);
		first = s->nothers;
	}
	if (s->nothers > 1)
		snprintf(more, sizeof(more), ", %s more",
			 text__count(n, sizeof(n), s->nothers - 1));
	if (first < s->nothers) {
		words__location(where, &s->others[first].row, cwd, 40);
		line(l, true, s->others_bytes, "taken by other code (%s, %s%s)",
		     facts__how_name(s->others[first].how), where, more);
	}
	if (s->managed)
		line(l, true, s->managed, "managed, on the device or on the host");
}

static void print_requested(struct lines *l, const struct model_segments *s)
{
	char a[24], b[24];

	if (s->requested && s->requested <= s->allocated)
		line(l, true, s->allocated, "allocated = %s asked for + %s rounding",
		     text__bytes(a, sizeof(a), s->requested),
		     text__bytes(b, sizeof(b), s->allocated - s->requested));
}

static void print_host(struct lines *l, const struct model_segments *s)
{
	if (s->unknown_device)
		line(l, true, s->unknown_device, "taken on an unknown device");
	if (s->host || s->registered)
		line(l, true, s->host + s->registered, "pinned host memory, not of the device");
}

/* Prints differences between sums. */
static void print_check(struct lines *l, const struct report_below *b)
{
	if (b->segments_known && b->missing > 0)
		line(l, true, b->missing, "reserved memory in unknown segments");
	if (b->missing < 0)
		line(l, true, 0 - (uint64_t)b->missing,
		     "too much in segments: some frees were missed");
	if (b->segments_known && b->nameless > 0)
		line(l, true, b->nameless, "allocated memory in unknown blocks");
	if (b->nameless < 0)
		line(l, true, 0 - (uint64_t)b->nameless, "too much in blocks: frees were missed");
	if (b->not_seen < 0)
		line(l, true, 0 - (uint64_t)b->not_seen,
		     "more than the driver reports: segments without memory (vLLM sleep mode), or "
		     "missed frees");
}

int report_text__reconcile(FILE *out, const struct model *m, size_t device, const struct facts *f,
			   const struct report_text_opts *o)
{
	struct lines *l = malloc(sizeof(*l));
	struct model_segments s;
	struct model_device d;
	struct report_below b;
	char when[48];
	int err = l ? model__segments(m, device, o->when, o->which_line, &s) : -ENOMEM;

	if (err) {
		free(l);
		/* no segments on the CPU, or the device never had this moment */
		return err == -ENOMEM ? err : 0;
	}
	l->out = out;
	l->width = report_text__width(out, o);
	model__device(m, device, &d);
	b = words__below(&s);
	if (b.any) {
		fprintf(out, "%s %s:\n", d.name, moment(when, sizeof(when), o, &d));
		print_used(l, &s, &b);
		print_others(l, &s, facts__get(f, "cwd"), o->which_line);
		print_reserved(l, &s, f);
		print_requested(l, &s);
		print_host(l, &s);
		print_check(l, &b);
	}
	model__free_segments(&s);
	free(l);
	return 0;
}
