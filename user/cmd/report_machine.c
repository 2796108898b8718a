/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/report_machine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/grid.h"
#include "base/json.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "model/words.h"
#include "record/machine_log.h"

#define MINUTE UINT64_C(60000000000) /* ns */
#define LATE UINT64_C(10000000000)   /* ns: a look that is later than this, and 3 intervals */
#define BREAKS 8		     /* breaks that are kept, the last ones */
#define ROWS 128		     /* looks that are kept to find the one a minute ago */
#define CHANGES (MACHINE_ROW_LINES + 2 * MACHINE_ROW_PROCESSES + MACHINE_ROW_GPUS)

/* A look is a struct machine_row. A gap is a place where looks are missing. */
struct gap {
	struct machine_row from, to; /* the first look of the last minute, and the last one */
	bool restarted;		     /* the next look is of another start of the machine */
	bool last;		     /* there is no next look */
	uint64_t next;		     /* its time, ns since 1970 */
};

struct machine_report {
	struct machine_row row[ROWS]; /* a ring of the last looks */
	uint64_t rows, boots, damaged;
	uint64_t first; /* time of the first look, ns since 1970 */
	struct gap gap[BREAKS];
	uint64_t gaps; /* number of all; the last BREAKS are kept */
	bool running;
};

/* ---- reading ---- */

/* The last look; NULL: there was none yet. */
static const struct machine_row *last_row(const struct machine_report *m)
{
	return m->rows ? &m->row[(m->rows - 1) % ROWS] : NULL;
}

/* Time from a look to a later one, ns; 0 if the clock went back. Between two starts of the machine
 * only the date tells, and its clock may have been set meanwhile. */
static uint64_t time_between(const struct machine_row *from, const struct machine_row *to)
{
	if (!strcmp(from->boot, to->boot))
		return to->uptime > from->uptime ? to->uptime - from->uptime : 0;
	return to->time > from->time ? to->time - from->time : 0;
}

/* The oldest look that is at most a minute before the last one, and of the same start. */
static const struct machine_row *minute_before(const struct machine_report *m)
{
	const struct machine_row *last = last_row(m), *ret = last;

	for (uint64_t i = 1; i < m->rows && i < ROWS; i++) {
		const struct machine_row *r = &m->row[(m->rows - 1 - i) % ROWS];

		if (r->end || strcmp(r->boot, last->boot) != 0 ||
		    time_between(r, last) > MINUTE + LATE / 10)
			break;
		ret = r;
	}
	return ret;
}

/* Keeps the gap after the last look. next: the look after the gap; NULL: there is none. */
static void add_gap(struct machine_report *m, const struct machine_row *next)
{
	struct gap *g = &m->gap[m->gaps++ % BREAKS];
	const struct machine_row *last = last_row(m);

	*g = (struct gap){ .from = *minute_before(m), .to = *last, .last = !next };
	if (!next)
		return;
	g->next = next->time;
	g->restarted = strcmp(next->boot, last->boot) != 0;
}

/* For machine_log__read(). */
static void take_row(void *ctx, const struct machine_row *row)
{
	struct machine_report *m = ctx;
	const struct machine_row *last = last_row(m);
	bool other = !last || strcmp(last->boot, row->boot) != 0;

	if (!last)
		m->first = row->time;
	m->boots += other;
	if (last && !last->end && (other || time_between(last, row) > LATE + 3 * last->every))
		add_gap(m, row);
	m->row[m->rows++ % ROWS] = *row;
}

/* ---- changes ---- */

struct change {
	char name[128];
	uint64_t before, after;
	bool process, gpu;
	bool at_most; /* the process was not among the largest: `before` is an upper bound */
};

static int64_t growth_of(const struct change *c)
{
	return (int64_t)(c->after - c->before);
}

static int by_growth(const void *a, const void *b)
{
	int64_t x = growth_of(a);
	int64_t y = growth_of(b);

	return x < y ? 1 : -(x > y);
}

