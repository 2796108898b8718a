/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/ranks/rank_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/grid.h"
#include "base/text.h"
#include "model/words.h"
#include "record/folder.h"
#include "report/ranks/ranks.h"

#define FIGURE 10
#define RANKS_MIN 16
#define MOST_SLOW 5
#define MOST_MISSING 12
#define MOST_INDENT 12 /* levels */

enum { COL_COUNT, COL_MEDIAN, COL_LEAST, COL_MOST, COL_STEP, COL_RANKS };

/* The figure of each member, sorted. Returns their number; those that are 0 are not known. */
static size_t figures(const struct ranks *r, const struct rank_group *g, bool steps, uint64_t *ret)
{
	const uint32_t *members = ranks__groups(r)->members + g->first;
	size_t n = 0;

	for (uint32_t i = 0; i < g->n; i++) {
		const struct rank *k = ranks__at(r, members[i]);
		uint64_t value = steps ? k->step_time : k->allocated;

		if (value || !steps)
			ret[n++] = value;
	}
	outliers__sort(ret, n);
	return n;
}

static void put_bytes(struct grid *t, size_t column, uint64_t n)
{
	char text[24];

	grid__put(t, column, text__bytes(text, sizeof(text), n), NULL);
}

static void put_group(struct grid *t, const struct ranks *r, const struct rank_group *g,
		      uint64_t *values)
{
	char text[32];
	size_t n;

	grid__row(t);
	grid__put(t, COL_COUNT, text__count(text, sizeof(text), g->n), NULL);
	n = figures(r, g, false, values);
	put_bytes(t, COL_MEDIAN, outliers__median(values, n));
	put_bytes(t, COL_LEAST, values[0]);
	put_bytes(t, COL_MOST, values[n - 1]);
	n = figures(r, g, true, values);
	grid__put(t, COL_STEP,
		  n ? text__time(text, sizeof(text), outliers__median(values, n)) : "-", NULL);
}

/* The groups, largest first. */
static uint32_t *order_of(const struct rank_groups *g)
{
	uint32_t *order = calloc(g->n + 1, sizeof(*order));

	/* Groups are few, or all small: an insertion stops soon. */
	for (size_t i = 0; i < g->n && order; i++) {
		size_t k = i;

		for (; k && g->all[order[k - 1]].n < g->all[i].n; k--)
			order[k] = order[k - 1];
		order[k] = (uint32_t)i;
	}
	return order;
}

static void print_names(FILE *out, const struct ranks *r, const struct grid *t, size_t row,
			const struct rank_group *g, bool *in, size_t room)
{
	const uint32_t *members = ranks__groups(r)->members + g->first;
	char names[512];

	for (uint32_t i = 0; i < g->n; i++)
		in[members[i]] = true;
	ranks__list(r, in, names, sizeof(names));
	for (uint32_t i = 0; i < g->n; i++)
		in[members[i]] = false;
	grid__print(t, out, row, words__cut(names, room));
}

int rank_table__groups(FILE *out, const struct ranks *r, size_t width, bool bold, size_t most)
{
	const struct rank_groups *g = ranks__groups(r);
	static const struct column columns[] = {
		[COL_COUNT] = { "Ranks", true, 0, 6 },
		[COL_MEDIAN] = { "Median", true, 0, FIGURE },
		[COL_LEAST] = { "Least", true, 2, FIGURE },
		[COL_MOST] = { "Most", true, 2, FIGURE },
		[COL_STEP] = { "Step", true, 1, 9 },
	};
	struct grid *t = grid__new(columns, COL_RANKS);
	uint64_t *values = calloc(ranks__count(r) + 1, sizeof(*values));
	bool *in = calloc(ranks__count(r) + 1, sizeof(*in));
	uint32_t *order = order_of(g);
	size_t shown = g->n < most ? g->n : most, room, rest = 0;
	int err = t && values && in && order ? 0 : -ENOMEM;
	char a[32], b[32];

	for (size_t i = 0; i < shown && !err; i++)
		put_group(t, r, &g->all[order[i]], values);
	err = err ? err : grid__error(t);
	if (!err) {
		room = grid__fit(t, width, RANKS_MIN, 2);
		fprintf(out, "\n%s group%s of ranks that allocate alike\n",
			text__count(a, sizeof(a), g->n), g->n == 1 ? "" : "s");
		grid__print_titles(t, out, bold, "Which");
		for (size_t i = 0; i < shown; i++)
			print_names(out, r, t, i, &g->all[order[i]], in, room);
		for (size_t i = shown; i < g->n; i++)
			rest += g->all[order[i]].n;
		if (rest)
			fprintf(out, "+ %s more groups with %s ranks\n",
				text__count(a, sizeof(a), g->n - shown),
				text__count(b, sizeof(b), rest));
	}
	grid__free(t);
	free(values);
	free(in);
	free(order);
	return err;
}

