/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Live view without a screen: text or JSON every interval, and a summary at the end. */
#include "live/view/plain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit.h"
#include "base/json.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "capture/capture_loop.h"
#include "capture/session.h"
#include "live/args.h"
#include "live/rows/cells.h"
#include "live/rows/proc.h"
#include "live/rows/words.h"
#include "model/words.h"
#include "record/detail.h"
#include "report/doc.h"
#include "report/text.h"

/* ---- a process as text ---- */

/* Prints the last step's figures while steps run, as the screen does: the current value changes all
 * the time. */
static void print_allocated(FILE *out, const struct live_proc *p, const struct model_device *d)
{
	struct model_step s;
	char a[24], b[24];

	if (!live_proc__last_step(p, (size_t)model__main_device(p->model), &s))
		fprintf(out, "allocated %s", live__bytes(a, d->allocated));
	else
		fprintf(out, "live %s  %s %s", live__bytes(a, s.end_allocated),
			model__steps_are_calls(p->model) ? "call peak" : "step peak",
			live__bytes(b, s.peak));
}

/* Prints the lines above the table. who: print the PID; width: columns of a line. */
static void print_head(FILE *out, const struct live_proc *p, const struct model_device *d, bool who,
		       int width)
{
	char time[24], bytes[24], step[24], count[32], said[GROWTH_SUMMARY_TEXT];
	const struct growth_summary *growth;
	const struct model_host *host = model__host(p->model);
	char parts[1024], detail[DETAIL_TEXT];

	if (who)
		fprintf(out, "PID %d  ", (int)p->pid);
	fprintf(out, "%s  %s  ", text__time(time, sizeof(time), p->now), d->name);
	print_allocated(out, p, d);
	if (d->has_totals)
		fprintf(out, "  reserved %s", live__bytes(bytes, d->reserved));
	fprintf(out, "  peak %s%s", words__about(d->peak_is),
		live__bytes(bytes, d->peak_allocated));
	if (d->has_totals)
		fprintf(out, "  before attach %s", live__bytes(bytes, d->before_attach_start));
	fprintf(out, "\n  ");
	if (model__whole_steps(p->model))
		fprintf(out, "step %s (%s)  ",
			text__count(count, sizeof(count), model__whole_steps(p->model)),
			text__time(step, sizeof(step), model__step_time(p->model)));
	fprintf(out, "%s events/s", live__rate(bytes, p->rate));
	fprintf(out, "  %s lost%s\n", text__count(count, sizeof(count), p->lost),
		*detail__reduced(detail, sizeof(detail), p->facts) ? "  reduced detail" : "");
	growth = live_proc__growth(p, d->device);
	if (growth && *growth_summary__brief(growth, (size_t)width - 2, said))
		fprintf(out, "  %s\n", said);
	if (host)
		fprintf(out, "  RSS %s: %s\n",
			live__bytes(bytes, host->last.sheet.part[HOST_TOTAL].bytes),
			host_words__line(parts, sizeof(parts), &host->last.sheet,
					 (size_t)width - 18));
}

/* Prints a cell in its column's width and alignment. */
static void put_cell(FILE *out, enum live_col c, const char *text)
{
	int room = live_columns[c].width - (int)text__width(text);

	room = room > 0 ? room : 0;
	if (live_columns[c].left)
		fprintf(out, "%s%*s ", text, room, "");
	else
		fprintf(out, "%*s%s ", room, "", text);
}

/* Prints the cells before the row's name; r NULL: the titles. Returns the remaining columns. */
static int print_cells(FILE *out, enum live_by by, const struct live_rows *rows,
		       const struct live_table *t, const struct live_row *r, int width)
{
	int module = live_cells__module_width(by, width), left = width - 1;
	char buf[24], text[REPORT_TEXT];

	for (int c = 0; c < COL_NR; c++) {
		if (!live_cells__shown(by, t->sort, width, c))
			continue;
		put_cell(out, c,
			 r ? live_cells__text(buf, c, r, rows) : live_cells__title(c, rows));
		left -= live_columns[c].width + 1;
	}
	if (module) {
		strcpy(text, "MODULE");
		if (r)
			words__cut_front(words__module(text, &r->row), (size_t)module - 1);
		fprintf(out, " %s%*s", text, module - (int)text__width(text), "");
		left -= module + 1;
	}
	fputc(' ', out);
	return left > 4 ? left : 4;
}

