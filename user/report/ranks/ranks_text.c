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
#include "report/ranks/shared_gpus.h"
#include "report/ranks/ranks.h"

/* ---- names of recordings ---- */

#define MOST_NAMES 4 /* names of recordings in one list */

/* Appends a range to a list of numbers: "0-3, 7". Returns the new length, or len without room. */
static size_t add_range(char *buf, size_t size, size_t len, uint64_t first, uint64_t last)
{
	if (len + 48 >= size)
		return len;
	if (len)
		len += (size_t)snprintf(buf + len, size - len, ", ");
	len += (size_t)snprintf(buf + len, size - len, "%" PRIu64, first);
	if (last != first)
		len += (size_t)snprintf(buf + len, size - len, "-%" PRIu64, last);
	return len;
}

/* Writes the numbers of the ranks in `in` (NULL: of all): "0-3, 7". Returns how many. */
static size_t add_numbers(const struct ranks *r, const bool *in, char *buf, size_t size)
{
	size_t len = 0, n_all = r->n, count = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < n_all;) {
		const struct rank *k = &r->all[i];
		uint64_t first = k->number, last = first;

		if (k->worker || (in && !in[i])) {
			i++;
			continue;
		}
		for (i++, count++; i < n_all; i++) {
			k = &r->all[i];
			if (k->worker) /* workers are between the ranks */
				continue;
			if ((in && !in[i]) || k->number != last + 1)
				break;
			last++;
			count++;
		}
		len = add_range(buf, size, len, first, last);
	}
	return count;
}

/* Appends the labels of the recordings in `in` (NULL: all but workers): "rank 0, worker 1".
 * workers: only those of workers. Returns how many there are. */
static size_t add_labels(const struct ranks *r, const bool *in, bool workers, char *buf,
			 size_t size)
{
	size_t len = strlen(buf), count = 0;

	for (size_t i = 0; i < r->n; i++) {
		const struct rank *k = &r->all[i];

		if ((in ? !in[i] : k->worker) || (workers && !k->worker))
			continue;
		if (count++ < MOST_NAMES && len + 64 < size)
			len += snprintf(buf + len, size - len, "%s%s", len ? ", " : "", k->label);
	}
	if (count > MOST_NAMES && len + 64 < size)
		snprintf(buf + len, size - len, " and %zu more", count - MOST_NAMES);
	return count;
}

size_t ranks__list(const struct ranks *r, const bool *in, char *buf, size_t size)
{
	char numbers[256];
	size_t n;

	buf[0] = '\0';
	if (!ranks__one_job(r))
		return add_labels(r, in, /*workers=*/false, buf, size);
	n = add_numbers(r, in, numbers, sizeof(numbers));
	if (n)
		snprintf(buf, size, "rank%s %s", n == 1 ? "" : "s", numbers);
	return n + (in ? add_labels(r, in, /*workers=*/true, buf, size) : 0);
}

/* Writes "4 recordings of one job, ranks 0-3 of 4: python train.py". */
static void say_title(const struct ranks *r, char *buf, size_t size)
{
	size_t workers = r->workers;
	char numbers[256], world[32] = "", with[48] = "", all[40];

	text__counted(all, sizeof(all), r->n, "recording");
	if (ranks__one_tree(r)) {
		const struct process_node *root = &r->tree.all[0];

		snprintf(buf, size, "%s of one process tree, root PID %" PRIu64 ": %s", all,
			 root->id.pid, *root->id.title ? root->id.title : root->name);
		return;
	}
	if (!ranks__one_job(r)) {
		snprintf(buf, size,
			 r->n == 1 ? "%s"
				   : "%s together; they do not say that they are ranks of one job",
			 all);
		return;
	}
	ranks__list(r, /*in=*/NULL, numbers, sizeof(numbers));
	if (r->all[0].has_world)
		snprintf(world, sizeof(world), " of %" PRIu64, r->all[0].world);
	if (workers)
		snprintf(with, sizeof(with), " and %zu worker%s", workers, workers == 1 ? "" : "s");
	snprintf(buf, size, "%s of one job, %s%s%s: %s", all, numbers, world, with,
		 r->all[0].command);
}

void ranks__print_lacks(FILE *out, size_t width, const struct ranks *r)
{
	for (size_t i = 0; i < r->n; i++) {
		const struct rank *k = &r->all[i];

		if (!k->complete)
			text__paragraph(out, width, "", "  ", "%s is not complete", k->label);
		if (*k->detail)
			text__paragraph(out, width, "", "  ", "%s has reduced detail: %s", k->label,
					k->detail);
	}
}

void ranks__print_title(FILE *out, size_t width, const struct ranks *r)
{
	char text[REPORT_TEXT];

	say_title(r, text, sizeof(text));
	text__paragraph(out, width, "", "  ", "%s", words__cut(text, 2 * width));
	if (r->empty)
		text__paragraph(out, width, "", "  ",
				"%zu more without a memory event %s left aside", r->empty,
				r->empty == 1 ? "is" : "are");
}

/* Writes the reported devices: "cuda:0-1, 3". Returns buf. */
static char *list_devices(char *buf, size_t size, const struct rank *k)
{
	uint64_t first = 0, last = 0;
	char numbers[160] = "";
	const char *device = k->devices, *colon = strchr(device, ':');
	size_t kind = colon ? (size_t)(colon - device) + 1 : 0, len = 0;

	snprintf(buf, size, "%.*s", (int)size - 1, device);
	if (!colon || !strchr(device, ' '))
		return buf;
	for (bool any = false; device; device = strchr(device, ' ')) {
		uint64_t number;

		device += *device == ' ';
		if (strncmp(device, k->devices, kind) != 0)
			return buf;
		number = strtoull(device + kind, NULL, 10);
		if (any && number != last + 1)
			len = add_range(numbers, sizeof(numbers), len, first, last);
		if (!any || number != last + 1)
			first = number;
		last = number;
		any = true;
	}
	add_range(numbers, sizeof(numbers), len, first, last);
	snprintf(buf, size, "%.*s%s", (int)kind, k->devices, numbers);
	return buf;
}

/* ---- groups, processes, steps, clocks and missing recordings ---- */

#define FIGURE_WIDTH 10 /* columns of a figure */
#define RANKS_MIN 16	/* least columns of the last column */
#define MOST_SLOW 5
#define MOST_MISSING 12
#define MOST_INDENT 12 /* levels of a process tree */

enum { GROUP_COUNT, GROUP_MEDIAN, GROUP_LEAST, GROUP_MOST, GROUP_STEP, GROUP_RANKS };