/* Adds the lines of the machine's ledger to the changes; *n: number of the changes. */
static void add_lines(const struct gap *g, struct change *v, size_t *n)
{
	char key[64], *c;

	for (size_t i = 0; i < g->to.lines && i < g->from.lines; i++) {
		if (strcmp(g->to.line[i].key, g->from.line[i].key) != 0)
			continue;
		text__clean(key, sizeof(key), g->to.line[i].key, strlen(g->to.line[i].key));
		for (c = key; *c; c++)
			*c = *c == '_' ? ' ' : *c;
		snprintf(v[*n].name, sizeof(v->name), "%s", key);
		v[*n].before = (uint64_t)g->from.line[i].bytes;
		v[(*n)++].after = (uint64_t)g->to.line[i].bytes;
	}
}

/* Sets c->before to the private memory of a process in a look. */
static void set_before(struct change *c, const struct machine_row *r, pid_t pid)
{
	for (size_t i = 0; i < r->processes; i++) {
		c->before = r->process[i].bytes;
		if (r->process[i].pid == pid)
			return;
	}
	/* A list may be short because a process in it has ended since it was made. */
	c->at_most = !r->all && r->processes;
	if (!c->at_most)
		c->before = 0;
}

/* Adds the processes; *n: as in add_lines(). */
static void add_processes(const struct gap *g, struct change *v, size_t *n)
{
	char command[96];

	for (size_t i = 0; i < g->to.processes; i++) {
		text__clean(command, sizeof(command), g->to.process[i].command,
			    strlen(g->to.process[i].command));
		v[*n] = (struct change){ .process = true, .after = g->to.process[i].bytes };
		set_before(&v[*n], &g->from, g->to.process[i].pid);
		snprintf(v[(*n)++].name, sizeof(v->name), "PID %d %s", (int)g->to.process[i].pid,
			 command);
	}
}

/* Adds the GPUs; *n: as in add_lines(). */
static void add_gpus(const struct gap *g, struct change *v, size_t *n)
{
	char name[96];

	for (size_t i = 0; i < g->to.gpus && i < g->from.gpus; i++) {
		text__clean(name, sizeof(name), g->to.gpu[i].name, strlen(g->to.gpu[i].name));
		v[*n] = (struct change){ .gpu = true,
					 .before = g->from.gpu[i].total - g->from.gpu[i].free,
					 .after = g->to.gpu[i].total - g->to.gpu[i].free };
		snprintf(v[(*n)++].name, sizeof(v->name), "in use on GPU %zu %s", i, name);
	}
}

/* Fills v, which has CHANGES places, by growth. Returns the number. */
static size_t list_changes(const struct gap *g, struct change *v)
{
	size_t n = 0;

	memset(v, 0, CHANGES * sizeof(*v));
	add_lines(g, v, &n);
	add_gpus(g, v, &n);
	add_processes(g, v, &n);
	qsort(v, n, sizeof(*v), by_growth);
	return n;
}

/* ---- text ---- */

enum column_id { COL_GROWTH, COL_BEFORE, COL_AFTER, COL_NR };

/* Describes a gap of the log, from the last look before it (to) to the first one after it (next). */
static void describe_gap(const struct gap *g, char *buf, size_t size)
{
	uint64_t missing = g->next > g->to.time ? g->next - g->to.time : 0;
	char date[40], time[24];

	text__date(date, sizeof(date), g->to.time);
	text__time(time, sizeof(time), missing);
	if (g->last)
		snprintf(buf, size,
			 "it breaks off at %s: the recorder was killed, or the machine was reset",
			 date);
	else if (g->restarted)
		snprintf(buf, size, "it breaks off at %s for %s: the machine started again", date,
			 time);
	else
		snprintf(buf, size,
			 "it breaks off at %s for %s: the recorder was killed, or it could not "
			 "write",
			 date, time);
}

static void put_bytes(struct grid *t, size_t column, int64_t bytes, const char *plus)
{
	char size[24], text[32];
	uint64_t n = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;

	snprintf(text, sizeof(text), "%s%s", bytes < 0 ? "-" : plus,
		 text__bytes(size, sizeof(size), n));
	grid__put(t, column, text, NULL);
}