/* ---- processes ---- */

enum { TREE_OWN, TREE_ALL, TREE_RESERVED, TREE_TIME, TREE_DEVICE, TREE_PID, TREE_NAME };

static void put_process(struct grid *t, const struct ranks *r, const struct process_node *p)
{
	const struct rank *k = p->recording != PROCESS_NONE ? ranks__at(r, p->recording) : NULL;
	char text[64];

	grid__row(t);
	grid__put(t, TREE_OWN, k ? text__bytes(text, sizeof(text), p->own) : "-", NULL);
	put_bytes(t, TREE_ALL, p->all);
	grid__put(t, TREE_RESERVED,
		  k && k->has_totals ? text__bytes(text, sizeof(text), k->reserved) : "-", NULL);
	grid__put(t, TREE_TIME, k ? text__time(text, sizeof(text), k->time) : "-", NULL);
	grid__put(t, TREE_DEVICE, k ? words__cut(rank__devices(text, sizeof(text), k), 16) : "-",
		  NULL);
	snprintf(text, sizeof(text), "%" PRIu64, p->id.pid);
	grid__put(t, TREE_PID, text, NULL);
}

int rank_table__tree(FILE *out, const struct ranks *r, size_t width, bool bold, const char *when,
		     size_t most)
{
	const struct process_tree *tree = ranks__tree(r);
	const struct column columns[] = {
		[TREE_OWN] = { when, true, 0, FIGURE },
		[TREE_ALL] = { "With children", true, 0, FIGURE },
		[TREE_RESERVED] = { "Reserved", true, 2, FIGURE },
		[TREE_TIME] = { "At", true, 1, 9 },
		[TREE_DEVICE] = { "Device", false, 3, 6 },
		[TREE_PID] = { "PID", true, 4, 5 },
	};
	struct grid *t = grid__new(columns, TREE_NAME);
	size_t shown = tree->n < most ? tree->n : most, room;
	char name[2 * PROCESS_NAME], count[32];
	int err;

	if (!t)
		return -ENOMEM;
	for (size_t i = 0; i < shown; i++)
		put_process(t, r, &tree->all[i]);
	err = grid__error(t);
	room = grid__fit(t, width, RANKS_MIN, 4);
	fputc('\n', out);
	grid__print_titles(t, out, bold, "Process");
	for (size_t i = 0; i < shown && !err; i++) {
		const struct process_node *p = &tree->all[i];

		snprintf(name, sizeof(name), "%*s%s",
			 2 * (int)(p->depth < MOST_INDENT ? p->depth : MOST_INDENT), "", p->name);
		grid__print(t, out, i, words__cut(name, room));
	}
	if (shown < tree->n)
		fprintf(out, "+ %s more processes\n",
			text__count(count, sizeof(count), tree->n - shown));
	grid__free(t);
	return err;
}

/* ---- steps ---- */

static void print_slow(FILE *out, const struct ranks *r, const struct outlier *o, size_t width)
{
	uint64_t d = o->bytes > o->others ? o->bytes - o->others : o->others - o->bytes;
	const struct rank *k = ranks__at(r, o->recording);
	char a[24], b[24];

	text__paragraph(out, width, "  ", "  ", "%s%s: %s a step, %.0f %% %s than the others' %s",
			k->label, k->on, text__time(a, sizeof(a), o->bytes),
			o->others ? 100.0 * (double)d / (double)o->others : 0.0,
			o->bytes > o->others ? "longer" : "shorter",
			text__time(b, sizeof(b), o->others));
}

static const char *step_words(char *buf, size_t size, const struct step_match *m)
{
	char a[32], b[32];

	if (m->by != STEPS_BY_OPTIMIZER)
		snprintf(buf, size, "Steps");
	else
		snprintf(buf, size, "Steps %s to %s of the job, by the optimizers' own count,",
			 text__count(a, sizeof(a), m->first), text__count(b, sizeof(b), m->last));
	return buf;
}

