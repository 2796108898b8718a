/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How good are rows whose small blocks have stacks at random (--cost)? Takes stacks from a complete
 * recording as the programs would, 100 times for each bound, and compares the rows by line at the
 * peak with those of the complete recording. sampled_error RECORDING: docs/internals/OVERHEAD.md.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memtrace.h"
#include "model/model.h"
#include "record/detail.h"
#include "record/dict.h"
#include "record/mtr.h"

#define RUNS 100

struct line {
	const struct row *truth;
	unsigned right, absent, drawn; /* runs: the interval held; no row; the row was a sample */
	double error;		       /* error of the estimates, sum over runs */
};

struct job {
	struct dict *dict;
	const struct facts *facts;
	struct event *events;
	size_t n;
	uint32_t rest; /* stack of blocks that were not drawn */
};

static uint64_t state;

static uint32_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 16);
}

static int read_all(struct job *j, struct mtr_reader *r)
{
	size_t room = 0;
	struct event e;

	while (mtr_reader__next(r, &e) == 1) {
		if (j->n == room) {
			room = room ? room * 2 : 1 << 16;
			j->events = reallocarray(j->events, room, sizeof(*j->events));
			if (!j->events)
				return -ENOMEM;
		}
		j->events[j->n++] = e;
	}
	return 0;
}

static uint32_t text(struct job *j, const char *s)
{
	return dict__string(j->dict, s, strlen(s));
}

/* The model after all events. bound 0: with all stacks. NULL: no memory. */
static struct model *run(struct job *j, uint64_t bound)
{
	static const struct model_opts opts = { .at = AT_PEAK };
	struct model *m = model__new(j->dict, j->facts, &opts);
	struct event mark = { .kind = EVENT_MARK };
	char name[160];
	int err = m ? 0 : -ENOMEM;

	mark.name = text(j, detail__mark(name, sizeof(name), 0, bound));
	if (bound && !err)
		err = model__event(m, &mark);
	for (size_t i = 0; i < j->n && !err; i++) {
		struct event e = j->events[i];

		if (e.kind == EVENT_ALLOC && e.size < bound &&
		    ((uint64_t)draw() * bound) >> 32 >= e.size) {
			e.stack = j->rest;
			e.walk = MT_WALK_OFF;
			e.node = 0;
		}
		err = model__event(m, &e);
	}
	if (!err)
		return m;
	model__free(m);
	return NULL;
}

static int rows_of(const struct model *m, size_t device, struct row **rows, size_t *n)
{
	struct row_opts o = { .by = BY_LINE,
			      .when = ROWS_AT_MARK,
			      .any_module = true,
			      .any_phase = true,
			      .any_category = true };

	return model__rows(m, device, &o, rows, n);
}

static const struct row *find(const struct row *rows, size_t n, const struct row *like)
{
	for (size_t i = 0; i < n; i++)
		if (rows[i].file && rows[i].line == like->line &&
		    !strcmp(rows[i].file, like->file) && !strcmp(rows[i].source, like->source))
			return &rows[i];
	return NULL;
}

static void compare(struct line *l, const struct row *found, uint64_t bound)
{
	uint64_t truth = l->truth->bytes;
	struct drawn none[SAMPLING_BOUNDS] = { 0 };
	struct sampled s;

	if (found) {
		s = found->sampled;
	} else {
		/* A report has no row if no block was drawn; it states how much it may lack. */
		for (uint8_t of = 1; of <= SAMPLING_BOUNDS; of++)
			if (sampling__bound(of) == bound)
				none[of - 1].others = UINT64_MAX / 2;
		s = sampling__estimate(0, none);
		l->absent++;
	}
	l->drawn += s.low != s.high;
	l->right += s.low <= truth && truth <= s.high;
	l->error += (s.bytes > truth ? s.bytes - truth : truth - s.bytes) / (double)truth;
}

