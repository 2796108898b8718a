/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The text report, around its rows. */
#include "report/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "memtrace.h"
#include "model/growth_summary.h"
#include "model/model.h"
#include "model/words.h"
#include "record/detail.h"
#include "record/dict.h"
#include "record/ending.h"
#include "record/oom.h"
#include "record/stream.h"
#include "report/recording/pools.h"

#define KEPT_ERROR_TEXT 768 /* size of a text of say_kept_error() */

/* ---- memory of calls that failed, which a kept exception holds ---- */

#define TRACEBACK "'s traceback"
#define LEAST_PART 50 /* kept memory below allocated / LEAST_PART is not worth a line */

/* The exception whose traceback holds most memory. */
struct keeper {
	const char *name; /* borrowed; its first len characters */
	size_t len;
	uint64_t bytes; /* that the traceback holds */
};

/* Callback for model__rows(). r: a row, a set of equal blocks. Remembers the traceback that holds
 * most bytes. Always returns true, which keeps the row. */
static bool find_traceback(void *ctx, const struct row *r)
{
	const char *end = r->name ? strstr(r->name, TRACEBACK) : NULL;
	const char *graph;
	struct keeper *keeper = ctx;

	if (!end || r->bytes <= keeper->bytes)
		return true;
	graph = strstr(r->name, ", graph of ");
	keeper->name = graph && graph < end ? graph + strlen(", graph of ") : r->name;
	keeper->len = end - keeper->name;
	keeper->bytes = r->bytes;
	return true;
}

/* Finds the exception that keeps memory, if a reading of objects named one: "global last_error".
 * Otherwise ret->len is 0. */
static void find_keeper(const struct model *m, size_t device, struct keeper *ret)
{
	struct row_opts opts = { .by = BY_CATEGORY, .keep = find_traceback, .ctx = ret };
	static const enum row_when when[] = { ROWS_NOW, ROWS_AT_MARK };
	struct row *rows;
	size_t n;

	*ret = (struct keeper){ 0 };
	for (size_t i = 0; i < sizeof(when) / sizeof(*when) && !ret->len; i++) {
		opts.when = when[i];
		if (!model__rows(m, device, &opts, &rows, &n))
			free(rows);
	}
}

/* Says which memory a kept exception holds: "" if that is little. Returns buf. */
static const char *say_kept_error(const struct model *m, size_t device, char *buf, size_t size)
{
	struct model_oom last = { 0 };
	const char *calls = "the call that failed", *its = "its";
	char bytes[24], time[24], name[256], here[280] = "";
	struct keeper keeper;

	*buf = '\0';
	for (size_t i = 0; model__oom(m, device, i, &last); i++)
		; /* last stays the last one */
	if (!last.kept || last.kept < last.allocated / LEAST_PART)
		return buf;
	find_keeper(m, device, &keeper);
	if (keeper.len)
		snprintf(here, sizeof(here), " (here %s)",
			 text__clean(name, sizeof(name), keeper.name, keeper.len));
	if (last.number > 1) {
		calls = "calls that failed, the last";
		its = "an";
	}
	snprintf(buf, size,
		 "%s of it are of %s at %s: as long as something keeps %s exception%s, the "
		 "variables of its functions stay. Retry after the except block, and keep the "
		 "exception's text only.",
		 text__bytes(bytes, sizeof(bytes), last.kept), calls,
		 text__time(time, sizeof(time), last.kept_time), its, here);
	return buf;
}

/* ---- the report ---- */

/* A line of parts with dots between. It goes on in an indented line at the width's end. */
struct line {
	FILE *out;
	size_t width, at; /* columns; at: printed so far */
	bool first;	  /* no part is printed yet */
	const char *lead; /* printed before the first part; NULL: nothing */
};

/* Prints a part, and breaks it at spaces if it is too wide, but not between a number and its
 * unit. */
static void put_text(struct line *l, char *text)
{
	for (;;) {
		size_t room = l->width > l->at ? l->width - l->at : 1;
		char *cut = NULL;

		for (char *p = text; text__width(text) > room && (p = strchr(p, ' ')); p++) {
			if (p > text && p[-1] >= '0' && p[-1] <= '9')
				continue;
			*p = '\0';
			if (!cut || text__width(text) <= room)
				cut = p;
			*p = ' ';
		}
		if (!cut)
			break;
		*cut = '\0';
		fprintf(l->out, "%s\n  ", text);
		l->at = 2;
		text = cut + 1;
	}
	fputs(text, l->out);
	l->at += text__width(text);
}

