/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/export.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "export/formats/events.h"
#include "export/tables/parquet.h"
#include "model/growth.h"
#include "model/growth_summary.h"
#include "model/fields.h"
#include "model/words.h"
#include "record/detail.h"
#include "record/dict.h"

/* ---- columns ---- */

enum table {
	TABLE_EVENTS,
	TABLE_BLOCKS,
	TABLE_ROWS,
	TABLE_STEPS,
	TABLE_SCOPES,
	TABLE_DEVICES,
	TABLE_NR
};

struct table_schema {
	const char *name;
	const struct column *columns; /* the first TABLE_COMMON are the same in all tables */
	size_t n;
};

#define TABLE_COMMON 4 /* number of columns in COMMON */

#define INT(key) ((struct column){ key, COLUMN_INT })
#define TIME(key) ((struct column){ key, COLUMN_TIME })
#define DOUBLE(key) ((struct column){ key, COLUMN_DOUBLE })
#define BOOL(key) ((struct column){ key, COLUMN_BOOL })
#define TEXT(key) ((struct column){ key, COLUMN_TEXT })
/* The first columns of all tables. job and date are in the path of the file. */
#define COMMON TEXT("recording"), TEXT("host"), INT("rank"), INT("pid")
#define PLACE                                                                                      \
	TEXT("phase"), TEXT("module"), TEXT("module_class"), TEXT("file"), INT("line"),            \
		TEXT("function"), TEXT("source"), TEXT("category"), TEXT("name")

static const struct column event_columns[] = {
	COMMON,		  INT("number"),    TIME("time"),    INT("elapsed_ns"),
	TEXT("event"),	  TEXT("device"),   INT("address"),  INT("size"),
	INT("requested"), INT("allocated"), INT("reserved"), INT("tid"),
	TEXT("thread"),	  INT("step"),	    PLACE,	     INT("lifetime_ns"),
	TEXT("call"),
};
static const struct column block_columns[] = {
	COMMON,		 TEXT("device"),     INT("address"),
	INT("size"),	 INT("requested"),   INT("allocated_ns"),
	INT("freed_ns"), INT("lifetime_ns"), BOOL("before_attach"),
	PLACE,
};
static const struct column row_columns[] = {
	COMMON,	      TEXT("moment"), INT("moment_ns"), TEXT("device"),	       INT("bytes"),
	INT("count"), INT("median"),  INT("requested"), BOOL("before_attach"), TEXT("module_root"),
	PLACE,
};
static const struct column step_columns[] = {
	COMMON,
	TEXT("device"),
	INT("step"),
	INT("job_step"),
	INT("start_ns"),
	INT("end_ns"),
	INT("duration_ns"),
	TIME("end_time"),
	INT("peak_allocated"),
	INT("end_allocated"),
};
static const struct column scope_columns[] = {
	COMMON,
	TEXT("device"),
	TEXT("scope"),
	TEXT("source"),
	INT("run"),
	INT("tid"),
	TEXT("thread"),
	INT("step"),
	INT("begin_ns"),
	INT("end_ns"),
	TIME("begin_time"),
	BOOL("began_before"),
	BOOL("ended"),
	INT("start_allocated"),
	INT("peak_allocated"),
	INT("peak_ns"),
	INT("peak_reserved"),
	INT("end_allocated"),
	INT("kept"),
};
static const struct column device_columns[] = {
	COMMON,
	TEXT("device"),
	TEXT("gpu"),
	INT("capacity"),
	TIME("start"),
	INT("duration_ns"),
	INT("events"),
	INT("lost"),
	BOOL("complete"),
	INT("steps"),
	INT("step_time_ns"),
	TEXT("command"),
	TEXT("torch"),
	TEXT("python"),
	INT("allocated"),
	INT("reserved"),
	INT("peak_allocated"),
	INT("peak_reserved"),
	INT("peak_ns"),
	INT("peak_step"),
	TEXT("peak_phase"),
	TEXT("peak_is"),
	DOUBLE("fragmentation"),
	DOUBLE("avg_fragmentation"),
	INT("before_attach"),
	INT("drift"),
	INT("allocs"),
	INT("frees"),
	INT("ooms"),
	INT("total_allocated"),
	TEXT("growth"),
	DOUBLE("growth_bytes_per_step"),
	TEXT("growth_confidence"),
	TEXT("growth_file"),
	INT("growth_line"),
	TEXT("growth_text"),
	TEXT("reduced_detail"),
};

