/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The report of several recordings as one text. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/grid.h"
#include "base/text.h"
#include "model/growth_summary.h"
#include "model/words.h"
#include "record/folder.h"
#include "report/ranks/ranks.h"

/* ---- groups, processes, steps, clocks and missing recordings ---- */

#define FIGURE_WIDTH 10
#define RANKS_MIN 16
#define MOST_SLOW 5
#define MOST_MISSING 12
#define MOST_INDENT 12 /* levels */

enum { GROUP_COUNT, GROUP_MEDIAN, GROUP_LEAST, GROUP_MOST, GROUP_STEP, GROUP_RANKS };

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

static void put_size(struct grid *t, size_t column, uint64_t n)
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
	grid__put(t, GROUP_COUNT, text__count(text, sizeof(text), g->n), NULL);
	n = figures(r, g, false, values);
	put_size(t, GROUP_MEDIAN, outliers__median(values, n));
	put_size(t, GROUP_LEAST, values[0]);
	put_size(t, GROUP_MOST, values[n - 1]);
	n = figures(r, g, true, values);
	grid__put(t, GROUP_STEP,
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

static int print_groups(FILE *out, const struct ranks *r, size_t width, bool bold, size_t most)
{
	const struct rank_groups *g = ranks__groups(r);
	static const struct column columns[] = {
		[GROUP_COUNT] = { "Ranks", true, 0, 6 },
		[GROUP_MEDIAN] = { "Median", true, 0, FIGURE_WIDTH },
		[GROUP_LEAST] = { "Least", true, 2, FIGURE_WIDTH },
		[GROUP_MOST] = { "Most", true, 2, FIGURE_WIDTH },
		[GROUP_STEP] = { "Step", true, 1, 9 },
	};
	struct grid *t = grid__new(columns, GROUP_RANKS);
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
	put_size(t, TREE_ALL, p->all);
	grid__put(t, TREE_RESERVED,
		  k && k->has_totals ? text__bytes(text, sizeof(text), k->reserved) : "-", NULL);
	grid__put(t, TREE_TIME, k ? text__time(text, sizeof(text), k->time) : "-", NULL);
	grid__put(t, TREE_DEVICE, k ? words__cut(rank__devices(text, sizeof(text), k), 16) : "-",
		  NULL);
	snprintf(text, sizeof(text), "%" PRIu64, p->id.pid);
	grid__put(t, TREE_PID, text, NULL);
}

static int print_processes(FILE *out, const struct ranks *r, size_t width, bool bold,
			   const char *when, size_t most)
{
	const struct process_tree *tree = ranks__tree(r);
	const struct column columns[] = {
		[TREE_OWN] = { when, true, 0, FIGURE_WIDTH },
		[TREE_ALL] = { "With children", true, 0, FIGURE_WIDTH },
		[TREE_RESERVED] = { "Reserved", true, 2, FIGURE_WIDTH },
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

static void print_steps(FILE *out, const struct ranks *r, size_t width)
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

static void print_clocks(FILE *out, const struct ranks *r, size_t width)
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

static void print_missing_ranks(FILE *out, const struct ranks *r, size_t width)
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

/* ---- devices of several ranks ---- */

#define MOST_SHARED 8

/* The place of a device's largest row: " (train.py:9)"; "" if it has no line and no name. */
static const char *at(char *buf, size_t size, const struct rank_device *d, const char *cwd)
{
	char *where = malloc(REPORT_TEXT);

	*buf = '\0';
	if (where && (d->most.file || d->most.name))
		snprintf(buf, size, " (%.200s)",
			 d->most.file ? words__place(where, d->most.file, d->most.line, cwd)
				      : words__where(where, &d->most, BY_LINE, cwd, 80));
	free(where);
	return buf;
}

static void print_shared(FILE *out, const struct ranks *r, const struct shared_device *s,
			 const struct device_use *uses, size_t width)
{
	const struct device_use *most = NULL;
	const struct rank *k;
	char bytes[24], one[24], where[256], guests[512], all[32];
	bool *in = calloc(ranks__count(r) + 1, sizeof(*in));
	uint64_t sum = 0;

	for (uint32_t i = 0; i < s->n && in; i++) {
		const struct device_use *u = &uses[s->first + i];

		if (u->device == u->own)
			continue;
		in[u->recording] = true;
		sum += u->device->bytes;
		if (!most || u->device->bytes > most->device->bytes)
			most = u;
	}
	if (most) {
		ranks__list(r, in, guests, sizeof(guests));
		k = ranks__at(r, most->recording);
		at(where, sizeof(where), most->device, k->cwd);
		text__bytes(bytes, sizeof(bytes), sum);
		text__count(all, sizeof(all), s->n);
		if (s->guests == 1)
			text__paragraph(out, width, "", "  ",
					"%s has %s on %s%s besides its own %s%s. GPU %u%s holds "
					"memory of %s ranks.",
					guests, bytes, most->device->name, k->on, most->own->name,
					where, most->device->device.index, k->on, all);
		else
			text__paragraph(out, width, "", "  ",
					"%s have %s on %s%s besides their own devices, most of it "
					"%s with %s%s. GPU %u%s holds memory of %s ranks.",
					guests, bytes, most->device->name, k->on, k->label,
					text__bytes(one, sizeof(one), most->device->bytes), where,
					most->device->device.index, k->on, all);
	}
	free(in);
}

/* Prints which devices have memory of several ranks, if there are any. */
static void print_shared_devices(FILE *out, const struct ranks *r, size_t width)
{
	const struct shared_devices *s = ranks__shared(r);
	char more[32];

	if (!s->n)
		return;
	fputc('\n', out);
	for (size_t i = 0; i < s->n && i < MOST_SHARED; i++)
		print_shared(out, r, &s->all[i], s->uses, width);
	if (s->n > MOST_SHARED)
		fprintf(out, "+ %s more devices with memory of several ranks\n",
			text__count(more, sizeof(more), s->n - MOST_SHARED));
	text__paragraph(out, width, "", "  ",
			"Each of these ranks has a CUDA context there, too. Call "
			"torch.cuda.set_device(local_rank) before anything uses CUDA, and load "
			"checkpoints with torch.load(..., map_location='cpu').");
}

/* ---- the report ---- */

#define GAP 2
#define FIGURE 10
#define COUNT 8
#define WHERE_MIN 24
#define MOST_RANKS 16 /* rows of the first table, unless --top gives more */
#define MOST_TREE 40  /* processes of a tree, likewise */
#define MOST_OUTLIERS 10
#define LABEL_MOST 18
#define NAME_MIN 10
#define TIME 9
#define DEVICE 8
#define DEVICE_MOST 16

struct page {
	FILE *out;
	const struct ranks *r;
	const struct report_text_opts *o;
	size_t width, n;
	bool side, colour;
	/* The table of the rows. */
	struct grid *grid;
	struct column *columns;
	size_t *which, n_which; /* recordings with a column of their own */
	char (*titles)[64];	/* titles of the columns, and of the column for other ranks */
	bool others;		/* true for a column with the sum of the others */
	char text[REPORT_TEXT], part[REPORT_TEXT];
};

static void put_bytes(struct grid *t, size_t column, uint64_t n)
{
	char text[24];

	grid__put(t, column, text__bytes(text, sizeof(text), n), NULL);
}

static void bold(const struct page *p, bool on)
{
	if (p->colour)
		fputs(on ? "\033[1m" : "\033[0m", p->out);
}

/* ---- recordings ---- */

enum { HEAD_RECORDING, HEAD_MEM, HEAD_BAR, HEAD_RESERVED, HEAD_TIME, HEAD_DEVICE, HEAD_NAME };

static void put_rank(const struct page *p, struct grid *t, const struct rank *k, uint64_t largest)
{
	char text[64], bar[TEXT_BAR];

	grid__row(t);
	snprintf(text, sizeof(text), "%s", k->label);
	grid__put(t, HEAD_RECORDING, words__cut(text, LABEL_MOST), NULL);
	put_bytes(t, HEAD_MEM, k->allocated);
	text__bar(bar, k->allocated, largest, REPORT_BAR, text__unicode(), true);
	grid__put(t, HEAD_BAR, bar, p->colour ? "\033[36m" : NULL);
	if (k->has_totals)
		put_bytes(t, HEAD_RESERVED, k->reserved);
	else
		grid__put(t, HEAD_RESERVED, "-", NULL);
	grid__put(t, HEAD_TIME, text__time(text, sizeof(text), k->time), NULL);
	rank__devices(text, sizeof(text), k);
	grid__put(t, HEAD_DEVICE, words__cut(text, DEVICE_MOST), NULL);
}

/* Chooses the columns; without names, the devices are the last one. Returns its width. */
static size_t fit_head(const struct page *p, struct grid *t, bool *names)
{
	grid__show(t, HEAD_BAR, false);
	grid__show(t, HEAD_BAR,
		   report_text__bars(p->out, p->o,
				     grid__fit(t, p->width, 0, 0) >= REPORT_BAR + GAP + NAME_MIN));
	grid__fit(t, p->width, NAME_MIN, 1);
	*names = grid__shown(t, HEAD_DEVICE);
	return grid__fit(t, p->width, *names ? NAME_MIN : DEVICE, 4);
}

static const char *moment(const struct page *p, char *buf, size_t size)
{
	char time[24];

	switch (p->o->at) {
	case AT_PEAK:
		return "At peak";
	case AT_END:
		return "At end";
	case AT_OOM:
		return "At OOM";
	default:
		if (p->o->at_time == UINT64_MAX) /* each recording has its own time */
			return "At mark";
		snprintf(buf, size, "At %s", text__time(time, sizeof(time), p->o->at_time));
		return words__cut(buf, FIGURE);
	}
}

static int print_ranks(struct page *p)
{
	char when[40], count[32];
	const struct column columns[] = {
		[HEAD_RECORDING] = { "Recording" },
		[HEAD_MEM] = { moment(p, when, sizeof(when)), true, 0, FIGURE },
		[HEAD_BAR] = { "", false, 4 },
		[HEAD_RESERVED] = { "Reserved", true, 3, FIGURE },
		[HEAD_TIME] = { "At", true, 2, TIME },
		[HEAD_DEVICE] = { "Device", false, 1, DEVICE },
	};
	struct grid *t = grid__new(columns, HEAD_NAME);
	size_t most = p->o->top > MOST_RANKS || !p->o->top ? p->n : MOST_RANKS, room;
	uint64_t largest = 0;
	bool names;
	int err;

	if (!t)
		return -ENOMEM;
	for (size_t i = 0; i < p->n; i++)
		largest = ranks__at(p->r, i)->allocated > largest ? ranks__at(p->r, i)->allocated
								  : largest;
	most = most < p->n ? most : p->n;
	for (size_t i = 0; i < most; i++)
		put_rank(p, t, ranks__at(p->r, i), largest);
	err = grid__error(t);
	room = fit_head(p, t, &names);
	fputc('\n', p->out);
	grid__print_titles(t, p->out, p->colour, names ? "Name" : "Device");
	for (size_t i = 0; i < most && !err; i++) {
		const struct rank *k = ranks__at(p->r, i);
		char devices[64];
		const char *last = names ? k->name : rank__devices(devices, sizeof(devices), k);

		text__clean(p->text, sizeof(p->text), last, strlen(last));
		grid__print(t, p->out, i, words__cut(p->text, room));
	}
	if (most < p->n)
		fprintf(p->out, "+ %s more recordings\n",
			text__count(count, sizeof(count), p->n - most));
	grid__free(t);
	return err;
}

static int print_tree(struct page *p)
{
	size_t most = p->o->top > MOST_TREE ? p->o->top : MOST_TREE;
	char when[40];

	return print_processes(p->out, p->r, p->width, p->colour, moment(p, when, sizeof(when)),
			       p->o->top ? most : SIZE_MAX);
}

/* Names the recordings that grow, with the sentence of the one that grows most. */
static int print_growth(struct page *p)
{
	const struct rank *most = NULL;
	size_t grows = 0, steady = 0;
	bool *in = calloc(p->n, sizeof(*in));
	char more[160] = "", text[GROWTH_SUMMARY_TEXT];

	if (!in)
		return -ENOMEM;
	for (size_t i = 0; i < p->n; i++) {
		const struct rank *k = ranks__at(p->r, i);

		in[i] = k->grows;
		grows += in[i];
		steady += k->steady;
		if (k->grows && (!most || k->grows->per_step > most->grows->per_step))
			most = k;
	}
	ranks__list(p->r, in, p->part, sizeof(p->part));
	free(in);
	if (grows > 1)
		snprintf(more, sizeof(more), "; most in %s%s", most->label, most->on);
	if (grows)
		fputc('\n', p->out);
	if (grows)
		text__paragraph(p->out, text__one_line(p->width), "", "  ", "Growth in %s%s: %s",
				p->part, more, growth_summary__say(most->grows, text));
	else if (steady == p->n)
		fputs("\nNo growth.\n", p->out);
	return 0;
}

/* ---- outliers ---- */

/* The parts of words(), in order. */
static const enum group order[] = { BY_LINE, BY_MODULE, BY_THREAD, BY_PHASE, BY_CATEGORY };
#define N_PARTS (sizeof(order) / sizeof(*order))

/* Writes what a row is about: one thing, or with --by several all of them. */
static char *words(struct page *p, char *buf, const struct row *r, size_t columns)
{
	const struct ranks_opts *o = ranks__opts(p->r);
	const char *cwd = ranks__at(p->r, 0)->cwd;
	struct row row = *r;
	size_t len;

	if (!o->split)
		return words__where(buf, r, o->by, cwd, columns);
	strcpy(buf, r->before_attach ? "before attach" : "");
	row.before_attach = false;
	for (size_t i = 0; i < N_PARTS; i++) {
		bool said = order[i] == BY_CATEGORY || (order[i] == BY_MODULE && *r->module);

		if (!(o->split & 1U << order[i]) || (r->before_attach && !said))
			continue;
		words__where(p->part, &row, order[i], cwd, columns);
		len = strlen(buf);
		snprintf(buf + len, REPORT_TEXT - len, "%s%s", len ? ", " : "", p->part);
	}
	return words__cut(buf, columns);
}

/* The title of the column of words(): "Module, Role". */
static char *title(const struct page *p, char *buf, size_t columns)
{
	const struct ranks_opts *o = ranks__opts(p->r);
	size_t len = 0;

	if (!o->split)
		len = (size_t)snprintf(buf, REPORT_TEXT, "%s", words__where_title(o->by));
	for (size_t i = 0; i < N_PARTS; i++)
		if (o->split & 1U << order[i])
			len += (size_t)snprintf(buf + len, REPORT_TEXT - len, "%s%s",
						len ? ", " : "", words__where_title(order[i]));
	return words__cut(buf, columns);
}

static void print_outlier(struct page *p, const struct outlier *o)
{
	const struct rank *k = ranks__at(p->r, o->recording);
	char a[24], b[24], c[24], percent[32] = "";
	uint64_t d = o->bytes > o->others ? o->bytes - o->others : o->others - o->bytes;
	bool pair = p->n == 2 && !ranks__one_tree(p->r);
	const char *others = pair ? "the other has" : "the others' median is",
		   *more = o->bytes > o->others ? "more" : "less";

	if (o->others)
		snprintf(percent, sizeof(percent), " (%.0f %%)",
			 100.0 * (double)d / (double)o->others);
	text__bytes(a, sizeof(a), d);
	text__bytes(b, sizeof(b), o->bytes);
	text__bytes(c, sizeof(c), o->others);
	if (!o->line1) {
		snprintf(p->text, sizeof(p->text), "%s%s: %s %s%s in all: %s, %s %s", k->label,
			 k->on, a, more, percent, b, others, c);
	} else {
		char *where = malloc(REPORT_TEXT);

		if (where)
			snprintf(p->text, sizeof(p->text), "%s%s: %s %s%s at %s: %s, %s %s",
				 k->label, k->on, a, more, percent,
				 words(p, where, &ranks__line(p->r, o->line1 - 1)->row,
				       p->width > 56 ? p->width - 20 : 36),
				 b, others, c);
		free(where);
	}
	text__paragraph(p->out, p->width, "  ", "  ", "%s", p->text);
}

static void print_outliers(struct page *p)
{
	const struct outlier *all;
	size_t n = ranks__outliers(p->r, &all), families = 0;
	char count[32], mib[24];

	for (uint32_t i = 0; i < ranks__groups(p->r)->n; i++)
		families += ranks__groups(p->r)->all[i].family == i;

	/* Most processes of a service do different work. */
	if (p->n < 2 || (!n && (ranks__one_tree(p->r) || ranks__shared(p->r)->n)))
		return;
	snprintf(p->text, sizeof(p->text),
		 n ? "Different by more than %d %% and %s from %s:"
		   : "None differs by more than %d %% and %s from %s.",
		 OUTLIER_PERCENT, text__bytes(mib, sizeof(mib), OUTLIER_BYTES),
		 ranks__one_tree(p->r) ? "the others of the same name and parent"
		 : p->n == 2	       ? "the other"
		 : families > 1	       ? "the median of the others in their group"
				       : "the median of the others");
	fputc('\n', p->out);
	bold(p, n);
	text__paragraph(p->out, p->width, "", "  ", "%s", p->text);
	bold(p, false);
	for (size_t i = 0; i < n && i < MOST_OUTLIERS; i++)
		print_outlier(p, &all[i]);
	if (n > MOST_OUTLIERS)
		fprintf(p->out, "  + %s more\n",
			text__count(count, sizeof(count), n - MOST_OUTLIERS));
}

/* ---- the rows ---- */

static bool overlap(const struct page *p)
{
	const struct ranks_opts *o = ranks__opts(p->r);

	return !o->split && o->by == BY_LAYER;
}

/* Columns of some recordings, and one of the sum of the others, follow these. */
enum { COL_MEM, COL_CUMULATIVE, COL_LEAST, COL_MEDIAN, COL_MOST, COL_COUNT, COL_RECORDINGS };

static size_t others_column(const struct page *p)
{
	return COL_RECORDINGS + p->n_which;
}

/* Chooses the recordings with a column: as many as fit, outliers first, then the others in
 * order. */
static void choose_recordings(struct page *p)
{
	size_t room = (p->width - FIGURE - GAP - WHERE_MIN) / (FIGURE + 1 + GAP), differ = 0;

	p->others = room < p->n;
	if (p->others && room)
		room--;
	for (size_t i = 0; i < p->n; i++)
		differ += ranks__differs(p->r, NULL, i);
	for (size_t i = 0, before = 0; i < p->n; i++) {
		bool differs = ranks__differs(p->r, NULL, i);

		if ((differs ? before : differ + i - before) < room)
			p->which[p->n_which++] = i;
		before += differs;
	}
}

static int make_table(struct page *p)
{
	static const struct column first[] = {
		[COL_MEM] = { "Size", true, 0, FIGURE },
		[COL_CUMULATIVE] = { "Cumulative", true, 2, FIGURE },
		[COL_LEAST] = { "Least", true, 3, FIGURE },
		[COL_MEDIAN] = { "Median", true, 3, FIGURE },
		[COL_MOST] = { "Most", true, 3, FIGURE },
		[COL_COUNT] = { "Blocks", true, 1, COUNT },
	};

	p->which = calloc(p->n, sizeof(*p->which));
	p->columns = calloc(COL_RECORDINGS + p->n + 1, sizeof(*p->columns));
	p->titles = calloc(p->n + 1, sizeof(*p->titles));
	if (!p->which || !p->columns || !p->titles)
		return -ENOMEM;
	memcpy(p->columns, first, sizeof(first));
	if (p->side) {
		p->columns[COL_MEM].title = "All";
		choose_recordings(p);
	}
	for (size_t i = 0; i <= p->n_which; i++)
		p->columns[COL_RECORDINGS + i] = (struct column){ p->titles[i], true, 0,
								  FIGURE + 1 };
	for (size_t i = 0; i < p->n_which; i++) {
		snprintf(p->titles[i], sizeof(*p->titles), "%s",
			 ranks__at(p->r, p->which[i])->label);
		words__cut_front(p->titles[i], FIGURE);
	}
	snprintf(p->titles[p->n_which], sizeof(*p->titles), "%zu %s", p->n - p->n_which,
		 p->n_which ? "others" : "of them");
	words__cut(p->titles[p->n_which], FIGURE + 1);
	p->grid = grid__new(p->columns, others_column(p) + 1);
	return p->grid ? 0 : -ENOMEM;
}

static void fit(struct page *p)
{
	for (int c = COL_CUMULATIVE; c < COL_RECORDINGS; c++)
		grid__show(p->grid, c, !p->side);
	grid__show(p->grid, others_column(p), p->others);
	grid__fit(p->grid, p->width, WHERE_MIN, 3);
	/* There is room for cumulative sums again once the wider spread is left out. */
	if (!p->side && !grid__shown(p->grid, COL_LEAST))
		grid__show(p->grid, COL_CUMULATIVE, true);
	if (overlap(p))
		grid__show(p->grid, COL_CUMULATIVE, false);
	grid__fit(p->grid, p->width, WHERE_MIN, 2);
}

static void put_recordings(struct page *p, size_t from, size_t to, bool sum, uint64_t rest)
{
	for (size_t i = 0; i < p->n_which; i++) {
		const struct rank_line *l = ranks__line(p->r, from);
		bool differs = !sum && ranks__differs(p->r, l, p->which[i]);
		uint64_t n = 0;
		char text[32];

		for (size_t k = from; k < to; k++)
			n += ranks__bytes(p->r, ranks__line(p->r, k), p->which[i]);
		rest -= n;
		text__bytes(text, 24, n);
		grid__put(p->grid, COL_RECORDINGS + i,
			  strcat(n ? text : strcpy(text, "-"), differs ? "*" : " "),
			  differs && p->colour ? "\033[33m" : NULL);
	}
	put_bytes(p->grid, others_column(p), rest);
}

/* Adds a row: a line, or the sum of lines that are not shown. */
static void put_lines(struct page *p, size_t from, size_t to, bool sum)
{
	const struct rank_line *l = ranks__line(p->r, from);
	uint64_t bytes = 0, count = 0;
	char text[40];

	grid__row(p->grid);
	if (sum && overlap(p))
		return;
	for (size_t i = from; i < to; i++) {
		bytes += ranks__line(p->r, i)->row.bytes;
		count += ranks__line(p->r, i)->row.count;
	}
	put_bytes(p->grid, COL_MEM, bytes);
	put_bytes(p->grid, COL_CUMULATIVE, ranks__line(p->r, to - 1)->row.cumulative);
	text__count(text, 32, count);
	if (!sum) {
		put_bytes(p->grid, COL_LEAST, l->min);
		put_bytes(p->grid, COL_MEDIAN, l->median);
		put_bytes(p->grid, COL_MOST, l->max);
		if (l->row.anonymous)
			strcat(text, "+");
	}
	grid__put(p->grid, COL_COUNT, sum || count ? text : "-", NULL);
	put_recordings(p, from, to, sum, bytes);
}

/* The pages that processes share count in each of them. */
static void print_pss(struct page *p)
{
	uint64_t sum = 0;
	size_t on_host = 0, known = 0;
	char bytes[24];

	for (size_t i = 0; i < p->n; i++) {
		on_host += ranks__at(p->r, i)->on_host;
		known += ranks__at(p->r, i)->has_pss;
		sum += ranks__at(p->r, i)->pss;
	}
	if (on_host < 2)
		return;
	if (known == on_host)
		text__paragraph(p->out, p->width, "", "  ",
				"pages that several processes share count in each; by share (PSS), "
				"these have %s together at their readings",
				text__bytes(bytes, sizeof(bytes), sum));
	else
		text__paragraph(p->out, p->width, "", "  ",
				"pages that several processes share count in each");
}

static void print_sums(struct page *p)
{
	uint64_t mem = 0, total = 0, shared = 0;
	enum figure is = FIGURE_EXACT;
	char a[24];

	for (size_t i = 0; i < p->n; i++) {
		mem += ranks__at(p->r, i)->allocated;
		total += ranks__at(p->r, i)->total_allocated;
		shared += ranks__at(p->r, i)->shared;
		is = ranks__at(p->r, i)->is > is ? ranks__at(p->r, i)->is : is;
	}
	snprintf(p->text, sizeof(p->text), "Together: %s%s%s", words__about(is),
		 text__bytes(a, sizeof(a), mem),
		 p->o->at == AT_PEAK ? ", each at its own peak" : "");
	fputc('\n', p->out);
	text__paragraph(p->out, p->width, "", "  ", "%s", p->text);
	if (shared)
		text__paragraph(p->out, p->width, "", "  ",
				"%s of it is shared memory that another process made: it counts in "
				"each process that maps it",
				text__bytes(a, sizeof(a), shared));
	print_pss(p);
	fprintf(p->out, "%s%s allocated in all\n",
		words__about(is <= FIGURE_SINCE_ATTACH ? is : FIGURE_LOWER_BOUND),
		text__bytes(a, sizeof(a), total));
}

static int print_rows(struct page *p)
{
	size_t kept, n = ranks__lines(p->r, &kept),
		     shown = p->o->top && p->o->top < kept ? p->o->top : kept, room;
	int err = make_table(p);

	if (err)
		return err;
	fit(p);
	for (size_t i = 0; i < shown; i++)
		put_lines(p, i, i + 1, false);
	if (shown < kept)
		put_lines(p, shown, kept, true);
	if (kept < n)
		put_lines(p, kept, n, true);
	if (grid__error(p->grid))
		return grid__error(p->grid);
	room = grid__fit(p->grid, p->width, 0, 0);
	print_sums(p);
	grid__print_titles(p->grid, p->out, p->colour, title(p, p->text, room));
	for (size_t i = 0; i < shown; i++)
		grid__print(p->grid, p->out, i,
			    words(p, p->text, &ranks__line(p->r, i)->row, room));
	if (shown < kept)
		report_text__left_out(p->grid, p->out, shown, kept - shown, "more row", room);
	if (kept < n)
		report_text__left_out(p->grid, p->out, shown + (shown < kept), n - kept,
				      "filtered row", room);
	return 0;
}

/* Names the recordings whose sums do not match. */
static void print_trust(struct page *p)
{
	uint64_t events = 0, lost = 0, drift = 0;
	bool totals = false;
	char a[32], b[32], c[24];

	for (size_t i = 0; i < p->n; i++) {
		const struct rank *k = ranks__at(p->r, i);

		events += k->events;
		lost += k->lost;
		drift = k->drift > drift ? k->drift : drift;
		totals |= k->has_totals;
		if (overlap(p) || k->rows == k->allocated)
			continue;
		snprintf(p->text, sizeof(p->text),
			 "The rows of %s add up to %s, not to the %s of the allocator: %s %s "
			 "because events were lost.",
			 k->label, text__bytes(a, 24, k->rows), text__bytes(b, 24, k->allocated),
			 text__bytes(c, sizeof(c),
				     k->rows > k->allocated ? k->rows - k->allocated
							    : k->allocated - k->rows),
			 k->rows > k->allocated ? "too much" : "are missing");
		text__paragraph(p->out, p->width, "", "  ", "%s", p->text);
	}
	snprintf(p->text, sizeof(p->text), "%s, %s lost%s%s%s%s--apart shows each by itself",
		 text__counted(a, sizeof(a), events, "event"), text__count(b, sizeof(b), lost),
		 totals ? text__dot() : "",
		 !totals ? ""
		 : drift ? "sizes differ from the allocator's totals by up to "
			 : "sizes agree with the allocator's totals",
		 drift ? text__bytes(c, sizeof(c), drift) : "", text__dot());
	fputc('\n', p->out);
	text__paragraph(p->out, p->width, "", "  ", "%s", p->text);
	for (size_t i = 0; i < p->n; i++) {
		const struct rank *k = ranks__at(p->r, i);

		if (!k->complete)
			text__paragraph(p->out, p->width, "", "  ", "%s is not complete", k->label);
		if (*k->detail)
			text__paragraph(p->out, p->width, "", "  ", "%s has reduced detail: %s",
					k->label, k->detail);
	}
}

int ranks__text(FILE *out, const struct ranks *r, const struct report_text_opts *o, bool side)
{
	struct page *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	*p = (struct page){ .out = out,
			    .r = r,
			    .o = o,
			    .width = report_text__width(out, o),
			    .n = ranks__count(r),
			    .side = side,
			    .colour = report_text__colour(out, o) };
	if (!p->n) {
		fputs("No memory event was seen.\n", out);
		free(p);
		return 0;
	}
	ranks__print_title(out, p->width, r);
	print_missing_ranks(out, r, p->width);
	err = ranks__one_tree(r) ? print_tree(p)
	      : p->n > MOST_RANKS && p->o->top && ranks__one_job(r)
		      ? print_groups(out, r, p->width, p->colour, MOST_RANKS)
		      : print_ranks(p);
	if (!err)
		err = print_growth(p);
	if (!err) {
		print_shared_devices(p->out, p->r, p->width);
		print_outliers(p);
		print_steps(out, r, p->width);
		print_clocks(out, r, p->width);
		err = print_rows(p);
	}
	if (!err)
		print_trust(p);
	grid__free(p->grid);
	free(p->columns);
	free(p->which);
	free(p->titles);
	free(p);
	return err;
}