/* Writes the members' figures, sorted: step times if steps is true, without unknown ones; otherwise
 * bytes. Returns how many. */
static size_t sort_figures(const struct ranks *r, const struct rank_group *g, bool steps,
			   uint64_t *ret)
{
	const uint32_t *members = r->groups.members + g->first;
	size_t n = 0;

	for (uint32_t i = 0; i < g->n; i++) {
		const struct rank *k = &r->all[members[i]];
		uint64_t value = steps ? k->step_time : k->allocated;

		if (value || !steps)
			ret[n++] = value;
	}
	outliers__sort(ret, n);
	return n;
}

static void put_bytes(struct grid *t, size_t column, uint64_t bytes)
{
	char text[24];

	grid__put(t, column, text__bytes(text, sizeof(text), bytes), NULL);
}

/* Adds a group's row. values: a buffer for the figures of all members. */
static void put_group(struct grid *grid, const struct ranks *r, const struct rank_group *g,
		      uint64_t *values)
{
	char text[32];
	size_t n;

	grid__row(grid);
	grid__put(grid, GROUP_COUNT, text__count(text, sizeof(text), g->n), NULL);
	n = sort_figures(r, g, /*steps=*/false, values);
	put_bytes(grid, GROUP_MEDIAN, outliers__median(values, n));
	put_bytes(grid, GROUP_LEAST, values[0]);
	put_bytes(grid, GROUP_MOST, values[n - 1]);
	n = sort_figures(r, g, /*steps=*/true, values);
	grid__put(grid, GROUP_STEP,
		  n ? text__time(text, sizeof(text), outliers__median(values, n)) : "-", NULL);
}

/* Returns the indices of the groups, largest first, for free(). NULL if memory is short. */
static uint32_t *order_groups(const struct rank_groups *g)
{
	uint32_t *order = calloc(g->n + 1, sizeof(*order));

	/* Groups are few, or all small: an insertion stops soon. */
	for (size_t i = 0; i < g->n && order; i++) {
		size_t place = i;

		for (; place && g->all[order[place - 1]].n < g->all[i].n; place--)
			order[place] = order[place - 1];
		order[place] = (uint32_t)i;
	}
	return order;
}

/* Prints a row of the grid and the names of the group's members. in: a buffer, all false, with an
 * entry for each recording. */
static void print_names(FILE *out, const struct ranks *r, const struct grid *grid, size_t row,
			const struct rank_group *g, bool *in, size_t room)
{
	const uint32_t *members = r->groups.members + g->first;
	char names[512];

	for (uint32_t i = 0; i < g->n; i++)
		in[members[i]] = true;
	ranks__list(r, in, names, sizeof(names));
	for (uint32_t i = 0; i < g->n; i++)
		in[members[i]] = false;
	grid__print(grid, out, row, words__cut(names, room));
}

/* Prints a row for each of the largest groups, at most `most`. Returns 0 or -ENOMEM. */
static int print_groups(FILE *out, const struct ranks *r, size_t width, bool bold, size_t most)
{
	const struct rank_groups *groups = &r->groups;
	static const struct column columns[] = {
		[GROUP_COUNT] = { "Ranks", true, 0, 6 },
		[GROUP_MEDIAN] = { "Median", true, 0, FIGURE_WIDTH },
		[GROUP_LEAST] = { "Least", true, 2, FIGURE_WIDTH },
		[GROUP_MOST] = { "Most", true, 2, FIGURE_WIDTH },
		[GROUP_STEP] = { "Step", true, 1, 9 },
	};
	struct grid *grid = grid__new(columns, GROUP_RANKS);
	uint64_t *values = calloc(r->n + 1, sizeof(*values));
	bool *in = calloc(r->n + 1, sizeof(*in));
	uint32_t *order = order_groups(groups);
	size_t shown = groups->n < most ? groups->n : most, room, rest = 0;
	int err = -ENOMEM;
	char a[48], b[32];

	if (!grid || !values || !in || !order)
		goto out;
	for (size_t i = 0; i < shown; i++)
		put_group(grid, r, &groups->all[order[i]], values);
	err = grid__error(grid);
	if (err)
		goto out;
	room = grid__fit(grid, width, RANKS_MIN, /*goes=*/2);
	fprintf(out, "\n%s of ranks that allocate alike\n",
		text__counted(a, sizeof(a), groups->n, "group"));
	grid__print_titles(grid, out, bold, "Which");
	for (size_t i = 0; i < shown; i++)
		print_names(out, r, grid, i, &groups->all[order[i]], in, room);
	for (size_t i = shown; i < groups->n; i++)
		rest += groups->all[order[i]].n;
	if (rest)
		fprintf(out, "+ %s more groups with %s ranks\n",
			text__count(a, sizeof(a), groups->n - shown),
			text__count(b, sizeof(b), rest));
out:
	grid__free(grid);
	free(values);
	free(in);
	free(order);
	return err;
}

/* ---- processes ---- */

enum { TREE_OWN, TREE_ALL, TREE_RESERVED, TREE_TIME, TREE_DEVICE, TREE_PID, TREE_NAME };

/* Adds a process's row; without a recording it has dashes. */
static void put_process(struct grid *grid, const struct ranks *r, const struct process_node *node)
{
	const struct rank *k = node->recording != PROCESS_NONE ? &r->all[node->recording] : NULL;
	char text[64];

	grid__row(grid);
	grid__put(grid, TREE_OWN, k ? text__bytes(text, sizeof(text), node->own) : "-", NULL);
	put_bytes(grid, TREE_ALL, node->all);
	grid__put(grid, TREE_RESERVED,
		  k && k->has_totals ? text__bytes(text, sizeof(text), k->reserved) : "-", NULL);
	grid__put(grid, TREE_TIME, k ? text__time(text, sizeof(text), k->time) : "-", NULL);
	grid__put(grid, TREE_DEVICE,
		  k ? words__cut(list_devices(text, sizeof(text), k), /*columns=*/16) : "-", NULL);
	snprintf(text, sizeof(text), "%" PRIu64, node->id.pid);
	grid__put(grid, TREE_PID, text, NULL);
}

/* Prints the process tree, at most `most` rows. when: title of the figures. Returns 0 or -ENOMEM.
 * */