#define COLUMNS(all) all, sizeof(all) / sizeof(*all)

static const struct table_schema table_schemas[TABLE_NR] = {
	[TABLE_EVENTS] = { "events", COLUMNS(event_columns) },
	[TABLE_BLOCKS] = { "blocks", COLUMNS(block_columns) },
	[TABLE_ROWS] = { "rows", COLUMNS(row_columns) },
	[TABLE_STEPS] = { "steps", COLUMNS(step_columns) },
	[TABLE_SCOPES] = { "scopes", COLUMNS(scope_columns) },
	[TABLE_DEVICES] = { "devices", COLUMNS(device_columns) },
};

/* ---- files: FOLDER/TABLE/job=JOB/date=DATE/NAME-PID.parquet ---- */

#define NO_DATE "__HIVE_DEFAULT_PARTITION__" /* Hive's word for null */
/* Not isalnum(), which depends on the locale. */
#define PATH_PLAIN "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
#define ESCAPED 3     /* bytes of %XX */
#define NAME_MOST 128 /* most bytes of a job's or a recording's name that go into a path */

struct table_files {
	struct outfile *file[TABLE_NR];
	struct parquet *p[TABLE_NR];
	char *folder;
};

/* Writes a value for a path in Hive's form: all but letters, digits, "-", "_" and "." become %XX. */
static void escape(char *buf, size_t size, const char *s)
{
	size_t n = 0;

	for (size_t i = 0; s[i] && i < NAME_MOST && n + ESCAPED + 1 < size; i++) {
		unsigned char b = (unsigned char)s[i];
		bool plain = strchr(PATH_PLAIN, b) || (b == '.' && i); /* no hidden file */

		n += (size_t)snprintf(buf + n, size - n, plain ? "%c" : "%%%02X", b);
	}
	buf[n] = '\0';
}

/* Writes the day, in UTC, of a time in ns since 1970; 0: unknown. */
static void put_date(char *buf, size_t size, uint64_t start)
{
	time_t seconds = (time_t)(start / 1000000000);
	struct tm tm;

	if (!start || !gmtime_r(&seconds, &tm) || !strftime(buf, size, "%Y-%m-%d", &tm))
		snprintf(buf, size, NO_DATE);
}

/* Makes the folders of a path. Changes the path and restores it. Returns 0 or -errno. */
static int make_folders(char *path)
{
	for (char *s = strchr(path + 1, '/'); s; s = strchr(s + 1, '/')) {
		int err;

		*s = '\0';
		err = mkdir(path, 0777) && errno != EEXIST ? -errno : 0;
		*s = '/';
		if (err)
			return err;
	}
	return 0;
}

/* Creates the file of a table. rest: its path below FOLDER/TABLE. Returns 0 or -errno, which it
 * logs unless memory is short. */
static int open_table(struct table_files *t, enum table table, const char *folder, const char *rest,
		      bool force)
{
	const struct table_schema *s = &table_schemas[table];
	char *path, name[512];
	int err;

	if (asprintf(&path, "%s/%s/%s", folder, s->name, rest) < 0)
		return -ENOMEM;
	err = make_folders(path) ?: outfile__create(path, OUTFILE_RENAME, force, &t->file[table]);
	if (err)
		log_err("%s: cannot create: %s",
			text__clean(name, sizeof(name), path, strlen(path)), outfile__why(err));
	free(path);
	if (err)
		return err;
	if (outfile__stream(t->file[table]))
		t->p[table] = parquet__new(outfile__stream(t->file[table]), s->columns, s->n);
	return t->p[table] ? 0 : -ENOMEM;
}