/* Prints the titles and the rows, and what the rows left out by t->top add up to. */
static void print_table(FILE *out, const struct live_proc *p, const struct live_rows *rows,
			const struct live_table *t, int width)
{
	const struct growth_summary *growth = live_proc__growth(p, rows->device);
	char where[REPORT_TEXT], bytes[24];
	uint64_t rest = 0;
	size_t more = 0;
	int left;

	print_cells(out, p->by, rows, t, NULL, width);
	fprintf(out, "%s\n", live_cells__where_title(p->by));
	for (size_t i = 0; i < rows->n; i++) {
		const struct live_row *r = &rows->all[i];

		if (live_table__cuts(t, i, r)) {
			rest += r->row.bytes;
			more++;
			continue;
		}
		left = print_cells(out, p->by, rows, t, r, width);
		fprintf(out, "%s\n",
			live_cells__where(where, p->by, p->facts, r, growth, left, /*tree=*/false));
	}
	/* Layers have no sum: their rows contain each other. */
	if (more && p->by != LIVE_LAYER)
		fprintf(out, "%9s  + %zu more rows\n", live__bytes(bytes, rest), more);
}

/* Prints the process as text: a few lines and a table. who: print the PID, because several
 * processes may be shown. */
static void print_block(FILE *out, const struct live_proc *p, const struct live_table *t, bool who,
			int width)
{
	int device = model__main_device(p->model);
	struct model_device d;
	char bytes[24];

	if (device < 0)
		return;
	model__device(p->model, (size_t)device, &d);
	print_head(out, p, &d, who, width);
	print_table(out, p, &p->rows[p->by], t, width);
	if (p->host.n) {
		fprintf(out, "\n  host %s resident, by who mapped it\n",
			live__bytes(bytes, p->host.total));
		print_table(out, p, &p->host, t, width);
	}
	fprintf(out, "\n");
}

/* ---- a process as JSON ---- */

static void put_fact_if_known(struct json *j, const struct facts *f, const char *name)
{
	const char *s = facts__get(f, name);

	if (s && *s)
		json__string(j, name, s);
}

static void put_number_if_known(struct json *j, const struct facts *f, const char *name)
{
	uint64_t number;

	if (facts__number(f, name, &number))
		json__uint(j, name, number);
}

static void put_head(struct json *j, const struct live_proc *p)
{
	json__seconds(j, "time", p->now, /*decimals=*/6);
	json__int(j, "pid", p->pid);
	put_number_if_known(j, p->facts, "rank");
	put_fact_if_known(j, p->facts, "comm");
	put_fact_if_known(j, p->facts, "container");
	put_fact_if_known(j, p->facts, "pod");
	json__uint(j, "events", p->events);
	json__double(j, "events_per_second", p->rate, /*decimals=*/1);
	json__uint(j, "lost", p->lost);
	detail__put(j, p->facts);
	json__uint(j, "steps", model__whole_steps(p->model));
	if (model__step_time(p->model))
		json__seconds(j, "step_time", model__step_time(p->model), /*decimals=*/9);
	else
		json__null(j, "step_time");
}

static void put_devices(struct json *j, const struct live_proc *p)
{
	const struct growth_summary *growth;

	json__open_array(j, "devices");
	for (size_t i = 0; i < model__devices(p->model); i++) {
		struct model_device d;

		model__device(p->model, i, &d);
		json__open_object(j, NULL);
		report_json__figures(j, &d);
		growth = live_proc__growth(p, d.device);
		if (growth)
			growth_summary__json(j, growth);
		json__close_object(j);
	}
	json__close_array(j);
}

/* Adds what the row stands for: line, module, category. */
static void put_words(struct json *j, enum live_by by, const struct row *r)
{
	if (by == LIVE_LINE || by == LIVE_FUNCTION) {
		json__string(j, "file", r->file);
		json__uint_or_null(j, "line", by == LIVE_LINE && r->file && r->line, r->line);
		json__string(j, "function", r->func);
		json__string(j, "source", r->source);
	}
	if (by != LIVE_CATEGORY) {
		json__string(j, "module", r->module);
		json__uint(j, "modules", r->modules);
	}
	if (by == LIVE_MODULE || by == LIVE_LAYER)
		json__string(j, "module_class", r->module_class);
	if (by != LIVE_LAYER)
		json__string(j, "category", r->bytes ? r->category : NULL);
	if (r->before_attach)
		json__bool(j, "before_attach", true);
	if (r->filtered)
		json__bool(j, "filtered", true);
}

static void put_row(struct json *j, enum live_by by, const struct live_row *r)
{
	json__open_object(j, NULL);
	json__uint(j, "bytes", r->row.bytes);
	json__uint(j, "count", r->row.count);
	json__uint(j, "at_peak", r->at_peak);
	if (r->growth_known)
		json__int(j, "growth", r->growth);
	else
		json__null(j, "growth");
	if (r->rates_known) {
		json__double(j, "allocs_per_second", r->allocs, /*decimals=*/3);
		json__uint(j, "bytes_per_second", (uint64_t)r->churn);
	} else {
		json__null(j, "allocs_per_second");
		json__null(j, "bytes_per_second");
	}
	put_words(j, by, &r->row);
	json__close_object(j);
}