static int print_processes(FILE *out, const struct ranks *r, size_t width, bool bold,
			   const char *when, size_t most)
{
	const struct process_tree *tree = &r->tree;
	const struct column columns[] = {
		[TREE_OWN] = { when, true, 0, FIGURE_WIDTH },
		[TREE_ALL] = { "With children", true, 0, FIGURE_WIDTH },
		[TREE_RESERVED] = { "Reserved", true, 2, FIGURE_WIDTH },
		[TREE_TIME] = { "At", true, 1, 9 },
		[TREE_DEVICE] = { "Device", false, 3, 6 },
		[TREE_PID] = { "PID", true, 4, 5 },
	};
	struct grid *grid = grid__new(columns, TREE_NAME);
	size_t shown = tree->n < most ? tree->n : most, room;
	char name[2 * PROCESS_NAME], count[32];
	int err;

	if (!grid)
		return -ENOMEM;
	for (size_t i = 0; i < shown; i++)
		put_process(grid, r, &tree->all[i]);
	err = grid__error(grid);
	room = grid__fit(grid, width, RANKS_MIN, /*goes=*/4);
	fputc('\n', out);
	grid__print_titles(grid, out, bold, "Process");
	for (size_t i = 0; i < shown && !err; i++) {
		const struct process_node *node = &tree->all[i];

		snprintf(name, sizeof(name), "%*s%s",
			 2 * (int)(node->depth < MOST_INDENT ? node->depth : MOST_INDENT), "",
			 node->name);
		grid__print(grid, out, i, words__cut(name, room));
	}
	if (shown < tree->n)
		fprintf(out, "+ %s more processes\n",
			text__count(count, sizeof(count), tree->n - shown));
	grid__free(grid);
	return err;
}

/* ---- steps ---- */

/* Prints a rank whose steps take longer or shorter than those of the others. */
static void print_slow(FILE *out, const struct ranks *r, const struct outlier *o, size_t width)
{
	uint64_t distance = outlier__distance(o);
	const struct rank *k = &r->all[o->recording];
	double percent = o->others ? 100.0 * (double)distance / (double)o->others : 0.0;
	char own[24], others[24];

	text__paragraph(out, width, "  ", "  ", "%s%s: %s a step, %.0f %% %s than the others' %s",
			k->label, k->on, text__time(own, sizeof(own), o->bytes), percent,
			o->bytes > o->others ? "longer" : "shorter",
			text__time(others, sizeof(others), o->others));
}

/* Returns the subject of the sentence on steps: "Steps 3 to 12 of the job, ...". */
static const char *step_words(char *buf, size_t size, const struct step_match *m)
{
	char first[32], last[32];

	if (m->by != STEPS_BY_OPTIMIZER)
		snprintf(buf, size, "Steps");
	else
		snprintf(buf, size, "Steps %s to %s of the job, by the optimizers' own count,",
			 text__count(first, sizeof(first), m->first),
			 text__count(last, sizeof(last), m->last));
	return buf;
}

/* Prints the spread of step times and the slow ranks; nothing unless two ranks have steps. */
static void print_steps(FILE *out, const struct ranks *r, size_t width)
{
	uint64_t *values = calloc(r->n + 1, sizeof(*values));
	char median[24], least[24], most[24], count[32], which[128];
	size_t known = 0;

	for (size_t i = 0; i < r->n && values; i++)
		if (!r->all[i].worker && r->all[i].step_time)
			values[known++] = r->all[i].step_time;
	if (known < 2)
		goto out;
	outliers__sort(values, known);
	fputc('\n', out);
	text__paragraph(out, width, "", "  ", "%s take %s in the median of ranks, from %s to %s",
			step_words(which, sizeof(which), &r->match),
			text__time(median, sizeof(median), outliers__median(values, known)),
			text__time(least, sizeof(least), values[0]),
			text__time(most, sizeof(most), values[known - 1]));
	if (r->match.by == STEPS_BY_TIME && !r->match.old_recording)
		text__paragraph(out, width, "  ", "  ",
				"all steps of each recording: they have no numbers of the job in "
				"common (%s)",
				r->match.why);
	for (size_t i = 0; i < r->slow.n && i < MOST_SLOW; i++)
		print_slow(out, r, &r->slow.all[i], width);
	if (r->slow.n > MOST_SLOW)
		fprintf(out, "  + %s more\n",
			text__count(count, sizeof(count), r->slow.n - MOST_SLOW));
out:
	free(values);
}

/* ---- clocks ---- */