/* Creates the files of all tables. Call free_files(*ret) also after an error. start: ns since 1970;
 * 0: unknown. Returns 0 or -errno. */
static int open_files(struct table_files **ret, const struct export_folder *f,
		      const char *recording, int64_t pid, uint64_t start)
{
	char job[(ESCAPED + 1) * NAME_MOST], name[(ESCAPED + 1) * NAME_MOST], date[40];
	char rest[sizeof(job) + sizeof(name) + NAME_MOST];
	struct table_files *t = calloc(1, sizeof(*t));
	int err = 0;

	*ret = t;
	if (!t)
		return -ENOMEM;
	t->folder = strdup(f->path);
	if (!t->folder)
		return -ENOMEM;
	escape(job, sizeof(job), f->job && *f->job ? f->job : recording);
	escape(name, sizeof(name), recording);
	put_date(date, sizeof(date), start);
	snprintf(rest, sizeof(rest), "job=%s/date=%s/%s-%" PRId64 ".parquet", job, date, name, pid);
	for (int i = 0; i < TABLE_NR && !err; i++)
		err = open_table(t, i, f->path, rest, f->force);
	return err;
}

/* Ends the files, gives them their final names and logs them. Returns 0 or -errno. */
static int commit_files(struct table_files *t)
{
	char name[512], events[32], blocks[32];
	int err = 0;

	for (int i = 0; i < TABLE_NR && !err; i++)
		err = parquet__finish(t->p[i]);
	for (int i = 0; i < TABLE_NR && !err; i++) {
		err = outfile__commit(t->file[i]);
		t->file[i] = NULL;
	}
	if (!err)
		log_info("wrote %s and %s to %s",
			 text__counted(events, sizeof(events), parquet__rows(t->p[TABLE_EVENTS]),
				       "event"),
			 text__counted(blocks, sizeof(blocks), parquet__rows(t->p[TABLE_BLOCKS]),
				       "block"),
			 text__clean(name, sizeof(name), t->folder, strlen(t->folder)));
	return err;
}

static void free_files(struct table_files *t)
{
	if (!t)
		return;
	for (int i = 0; i < TABLE_NR; i++) {
		parquet__free(t->p[i]);
		outfile__discard(t->file[i]);
	}
	free(t->folder);
	free(t);
}

/* ---- rows ---- */

struct tables {
	struct events events;
	struct table_files *files;
	/* Facts that each row of each table repeats. */
	const char *recording, *host;
	bool has_rank, has_pid;
	int64_t rank, pid;
	bool has_start;
	uint64_t start;		 /* ns since 1970 */
	size_t steps;		 /* number of steps that have rows */
	bool numbered;		 /* first_job_step is known */
	uint64_t first_job_step; /* number of the recording's first step within the whole job */
};

/* Adds the columns COMMON. */
static void put_common(const struct tables *s, struct parquet *p)
{
	parquet__text(p, s->recording);
	parquet__text(p, s->host);
	parquet__int(p, s->has_rank, s->rank);
	parquet__int(p, s->has_pid, s->pid);
}

/* Adds a time, ns since the start of the capture, as one since 1970 in the microseconds of the
 * format. */
static void put_time(const struct tables *s, struct parquet *p, uint64_t ns)
{
	parquet__uint(p, s->has_start, (s->start + ns) / 1000);
}

/* Adds the columns PLACE. */
static void put_place(struct parquet *p, const struct event_row *t)
{
	parquet__text(p, t->phase);
	parquet__text(p, t->module);
	parquet__text(p, t->module_class);
	parquet__text(p, t->file);
	parquet__int(p, t->line, t->line);
	parquet__text(p, t->function);
	parquet__text(p, t->source);
	parquet__text(p, t->category);
	parquet__text(p, t->name);
}

static struct parquet *parquet_of(const struct tables *s, enum table t)
{
	return s->files->p[t];
}

/* ---- events, and blocks that are freed ---- */

