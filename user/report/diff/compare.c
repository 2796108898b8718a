/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/compare.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "base/text.h"
#include "model/words.h"
#include "record/detail.h"
#include "record/stream.h"

static char *copy(const char *s)
{
	return s && *s ? strdup(s) : NULL;
}

/* Computes the median step time. The first step does not count if its start is missing. The model
 * keeps only the last steps of very many. */
static int measure_steps(struct compared *c, const struct model *m, const struct compare_opts *o)
{
	struct model_step s;
	uint64_t *times = NULL, first, number, n = 0, partly = !model__first_step_whole(m);
	size_t room = 0, kept = 0;
	int err = 0;

	c->steps = model__whole_steps(m);
	while (model__step(m, kept, &s))
		kept++;
	first = model__steps(m) - kept;
	for (size_t i = 0; i < kept && !err; i++) {
		number = first + i; /* number among all steps */
		if (number < partly || number - partly < o->skip ||
		    (o->steps && number - partly - o->skip >= o->steps))
			continue;
		model__step(m, i, &s);
		err = array__grow(&times, &room, n + 1, sizeof(*times));
		if (!err)
			times[n++] = s.end - s.start;
	}
	if (n && !err) {
		qsort(times, n, sizeof(*times), array__compare_u64);
		/* Same rule as in model__step_time(). */
		c->step_time = n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
		c->timed = n;
	}
	free(times);
	return err;
}

static bool copy_failed(const char *s, const char *made)
{
	return s && *s && !made;
}

/* Copies the figures of a recording, so that the recording itself can be freed. */
static int copy_figures(struct compared *c, const struct analysis *a, size_t device,
			const struct compare_opts *o)
{
	const char *attached = facts__get(a->facts, "attached_at"), *name;
	char detail[DETAIL_TEXT];
	struct row r = { 0 };

	model__device(a->model, device, &c->device);
	name = words__device_fact(a->facts, &c->device, "name");
	c->torch = copy(facts__get(a->facts, "torch"));
	c->cwd = copy(facts__get(a->facts, "cwd"));
	c->device_name = copy(name);
	c->detail = strdup(detail__sentence(detail, sizeof(detail), a->facts));
	if (!c->detail || copy_failed(facts__get(a->facts, "torch"), c->torch) ||
	    copy_failed(facts__get(a->facts, "cwd"), c->cwd) || copy_failed(name, c->device_name))
		return -ENOMEM;
	words__program(c->program, sizeof(c->program), a->facts);
	c->dry_run = facts__get(a->facts, "dry_run");
	c->complete = a->complete;
	c->live = !attached || !strcmp(attached, "live");
	c->duration = a->duration;
	c->is_window = model__window(a->model, &c->window_start);
	c->events = model__events(a->model);
	c->lost = words__lost(a->model, a->facts);
	if (model__peak_line(a->model, device, false, &r)) {
		c->file = copy(r.file);
		c->func = copy(r.func);
		c->module = copy(r.module);
		c->line = r.line;
		if (copy_failed(r.file, c->file) || copy_failed(r.func, c->func) ||
		    copy_failed(r.module, c->module))
			return -ENOMEM;
	}
	return measure_steps(c, a->model, o);
}

int compare__read(const char *path, const char *name, const struct compare_opts *o,
		  struct compared *ret)
{
	struct model_opts peak = { .at = AT_PEAK };
	struct compared c = { 0 };
	struct analysis *a = NULL;
	size_t device;
	int err = 0, status = analysis__open(path, &peak, &a);

	if (!status)
		status = analysis__run(a, NULL, NULL);
	if (!status)
		status = analysis__device(a, o->device, &device);
	if (!status) {
		c.name = strdup(name ? name : a->name);
		c.recording = strdup(a->name);
		err = c.name && c.recording ? copy_figures(&c, a, device, o) : -ENOMEM;
	}
	analysis__free(a);
	if (err) {
		log_err("out of memory");
		status = EXIT_FAILED;
	}
	if (status)
		compare__drop(&c);
	else
		*ret = c;
	return status;
}

void compare__drop(struct compared *c)
{
	free(c->name);
	free(c->recording);
	free(c->torch);
	free(c->device_name);
	free(c->cwd);
	free(c->detail);
	free(c->file);
	free(c->func);
	free(c->module);
	memset(c, 0, sizeof(*c));
}

double compare__fragmentation(const struct compared *c)
{
	return words__fragmentation(c->device.mark_allocated, c->device.mark_reserved);
}