/* Prints how far the clocks of the hosts differ; nothing unless two are known. */
static void print_clocks(FILE *out, const struct ranks *r, size_t width)
{
	int64_t first = INT64_MAX, last = INT64_MIN, least = INT64_MAX, most = INT64_MIN;
	uint64_t error = 0;
	size_t known = 0;
	char a[24], b[24], c[24];

	for (size_t i = 0; i < r->n; i++) {
		const struct rank_clock *k = &r->all[i].clock;

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

/* Prints a recording that fetch did not get, and why. */
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

/* Writes the ranks of the job that no recording has: "2, 5-7". Returns how many. */
static size_t list_absent_ranks(const struct ranks *r, char *buf, size_t size)
{
	uint64_t next = 0, world = 0, absent = 0;
	size_t len = 0;

	*buf = '\0';
	for (size_t i = 0; i <= r->n; i++) {
		const struct rank *k = i < r->n ? &r->all[i] : NULL;
		uint64_t until = k ? k->number : world;

		if (k && (k->worker || !k->has_number))
			continue;
		if (k && k->has_world)
			world = k->world;
		if (until > next) {
			absent += until - next;
			len = add_range(buf, size, len, next, until - 1);
		}
		next = k ? until + 1 : next;
	}
	return absent > SIZE_MAX ? SIZE_MAX : (size_t)absent;
}

/* Prints the ranks without a recording, and why fetch did not get them. */
static void print_missing_ranks(FILE *out, const struct ranks *r, size_t width)
{
	const struct ranks_opts *opts = r->opts;
	char numbers[256], count[32];
	size_t absent = ranks__one_job(r) ? list_absent_ranks(r, numbers, sizeof(numbers)) : 0;

	if (absent)
		text__paragraph(out, width, "", "  ", "Missing: rank%s %s", absent == 1 ? "" : "s",
				numbers);
	else if (opts->n_missing)
		fputs("Missing:\n", out);
	for (size_t i = 0; i < opts->n_missing && i < MOST_MISSING; i++)
		print_missing(out, &opts->missing[i], width);
	if (opts->n_missing > MOST_MISSING)
		fprintf(out, "  + %s more\n",
			text__count(count, sizeof(count), opts->n_missing - MOST_MISSING));
}

/* ---- devices of several ranks ---- */

#define MOST_SHARED 8

/* Writes the place of a device's largest row: " (train.py:9)"; "" if the row has no line and no
 * name. */
static const char *say_largest(char *buf, size_t size, const struct rank_device *d, const char *cwd)
{
	char *where = malloc(REPORT_TEXT);

	*buf = '\0';
	if (where && (d->most.file || d->most.name))
		snprintf(buf, size, " (%.200s)",
			 d->most.file
				 ? words__place(where, d->most.file, d->most.line, cwd)
				 : words__where(where, &d->most, BY_LINE, cwd, /*columns=*/80));
	free(where);
	return buf;
}

const char ranks_shared_remedy[] = "call torch.cuda.set_device(local_rank) before anything uses "
				   "CUDA, and load checkpoints with "
				   "torch.load(..., map_location='cpu')";

char *ranks__say_shared(const struct ranks *r, size_t i, char *buf, uint64_t *ret)
{
	const struct shared_device *shared = &r->shared.all[i];
	const struct device_use *uses = r->shared.uses, *most = NULL;
	const struct rank *rank;
	char bytes[24], one[24], where[256], guests[512], all[32];
	bool *in = calloc(r->n + 1, sizeof(*in));
	uint64_t sum = 0;

	*buf = '\0';
	for (uint32_t use = shared->first; use < shared->first + shared->n && in; use++) {
		if (uses[use].device == uses[use].own)
			continue;
		in[uses[use].recording] = true;
		sum += uses[use].device->bytes;
		if (!most || uses[use].device->bytes > most->device->bytes)
			most = &uses[use];
	}
	if (ret)
		*ret = sum;
	if (!most) {
		free(in);
		return buf;
	}
	ranks__list(r, in, guests, sizeof(guests));
	free(in);
	rank = &r->all[most->recording];
	say_largest(where, sizeof(where), most->device, rank->cwd);
	text__bytes(bytes, sizeof(bytes), sum);
	text__count(all, sizeof(all), shared->n);
	if (shared->guests == 1)
		snprintf(buf, REPORT_TEXT,
			 "%s has %s on %s%s besides its own %s%s. GPU %u%s holds memory of %s "
			 "ranks.",
			 guests, bytes, most->device->name, rank->on, most->own->name, where,
			 most->device->device.index, rank->on, all);
	else
		snprintf(buf, REPORT_TEXT,
			 "%s have %s on %s%s besides their own devices, most of it %s with %s%s. "
			 "GPU %u%s holds memory of %s ranks.",
			 guests, bytes, most->device->name, rank->on, rank->label,
			 text__bytes(one, sizeof(one), most->device->bytes), where,
			 most->device->device.index, rank->on, all);
	return buf;
}

/* Prints which devices have memory of several ranks, if there are any. */
static void print_shared_devices(FILE *out, const struct ranks *r, size_t width)
{
	const struct shared_devices *shared = &r->shared;
	char more[32], *text = malloc(REPORT_TEXT);

	if (!shared->n || !text) {
		free(text);
		return;
	}
	fputc('\n', out);
	for (size_t i = 0; i < shared->n && i < MOST_SHARED; i++)
		text__paragraph(out, width, "", "  ", "%s", ranks__say_shared(r, i, text, NULL));
	free(text);
	if (shared->n > MOST_SHARED)
		fprintf(out, "+ %s more devices with memory of several ranks\n",
			text__count(more, sizeof(more), shared->n - MOST_SHARED));
	text__paragraph(out, width, "", "  ",
			"Each of these ranks has a CUDA context there, too: %s.",
			ranks_shared_remedy);
}

/* ---- the report ---- */

/* Widths, in columns. */
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

static void set_bold(const struct page *p, bool on)
{
	if (p->colour)
		fputs(on ? "\033[1m" : "\033[0m", p->out);
}

/* ---- recordings ---- */

enum { HEAD_RECORDING, HEAD_MEM, HEAD_BAR, HEAD_RESERVED, HEAD_TIME, HEAD_DEVICE, HEAD_NAME };

/* Adds a recording's row. largest: bytes of a full bar. */
static void put_rank(const struct page *p, struct grid *grid, const struct rank *k,
		     uint64_t largest)
{
	char text[64], bar[TEXT_BAR];

	grid__row(grid);
	snprintf(text, sizeof(text), "%s", k->label);
	grid__put(grid, HEAD_RECORDING, words__cut(text, LABEL_MOST), NULL);
	put_bytes(grid, HEAD_MEM, k->allocated);
	text__bar(bar, k->allocated, largest, REPORT_BAR, text__unicode(), /*fill=*/true);
	grid__put(grid, HEAD_BAR, bar, p->colour ? "\033[36m" : NULL);
	if (k->has_totals)
		put_bytes(grid, HEAD_RESERVED, k->reserved);
	else
		grid__put(grid, HEAD_RESERVED, "-", NULL);
	grid__put(grid, HEAD_TIME, text__time(text, sizeof(text), k->time), NULL);
	list_devices(text, sizeof(text), k);
	grid__put(grid, HEAD_DEVICE, words__cut(text, DEVICE_MOST), NULL);
}

/* Chooses the columns of the first table. *names: the last column has names; otherwise devices.
 * Returns the width of the last column. */
static size_t fit_head(const struct page *p, struct grid *grid, bool *names)
{
	grid__show(grid, HEAD_BAR, false);
	grid__show(grid, HEAD_BAR,
		   report_text__bars(p->out, p->o,
				     grid__fit(grid, p->width, 0, 0) >=
					     REPORT_BAR + GAP + NAME_MIN));
	grid__fit(grid, p->width, NAME_MIN, /*goes=*/1);
	*names = grid__shown(grid, HEAD_DEVICE);
	return grid__fit(grid, p->width, *names ? NAME_MIN : DEVICE, /*goes=*/4);
}

/* Returns the title of the figures: "At peak", "At 1.20 s". */
static const char *say_moment(const struct page *p, char *buf, size_t size)
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
		text__time(time, sizeof(time), p->o->at_time);
		snprintf(buf, size, "At %s", p->o->at_name ? p->o->at_name : time);
		return words__cut(buf, FIGURE);
	}
}