/* Adds a row to the table of blocks. freed: time of the free, ns; NULL: the block is live at the
 * end. Returns 0 or -errno. */
static int put_block(const struct tables *s, const struct event_row *t, const char *device,
		     const struct live_block *b, const uint64_t *freed)
{
	struct parquet *p = parquet_of(s, TABLE_BLOCKS);
	bool timed = !b->older;

	put_common(s, p);
	parquet__text(p, device);
	parquet__uint(p, b->addr, b->addr);
	parquet__uint(p, /*known=*/true, b->size);
	parquet__uint(p, b->requested, b->requested);
	parquet__uint(p, timed, b->time);
	parquet__uint(p, freed, freed ? *freed : 0);
	parquet__uint(p, freed && timed && *freed >= b->time, freed ? *freed - b->time : 0);
	parquet__bool(p, /*known=*/true, b->before_attach);
	put_place(p, t);
	return parquet__row(p);
}

/* For events.put: adds a row to the table of events and, for a free, one to that of blocks. Returns
 * 0 or -errno. */
static int put(struct export_ctx *c, void *state, const struct event_row *t)
{
	struct tables *s = state;
	struct parquet *p = parquet_of(s, TABLE_EVENTS);
	const struct event *e = t->event;
	int err;

	(void)c;
	put_common(s, p);
	parquet__uint(p, /*known=*/true, t->number);
	put_time(s, p, e->time);
	parquet__uint(p, /*known=*/true, e->time);
	parquet__text(p, t->kind);
	parquet__text(p, t->device);
	parquet__uint(p, e->addr, e->addr);
	parquet__uint(p, t->size, t->size);
	parquet__uint(p, t->requested, t->requested);
	parquet__uint(p, t->has_totals, t->allocated);
	parquet__uint(p, t->has_reserved, t->reserved);
	parquet__int(p, t->tid, t->tid);
	parquet__text(p, t->thread);
	parquet__uint(p, /*known=*/true, t->step);
	put_place(p, t);
	parquet__uint(p, t->has_lifetime, t->lifetime);
	parquet__text(p, t->how);
	err = parquet__row(p);
	if (!err && e->kind == EVENT_FREE && s->events.block_known && t->device)
		err = put_block(s, t, t->device, &s->events.block, &e->time);
	return err;
}

/* ---- steps ---- */

/* Adds a row for the last step on a device. Returns 0 or -errno. */
static int put_step(const struct tables *s, const char *device, const struct model_step *step)
{
	struct parquet *p = parquet_of(s, TABLE_STEPS);

	put_common(s, p);
	parquet__text(p, device);
	parquet__uint(p, /*known=*/true, s->steps - 1);
	parquet__uint(p, s->numbered, s->first_job_step + s->steps - 1);
	parquet__uint(p, /*known=*/true, step->start);
	parquet__uint(p, /*known=*/true, step->end);
	parquet__uint(p, step->end >= step->start, step->end - step->start);
	put_time(s, p, step->end);
	parquet__uint(p, /*known=*/true, step->peak);
	parquet__uint(p, /*known=*/true, step->end_allocated);
	return parquet__row(p);
}

/* Adds rows for the step that ended with the last event, if one did. Returns 0 or -errno. */
static int put_steps(struct export_ctx *c, struct tables *s)
{
	size_t now = passing__steps(c);
	struct model_step step;
	struct model_device d;
	int err = 0;

	if (now == s->steps)
		return 0;
	s->steps = now;
	/* The fact may come after the events. */
	s->numbered = model__job_step(c->ahead ? c->ahead : c->model, &s->first_job_step);
	for (size_t i = 0; i < model__devices(c->model) && !err; i++) {
		model__device(c->model, i, &d);
		if (passing__is_selected(c, d.name) && model__last_step(c->model, i, &step))
			err = put_step(s, d.name, &step);
	}
	return err;
}

/* ---- scopes ---- */