/* names: keys of the rows, of the number of further rows, and of their bytes. */
static void put_table(struct json *j, const struct live_proc *p, const struct live_rows *rows,
		      const struct live_table *t, const char *names[3])
{
	uint64_t rest = 0;
	size_t more = 0;

	json__open_array(j, names[0]);
	for (size_t i = 0; i < rows->n; i++) {
		const struct live_row *r = &rows->all[i];

		if (!live_table__cuts(t, i, r)) {
			put_row(j, p->by, r);
			continue;
		}
		rest += r->row.bytes;
		more++;
	}
	json__close_array(j);
	json__uint(j, names[1], more);
	if (p->by != LIVE_LAYER) /* inclusive rows overlap, so their sum has no meaning */
		json__uint(j, names[2], rest);
}

/* Adds the table of the main device and that of the host memory. */
static void put_rows(struct json *j, const struct live_proc *p, const struct live_table *t)
{
	static const char *main_names[] = { "rows", "more_rows", "more_bytes" },
			  *host_names[] = { "host_rows", "more_host_rows", "more_host_bytes" };
	int device = model__main_device(p->model);
	struct model_device d;

	if (device < 0)
		return;
	model__device(p->model, (size_t)device, &d);
	json__string(j, "device", d.name);
	json__string(j, "by", live_by_names[p->by]);
	json__string(j, "sort", live_sort_names[t->sort]);
	report_json__select(j, t->select);
	put_table(j, p, &p->rows[p->by], t, main_names);
	if (p->host.n)
		put_table(j, p, &p->host, t, host_names);
}

int live_plain__json_line(FILE *out, const struct live_proc *p, const struct live_table *t,
			  const char *end)
{
	struct json *j = json__new(out, false);
	int err = 0;

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	put_head(j, p);
	if (*end)
		json__string(j, "end", end);
	put_devices(j, p);
	if (model__host(p->model))
		err = report_json__host(j, p->model, p->facts, p->now);
	put_rows(j, p, t);
	json__close_object(j);
	json__free(j);
	return err;
}

/* ---- the run ---- */

struct plain {
	const struct live_args *args;
	struct capture_loop loop;
	struct live_table table;
	bool several; /* more than one process may be shown */
	int err;      /* negative error of standard output or of memory */
	bool said;    /* err was logged already */
};

struct shown {		  /* a process in the output */
	struct sink sink; /* must be the first member: callbacks cast it to struct shown */
	struct plain *plain;
	struct live_proc *proc;
	struct session *session;
	bool first;	 /* the process of -p */
	uint64_t next;	 /* time of the next output, ns since the start */
	uint64_t blocks; /* number of outputs so far */
};

/* For the sink: hands the event to the process. */
static int on_event(struct sink *s, const struct event *e)
{
	struct live_proc *p = ((struct shown *)s)->proc;

	return p->sink.event(&p->sink, e);
}

/* Returns 0 or the negative error of standard output. After an error, output is discarded. */
static int flush_output(struct plain *l)
{
	errno = 0;
	if (fflush(stdout) || ferror(stdout)) {
		l->err = errno ? -errno : -EIO;
		__fpurge(stdout);
		clearerr(stdout);
	}
	return l->err;
}

/* Logs l->err once and returns the exit code. EPIPE is no failure: the reader closed the pipe. */
static int output_status(struct plain *l)
{
	if (l->err == -EPIPE)
		return EXIT_OK;
	if (!l->said)
		log_err("standard output: cannot write: %s", outfile__why(l->err));
	l->said = true;
	return EXIT_FAILED;
}

/* Reads the rows and figures of a process for its next output. Returns 0 or a negative error. */
static int refresh(struct shown *s)
{
	const struct live_args *a = s->plain->args;
	struct live_rows *r = &s->proc->rows[a->by];
	int device = model__main_device(s->proc->model), err = 0;
	struct live_selection selection;
	struct model_device d;

	live_proc__rates(s->proc);
	if (device < 0)
		return 0;
	model__device(s->proc->model, (size_t)device, &d);
	selection = (struct live_selection){ d.device, a->which_line, &a->select };
	live_proc__select(s->proc, a->by, &selection);
	for (size_t i = 0; !err && i < model__devices(s->proc->model); i++)
		if (a->format == LIVE_JSON || (int)i == device)
			err = live_proc__judge(s->proc, i);
	if (err)
		return err;
	r->holders = live_proc__holders(s->proc, d.device);
	err = live_rows__refresh(r, s->proc->model, s->proc->now);
	if (err)
		return err;
	live_rows__sort(r, a->sort);
	return live_proc__refresh_host(s->proc, &selection, a->sort);
}