/* Prints a row for each recording. Returns 0 or -ENOMEM. */
static int print_ranks(struct page *p)
{
	char when[40], count[32];
	const struct column columns[] = {
		[HEAD_RECORDING] = { "Recording" },
		[HEAD_MEM] = { say_moment(p, when, sizeof(when)), true, 0, FIGURE },
		[HEAD_BAR] = { "", false, 4 },
		[HEAD_RESERVED] = { "Reserved", true, 3, FIGURE },
		[HEAD_TIME] = { "At", true, 2, TIME },
		[HEAD_DEVICE] = { "Device", false, 1, DEVICE },
	};
	struct grid *grid = grid__new(columns, HEAD_NAME);
	size_t most = p->o->top > MOST_RANKS || !p->o->top ? p->n : MOST_RANKS, room;
	uint64_t largest = 0;
	bool names;
	int err;

	if (!grid)
		return -ENOMEM;
	for (size_t i = 0; i < p->n; i++)
		largest = p->r->all[i].allocated > largest ? p->r->all[i].allocated : largest;
	most = most < p->n ? most : p->n;
	for (size_t i = 0; i < most; i++)
		put_rank(p, grid, &p->r->all[i], largest);
	err = grid__error(grid);
	room = fit_head(p, grid, &names);
	fputc('\n', p->out);
	grid__print_titles(grid, p->out, p->colour, names ? "Name" : "Device");
	for (size_t i = 0; i < most && !err; i++) {
		const struct rank *k = &p->r->all[i];
		char devices[64];
		const char *last = names ? k->name : list_devices(devices, sizeof(devices), k);

		text__clean(p->text, sizeof(p->text), last, strlen(last));
		grid__print(grid, p->out, i, words__cut(p->text, room));
	}
	if (most < p->n)
		fprintf(p->out, "+ %s more recordings\n",
			text__count(count, sizeof(count), p->n - most));
	grid__free(grid);
	return err;
}

/* Prints the process tree. Returns 0 or -ENOMEM. */
static int print_tree(struct page *p)
{
	size_t most = p->o->top > MOST_TREE ? p->o->top : MOST_TREE;
	char when[40];

	return print_processes(p->out, p->r, p->width, p->colour, say_moment(p, when, sizeof(when)),
			       p->o->top ? most : SIZE_MAX);
}

/* Returns the growth of the first device whose growth is not known. NULL: it is known of all. */
static const struct growth_summary *find_unknown(const struct rank *k)
{
	for (size_t i = 0; i < k->ngrowth; i++)
		if (!growth_summary__is_known(k->growth[i]))
			return k->growth[i];
	return NULL;
}

/* Names the recordings whose growth is not known, with the sentence of the first. Returns 0 or
 * -ENOMEM. */
static int print_unknown_growth(struct page *p)
{
	const struct growth_summary *first = NULL;
	bool *in = calloc(p->n, sizeof(*in));
	char text[GROWTH_SUMMARY_TEXT];

	if (!in)
		return -ENOMEM;
	for (size_t i = 0; i < p->n; i++) {
		const struct growth_summary *s = find_unknown(&p->r->all[i]);

		in[i] = s != NULL;
		first = first ?: s;
	}
	if (first) {
		ranks__list(p->r, in, p->part, sizeof(p->part));
		fputc('\n', p->out);
		text__paragraph(p->out, text__one_line(p->width), "", "  ", "In %s: %s", p->part,
				growth_summary__say(first, text));
	}
	free(in);
	return 0;
}

/* Names the recordings that grow, with the sentence of the one that grows most. Returns 0 or
 * -ENOMEM. */