/* One line of the table. */
static void say(const char *device, const struct line *lines, size_t n, uint64_t bound)
{
	unsigned sampled = 0, right = 0, least = RUNS, good = 0, absent = 0;
	double error = 0;

	for (size_t i = 0; i < n; i++) {
		if (!lines[i].drawn)
			continue;
		sampled++;
		right += lines[i].right;
		absent += lines[i].absent;
		good += lines[i].right >= RUNS * 95 / 100;
		least = lines[i].right < least ? lines[i].right : least;
		error += lines[i].error / RUNS;
	}
	printf("| %s | %llu KiB | %u of %zu | %.1f %% | %u of %u | %u of %d | %.1f %% | %.0f %% "
	       "|\n",
	       device, (unsigned long long)bound >> 10, sampled, n,
	       sampled ? 100.0 * right / sampled / RUNS : 100, good, sampled, least, RUNS,
	       sampled ? 100.0 * absent / sampled / RUNS : 0, sampled ? 100 * error / sampled : 0);
}

static int measure(struct job *j, const struct model *whole, size_t device, const struct row *truth,
		   size_t n, uint64_t bound)
{
	struct line *lines = calloc(n + 1, sizeof(*lines));
	size_t n_lines = 0, k;
	struct model_device dev;
	char name[32];
	int err = lines ? 0 : -ENOMEM;

	for (size_t i = 0; i < n && !err; i++)
		if (truth[i].file && !truth[i].before_attach && truth[i].bytes)
			lines[n_lines++].truth = &truth[i];
	for (unsigned i = 1; i <= RUNS && !err; i++) {
		struct model *m;
		struct row *rows = NULL;

		state = i * 0x9e3779b97f4a7c15 ^ bound;
		m = run(j, bound);
		err = m ? rows_of(m, device, &rows, &k) : -ENOMEM;
		for (size_t l = 0; l < n_lines && !err; l++)
			compare(&lines[l], find(rows, k, lines[l].truth), bound);
		free(rows);
		model__free(m);
	}
	model__device(whole, device, &dev);
	if (!err)
		say(device__name(dev.device, name, sizeof(name)), lines, n_lines, bound);
	free(lines);
	return err;
}

static int measure_all(struct job *j)
{
	struct dict_frame f = { 0 };
	struct model *m = run(j, 0);
	struct row *truth = NULL;
	size_t n;
	int err = m ? 0 : -ENOMEM;

	f.loc = dict__loc(j->dict, (struct dict_loc){ .file = text(j, DETAIL_FILE),
						      .func = text(j, DETAIL_FUNCTION) });
	j->rest = dict__stack(j->dict, &f, 1, MT_WALK_OFF);
	printf("| device | T | sampled rows | the interval had the true size | rows with 95 of 100 "
	       "runs | "
	       "worst row | no row | mean error |\n|---|---|---|---|---|---|---|---|---|\n");
	for (size_t d = 0; !err && d < model__devices(m); d++) {
		err = rows_of(m, d, &truth, &n);
		if (err == -ENOENT) {
			err = 0;
			continue;
		}
		for (uint64_t bound = 64 << 10; !err && bound <= 4 << 20; bound *= 4)
			err = measure(j, m, d, truth, n, bound);
		free(truth);
	}
	model__free(m);
	return err;
}

int main(int argc, char **argv)
{
	const char *why = "";
	struct mtr_reader *r = argc == 2 ? mtr_reader__open(argv[1], &why) : NULL;
	struct job j = { 0 };
	int err;

	if (!r) {
		fprintf(stderr, "sampled_error RECORDING: %s\n", why);
		return 1;
	}
	err = read_all(&j, r);
	/* The cast is safe: nothing reads from the file any more. */
	j.dict = (struct dict *)mtr_reader__dict(r);
	j.facts = mtr_reader__facts(r);
	err = err ?: measure_all(&j);
	if (err)
		fprintf(stderr, "%s\n", strerror(-err));
	free(j.events);
	mtr_reader__free(r);
	return err ? 1 : 0;
}