/* Prints a process. end: reason for the last output; "" if more follows. 0 or a negative error. */
static int print_proc(struct shown *s, const char *end)
{
	struct plain *l = s->plain;
	const struct report_text_opts o = { 0 };
	int err;

	if (*end)
		live_proc__judge_anew(s->proc);
	err = refresh(s);
	if (err)
		return err;
	if (l->args->format == LIVE_JSON)
		err = live_plain__json_line(stdout, s->proc, &l->table, end);
	else
		print_block(stdout, s->proc, &l->table, l->several,
			    (int)report_text__width(stdout, &o));
	return err ? err : flush_output(l);
}

/* Sets the process's time (ns since the start) and counts. */
static void pass_time(struct shown *s, uint64_t now)
{
	live_proc__set_time(s->proc, now, session__events(s->session), session__lost(s->session));
}

/* Prints the process when its interval is over, and ends the capture after the last of --count. */
static int on_tick(struct sink *sink, uint64_t now)
{
	struct shown *s = (struct shown *)sink;
	const struct live_args *a = s->plain->args;

	if (now < s->next || (a->count && s->blocks >= a->count))
		return 0;
	s->next = now - now % a->interval + a->interval;
	pass_time(s, now);
	if (a->count && ++s->blocks >= a->count)
		s->plain->loop.quit = true;
	return print_proc(s, "");
}

/* For tracees_output.begin: begins a process. Returns NULL if memory is short, logged. */
static void *begin(void *ctx, struct session *session, pid_t pid, unsigned int times,
		   struct sink **sink)
{
	struct plain *l = ctx;
	struct shown *s = calloc(1, sizeof(*s));

	if (s)
		s->proc = live_proc__new(pid, session__dict(session), session__facts(session));
	if (!s || !s->proc) {
		log_err("out of memory");
		free(s);
		return NULL;
	}
	s->sink = (struct sink){ .event = on_event, .tick = on_tick };
	s->plain = l;
	s->session = session;
	s->first = !times;
	s->next = l->args->interval;
	*sink = &s->sink;
	return s;
}

/* Prints the last output of a process: a summary, or a final line of JSON. reason: why the capture
 * ended; NULL: the process ended. Returns 0 or a negative error. */
static int finish(struct shown *s, const char *reason)
{
	struct report_text_opts opts = { .by = BY_LINE,
					 .when = ROWS_AT_MARK,
					 .top = s->plain->table.top,
					 .select = &s->plain->args->select,
					 .colour = s->plain->args->colour };
	struct live_proc *p = s->proc;

	pass_time(s, session__now(s->session));
	opts.duration = p->now;
	model__finish(p->model, p->now);
	if (s->plain->args->format == LIVE_JSON) {
		if (s->plain->args->count && s->blocks >= s->plain->args->count)
			return print_proc(s, "count");
		return print_proc(s, reason ? reason : "target exited");
	}
	report_text__summary(stdout, p->model, model__main_device(p->model), p->dict, p->facts,
			     &opts);
	return flush_output(s->plain);
}

/* For tracees_output.end: prints the last output of a process and frees it. The first one is
 * printed if its capture began, others only if they had events: they may never allocate a tensor.
 * err: negative error that ended the capture. Returns the exit code. */
static int end_process(void *output, const char *reason, int err)
{
	struct shown *s = output;
	struct plain *l = s->plain;
	int status = err ? EXIT_FAILED : EXIT_OK;
	bool shows = s->first ? session__now(s->session) > 0
			      : !err && session__events(s->session) > 0;

	if (err && !l->err)
		log_err("the capture of PID %d broke off: %s", (int)s->proc->pid, strerror(-err));
	if (!l->err && shows)
		l->err = finish(s, reason);
	if (l->err)
		status = output_status(l);
	live_proc__free(s->proc);
	free(s);
	return status;
}

int live_plain__run(const struct live_args *args)
{
	static const struct tracees_output outputs = { begin, NULL, NULL, end_process };
	struct plain l = { .args = args, .loop.args = args->capture };
	char until[64];
	int status;

	l.table = (struct live_table){ .sort = args->sort,
				       .top = args->top,
				       .select = &args->select };
	if (args->count)
		snprintf(until, sizeof(until), "%" PRIu64 " update%s printed", args->count,
			 args->count == 1 ? " is" : "s are");
	l.loop.until = args->count ? until : NULL;
	l.several = args->capture.children || pick_args__many(&args->capture.pick);
	l.loop.prints = true;
	l.loop.ctx = &l;
	l.loop.output = &outputs;
	status = capture_loop__open(&l.loop);
	if (!status)
		status = capture_loop__run(&l.loop);
	capture_loop__close(&l.loop);
	return status;
}