/* Prints a part of a line, after a dot, or on a new line if there is no room. */
static __attribute__((format(printf, 2, 3))) void add_part(struct line *l, const char *fmt, ...)
{
	char text[REPORT_TEXT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (l->first && l->lead)
		fputs(l->lead, l->out);
	if (!l->first && l->at + 3 + text__width(text) > l->width) {
		fputs("\n  ", l->out);
		l->at = 2;
	} else if (!l->first) {
		fputs(text__dot(), l->out);
		l->at += 3;
	}
	put_text(l, text);
	l->first = false;
}

static struct line begin_line(FILE *out, const struct report_text_opts *o)
{
	return (struct line){ .out = out,
			      .width = text__prose(report_text__width(out, o)),
			      .first = true };
}

/* Joins a command line, with the program's file name only. names: true: also only the file names of
 * arguments that are absolute paths. */
static void join_command(char *buf, size_t size, char **argv, bool names)
{
	char word[REPORT_TEXT / 4];
	size_t len = 0;

	buf[0] = '\0';
	for (char **a = argv; a && *a && len + 1 < size; a++) {
		const char *slash = a == argv || (names && **a == '/') ? strrchr(*a, '/') : NULL;
		const char *shown = slash ? slash + 1 : *a;

		text__clean(word, sizeof(word), shown, strlen(shown));
		snprintf(buf + len, size - len, "%s%s", len ? " " : "", word);
		len = strlen(buf);
	}
}

void report_text__command(char *buf, size_t size, const struct facts *f, size_t columns)
{
	char **argv = words__cmdline(f);
	const char *comm = facts__get(f, "comm");
	const char *source = facts__get(f, "source");

	join_command(buf, size, argv, /*names=*/false);
	if (text__width(buf) > columns)
		join_command(buf, size, argv, /*names=*/true);
	if (!*buf && comm)
		text__clean(buf, size, comm, strlen(comm));
	if (!*buf)
		snprintf(buf, size, "%s",
			 source && !strcmp(source, "snapshot") ? "PyTorch snapshot"
							       : "unknown process");
	words__cut(buf, columns);
	words__free_cmdline(argv);
}

/* Adds container and pod. Shows 12 characters of a container's ID, as docker does. */
static void say_container(struct line *l, const struct facts *f)
{
	const char *name = facts__get(f, "container.name");
	const char *id = facts__get(f, "container");
	const char *pod = facts__get(f, "pod");
	char clean[96];

	if (pod)
		add_part(l, "pod %s", text__clean(clean, sizeof(clean), pod, strlen(pod)));
	if (name)
		add_part(l, "container %s", text__clean(clean, sizeof(clean), name, strlen(name)));
	else if (id)
		add_part(l, "container %s", text__clean(clean, sizeof(clean), id, strnlen(id, 12)));
}

static void say_version(struct line *l, const struct facts *f, const char *key, const char *name)
{
	const char *fact = facts__get(f, key);
	char text[64];

	if (fact && *fact)
		add_part(l, "%s %s", name, text__clean(text, sizeof(text), fact, strlen(fact)));
}

/* Returns the number of lost events. */
static uint64_t count_lost(const struct model *m, const struct facts *f,
			   const struct report_text_opts *o)
{
	uint64_t n = words__lost(m, f);

	return n > o->lost ? n : o->lost;
}

/* Returns the time that the recording is about, ns. */
static uint64_t length_of(const struct model *m, const struct facts *f,
			  const struct report_text_opts *o)
{
	return model__length(m, o->duration ? o->duration : words__fact_number(f, "duration_ns"));
}

/* Adds the job's numbers of the whole steps, and those that this report gives them. */
static void say_job_steps(struct line *l, const struct model *m)
{
	uint64_t first, whole = model__whole_steps(m);
	uint64_t skip = model__steps(m) - whole;
	char from[32], to[32], here_from[32], here_to[32], here[80] = "";

	if (!whole || !model__job_step(m, &first))
		return;
	if (first != 1)
		snprintf(here, sizeof(here), " (here %s to %s)",
			 text__count(here_from, sizeof(here_from), skip + 1),
			 text__count(here_to, sizeof(here_to), skip + whole));
	text__count(from, sizeof(from), first + skip);
	if (whole == 1)
		add_part(l, "step %s of the job, by the optimizer's own count", from);
	else
		add_part(l, "steps %s to %s of the job, by the optimizer's own count%s", from,
			 text__count(to, sizeof(to), first + skip + whole - 1), here);
}

/* Prints the head: command, process, time, steps, versions and number of events. */
static void print_process(FILE *out, const struct model *m, const struct facts *f,
			  const struct report_text_opts *o)
{
	struct line line = begin_line(out, o);
	char cmd[REPORT_TEXT / 2], time[24], step[24], events[48], count[48], window[48];
	const char *red = "", *plain = "";
	uint64_t n_lost = count_lost(m, f, o);

	if (n_lost && report_text__colour(out, o)) {
		red = "\033[31m";
		plain = "\033[0m";
	}
	report_text__command(cmd, sizeof(cmd), f, line.width > 64 ? line.width - 24 : 40);
	add_part(&line, "%s", cmd);
	if (!model__is_snapshot(m))
		add_part(&line, "PID %" PRIu64, words__fact_number(f, "pid"));
	say_container(&line, f);
	text__time(time, sizeof(time), length_of(m, f, o));
	if (model__whole_steps(m))
		add_part(&line, "%s, %s of %s", time,
			 text__counted(count, sizeof(count), model__whole_steps(m),
				       model__steps_are_calls(m) ? "call" : "step"),
			 text__time(step, sizeof(step), model__step_time(m)));
	else
		add_part(&line, "%s", time);
	if (*words__steps_from(f))
		add_part(&line, "%s", words__steps_from(f));
	if (model__is_snapshot(m))
		add_part(&line, "%s", words__roles_from(f));
	if (*words__window(m, f, window, sizeof(window)))
		add_part(&line, "%s", window);
	say_job_steps(&line, m);
	say_version(&line, f, "torch", "torch");
	say_version(&line, f, "python", "Python");
	add_part(&line, "%s, %s%s lost%s",
		 text__counted(events, sizeof(events), model__events(m), "event"), red,
		 text__count(count, sizeof(count), n_lost), plain);
	fputc('\n', out);
}

/* Adds the device's peak. at_peak: d->mark_reserved is the memory reserved at the peak; otherwise
 * only the maximum of reserved memory is known. */
static void say_peak(struct line *l, const struct model *m, const struct model_device *d,
		     bool at_peak)
{
	char allocated[24], reserved[24], time[24], count[32], step[40] = "", res[48] = "";
	const char *phase = words__phase(d->peak_phase);

	if (d->device.type == DEVICE_HOST && !model__steps(m) && d->peak_phase == PHASE_OTHER) {
		add_part(l, "peak %s%s resident at %s", words__about(d->peak_is),
			 text__bytes(allocated, sizeof(allocated), d->peak_allocated),
			 text__time(time, sizeof(time), d->peak_time));
		return;
	}
	if (model__steps(m))
		snprintf(step, sizeof(step), "%s %s, ", model__steps_are_calls(m) ? "call" : "step",
			 text__count(count, sizeof(count), d->peak_step + 1));
	text__bytes(reserved, sizeof(reserved), at_peak ? d->mark_reserved : d->peak_reserved);
	if (d->has_totals && at_peak)
		snprintf(res, sizeof(res), ", %s reserved", reserved);
	add_part(l, "peak %s%s allocated%s at %s (%s%s)", words__about(d->peak_is),
		 text__bytes(allocated, sizeof(allocated), d->peak_allocated), res,
		 text__time(time, sizeof(time), d->peak_time), step, phase);
	if (d->has_totals && (!at_peak || d->mark_reserved != d->peak_reserved))
		add_part(l, "at most %s reserved",
			 text__bytes(reserved, sizeof(reserved), d->peak_reserved));
}

/* True if the capture began with the process, also if only the end of it was kept. */
static bool from_start(const struct facts *f)
{
	const char *attached = facts__get(f, "attached_at");

	return attached && !strcmp(attached, "start");
}

/* Returns why the allocator's totals are unknown. */
static const char *no_totals(const struct facts *f)
{
	const char *allocator = facts__get(f, "allocator");

	if (allocator && !strcmp(allocator, "cudaMallocAsync"))
		return "blocks are cudaMallocAsync calls";
	if (allocator && !strcmp(allocator, "none"))
		return "blocks are calls into CUDA";
	if (allocator && !strcmp(allocator, "pluggable"))
		return facts__get(f, "allocator_block")
			       ? "blocks are a pluggable allocator's calls, which hands out parts "
				 "of them"
			       : "blocks are a pluggable allocator's calls";
	if (allocator && !strcmp(allocator, "native"))
		return "the recording ended before its reading at attach was complete";
	return "its allocator carries no totals";
}

/* True if a request failed although more memory was cached: in pieces that are too small. *cached:
 * all cached bytes. */
static bool is_fragmentation(const struct model_oom *o, uint64_t *cached)
{
	*cached = o->reserved > o->allocated ? o->reserved - o->allocated : 0;
	return o->has_totals && o->gap_known && o->largest_gap < o->size && *cached >= o->size &&
	       *cached >= o->reserved / 10 && (!o->left_known || o->left < o->size);
}

#define TENSORS_SHOWN 4
#define NEIGHBOURS_SHOWN 4

/* Prints the tensors that the failed call has in its variables. Without memory for them, none. */
static void print_oom_tensors(FILE *out, const struct model *m, const struct model_device *d,
			      const struct model_oom *oom, const struct facts *f,
			      const struct report_text_opts *o)
{
	struct line line = begin_line(out, o);
	struct oom_tensors tensors;
	char text[WORDS_TENSOR];

	if (words__oom_tensors(m, f, oom, o->which_line, &tensors) || !tensors.n) {
		oom__free(&tensors);
		return;
	}
	line.lead = "  tensors there: ";
	line.at = strlen(line.lead);
	for (size_t i = 0; i < tensors.n && i < TENSORS_SHOWN; i++)
		add_part(&line, "%s", words__oom_tensor(text, &tensors.v[i], d->name));
	if (tensors.n > TENSORS_SHOWN)
		add_part(&line, "+ %zu more", tensors.n - TENSORS_SHOWN);
	fputc('\n', out);
	oom__free(&tensors);
}

/* Prints the other processes on the device, by name. */
static void print_neighbours(FILE *out, const char *lead, const struct neighbours *n,
			     const struct report_text_opts *o)
{
	struct line l = begin_line(out, o);
	char text[WORDS_NEIGHBOUR];

	if (!n->all)
		return;
	l.lead = lead;
	l.at = strlen(l.lead);
	for (size_t i = 0; i < n->n && i < NEIGHBOURS_SHOWN; i++)
		add_part(&l, "%s", words__neighbour(text, &n->v[i]));
	if (n->all > NEIGHBOURS_SHOWN)
		add_part(&l, "+ %" PRIu64 " more", n->all - NEIGHBOURS_SHOWN);
	fputc('\n', out);
}

static void print_oom_neighbours(FILE *out, const struct model_device *d,
				 const struct model_oom *oom, const struct facts *f,
				 const struct report_text_opts *o)
{
	struct neighbours n;

	if (neighbours__read(f, oom->time, d->device, &n))
		print_neighbours(out, "  other processes on this device: ", &n, o);
	neighbours__free(&n);
}

static void print_end_neighbours(FILE *out, const struct model_device *d, const struct facts *f,
				 const struct report_text_opts *o)
{
	struct neighbours n;

	if (neighbours__read_end(f, d->device, &n))
		print_neighbours(out, "  other processes on this device at the end: ", &n, o);
	neighbours__free(&n);
}

/* Prints a refused request: when and where it was, why it failed as far as known, the tensors
 * there, and the other processes on the device. */
static void print_oom(FILE *out, const struct model *m, const struct model_device *d,
		      const struct model_oom *oom, const struct facts *f,
		      const struct report_text_opts *o)
{
	char a[24], b[24], c[24], where[REPORT_TEXT];
	uint64_t total = words__device_total(f, d), cached;
	struct row row = {
		.module = "", .module_class = "", .phase = oom->phase, .source = "untraced"
	};
	struct line line = begin_line(out, o);
	struct row_frame frame;

	fputs("  ", out);
	line.at = 2;
	add_part(&line, "out of memory at %s: %s asked for", text__time(a, sizeof(a), oom->time),
		 text__bytes(b, sizeof(b), oom->size));
	add_part(&line, "allocated %s", text__bytes(a, sizeof(a), oom->allocated));
	if (oom->has_totals)
		add_part(&line, "reserved %s", text__bytes(a, sizeof(a), oom->reserved));
	if (oom->gap_known)
		add_part(&line, "largest free piece of it %s",
			 text__bytes(b, sizeof(b), oom->largest_gap));
	if (is_fragmentation(oom, &cached))
		add_part(&line, "fragmentation: %s are cached in pieces that are too small",
			 text__bytes(b, sizeof(b), cached));
	else if (o->at != AT_OOM && *words__oom_why(where, oom))
		add_part(&line, "%s", where);
	if (total && oom->left_known)
		add_part(&line, "the driver had %s left of %s",
			 text__bytes(b, sizeof(b), oom->left), text__bytes(c, sizeof(c), total));
	else if (oom->left_known)
		add_part(&line, "the driver had %s left", text__bytes(b, sizeof(b), oom->left));
	else if (total && oom->used_known && oom->used <= total)
		add_part(&line,
			 "the driver had at most %s left of %s (other processes not counted)",
			 text__bytes(b, sizeof(b), total - oom->used),
			 text__bytes(c, sizeof(c), total));
	if (model__stack_line(m, oom->stack, o->which_line, &frame)) {
		row.file = frame.file;
		row.func = frame.func;
		row.line = frame.line;
		row.source = "frame";
		add_part(&line, "%s",
			 words__location(where, &row, facts__get(f, "cwd"), line.width - 4));
	}
	if (o->which_line == FRAMES_USER && *words__oom_inside(where, m, f, oom))
		add_part(&line, "%s", where + 1);
	fputc('\n', out);
	print_oom_tensors(out, m, d, oom, f, o);
	print_oom_neighbours(out, d, oom, f, o);
}

/* Prints why the request found no place, and the memory by pool and stream. Returns 0 or -ENOMEM. */
static int print_oom_pools(FILE *out, const struct model_oom *oom, const struct report_text_opts *o)
{
	size_t width = report_text__width(out, o);
	char why[WORDS_OOM], bytes[24];

	if (!*words__oom_why(why, oom))
		return 0;
	text__paragraph(out, text__prose(width), "\n", "  ", "%s found no place: %s",
			text__bytes(bytes, sizeof(bytes), oom->size), why);
	return report_pools__print_oom(out, oom, width, report_text__colour(out, o));
}

/* Prints the device's first out-of-memory error. Prints the last one as well if the report is about
 * that moment (AT_OOM), or if an exception kept memory of a call that failed before it. With AT_OOM
 * also prints the pools at the first one. Returns 0 or -ENOMEM. */
static int print_ooms(FILE *out, const struct model *m, size_t device, const struct model_device *d,
		      const struct facts *f, const struct report_text_opts *o)
{
	struct model_oom first, last;
	char kept[KEPT_ERROR_TEXT] = "";

	if (!model__oom(m, device, 0, &first))
		return 0;
	print_oom(out, m, d, &first, f, o);
	for (size_t i = 0; model__oom(m, device, i, &last); i++)
		; /* last stays the last one */
	if (last.number)
		say_kept_error(m, device, kept, sizeof(kept));
	if (last.number && (o->at == AT_OOM || *kept))
		print_oom(out, m, d, &last, f, o);
	if (*kept)
		text__paragraph(out, text__prose(report_text__width(out, o)), "  ", "  ", "%s",
				kept);
	return o->at == AT_OOM ? print_oom_pools(out, &first, o) : 0;
}

/* Prints the peaks of all devices together, if there are several. */
static void print_all(FILE *out, const struct model *m, const struct report_text_opts *o)
{
	struct line l = begin_line(out, o);
	struct model_all all;
	char bytes[24], time[24];

	model__all(m, &all);
	if (all.devices < 2)
		return;
	add_part(&l, "%u devices  peak %s allocated together at %s", all.devices,
		 text__bytes(bytes, sizeof(bytes), all.peak_allocated),
		 text__time(time, sizeof(time), all.peak_allocated_time));
	add_part(&l, "%s reserved at %s", text__bytes(bytes, sizeof(bytes), all.peak_reserved),
		 text__time(time, sizeof(time), all.peak_reserved_time));
	fputc('\n', out);
}

/* Adds that nothing grows. If something grows, sets *growing to a sentence about it for a line of
 * its own, which the caller frees. Returns 0 or -ENOMEM. */
static int say_growth(struct line *l, const struct model *m, size_t device, const struct facts *f,
		      const struct report_text_opts *o, char **growing)
{
	uint64_t duration = o->duration ? o->duration : words__fact_number(f, "duration_ns");
	char text[GROWTH_SUMMARY_TEXT];
	struct growth_summary summary;
	int err = growth_summary__of(m, f, device, duration, &summary);

	if (err)
		return err == -EINVAL ? 0 : err;
	growth_summary__say(&summary, text);
	if (growth_summary__is_finding(&summary))
		*growing = strdup(text);
	else if (*text)
		add_part(l, "%s", text);
	err = growth_summary__is_finding(&summary) && !*growing ? -ENOMEM : 0;
	growth_summary__free(&summary);
	return err;
}

/* Adds how much memory was allocated and freed; lost events are not in it. */
static void say_churn(struct line *l, const struct model *m, const struct model_device *d,
		      const struct facts *f, const struct report_text_opts *o)
{
	char bytes[24], time[24];

	if (d->total_freed)
		add_part(l, "%s%s allocated and freed in %s",
			 count_lost(m, f, o) ? "at least " : "",
			 text__bytes(bytes, sizeof(bytes), d->total_freed),
			 text__time(time, sizeof(time), length_of(m, f, o)));
}

/* Adds how the device "host" was recorded: readings of the process found its sizes. */
static void say_host(struct line *l, const struct facts *f)
{
	const char *how = facts__get(f, "host");
	uint64_t unread = words__fact_number(f, "host_worked_out");
	char bytes[24];

	add_part(l, "resident memory by who mapped it, tensors on the CPU included%s",
		 how && strcmp(how, "no lines") != 0 ? "" : "; lines are not recorded");
	if (unread)
		add_part(l,
			 "%s of it came after the last reading, and are taken as those of the "
			 "memory "
			 "that was mapped since",
			 text__bytes(bytes, sizeof(bytes), unread));
}

/* Adds how the device "malloc" was recorded: a sample of the blocks allocated since the attach. */
static void say_malloc(struct line *l, const struct facts *f)
{
	uint64_t removed = words__fact_number(f, "malloc.removed_ns");
	uint64_t missing = words__fact_number(f, "counter.malloc.no_room") +
			   words__fact_number(f, "counter.lost.malloc");
	uint64_t frees = words__fact_number(f, "counter.lost.malloc_free");
	char bytes[24], time[32], count[32];

	add_part(l, "blocks inside malloc, allocated since the attach: a sample, one byte in %s",
		 text__bytes(bytes, sizeof(bytes), words__fact_number(f, "malloc.every")));
	if (removed)
		add_part(
			l,
			"the probes cost more than the limit and were removed after %s: as of then",
			text__time(time, sizeof(time), removed));
	if (missing)
		add_part(l, "%s of the sample missing, since there was no room",
			 text__counted(count, sizeof(count), missing, "block"));
	if (frees)
		add_part(l, "%s lost: their blocks count as live",
			 text__counted(count, sizeof(count), frees, "free"));
}

/* Adds the share of cached memory, and the memory from before attach. at_mark: those of the marked
 * moment, otherwise of the end. */
static void say_cached(struct line *l, const struct model *m, const struct model_device *d,
		       bool at_mark)
{
	double cached = at_mark ? words__fragmentation(d->mark_allocated, d->mark_reserved)
				: words__fragmentation(d->allocated, d->reserved);
	char bytes[24];

	add_part(l, "cached %.1f %%", 100 * cached);
	if (d->before_attach_start || !d->before_known)
		add_part(l, "%s %s", words__before(model__is_snapshot(m)),
			 text__bytes(bytes, sizeof(bytes), d->before_attach_start));
}

/* Adds how much memory of the CPU allocator from before attach is known. at_mark: as above. */
static void say_cpu_before(struct line *l, const struct model_device *d, const struct facts *f,
			   bool at_mark)
{
	uint64_t before = at_mark ? d->mark_before_attach : d->before_attach;
	char bytes[24];

	if (before)
		add_part(l, "before attach at least %s (tensors found in Python objects)",
			 text__bytes(bytes, sizeof(bytes), before));
	else if (d->before_known || from_start(f))
		add_part(l, "recorded from the start");
	else
		add_part(l, "memory from before attach not known");
}

/* Prints a device's line: its peak, end, growth and out-of-memory events. Returns 0 or -ENOMEM. */
static int print_device(FILE *out, const struct model *m, size_t device, const struct facts *f,
			const struct report_text_opts *o)
{
	struct line line = begin_line(out, o);
	struct model_device dev;
	char bytes[24], *growing = NULL;
	bool at_mark;
	int err;

	model__device(m, device, &dev);
	at_mark = o->when == ROWS_AT_MARK && dev.marked;
	fprintf(out, "%s  ", dev.name);
	line.at = strlen(dev.name) + 2;
	say_peak(&line, m, &dev, at_mark && o->at == AT_PEAK);
	if (dev.allocated != dev.peak_allocated)
		add_part(&line, "end %s", text__bytes(bytes, sizeof(bytes), dev.allocated));
	if (dev.has_totals)
		say_cached(&line, m, &dev, at_mark);
	else if (dev.device.type == DEVICE_HOST)
		say_host(&line, f);
	else if (dev.device.type == DEVICE_MALLOC)
		say_malloc(&line, f);
	else if (dev.device.type == DEVICE_CPU)
		say_cpu_before(&line, &dev, f, at_mark);
	else if (dev.empty)
		add_part(&line, "PyTorch has no tensor there");
	else
		add_part(&line, "reserved%s: unknown (%s)",
			 dev.before_known ? "" : " and before attach", no_totals(f));
	if (dev.device.type != DEVICE_HOST)
		say_churn(&line, m, &dev, f, o);
	if (dev.ooms)
		add_part(&line, "%" PRIu64 " out of memory", dev.ooms);
	err = say_growth(&line, m, device, f, o, &growing);
	fputc('\n', out);
	if (growing)
		text__paragraph(out, text__one_line(line.width), "", "  ", "Growth  %s", growing);
	free(growing);
	if (dev.ooms && !err)
		err = print_ooms(out, m, device, &dev, f, o);
	else if (!err)
		print_end_neighbours(out, &dev, f, o);
	return err;
}

/* Adds how much the known sizes differ from the allocator's totals, over all devices. */
static void say_drift(struct line *l, const struct model *m)
{
	uint64_t drift = 0, events = 0, missed_frees = 0;
	bool totals = false;
	char bytes[24], count[32];

	for (size_t i = 0; i < model__devices(m); i++) {
		struct model_device d;

		model__device(m, i, &d);
		totals |= d.has_totals;
		events += d.drift_events;
		missed_frees += d.overwritten;
		drift = d.drift > drift ? d.drift : drift;
	}
	if (drift)
		add_part(l, "sizes differ from the allocator's totals by up to %s (at %s)",
			 text__bytes(bytes, sizeof(bytes), drift),
			 text__counted(count, sizeof(count), events, "event"));
	else if (totals)
		add_part(l, "sizes agree with the allocator's totals");
	if (missed_frees)
		add_part(l, "%s frees missed", text__count(count, sizeof(count), missed_frees));
}

/* Writes the percentage of part in all; never "100.0 %" for less than all. Returns buf. */
static const char *percent(char *buf, size_t size, uint64_t part, uint64_t all)
{
	double figure = 100.0 * (double)part / (double)all;

	if (part < all && figure > 99.9)
		figure = 99.9;
	if (part && figure < 0.1)
		snprintf(buf, size, "< 0.1 %%");
	else
		snprintf(buf, size, part == all ? "100 %%" : "%.1f %%", figure);
	return buf;
}

/* Adds which shares of all stacks are cut, were not sampled, or could not be read. */
static void say_stack(struct line *l, const struct model *m, const struct facts *f)
{
	struct report_stacks stacks;
	char share[24];

	words__stacks(m, &stacks);
	if (!stacks.all)
		return;
	if (stacks.truncated)
		add_part(l, "%s of stacks are cut: too deep",
			 percent(share, sizeof(share), stacks.truncated, stacks.all));
	for (unsigned i = 0; i < MT_WALK_NR; i++)
		if (i == MT_WALK_OFF && model__walks(m, i) && facts__get(f, "cost.limit"))
			add_part(l, "%s of stacks were not sampled",
				 percent(share, sizeof(share), model__walks(m, i), stacks.all));
		else if (words__walk_failed(i) && model__walks(m, i))
			add_part(l, "%s of stacks could not be read (%s)",
				 percent(share, sizeof(share), model__walks(m, i), stacks.all),
				 facts__walk_name(i));
}

/* Adds which figures of devices are not exact after lost events. */
static void say_loss(struct line *l, const struct model *m)
{
	bool bound = false;

	for (size_t i = 0; i < model__devices(m); i++) {
		struct model_device d;

		model__device(m, i, &d);
		bound |= d.peak_is == FIGURE_LOWER_BOUND;
		if (d.peak_is == FIGURE_NOT_EXACT)
			add_part(l, "%s is not exact", d.name);
	}
	if (bound)
		add_part(l, "peaks are lower bounds");
}

/* Adds losses of records about steps, modules and lines of forward. They do not affect sizes. */
static void say_lost(struct line *l, const struct facts *f)
{
	uint64_t steps = words__fact_number(f, "counter.lost.scope_end");
	uint64_t scopes = words__fact_number(f, "counter.lost.scope");
	uint64_t calls = words__fact_number(f, "counter.lost.module_call") +
			 words__fact_number(f, "counter.modules.faults");
	uint64_t nodes = words__fact_number(f, "counter.lost.autograd_edge") +
			 words__fact_number(f, "counter.lost.autograd_node") +
			 words__fact_number(f, "counter.autograd.faults");
	char count[32];

	if (steps)
		add_part(l, "%s ends of steps lost: figures per step are not exact",
			 text__count(count, sizeof(count), steps));
	if (scopes)
		add_part(l, "%s begins and ends of scopes lost: their runs are not exact",
			 text__count(count, sizeof(count), scopes));
	if (calls)
		add_part(l, "%s calls of modules lost", text__count(count, sizeof(count), calls));
	if (nodes)
		add_part(l, "%s autograd nodes lost: their memory has no line of forward",
			 text__count(count, sizeof(count), nodes));
}

/* Adds all losses, and how exact the sizes are. */
static void say_trust(struct line *l, const struct model *m, const struct facts *f,
		      const struct report_text_opts *o)
{
	const char *reason = facts__get(f, "stop_reason");
	char count[32], text[128];
	uint64_t lost = count_lost(m, f, o);
	uint64_t dropped = words__fact_number(f, "dropped_events");
	uint64_t nameless = words__fact_number(f, "counter.names_no_room");
	uint64_t native = words__fact_number(f, "counter.native.not_copied");
	const char *unread = facts__get(f, "census_problem");

	if (lost)
		add_part(l, "%s lost", text__counted(count, sizeof(count), lost, "event"));
	say_loss(l, m);
	say_lost(l, f);
	say_drift(l, m);
	say_stack(l, m, f);
	if (dropped)
		add_part(l, "%s dropped (%s)",
			 text__counted(count, sizeof(count), dropped, "event"),
			 reason ? text__clean(text, sizeof(text), reason, strlen(reason))
				: "a bound");
	if (native)
		add_part(l,
			 "%s of native code were not copied, because too many came in a second: "
			 "their memory has no line",
			 text__counted(count, sizeof(count), native, "stack"));
	if (facts__get(f, "driver_bypassed"))
		add_part(l,
			 "memory that CUDA libraries take is not recorded: their calls bypass the "
			 "probes");
	if (facts__get(f, "torch_came"))
		add_part(l, "PyTorch was imported after the attach: its tensors are not recorded");
	if (unread && *unread)
		add_part(l, "%s", text__clean(text, sizeof(text), unread, strlen(unread)));
	if (nameless)
		add_part(l, "no room for %s more stacks and names",
			 text__count(count, sizeof(count), nameless));
	if (o->cut)
		add_part(l, "recording not complete: %s", o->cut);
}

void report_text__trust(FILE *out, const struct model *m, const struct facts *f,
			const struct report_text_opts *o)
{
	struct line l = begin_line(out, o);

	l.lead = "\n";
	say_trust(&l, m, f, o);
	if (!l.first)
		fputc('\n', out);
}

/* Prints devices with known memory below their blocks. */
static int print_below(FILE *out, const struct model *m, const struct facts *f,
		       const struct report_text_opts *o)
{
	char *text = NULL;
	size_t size;
	int err = 0;

	for (size_t i = 0; i < model__devices(m) && !err; i++) {
		FILE *buf = open_memstream(&text, &size);
		struct report_text_opts opts = *o;

		if (!buf)
			return -ENOMEM;
		opts.width = report_text__width(out, o); /* width of out, not of the buffer */
		err = report_text__reconcile(buf, m, i, f, &opts);
		if (fclose(buf))
			err = -ENOMEM;
		if (!err && *text)
			fprintf(out, "\n%s", text);
		free(text);
	}
	return err;
}

/* Says how much of the moment's memory has no line of the program, and why, if it is 1 % or more. */
static int say_no_line(struct line *l, const struct model *m, size_t device, const struct facts *f,
		       const struct report_text_opts *o)
{
	struct row_opts opts = {
		.by = BY_LINE, .when = o->when, .any_module = true, .any_category = true
	};
	uint64_t all = 0, autograd = 0, native = 0, other = 0, no_line;
	char share[8], bytes[24];
	struct row *rows;
	size_t n;
	int err = model__rows(m, device, &opts, &rows, &n);

	if (err)
		return err;
	for (size_t i = 0; i < n; i++) {
		const struct row *r = &rows[i];

		all += r->bytes;
		if (r->before_attach || r->file)
			continue;
		if (r->phase == PHASE_BACKWARD)
			autograd += r->bytes;
		else if (!strcmp(r->source, "native"))
			native += r->bytes;
		else
			other += r->bytes;
	}
	free(rows);
	no_line = autograd + native + other;
	if (no_line < all / 100 || !no_line)
		return 0;
	add_part(l, "%s %% of this memory has no %sline", text__percent(share, no_line, all),
		 facts__get(f, "python") ? "Python " : "");
	if (autograd)
		add_part(l, "autograd's threads %s", text__bytes(bytes, sizeof(bytes), autograd));
	if (native)
		add_part(l, "C++ threads %s", text__bytes(bytes, sizeof(bytes), native));
	if (other)
		add_part(l, "stack not read %s", text__bytes(bytes, sizeof(bytes), other));
	return 0;
}

/* Says how the process ended, if it did not end well. */
static void print_ending(FILE *out, const struct facts *f, const struct report_text_opts *o)
{
	size_t width = text__prose(report_text__width(out, o));
	char text[1024];

	if (!*ending__text(text, sizeof(text), f))
		return;
	text__paragraph(out, width, "", "  ", "%s", text);
	if (*ending__others(text, sizeof(text), f))
		text__paragraph(out, width, "  ", "  ", "%s", text);
}

#define MARKS_SHOWN 6 /* most marks that are named */

/* Names the first marks. Those of a change of detail have a paragraph of their own. */
static void print_marks(FILE *out, const struct model *m, const struct report_text_opts *o)
{
	char text[MARKS_SHOWN * 192] = "", name[160], when[24];
	size_t n = model__marks(m), shown = 0, len = 0;
	uint64_t time, below;

	for (size_t i = 0; i < n && i < MODEL_MARKS; i++) {
		const char *raw = model__mark(m, i, &time);

		if (detail__from_mark(raw, &below))
			continue;
		if (shown++ == MARKS_SHOWN)
			break;
		text__clean(name, sizeof(name), raw, strlen(raw));
		len += snprintf(text + len, sizeof(text) - len, "%s%s at %s", len ? ", " : "", name,
				text__time(when, sizeof(when), time));
	}
	if (shown)
		text__paragraph(out, text__prose(report_text__width(out, o)), "Marks  ", "  ",
				"%s%s", text, shown > MARKS_SHOWN ? ", ..." : "");
}

/* Says that there are named scopes, whose table --scopes prints. */
static void print_named_scopes(FILE *out, const struct model *m, const struct report_text_opts *o)
{
	char count[48], runs[48];
	struct model_scope s;
	uint64_t n = 0, all = 0;

	for (size_t i = 0; i < model__scopes(m); i++) {
		model__scope(m, i, &s);
		n += !!s.source;
		all += s.source ? s.runs : 0;
	}
	if (n)
		text__paragraph(out, text__prose(report_text__width(out, o)), "Scopes  ", "  ",
				"%s, %s: --scopes has the %s of each",
				text__counted(count, sizeof(count), n, "named scope"),
				text__counted(runs, sizeof(runs), all, "run"),
				model__devices(m) ? "peak" : "time");
}

/* ---- host memory: the ledger's readings ---- */

#define OLD UINT64_C(1000000000) /* ns: a last reading that is older says so */

static uint64_t rss_of(const struct host_point *p)
{
	return p->sheet.part[HOST_TOTAL].bytes;
}

/* Writes "end 1.20 GiB", or "last read 1.20 GiB, 8.1 s before the end": the memory of the end is
 * not known then. */
static char *say_end(char *buf, size_t size, const struct model_host *h, const struct facts *f)
{
	uint64_t duration = words__fact_number(f, "duration_ns");
	uint64_t ended = words__fact_number(f, "end_time");
	uint64_t end = ended > duration ? ended : duration;
	char bytes[24], time[24];

	text__bytes(bytes, sizeof(bytes), rss_of(&h->last));
	if (end > h->last.time && end - h->last.time > OLD)
		snprintf(buf, size, "last read %s, %s before the end", bytes,
			 text__time(time, sizeof(time), end - h->last.time));
	else
		snprintf(buf, size, "end %s", bytes);
	return buf;
}

/* Prints the peak of host memory, the last reading with its age, and the largest parts on one line;
 * nothing if it was not read. */
static void print_host_line(FILE *out, const struct model *m, const struct facts *f,
			    const struct report_text_opts *o)
{
	const struct model_host *host = model__host(m);
	static const char tail[] = "(--device host)";
	char bytes[24], time[24], end[96], parts[1024], head[256];
	struct line line = begin_line(out, o);
	size_t dot = text__width(text__dot()), used;

	if (!host)
		return;
	text__bytes(bytes, sizeof(bytes), rss_of(&host->highest));
	text__time(time, sizeof(time), host->highest.time);
	/* The device's line has the peak and the end; readings are fewer. */
	if (model__find_device(m, "host") >= 0)
		snprintf(head, sizeof(head), "host  highest reading %s RSS at %s", bytes, time);
	else
		snprintf(head, sizeof(head), "host  peak %s RSS at %s%s%s", bytes, time,
			 text__dot(), say_end(end, sizeof(end), host, f));
	used = text__width(head) + 2 * dot + strlen(tail);
	host_words__line(parts, sizeof(parts), &host->highest.sheet,
			 line.width > used ? line.width - used : 0);
	text__paragraph(out, line.width, "", "  ", "%s%s%s%s%s", head, *parts ? text__dot() : "",
			parts, text__dot(), tail);
}

/* True if both readings have all parts. Memory of a part that is not read counts for others. */
static bool same_parts(const struct model_host *h, unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		if (h->first.sheet.part[i].known != h->last.sheet.part[i].known)
			return false;
	return true;
}

/* Says which parts grew most between the first and the last reading, of those that both have. */
static void print_host_growth(FILE *out, const struct model_host *h, size_t columns)
{
	char from[24], to[24], bytes[24], text[1024] = "";
	size_t at = 0;

	for (unsigned i = 1; i < HOST_PARTS_END; i++) {
		uint64_t was = h->first.sheet.part[i].bytes, is = h->last.sheet.part[i].bytes;
		uint64_t by = is > was ? is - was : was - is;
		char sign = is > was ? '+' : '-';

		/* What is unknown depends on all parts before it. */
		if (!same_parts(h, i == HOST_UNKNOWN ? 1 : i, i + 1))
			continue;
		if (by > rss_of(&h->last) / 100 && at < sizeof(text))
			at += snprintf(text + at, sizeof(text) - at, "%s%s %c%s", at ? ", " : "",
				       host_words__part(i), sign,
				       text__bytes(bytes, sizeof(bytes), by));
	}
	if (h->readings < 2 || (!at && !same_parts(h, 1, HOST_PARTS_END)))
		return;
	text__paragraph(out, columns, "", "  ", "from %s to %s: %s",
			text__time(from, sizeof(from), h->first.time),
			text__time(to, sizeof(to), h->last.time),
			at ? text : "no part changed by more than 1 % of RSS");
}

/* Prints the parts of host memory at the moment as a table, after the verdict; nothing if it was
 * not read. */
static int print_host(FILE *out, const struct model *m, const struct facts *f,
		      const struct report_text_opts *o)
{
	const struct model_host *host = model__host(m);
	const struct host_point *point;
	unsigned width = report_text__width(out, o);
	struct host_verdict verdict;
	char time[24], n[32];
	int err;

	if (!host)
		return 0;
	point = &host->at_moment;
	err = host_verdict__of_model(m, f, o->duration, &verdict);
	if (err)
		return err;
	fprintf(out, "\nHost memory at %s, %s of %s readings\n",
		text__time(time, sizeof(time), point->time),
		point->time == host->highest.time ? "the highest" : "one",
		text__count(n, sizeof(n), host->readings));
	host_verdict__text(out, &verdict, text__prose(width));
	fputc('\n', out);
	err = host_words__table(out, &point->sheet, width);
	if (!err)
		print_host_growth(out, host, text__prose(width));
	return err;
}

/* ---- samples ---- */

#define SAMPLED_SHOWN 3 /* rows */

/* Returns how many bytes a row may lack. On the host, where small objects may be charged to other
 * rows, returns the width of the row's interval. */
static uint64_t doubt_of(const struct row *r, bool on_host)
{
	return r->sampled.high - (on_host ? r->sampled.low : r->bytes);
}

/* Orders rows by their doubt, largest first. on_host: a bool, as in doubt_of(). */
static int cmp_doubt(const void *a, const void *b, void *on_host)
{
	uint64_t doubt_a = doubt_of(a, *(bool *)on_host);
	uint64_t doubt_b = doubt_of(b, *(bool *)on_host);

	if (doubt_a != doubt_b)
		return doubt_a > doubt_b ? -1 : 1;
	return row__compare(a, b);
}

/* Says how far the largest rows of a sample may be off, if any row is: how much they may hold of
 * the blocks whose stacks were not sampled, or how far small objects on the host may be charged to
 * other lines than theirs. Returns 0 or -ENOMEM. */
static int print_sampled(FILE *out, const struct model *m, size_t device, const struct facts *f,
			 const struct report_text_opts *o)
{
	struct row_opts opts = {
		.by = BY_LINE, .when = o->when, .any_module = true, .any_category = true
	};
	char bytes[24], low[24], high[24], share[8], where[REPORT_TEXT], *text = NULL;
	struct line line = begin_line(out, o);
	uint64_t unsampled = 0, all = 0;
	size_t n, size, shown = 0;
	struct model_device dev;
	struct row *rows;
	bool on_host; /* the rows are made of pieces */
	FILE *list;
	int err;

	model__device(m, device, &dev);
	on_host = device__in_pieces(dev.device);
	if (!on_host && !facts__get(f, "cost.changes"))
		return 0;
	err = model__rows(m, device, &opts, &rows, &n);
	if (err)
		return err;
	list = open_memstream(&text, &size);
	qsort_r(rows, n, sizeof(*rows), cmp_doubt, &on_host);
	for (size_t i = 0; list && i < n; i++) {
		const struct row *r = &rows[i];

		all += r->bytes;
		if (!on_host && r->file && !strcmp(r->file, DETAIL_FILE)) {
			unsampled += r->bytes;
			continue;
		}
		if ((!on_host && !r->file) || doubt_of(r, on_host) <= r->bytes / 100)
			continue;
		shown++;
		if (shown > SAMPLED_SHOWN)
			continue;
		fprintf(list, "%s%s %s to %s", shown > 1 ? "; " : "",
			words__location(where, r, facts__get(f, "cwd"), /*columns=*/60),
			text__bytes(low, sizeof(low), r->sampled.low),
			text__bytes(high, sizeof(high), r->sampled.high));
	}
	free(rows);
	if (list && shown > SAMPLED_SHOWN)
		fputs("; ...", list);
	if (!list || fclose(list)) {
		free(text);
		return -ENOMEM;
	}
	if (dev.device.type == DEVICE_MALLOC && shown)
		text__paragraph(out, line.width, "\n", "  ",
				"These lines are estimates from a sample of their blocks, 95 %% "
				"sure: %s",
				text);
	else if (on_host && shown)
		text__paragraph(out, line.width, "\n", "  ",
				"Lines of small objects are a sample: an allocator takes memory in "
				"pieces, and the line that needed one has all of it. With their "
				"share of all pieces, 95 %% sure: %s",
				text);
	if (unsampled)
		text__paragraph(out, line.width, "\n", "  ",
				"%s (%s %%) is in blocks whose stacks were not sampled%s%s",
				text__bytes(bytes, sizeof(bytes), unsampled),
				text__percent(share, unsampled, all),
				shown ? ". With their share of it, 95 % sure: " : "", text);
	free(text);
	return 0;
}

/* ---- all of it ---- */

/* Says why the recording has no device. */
static const char *no_device(const struct facts *f)
{
	if (facts__get(f, "end_reason") && !facts__get(f, "attached_at"))
		return "The process ended before memtrace-bpf had read its memory, so no line is "
		       "known.\n";
	return "No memory event was seen.\n";
}

/* True if host memory is all that was recorded, and its reading is of about the moment that is
 * shown: a process that is killed may have grown much since. */
static bool has_only_host(const struct model *m, const struct report_text_opts *o)
{
	const struct model_host *h = model__host(m);
	struct model_device d;
	uint64_t shown, rss;
	int host = model__find_device(m, "host");
	bool has_malloc = model__find_device(m, "malloc") >= 0; /* a part of host */

	if (!h || host < 0 || model__devices(m) != 1u + has_malloc)
		return false;
	model__device(m, (size_t)host, &d);
	shown = report_text__all(&d, o->when);
	rss = rss_of(&h->at_moment);
	/* "of about the moment": the two differ by at most a tenth */
	return rss >= shown - shown / 10 && rss - rss / 10 <= shown;
}

/* Prints the rows of a device, with their head. */
static int print_rows(FILE *out, const struct model *m, size_t device, const struct dict *d,
		      const struct facts *f, const struct report_text_opts *o)
{
	struct model_device dev;
	int err;

	model__device(m, device, &dev);
	if (model__devices(m) > 1)
		fprintf(out, "\n%s", dev.name);
	fputc('\n', out);
	err = o->overview ? report_text__overview(out, m, device, o) : 0;
	if (err)
		return err;
	if (o->segments)
		return report_text__segments(out, m, device, f, o);
	if (o->tree)
		return report_text__tree(out, m, device, o);
	return report_text__table(out, m, device, d, f, o);
}

/* Prints the rows and what lies below them, then begins the last line with what is not known of
 * the rows. device: as in report_text__summary(). */
static int print_memory(FILE *out, const struct model *m, int device, const struct dict *d,
			const struct facts *f, const struct report_text_opts *o, struct line *last)
{
	int err = 0;

	if (device >= 0)
		err = print_rows(out, m, (size_t)device, d, f, o);
	else if (!o->host)
		fputs(no_device(f), out);
	if (err)
		return err;
	err = o->host ? 0 : print_below(out, m, f, o);
	if (err)
		return err;
	last->lead = "\n";
	if (device < 0)
		return 0;
	err = print_sampled(out, m, (size_t)device, f, o);
	return err ? err : say_no_line(last, m, (size_t)device, f, o);
}

static bool is_by_scope(const struct report_text_opts *o)
{
	return words__row_properties(o->by, o->split) & 1U << BY_SCOPE && !o->segments;
}

int report_text__summary(FILE *out, const struct model *m, int device, const struct dict *d,
			 const struct facts *f, const struct report_text_opts *o)
{
	char detail[DETAIL_TEXT], models[WORDS_MODELS];
	struct line line = begin_line(out, o);
	bool host, found;
	int err;

	print_ending(out, f, o);
	print_process(out, m, f, o);
	if (*detail__sentence(detail, sizeof(detail), f))
		text__paragraph(out, line.width, "Detail  ", "  ", "%s", detail);
	print_marks(out, m, o);
	if (!o->scopes && !model__scope_function(m, 0, &found))
		print_named_scopes(out, m, o);
	if (*words__models(models, sizeof(models), f))
		text__paragraph(out, line.width, "Models  ", "  ", "%s", models);
	for (size_t i = 0; i < model__devices(m); i++) {
		err = print_device(out, m, i, f, o);
		if (err)
			return err;
	}
	print_all(out, m, o);
	host = o->host || has_only_host(m, o);
	err = host ? print_host(out, m, f, o) : 0;
	if (err)
		return err;
	/* If the host's memory is a device, its line knows more. */
	if (!host && !words__fact_number(f, "host_worked_out"))
		print_host_line(out, m, f, o);
	if (o->scopes || is_by_scope(o) || model__scope_function(m, 0, &found))
		err = report_text__scopes(out, m, device, f, o);
	if (!err && !o->scopes)
		err = print_memory(out, m, device, d, f, o, &line);
	if (err)
		return err;
	line.lead = "\n";
	say_trust(&line, m, f, o);
	if (!line.first)
		fputc('\n', out);
	return 0;
}