/* Adds a row for a run on a device, if the run has figures of it. Returns 0 or -errno. */
static int put_run(struct export_ctx *c, const struct tables *s, size_t run, size_t device)
{
	struct parquet *p = parquet_of(s, TABLE_SCOPES);
	struct model_scope_level l;
	struct model_scope_run r;
	struct model_scope scope;
	struct model_device d;
	struct dict_thread thread;

	if (!model__scope_run_level(c->model, run, device, &l))
		return 0;
	model__scope_run(c->model, run, &r);
	model__scope(c->model, r.scope, &scope);
	model__device(c->model, device, &d);
	thread = dict__get_thread(c->dict, r.thread);
	put_common(s, p);
	parquet__text(p, d.name);
	parquet__text(p, scope.path);
	parquet__text(p, scope_source__name(scope.source));
	parquet__uint(p, /*known=*/true, r.number);
	parquet__int(p, thread.tid, thread.tid);
	parquet__text(p, thread.tid ? dict__str(c->dict, thread.name) : NULL);
	parquet__uint(p, /*known=*/true, r.step);
	parquet__uint(p, /*known=*/true, r.begin);
	parquet__uint(p, r.end >= r.begin, r.end);
	put_time(s, p, r.begin);
	parquet__bool(p, /*known=*/true, r.earlier);
	parquet__bool(p, /*known=*/true, r.ended);
	parquet__uint(p, l.start_known, l.start);
	parquet__uint(p, /*known=*/true, l.peak);
	parquet__uint(p, /*known=*/true, l.peak_time);
	parquet__uint(p, d.has_totals, l.peak_reserved);
	parquet__uint(p, /*known=*/true, l.end);
	parquet__uint(p, l.kept_known, l.kept);
	return parquet__row(p);
}

/* Adds the kept runs of scopes on a device. Returns 0 or -errno. */
static int put_runs(struct export_ctx *c, const struct tables *s, size_t device)
{
	int err = 0;

	for (size_t i = 0; i < model__scope_runs(c->model) && !err; i++)
		err = put_run(c, s, i, device);
	return err;
}

/* ---- rows, devices, and blocks that are live at the end ---- */

/* Adds the value of a column that is not a field of struct row. */
static void put_column_outside_row(struct parquet *p, const char *name,
				   const struct model_device *d, const char *moment, uint64_t time,
				   const struct row *r)
{
	if (!strcmp(name, "moment"))
		parquet__text(p, moment);
	else if (!strcmp(name, "moment_ns"))
		parquet__uint(p, /*known=*/true, time);
	else if (!strcmp(name, "device"))
		parquet__text(p, d->name);
	else if (!strcmp(name, "before_attach"))
		parquet__bool(p, /*known=*/true, r->before_attach);
}

/* Adds a row to the table of rows. time: of the moment, ns. Returns 0 or -errno. */
static int put_row(const struct tables *s, const struct model_device *d, const char *moment,
		   uint64_t time, const struct row *r)
{
	const struct table_schema *schema = &table_schemas[TABLE_ROWS];
	unsigned fields_of_line = words__row_properties(BY_LINE, 0);
	struct parquet *p = parquet_of(s, TABLE_ROWS);
	struct row_value v;
	enum row_field f;

	put_common(s, p);
	for (size_t i = TABLE_COMMON; i < schema->n; i++) {
		f = row_field__of(schema->columns[i].name);
		if (f == ROW_FIELDS) {
			put_column_outside_row(p, schema->columns[i].name, d, moment, time, r);
			continue;
		}
		v = row_field__get(f, r, fields_of_line);
		if (schema->columns[i].type == COLUMN_TEXT)
			parquet__text(p, v.text);
		else
			parquet__uint(p, v.known, v.number);
	}
	return parquet__row(p);
}

/* Adds the lines of a device at the marked moment or, with ROWS_NOW, at the end. Returns 0 or
 * -errno. */