static void put_change_row(struct grid *t, const struct change *c)
{
	grid__row(t);
	put_bytes(t, COL_GROWTH, growth_of(c), c->at_most ? ">" : "+");
	put_bytes(t, COL_BEFORE, (int64_t)c->before, c->at_most ? "<" : "");
	put_bytes(t, COL_AFTER, (int64_t)c->after, "");
}

/* Removes changes of less than a thousandth of the machine, and lower bounds of growth below 0,
 * which say nothing. Returns the number of others. */
static size_t drop_small(struct change *v, size_t n, uint64_t total)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		int64_t grown = growth_of(&v[i]);
		uint64_t size = grown < 0 ? 0 - (uint64_t)grown : (uint64_t)grown;

		if (size >= total / 1000 && !(v[i].at_most && grown < 0))
			v[kept++] = v[i];
	}
	return kept;
}

static int print_table(struct grid *t, struct change *v, size_t n)
{
	size_t room;
	int err;

	for (size_t i = 0; i < n; i++)
		put_change_row(t, &v[i]);
	err = grid__error(t);
	if (err)
		return err;
	if (!n) {
		puts("  nothing changed by a thousandth of the memory");
		return 0;
	}
	room = grid__fit(t, text__columns(stdout), /*wanted=*/20, /*goes=*/1);
	grid__print_titles(t, stdout, text__colour(stdout), "Memory");
	for (size_t i = 0; i < n; i++)
		grid__print(t, stdout, i, words__cut(v[i].name, room));
	return 0;
}

/* Prints the changes, by growth. 0 or -ENOMEM. */
static int print_changes(const struct gap *g)
{
	static const struct column columns[COL_NR] = {
		[COL_GROWTH] = { .title = "Growth", .right = true, .least = 11 },
		[COL_BEFORE] = { .title = "Before", .right = true, .goes = 1, .least = 10 },
		[COL_AFTER] = { .title = "After", .right = true, .least = 10 },
	};
	struct change *v = calloc(CHANGES, sizeof(*v));
	struct grid *t = grid__new(columns, COL_NR);
	int err = -ENOMEM;

	if (v && t)
		err = print_table(t, v, drop_small(v, list_changes(g, v), g->to.total));
	grid__free(t);
	free(v);
	return err;
}

static int print_last_minute(const struct gap *g, const char *what)
{
	unsigned width = text__prose(text__columns(stdout));
	char time[24], left[24], large[24], total[24];

	printf("\n");
	text__paragraph(stdout, width, "", "  ",
			"changes in the %s before %s (then %s of %s were available, and %s free in "
			"blocks of 2 MiB or more):",
			text__time(time, sizeof(time), time_between(&g->from, &g->to)), what,
			text__bytes(left, sizeof(left), g->to.available),
			text__bytes(total, sizeof(total), g->to.total),
			text__bytes(large, sizeof(large), g->to.large));
	return print_changes(g);
}

static void print_head(const struct machine_report *m)
{
	unsigned width = text__prose(text__columns(stdout));
	char from[40], to[40], looks[40], boots[40], lines[40];

	text__paragraph(stdout, width, "", "  ", "this machine's memory: %s from %s to %s, %s%s",
			text__counted(looks, sizeof(looks), m->rows, "look"),
			text__date(from, sizeof(from), m->first),
			text__date(to, sizeof(to), last_row(m)->time),
			text__counted(boots, sizeof(boots), m->boots, "start"),
			m->running ? "; it is being recorded" : "");
	if (m->damaged)
		text__paragraph(stdout, width, "", "  ", "%s damaged and left out",
				text__counted(lines, sizeof(lines), m->damaged, "line"));
}