static int print_growth(struct page *p)
{
	const struct rank *most = NULL;
	size_t grows = 0, steady = 0;
	bool *in = calloc(p->n, sizeof(*in));
	char more[160] = "", text[GROWTH_SUMMARY_TEXT];

	if (!in)
		return -ENOMEM;
	for (size_t i = 0; i < p->n; i++) {
		const struct rank *k = &p->r->all[i];

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
	else
		return print_unknown_growth(p);
	return 0;
}

/* ---- outliers ---- */

/* The parts that say_row() writes with --by several, in order. */
static const enum group order[] = { BY_LINE, BY_MODULE, BY_SCOPE, BY_THREAD, BY_PHASE, BY_CATEGORY };
#define N_PARTS (sizeof(order) / sizeof(*order))

/* Writes the row's location, module or the like, as --by says; with --by several, all of them. */
static char *say_row(struct page *p, char *buf, const struct row *r, size_t columns)
{
	const struct ranks_opts *o = p->r->opts;
	const char *cwd = p->r->all[0].cwd;
	struct row row = *r;
	size_t len;

	if (!o->split)
		return words__where(buf, r, o->by, cwd, columns);
	strcpy(buf, r->before_attach ? words__before(r->history) : "");
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

/* Writes the title of the column that say_row() fills: "Module, Role". */
static char *rows_title(const struct page *p, char *buf, size_t columns)
{
	const struct ranks_opts *o = p->r->opts;
	size_t len = 0;

	if (!o->split)
		len = (size_t)snprintf(buf, REPORT_TEXT, "%s", words__where_title(o->by));
	for (size_t i = 0; i < N_PARTS; i++)
		if (o->split & 1U << order[i])
			len += (size_t)snprintf(buf + len, REPORT_TEXT - len, "%s%s",
						len ? ", " : "", words__where_title(order[i]));
	return words__cut(buf, columns);
}

/* Writes the sentence about an outlier. where: place of the line; NULL: it is about all memory. n:
 * number of compared recordings. */
static void say_outlier(const struct ranks *r, const struct outlier *o, size_t n, const char *where,
			char *buf)
{
	const struct rank *k = &r->all[o->recording];
	char difference[24], own[24], median[24], percent[32] = "";
	uint64_t distance = outlier__distance(o);
	const char *others = n == 2 && !ranks__one_tree(r) ? "the other has"
							   : "the others' median is";
	const char *more = o->bytes > o->others ? "more" : "less";

	if (o->others)
		snprintf(percent, sizeof(percent), " (%.0f %%)",
			 100.0 * (double)distance / (double)o->others);
	text__bytes(difference, sizeof(difference), distance);
	text__bytes(own, sizeof(own), o->bytes);
	text__bytes(median, sizeof(median), o->others);
	if (where)
		snprintf(buf, REPORT_TEXT, "%s%s: %s %s%s at %s: %s, %s %s", k->label, k->on,
			 difference, more, percent, where, own, others, median);
	else
		snprintf(buf, REPORT_TEXT, "%s%s: %s %s%s in all: %s, %s %s", k->label, k->on,
			 difference, more, percent, own, others, median);
}

char *ranks__say_outlier(const struct ranks *r, const struct outlier *o, char *buf)
{
	char *where = o->line_no ? malloc(REPORT_TEXT) : NULL;

	if (where)
		words__where(where, &r->lines[o->line_no - 1].row, r->opts->by, r->all[0].cwd,
			     /*columns=*/60);
	say_outlier(r, o, r->n - r->workers, where, buf);
	free(where);
	return buf;
}

static void print_outlier(struct page *p, const struct outlier *o)
{
	char *where = o->line_no ? malloc(REPORT_TEXT) : NULL;
	/* Leave room for the words around the place on the sentence's first line. */
	size_t columns = p->width > 56 ? p->width - 20 : 36;

	if (where)
		say_row(p, where, &p->r->lines[o->line_no - 1].row, columns);
	say_outlier(p->r, o, p->n, where, p->text);
	free(where);
	text__paragraph(p->out, p->width, "  ", "  ", "%s", p->text);
}

/* Prints the recordings that differ from the others, or that none does. */
static void print_outliers(struct page *p)
{
	size_t n = p->r->outliers.n, families = 0;
	const char *others = "the median of the others";
	char count[32], mib[24];

	for (uint32_t i = 0; i < p->r->groups.n; i++)
		families += p->r->groups.all[i].family == i;

	/* Most processes of a service do different work. */
	if (p->n < 2 || (!n && (ranks__one_tree(p->r) || p->r->shared.n)))
		return;
	if (ranks__one_tree(p->r))
		others = "the others of the same name and parent";
	else if (p->n == 2)
		others = "the other";
	else if (families > 1)
		others = "the median of the others in their group";
	snprintf(p->text, sizeof(p->text),
		 n ? "Different by more than %d %% and %s from %s:"
		   : "None differs by more than %d %% and %s from %s.",
		 OUTLIER_PERCENT, text__bytes(mib, sizeof(mib), OUTLIER_BYTES), others);
	fputc('\n', p->out);
	set_bold(p, n);
	text__paragraph(p->out, p->width, "", "  ", "%s", p->text);
	set_bold(p, false);
	for (size_t i = 0; i < n && i < MOST_OUTLIERS; i++)
		print_outlier(p, &p->r->outliers.all[i]);
	if (n > MOST_OUTLIERS)
		fprintf(p->out, "  + %s more\n",
			text__count(count, sizeof(count), n - MOST_OUTLIERS));
}

/* ---- the rows ---- */

/* True if a block counts in several rows: layers have the memory of those inside them. Split by
 * rank, the text leaves those out. */
static bool rows_overlap(const struct page *p)
{
	const struct ranks_opts *o = p->r->opts;

	return !o->split && o->by == BY_LAYER;
}

/* Returns whether the recording is an outlier at this line. l NULL: in all memory. */
static bool differs_in(const struct ranks *r, const struct rank_line *l, size_t recording)
{
	uint32_t line_no = l ? (uint32_t)(l - r->lines) + 1 : 0;

	for (size_t i = 0; i < r->outliers.n; i++)
		if (r->outliers.all[i].recording == recording &&
		    r->outliers.all[i].line_no == line_no)
			return true;
	return false;
}

/* Columns of some recordings, and one of the sum of the others, follow these. */
enum { COL_MEM, COL_CUMULATIVE, COL_LEAST, COL_MEDIAN, COL_MOST, COL_COUNT, COL_RECORDINGS };

static size_t others_column(const struct page *p)
{
	return COL_RECORDINGS + p->n_which;
}

/* Fills p->which, the recordings with a column of their own, in order: as many as fit, and outliers
 * rather than others. */
static void choose_recordings(struct page *p)
{
	size_t room = (p->width - FIGURE - GAP - WHERE_MIN) / (FIGURE + 1 + GAP), differ = 0;

	p->others = room < p->n;
	if (p->others && room)
		room--;
	for (size_t i = 0; i < p->n; i++)
		differ += differs_in(p->r, NULL, i);
	for (size_t i = 0, before = 0; i < p->n; i++) {
		bool differs = differs_in(p->r, NULL, i);

		if ((differs ? before : differ + i - before) < room)
			p->which[p->n_which++] = i;
		before += differs;
	}
}

/* Makes the table of the rows; with --side, it has columns of recordings. Returns 0 or -ENOMEM. */
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
		snprintf(p->titles[i], sizeof(*p->titles), "%s", p->r->all[p->which[i]].label);
		words__cut_front(p->titles[i], FIGURE);
	}
	snprintf(p->titles[p->n_which], sizeof(*p->titles), "%zu %s", p->n - p->n_which,
		 p->n_which ? "others" : "of them");
	words__cut(p->titles[p->n_which], FIGURE + 1);
	p->grid = grid__new(p->columns, others_column(p) + 1);
	return p->grid ? 0 : -ENOMEM;
}

/* Hides columns until the last one has room, the least important first. */
static void fit_table(struct page *p)
{
	for (int col = COL_CUMULATIVE; col < COL_RECORDINGS; col++)
		grid__show(p->grid, col, !p->side);
	grid__show(p->grid, others_column(p), p->others);
	grid__fit(p->grid, p->width, WHERE_MIN, /*goes=*/3);
	/* Without least, median and most there is room for cumulative sums again. */
	if (!p->side && !grid__shown(p->grid, COL_LEAST))
		grid__show(p->grid, COL_CUMULATIVE, true);
	if (rows_overlap(p))
		grid__show(p->grid, COL_CUMULATIVE, false);
	grid__fit(p->grid, p->width, WHERE_MIN, /*goes=*/2);
}

/* Fills the columns of single recordings with the sums of the lines from to to - 1. sum: as in
 * put_lines(). rest: the bytes of these lines in all recordings. */
static void put_recordings(struct page *p, size_t from, size_t to, bool sum, uint64_t rest)
{
	for (size_t i = 0; i < p->n_which; i++) {
		bool differs = !sum && differs_in(p->r, &p->r->lines[from], p->which[i]);
		uint64_t bytes = 0;
		char text[32];

		for (size_t k = from; k < to; k++)
			bytes += ranks__bytes(p->r, &p->r->lines[k], p->which[i]);
		rest -= bytes;
		text__bytes(text, 24, bytes);
		if (!bytes)
			strcpy(text, "-");
		strcat(text, differs ? "*" : " ");
		grid__put(p->grid, COL_RECORDINGS + i, text,
			  differs && p->colour ? "\033[33m" : NULL);
	}
	put_bytes(p->grid, others_column(p), rest);
}

/* Adds a row to the table: line `from`, or with sum the sum of the lines from to to - 1. */
static void put_lines(struct page *p, size_t from, size_t to, bool sum)
{
	const struct rank_line *line = &p->r->lines[from];
	uint64_t bytes = 0, count = 0;
	char text[40];

	grid__row(p->grid);
	if (sum && rows_overlap(p))
		return;
	for (size_t i = from; i < to; i++) {
		bytes += p->r->lines[i].row.bytes;
		count += p->r->lines[i].row.count;
	}
	put_bytes(p->grid, COL_MEM, bytes);
	put_bytes(p->grid, COL_CUMULATIVE, p->r->lines[to - 1].row.cumulative);
	text__count(text, 32, count);
	if (!sum) {
		put_bytes(p->grid, COL_LEAST, line->min);
		put_bytes(p->grid, COL_MEDIAN, line->median);
		put_bytes(p->grid, COL_MOST, line->max);
		if (line->row.anonymous)
			strcat(text, "+");
	}
	grid__put(p->grid, COL_COUNT, sum || count ? text : "-", NULL);
	put_recordings(p, from, to, sum, bytes);
}