static int put_rows(struct export_ctx *c, const struct tables *s, size_t device, enum row_when when)
{
	struct row_opts o = { .by = BY_LINE, .when = when };
	const char *moment = c->moment;
	uint64_t time;
	struct row *rows = NULL;
	struct model_device d;
	size_t n = 0;
	int err = model__rows(c->model, device, &o, &rows, &n);

	model__device(c->model, device, &d);
	time = d.mark_time;
	if (when == ROWS_NOW) {
		moment = "end";
		time = c->duration;
	}
	for (size_t i = 0; i < n && !err; i++)
		err = put_row(s, &d, moment, time, &rows[i]);
	free(rows);
	return err == -ENOENT ? 0 : err; /* the device never reached the moment */
}

/* Adds the blocks of a device that are live at the end. Returns 0 or -errno. */
static int put_live(struct export_ctx *c, const struct tables *s, size_t device)
{
	struct live_block *all = NULL;
	struct model_device d;
	size_t n = 0;
	int err = model__live_blocks(c->model, device, ROWS_NOW, &all, &n);

	model__device(c->model, device, &d);
	for (size_t i = 0; i < n && !err; i++) {
		struct event_row t = { .size = all[i].size };

		events__place(c, &all[i], &t);
		err = put_block(s, &t, d.name, &all[i], /*freed=*/NULL);
	}
	free(all);
	return err == -ENOENT || err == -EINVAL ? 0 : err; /* a device without blocks has no rows */
}

/* Adds the columns growth to growth_text. */
static void put_growth(struct export_ctx *c, struct parquet *p, size_t device)
{
	/* By GROWTH_VERDICT_*. */
	static const char *const verdicts[] = { "unknown", "none", "grows" };
	struct growth_summary g = { 0 };
	char text[GROWTH_SUMMARY_TEXT];
	bool known = !growth_summary__of(c->model, c->facts, device, c->duration, &g);
	bool grows = known && g.verdict == GROWTH_VERDICT_GROWS;
	bool by_step = known && growth_summary__is_known(&g) && g.clock != GROWTH_TIME;
	const struct row *r = grows && g.line ? &g.line->row : &(struct row){ 0 };

	parquet__text(p, known ? verdicts[g.verdict] : NULL);
	parquet__double(p, by_step, grows ? g.per_step : 0);
	parquet__text(p, grows ? trend__confidence(g.confidence) : NULL);
	parquet__text(p, r->file);
	parquet__int(p, r->file && r->line, r->line);
	parquet__text(p, known ? growth_summary__say(&g, text) : NULL);
	if (known)
		growth_summary__free(&g);
}

/* Adds the columns start to python, which are the same for all devices. */
static void put_capture(struct export_ctx *c, const struct tables *s, struct parquet *p)
{
	const struct facts *f = c->facts;
	char **argv = words__cmdline(f), command[1024] = "";
	size_t used = 0;

	put_time(s, p, 0);
	parquet__uint(p, /*known=*/true, c->duration);
	parquet__uint(p, /*known=*/true, model__events(c->model));
	parquet__uint(p, /*known=*/true, words__lost(c->model, f));
	parquet__bool(p, /*known=*/true, c->complete);
	parquet__uint(p, /*known=*/true, model__whole_steps(c->model));
	parquet__uint(p, model__step_time(c->model), model__step_time(c->model));
	for (char **a = argv; a && *a && used < sizeof(command); a++)
		used += (size_t)snprintf(command + used, sizeof(command) - used, "%s%s",
					 used ? " " : "", *a);
	parquet__text(p, argv ? command : NULL);
	words__free_cmdline(argv);
	parquet__text(p, facts__get(f, "torch"));
	parquet__text(p, facts__get(f, "python"));
}