static int print_text(const struct machine_report *m)
{
	unsigned width = text__prose(text__columns(stdout));
	uint64_t first = m->gaps > BREAKS ? m->gaps - BREAKS : 0;
	struct gap now;
	char text[256];

	print_head(m);
	for (uint64_t i = first; i < m->gaps; i++) {
		describe_gap(&m->gap[i % BREAKS], text, sizeof(text));
		text__paragraph(stdout, width, "", "  ", "%s", text);
	}
	if (m->gaps)
		return print_last_minute(&m->gap[(m->gaps - 1) % BREAKS], "that");
	now = (struct gap){ .from = *minute_before(m), .to = *last_row(m) };
	return print_last_minute(&now, "its end");
}

/* ---- JSON ---- */

static const char *kind_of(const struct change *c)
{
	if (c->process)
		return "process";
	return c->gpu ? "gpu" : "line";
}

static void put_change(struct json *j, const struct change *c)
{
	json__open_object(j, NULL);
	json__string(j, "name", c->name);
	json__string(j, "kind", kind_of(c));
	if (c->at_most) /* `before` is only an upper bound */
		json__null(j, "before");
	else
		json__int(j, "before", (int64_t)c->before);
	json__int(j, "after", (int64_t)c->after);
	json__close_object(j);
}

static int put_gap(struct json *j, const struct gap *g)
{
	struct change *v = calloc(CHANGES, sizeof(*v));
	size_t n = v ? list_changes(g, v) : 0;
	char date[40];

	json__open_object(j, NULL);
	json__string(j, "time", text__date(date, sizeof(date), g->to.time));
	json__string(j, "next", g->last ? NULL : text__date(date, sizeof(date), g->next));
	json__bool(j, "restarted", g->restarted);
	json__seconds(j, "seconds", time_between(&g->from, &g->to), /*decimals=*/3);
	json__uint(j, "total", g->to.total);
	json__uint(j, "available", g->to.available);
	json__uint(j, "large", g->to.large);
	json__open_array(j, "changes");
	for (size_t i = 0; i < n; i++)
		put_change(j, &v[i]);
	json__close_array(j);
	json__close_object(j);
	free(v);
	return v ? 0 : -ENOMEM;
}

static int print_json(const struct machine_report *m)
{
	uint64_t first = m->gaps > BREAKS ? m->gaps - BREAKS : 0;
	struct json *j = json__new(stdout, true);
	char date[40];
	int err = 0;

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	json__close_object(j);
	json__uint(j, "looks", m->rows);
	json__uint(j, "starts", m->boots);
	json__uint(j, "damaged", m->damaged);
	json__bool(j, "running", m->running);
	json__string(j, "from", text__date(date, sizeof(date), m->first));
	json__string(j, "to", text__date(date, sizeof(date), last_row(m)->time));
	json__open_array(j, "breaks");
	for (uint64_t i = first; i < m->gaps && !err; i++)
		err = put_gap(j, &m->gap[i % BREAKS]);
	json__close_array(j);
	json__close_object(j);
	json__free(j);
	return err;
}

/* Reads the folder. 0 or an exit code, logged. */
static int read_report(const char *folder, struct machine_report *m)
{
	int err = machine_log__read(folder, take_row, m, &m->damaged, &m->running);

	if (err) {
		log_err("%s: %s", folder, outfile__why(err));
		return EXIT_FAILED;
	}
	if (!m->rows) {
		log_err("%s: it has no whole look of watch --machine", folder);
		return EXIT_UNUSABLE;
	}
	if (!m->running && !last_row(m)->end)
		add_gap(m, /*next=*/NULL);
	return 0;
}

static int print_report(const char *folder, const struct machine_report *m, bool json)
{
	int err = json ? print_json(m) : print_text(m);

	err = err ?: outfile__flush(stdout);
	if (!err)
		return EXIT_OK;
	log_err("%s: %s", folder, outfile__why(err));
	return EXIT_FAILED;
}

int report_machine__print(const char *folder, bool json)
{
	struct machine_report *m = calloc(1, sizeof(*m));
	int status;

	if (!m) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	status = read_report(folder, m);
	status = status ?: print_report(folder, m, json);
	free(m);
	return status;
}