void rank_table__steps(FILE *out, const struct ranks *r, size_t width)
{
	size_t n = ranks__count(r), known = 0;
	uint64_t *values = calloc(n + 1, sizeof(*values));
	const struct outlier *slow;
	size_t n_slow = ranks__slow(r, &slow);
	char a[24], b[24], c[24], count[32], which[128];

	for (size_t i = 0; i < n && values; i++)
		if (!ranks__at(r, i)->worker && ranks__at(r, i)->step_time)
			values[known++] = ranks__at(r, i)->step_time;
	if (known > 1) {
		outliers__sort(values, known);
		fputc('\n', out);
		text__paragraph(out, width, "", "  ",
				"%s take %s in the median of ranks, from %s to %s",
				step_words(which, sizeof(which), ranks__step_match(r)),
				text__time(a, sizeof(a), outliers__median(values, known)),
				text__time(b, sizeof(b), values[0]),
				text__time(c, sizeof(c), values[known - 1]));
		if (ranks__step_match(r)->by == STEPS_BY_TIME && !ranks__step_match(r)->older)
			text__paragraph(out, width, "  ", "  ",
					"all steps of each recording: they have no numbers of the "
					"job in common (%s)",
					ranks__step_match(r)->why);
		for (size_t i = 0; i < n_slow && i < MOST_SLOW; i++)
			print_slow(out, r, &slow[i], width);
		if (n_slow > MOST_SLOW)
			fprintf(out, "  + %s more\n",
				text__count(count, sizeof(count), n_slow - MOST_SLOW));
	}
	free(values);
}

/* ---- clocks ---- */

void rank_table__clocks(FILE *out, const struct ranks *r, size_t width)
{
	int64_t first = INT64_MAX, last = INT64_MIN, least = INT64_MAX, most = INT64_MIN;
	uint64_t error = 0;
	size_t known = 0;
	char a[24], b[24], c[24];

	for (size_t i = 0; i < ranks__count(r); i++) {
		const struct rank_clock *k = &ranks__at(r, i)->clock;

		if (!k->known)
			continue;
		known++;
		first = k->begin < first ? k->begin : first;
		last = k->begin > last ? k->begin : last;
		least = k->offset < least ? k->offset : least;
		most = k->offset > most ? k->offset : most;
		error = k->error > error ? k->error : error;
	}
	if (known < 2)
		return;
	fputc('\n', out);
	text__paragraph(
		out, width, "", "  ",
		"Clocks of the hosts differ by up to %s, measured to within %s; on one clock, "
		"the recordings begin within %s of each other",
		text__time(a, sizeof(a), (uint64_t)(most - least)), text__time(b, sizeof(b), error),
		text__time(c, sizeof(c), (uint64_t)(last - first)));
}

/* ---- missing ---- */

static void print_missing(FILE *out, const struct folder_missing *m, size_t width)
{
	char rank[32] = "", pid[32] = "", host[256], why[1024];

	if (m->rank >= 0)
		snprintf(rank, sizeof(rank), "rank %" PRId64 ", ", m->rank);
	if (m->pid >= 0)
		snprintf(pid, sizeof(pid), "PID %" PRId64 ": ", m->pid);
	text__paragraph(out, width, "  ", "  ", "%s: %s%s%s",
			text__clean(host, sizeof(host), m->host, strlen(m->host)), rank, pid,
			text__clean(why, sizeof(why), m->why, strlen(m->why)));
}

/* Writes the numbers below the size of the job that no recording has. Returns how many. */
static size_t absent_ranks(const struct ranks *r, char *buf, size_t size)
{
	uint64_t next = 0, world = 0, absent = 0;
	size_t len = 0;

	*buf = '\0';
	for (size_t i = 0; i <= ranks__count(r); i++) {
		const struct rank *k = i < ranks__count(r) ? ranks__at(r, i) : NULL;
		uint64_t until = k ? k->number : world;

		if (k && (k->worker || !k->has_number))
			continue;
		if (k && k->has_world)
			world = k->world;
		if (until > next) {
			absent += until - next;
			len = ranks__add_range(buf, size, len, next, until - 1);
		}
		next = k ? until + 1 : next;
	}
	return absent > SIZE_MAX ? SIZE_MAX : (size_t)absent;
}

void rank_table__missing(FILE *out, const struct ranks *r, size_t width)
{
	const struct ranks_opts *o = ranks__opts(r);
	char numbers[256], count[32];
	size_t absent = ranks__one_job(r) ? absent_ranks(r, numbers, sizeof(numbers)) : 0;

	if (absent)
		text__paragraph(out, width, "", "  ", "Missing: rank%s %s", absent == 1 ? "" : "s",
				numbers);
	else if (o->n_missing)
		fputs("Missing:\n", out);
	for (size_t i = 0; i < o->n_missing && i < MOST_MISSING; i++)
		print_missing(out, &o->missing[i], width);
	if (o->n_missing > MOST_MISSING)
		fprintf(out, "  + %s more\n",
			text__count(count, sizeof(count), o->n_missing - MOST_MISSING));
}