/* Adds a row to the table of devices. Returns 0 or -errno. */
static int put_device(struct export_ctx *c, const struct tables *s, size_t device)
{
	struct parquet *p = parquet_of(s, TABLE_DEVICES);
	char detail[DETAIL_TEXT];
	struct model_device d;
	uint64_t total;

	model__device(c->model, device, &d);
	total = words__device_total(c->facts, &d);
	put_common(s, p);
	parquet__text(p, d.name);
	parquet__text(p, words__device_fact(c->facts, &d, "name"));
	parquet__uint(p, total, total);
	put_capture(c, s, p);
	parquet__uint(p, /*known=*/true, d.allocated);
	parquet__uint(p, d.has_totals, d.reserved);
	parquet__uint(p, /*known=*/true, d.peak_allocated);
	parquet__uint(p, d.has_totals, d.peak_reserved);
	parquet__uint(p, /*known=*/true, d.peak_time);
	parquet__uint(p, /*known=*/true, d.peak_step);
	parquet__text(p, phase__name(d.peak_phase));
	parquet__text(p, figure__name(d.peak_is));
	parquet__double(p, d.has_totals, words__fragmentation(d.allocated, d.reserved));
	parquet__double(p, d.has_totals, d.avg_fragmentation);
	parquet__uint(p, d.before_known, d.before_attach_start);
	parquet__uint(p, d.has_totals, d.drift);
	parquet__uint(p, /*known=*/true, d.allocs);
	parquet__uint(p, /*known=*/true, d.frees);
	parquet__uint(p, /*known=*/true, d.ooms);
	parquet__uint(p, /*known=*/true, d.total_allocated);
	put_growth(c, p, device);
	parquet__text(p, *detail__reduced(detail, sizeof(detail), c->facts) ? detail : NULL);
	return parquet__row(p);
}

/* ---- the format ---- */

/* Gets a fact that is a number; *has: false if the recording lacks it. */
static void set_number(const struct facts *f, const char *key, bool *has, int64_t *ret)
{
	uint64_t number = 0;

	*has = facts__number(f, key, &number);
	*ret = (int64_t)number;
}

static int tables_begin(struct export_ctx *c, void **state)
{
	struct tables *s = calloc(1, sizeof(*s));
	const char *start = facts__get(c->facts, "start");
	int err;

	if (!s)
		return -ENOMEM;
	*state = s;
	s->events.put = put;
	s->recording = c->name;
	s->host = c->folder->host ?: facts__get(c->facts, "hostname");
	set_number(c->facts, "rank", &s->has_rank, &s->rank);
	set_number(c->facts, "pid", &s->has_pid, &s->pid);
	s->has_start = start && !text__parse_date(start, &s->start);
	if (!s->has_start)
		s->start = 0;
	err = growth__watch(c->model, BY_LINE);
	if (err)
		return err;
	return open_files(&s->files, c->folder, s->recording, s->pid, s->start);
}

static int tables_event(struct export_ctx *c, void *state, const struct event *e)
{
	struct tables *s = state;
	int err = put_steps(c, s);

	return err ? err : events__pass(c, &s->events, s, e);
}

static int tables_end(struct export_ctx *c, void *state)
{
	struct tables *s = state;
	struct model_device d;
	int err = put_steps(c, s) ?: events__end(c, &s->events, s);

	if (err)
		return err;
	if (!model__devices(c->model))
		return -ENODATA;
	for (size_t i = 0; i < model__devices(c->model); i++) {
		model__device(c->model, i, &d);
		if (!passing__is_selected(c, d.name))
			continue;
		err = put_device(c, s, i) ?: put_runs(c, s, i);
		if (!err)
			err = put_rows(c, s, i, ROWS_AT_MARK);
		if (err)
			return err;
		err = put_rows(c, s, i, ROWS_NOW) ?: put_live(c, s, i);
		if (err)
			return err;
	}
	return commit_files(s->files);
}

static void tables_release(void *state)
{
	struct tables *s = state;

	if (s)
		free_files(s->files);
	free(s);
}

const struct export_format tables_parquet = {
	.name = "parquet",
	.suffix = "",
	.looks_ahead = true,
	.to_folder = true,
	.help = "events, blocks, rows, scopes ... as tables, for DuckDB, Spark",
	.next = "DuckDB, Spark, Trino, ClickHouse and pandas read them",
	.begin = tables_begin,
	.event = tables_event,
	.end = tables_end,
	.release = tables_release,
};