/* Says for several processes that their resident sums count shared pages repeatedly, and prints the
 * sum of PSS if it is known. */
static void print_pss(struct page *p)
{
	uint64_t sum = 0;
	size_t on_host = 0, known = 0;
	char bytes[24];

	for (size_t i = 0; i < p->n; i++) {
		on_host += p->r->all[i].on_host;
		known += p->r->all[i].has_pss;
		sum += p->r->all[i].pss;
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

/* Returns how many processes of a GPU are in the report. */
static size_t count_reported(const struct shared_gpus *c, const struct shared_gpu *gpu)
{
	size_t n = 0;

	for (uint32_t i = 0; i < gpu->n; i++)
		n += c->uses[gpu->first + i].recording != RECORDING_NONE;
	return n;
}

/* Says that the sum counts several processes of one GPU, whose bars have one moment. */
static void say_one_gpu(struct page *p)
{
	const struct shared_gpus *c = p->r->opts->gpus;
	size_t processes = 0, gpus = 0, n;
	const char *when;
	char count[48];

	for (size_t i = 0; c && i < c->n; i++) {
		n = count_reported(c, &c->all[i]);
		processes += n > 1 ? n : 0;
		gpus += n > 1;
	}
	if (!gpus)
		return;
	snprintf(count, sizeof(count), gpus > 1 ? "%zu GPUs" : "one GPU", gpus);
	when = p->o->at == AT_PEAK ? " at different times" : "";
	text__paragraph(p->out, p->width, "", "  ",
			"it counts %zu processes on %s%s: the bars show each GPU at one moment",
			processes, count, when);
}

/* Prints the sums over all recordings. */
static void print_sums(struct page *p)
{
	uint64_t mem = 0, total = 0, shared = 0;
	enum figure is = FIGURE_EXACT;
	char a[24];

	for (size_t i = 0; i < p->n; i++) {
		mem += p->r->all[i].allocated;
		total += p->r->all[i].total_allocated;
		shared += p->r->all[i].shared;
		is = p->r->all[i].is > is ? p->r->all[i].is : is;
	}
	snprintf(p->text, sizeof(p->text), "Together: %s%s%s", words__about(is),
		 text__bytes(a, sizeof(a), mem),
		 p->o->at == AT_PEAK ? ", each at its own peak" : "");
	fputc('\n', p->out);
	text__paragraph(p->out, p->width, "", "  ", "%s", p->text);
	say_one_gpu(p);
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

/* Prints the table of the rows. Returns 0 or -ENOMEM. */
static int print_rows(struct page *p)
{
	size_t kept = p->r->kept, n = p->r->nlines, room;
	size_t shown = p->o->top && p->o->top < kept ? p->o->top : kept;
	int err = make_table(p);

	if (err)
		return err;
	fit_table(p);
	for (size_t i = 0; i < shown; i++)
		put_lines(p, i, i + 1, /*sum=*/false);
	if (shown < kept)
		put_lines(p, shown, kept, /*sum=*/true);
	if (kept < n)
		put_lines(p, kept, n, /*sum=*/true);
	if (grid__error(p->grid))
		return grid__error(p->grid);
	room = grid__fit(p->grid, p->width, 0, 0);
	print_sums(p);
	grid__print_titles(p->grid, p->out, p->colour, rows_title(p, p->text, room));
	for (size_t i = 0; i < shown; i++)
		grid__print(p->grid, p->out, i, say_row(p, p->text, &p->r->lines[i].row, room));
	if (shown < kept)
		report_text__left_out(p->grid, p->out, shown, kept - shown, "more row", room);
	if (kept < n)
		report_text__left_out(p->grid, p->out, shown + (shown < kept), n - kept,
				      "filtered row", room);
	return 0;
}

/* ---- scopes ---- */

#define SCOPES_MOST 20	   /* scopes, the highest peaks first */
#define SCOPE_RECORDINGS 4 /* recordings of a scope, the highest peaks first */

enum {
	SCOPE_PEAK,
	SCOPE_BAR,
	SCOPE_RESERVED,
	SCOPE_KEPT,
	SCOPE_TIME,
	SCOPE_RUNS,
	SCOPE_RECORDING,
	SCOPE_NR
};

/* A scope in a recording, to be sorted. */
struct scope_in {
	struct scope_cell cell;
	const struct rank *rank;
};

static int by_peak(const void *a, const void *b)
{
	const struct scope_in *x = a, *y = b;

	if (x->cell.peak != y->cell.peak)
		return x->cell.peak > y->cell.peak ? -1 : 1;
	return x->rank < y->rank ? -1 : 1;
}

/* Adds the row of a scope in a recording. highest: peak of a full bar. */
static void put_scope(struct grid *t, const struct scope_in *in, uint64_t highest)
{
	const struct scope_cell *c = &in->cell;
	char text[TEXT_BAR];

	grid__row(t);
	if (c->level_known) {
		grid__put(t, SCOPE_PEAK, text__bytes(text, 24, c->peak), NULL);
		grid__put(t, SCOPE_BAR,
			  text__bar(text, c->peak, highest, REPORT_BAR, text__unicode(),
				    /*fill=*/true),
			  NULL);
	}
	if (c->reserved)
		grid__put(t, SCOPE_RESERVED, text__bytes(text, 24, c->reserved), NULL);
	if (c->kept_known)
		grid__put(t, SCOPE_KEPT, text__bytes(text, 24, c->kept), NULL);
	grid__put(t, SCOPE_TIME, text__time(text, 24, c->median_time), NULL);
	grid__put(t, SCOPE_RUNS, text__count(text, 32, c->runs), NULL);
	grid__put(t, SCOPE_RECORDING, in->rank->label, NULL);
}

/* Adds the rows of a scope, and a row for the recordings that are left out. in: room for all
 * recordings. Returns the number of rows. */
static size_t put_scope_rows(struct page *p, struct grid *t, size_t scope, struct scope_in *in)
{
	const struct scope_set *set = &p->r->scopes;
	const struct scope_entry *e = &set->all[scope];
	size_t n = 0, shown;
	char text[48];

	for (size_t i = 0; i < p->n; i++) {
		in[n] = (struct scope_in){ scope_entry__cell(e, p->r->all[i].added),
					   &p->r->all[i] };
		n += in[n].cell.runs != 0;
	}
	qsort(in, n, sizeof(*in), by_peak);
	shown = n > SCOPE_RECORDINGS && p->o->top ? SCOPE_RECORDINGS : n;
	for (size_t i = 0; i < shown; i++)
		put_scope(t, &in[i], set->all[0].peak);
	if (shown == n)
		return n;
	/* The lowest peak says how far they differ. */
	put_scope(t, &in[n - 1], set->all[0].peak);
	snprintf(text, sizeof(text), "+ %zu, lowest", n - shown);
	grid__put(t, SCOPE_RECORDING, text, NULL);
	return shown + 1;
}

/* Prints the scopes of each recording, if they are asked for. Nothing is added up: processes may
 * share a device, or memory. Returns 0 or -ENOMEM. */
static int print_scopes(struct page *p)
{
	static const struct column columns[SCOPE_NR] = {
		[SCOPE_PEAK] = { "Peak", true, 0, 10 },
		[SCOPE_BAR] = { "", false, 1 },
		[SCOPE_RESERVED] = { "Reserved", true, 3, 10 },
		[SCOPE_KEPT] = { "Kept", true, 4, 10 },
		[SCOPE_TIME] = { "Time of one", true, 5 },
		[SCOPE_RUNS] = { "Runs", true, 2, 4 },
		[SCOPE_RECORDING] = { "Recording", false, 0 },
	};
	const struct scope_set *set = &p->r->scopes;
	size_t n = set->n < SCOPES_MOST || !p->o->top ? set->n : SCOPES_MOST, room, row = 0, rows;
	struct scope_in *in = calloc(p->n + 1, sizeof(*in));
	struct grid *t = grid__new(columns, SCOPE_NR);
	size_t *counts = calloc(n + 1, sizeof(*counts));
	int err = -ENOMEM;

	if (!in || !t || !counts)
		goto out;
	for (size_t i = 0; i < n; i++)
		counts[i] = put_scope_rows(p, t, i, in);
	err = grid__error(t);
	if (err)
		goto out;
	grid__show(t, SCOPE_BAR, report_text__bars(p->out, p->o, /*room=*/true));
	room = grid__fit(t, p->width, NAME_MIN, SCOPE_NR);
	fputc('\n', p->out);
	if (!n)
		fputs("No scopes.\n", p->out);
	else
		grid__print_titles(t, p->out, p->colour, "Scope");
	for (size_t i = 0; i < n; i++) {
		text__clean(p->text, REPORT_TEXT, set->all[i].name, strlen(set->all[i].name));
		words__cut_front(p->text, room);
		for (rows = row + counts[i]; row < rows; row++) {
			grid__print(t, p->out, row, p->text);
			*p->text = '\0';
		}
	}
	if (n < set->n)
		fprintf(p->out, "+ %s (--top 0)\n",
			text__counted(p->part, sizeof(p->part), set->n - n, "more scope"));
out:
	grid__free(t);
	free(in);
	free(counts);
	return err;
}

static bool wants_scopes(const struct page *p)
{
	bool by_scope = words__row_properties(p->o->by, p->o->split) & 1U << BY_SCOPE;

	return p->o->scopes || by_scope || p->r->names_functions;
}

/* Prints the losses, and the recordings whose rows do not add up to the allocator's total. */
static void print_trust(struct page *p)
{
	uint64_t events = 0, lost = 0, drift = 0;
	bool totals = false;
	char a[32], b[32], c[24];

	for (size_t i = 0; i < p->n; i++) {
		const struct rank *k = &p->r->all[i];
		bool above = k->rows > k->allocated;
		uint64_t by = above ? k->rows - k->allocated : k->allocated - k->rows;

		events += k->events;
		lost += k->lost;
		drift = k->drift > drift ? k->drift : drift;
		totals |= k->has_totals;
		if (rows_overlap(p) || !by)
			continue;
		text__paragraph(p->out, p->width, "", "  ",
				"The rows of %s add up to %s, not to the %s of the allocator: %s "
				"%s because events were lost.",
				k->label, text__bytes(a, 24, k->rows),
				text__bytes(b, 24, k->allocated), text__bytes(c, sizeof(c), by),
				above ? "too much" : "are missing");
	}
	*p->part = '\0';
	if (totals && drift)
		snprintf(p->part, sizeof(p->part),
			 "%ssizes differ from the allocator's totals by up to %s", text__dot(),
			 text__bytes(c, sizeof(c), drift));
	else if (totals)
		snprintf(p->part, sizeof(p->part), "%ssizes agree with the allocator's totals",
			 text__dot());
	fputc('\n', p->out);
	text__paragraph(p->out, p->width, "", "  ", "%s, %s lost%s%s--apart shows each by itself",
			text__counted(a, sizeof(a), events, "event"),
			text__count(b, sizeof(b), lost), p->part, text__dot());
	ranks__print_lacks(p->out, p->width, p->r);
}

int ranks__text(FILE *out, const struct ranks *r, const struct report_text_opts *o, bool side)
{
	struct page *page = calloc(1, sizeof(*page));
	int err;

	if (!page)
		return -ENOMEM;
	*page = (struct page){ .out = out, .r = r, .o = o, .n = r->n, .side = side };
	page->width = report_text__width(out, o);
	page->colour = report_text__colour(out, o);
	if (!page->n) {
		fputs("No memory event was seen.\n", out);
		free(page);
		return 0;
	}
	ranks__print_title(out, page->width, r);
	print_missing_ranks(out, r, page->width);
	if (ranks__one_tree(r))
		err = print_tree(page);
	else if (page->n > MOST_RANKS && page->o->top && ranks__one_job(r))
		err = print_groups(out, r, page->width, page->colour, MOST_RANKS);
	else
		err = print_ranks(page);
	if (err)
		goto out;
	err = print_growth(page);
	if (err)
		goto out;
	print_shared_devices(page->out, page->r, page->width);
	err = r->opts->gpus ? shared_gpus__text(out, r->opts->gpus, o) : 0;
	if (err)
		goto out;
	print_outliers(page);
	print_steps(out, r, page->width);
	print_clocks(out, r, page->width);
	err = wants_scopes(page) ? print_scopes(page) : 0;
	if (!err && !page->o->scopes)
		err = print_rows(page);
	if (err)
		goto out;
	print_trust(page);
out:
	grid__free(page->grid);
	free(page->columns);
	free(page->which);
	free(page->titles);
	free(page);
	return err;
}