double compare__most_fragmentation(const struct compared *c)
{
	return c->device.most_unused_reserved
		       ? (double)c->device.most_unused / (double)c->device.most_unused_reserved
		       : 0;
}

const char *compare__peak_phase(const struct compared *c)
{
	return c->device.peak_allocated ? words__phase(c->device.peak_phase) : "";
}

static bool differ(const char *a, const char *b)
{
	return a && b && strcmp(a, b) != 0;
}

enum {
	W_OOM,
	W_LOST,
	W_CUT,
	W_DETAIL,
	W_DRIFT,
	W_BEFORE,
	W_PROGRAM,
	W_DEVICE,
	W_MODEL_OF_DEVICE,
	W_DRY,
	W_TORCH,
	W_STEPS,
	W_ATTACHED,
	W_NR
};

/* Writes one reason. False: it does not apply. */
static bool warn(const struct compared *first, const struct compared *c, int what, char *buf)
{
	char a[100], b[100];
	bool same = c == first;

	switch (what) {
	case W_OOM:
		snprintf(buf, COMPARE_TEXT, "it ran out of memory, %s time%s",
			 text__count(a, 32, c->device.ooms), c->device.ooms == 1 ? "" : "s");
		return c->device.ooms;
	case W_LOST:
		snprintf(buf, COMPARE_TEXT, "%s lost, so its figures are lower bounds",
			 text__counted(a, 32, c->lost, "event"));
		return c->lost;
	case W_CUT:
		snprintf(buf, COMPARE_TEXT, "the recording is not complete");
		return !c->complete;
	case W_DETAIL:
		snprintf(buf, COMPARE_TEXT, "it has reduced detail: %s", c->detail);
		return *c->detail;
	case W_DRIFT:
		snprintf(buf, COMPARE_TEXT, "blocks and the allocator's totals differ by up to %s",
			 text__bytes(a, 24, c->device.drift));
		return c->device.has_totals && c->device.drift;
	case W_BEFORE:
		snprintf(buf, COMPARE_TEXT, "%s were there before attach",
			 text__bytes(a, 24, c->device.before_attach_start));
		return c->device.has_totals && c->device.before_attach_start;
	case W_PROGRAM:
		snprintf(buf, COMPARE_TEXT, "it ran %s, the first ran %s", c->program,
			 first->program);
		return !same && *c->program && *first->program &&
		       strcmp(c->program, first->program) != 0;
	case W_DEVICE:
		snprintf(buf, COMPARE_TEXT, "its device is %s, that of the first %s",
			 c->device.name, first->device.name);
		return !same && differ(c->device.name, first->device.name);
	case W_MODEL_OF_DEVICE:
		if (same || !differ(c->device_name, first->device_name))
			return false;
		snprintf(buf, COMPARE_TEXT, "it ran on another device (%s, the first on %s)",
			 text__clean(a, sizeof(a), c->device_name, strlen(c->device_name)),
			 text__clean(b, sizeof(b), first->device_name, strlen(first->device_name)));
		return true;
	case W_DRY:
		snprintf(buf, COMPARE_TEXT, "it is %sa dry run, unlike the first",
			 c->dry_run ? "" : "not ");
		return !same && c->dry_run != first->dry_run;
	case W_TORCH:
		if (same || !differ(c->torch, first->torch))
			return false;
		snprintf(buf, COMPARE_TEXT, "its PyTorch is %s, that of the first %s",
			 text__clean(a, sizeof(a), c->torch, strlen(c->torch)),
			 text__clean(b, sizeof(b), first->torch, strlen(first->torch)));
		return true;
	case W_STEPS:
		snprintf(buf, COMPARE_TEXT, "it has %s, the first has %s",
			 text__counted(a, 32, c->steps, "step"), text__count(b, 32, first->steps));
		return !same && c->steps != first->steps;
	case W_ATTACHED:
		snprintf(buf, COMPARE_TEXT, "it was recorded %s, the first %s",
			 c->live ? "while it ran" : "from its start",
			 first->live ? "while it ran" : "from its start");
		return !same && c->live != first->live;
	}
	return false;
}

bool compare__warning(const struct compared *all, size_t n, size_t which, size_t i, char *buf)
{
	for (int what = 0; which < n && what < W_NR; what++)
		if (warn(&all[0], &all[which], what, buf) && !i--)
			return true;
	return false;
}

void compare__change(char percent[24], uint64_t old, uint64_t new)
{
	double x = old ? (double)new / (double)old : 0;

	percent[0] = '\0';
	if (old && x < 1000)
		snprintf(percent, 24, "%+.1f %%", 100 * (x - 1));
}
