/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The answer as text: the verdict, its parts, and the unknowns. */
#include "estimate/estimate.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "model/words.h"

#define BAR 20	      /* columns of a bar */
#define KNOWN_SHOWN 8 /* entries shown per kind */

struct text {
	FILE *out;
	const struct estimate *e;
	struct report_text_opts opts; /* options of the tables */
	bool colour;
	unsigned width;
};

static const char *bytes(char buf[24], uint64_t n)
{
	return text__bytes(buf, 24, n);
}

/* Prints the title of a section, in bold if there is colour. */
static void put_title(struct text *t, const char *title)
{
	fprintf(t->out, t->colour ? "\n\033[1m%s\033[0m\n" : "\n%s\n", title);
}

/* ---- the verdict ---- */

/* True if a run has shown which size is enough. It is less than what PyTorch reserves without a
 * limit, which has cached memory that PyTorch gives back when memory is short. */
static bool leads_with_smallest(const struct estimate *e)
{
	return e->verdict == VERDICT_DOES_NOT_FIT && e->smallest.found;
}

/* Growth of the cache does not matter if a size was found that is enough for all steps. */
static bool is_growth_said(const struct estimate *e)
{
	return e->growth.verdict == GROWTH_VERDICT_GROWS &&
	       !(leads_with_smallest(e) && e->growth.part == GROWTH_OF_POOL);
}

/* Adds to the verdict that memory grows, and for how many steps what is left is enough. The run
 * with unlimited memory says nothing about the device asked for. and: "and" or "but". */
static void put_growth(struct text *t, const char *and)
{
	const struct estimate *e = t->e;
	const struct growth_summary *s = &e->growth;
	char rate[40], count[32];
	uint64_t steps = growth_summary__steps_left(s);
	bool of_device = e->verdict != VERDICT_DOES_NOT_FIT && e->full_vram == e->args->vram;
	bool steps_known = s->full_known && s->clock != GROWTH_TIME;

	growth_summary__signed(rate, sizeof(rate), s->per_step);
	/* rate begins with its sign. */
	fprintf(t->out, ", %s memory grows %s per %s", and, rate + 1,
		growth_summary__unit(&s->growth));
	if (of_device && steps_known)
		fprintf(t->out, ": enough for about %s more %s%s",
			text__count(count, sizeof(count), steps), growth_summary__unit(&s->growth),
			steps == 1 ? "" : "s");
	fputs("\n ", t->out);
}

/* The line that grows, as in a report. */
static void put_growing(struct text *t)
{
	char text[GROWTH_SUMMARY_TEXT];

	text__paragraph(t->out, text__one_line(t->width), "  ", "    ", "Growth  %s",
			growth_summary__say(&t->e->growth, text));
}

/* Writes the memory that there is for the job, in the two ways of the verdict: "X of OF", "but
 * HAS". Each has 64 bytes. */
static void put_room(const struct estimate *e, char of[64], char has[64])
{
	const struct estimate_gpu *g = estimate__gpu(e, (size_t)e->device);
	char room[24];

	bytes(room, estimate__room(e, (size_t)e->device));
	if (g) {
		snprintf(of, 64, "the %s that are free on GPU %u", room, g->gpu);
		snprintf(has, 64, "GPU %u has %s free", g->gpu, room);
	} else {
		snprintf(of, 64, "%s", room);
		snprintf(has, 64, "the device has %s", room);
	}
}

/* Prints the verdict with its figures and the reasons why they may be too small. */
static void put_verdict(struct text *t)
{
	const struct estimate *e = t->e;
	static const int colours[] = {
		[VERDICT_FITS] = 32, [VERDICT_DOES_NOT_FIT] = 31, [VERDICT_UNKNOWN] = 33
	};
	static const char *const names[] = {
		[VERDICT_FITS] = "fits",
		[VERDICT_DOES_NOT_FIT] = "does not fit",
		[VERDICT_UNKNOWN] = "not known",
	};
	struct estimate_parts parts = e->parts;
	bool found = leads_with_smallest(e);
	bool grows = is_growth_said(e);
	const char *colon = grows ? "" : ":";
	char buf[256], why[256], of[64], has[64], a[24], b[24];
	bool bound = estimate__bound(e, 0, why, sizeof(why)) != NULL;
	int64_t left;

	if (t->colour)
		fprintf(t->out, "\033[1;%dm", colours[e->verdict]);
	fputs(names[e->verdict], t->out);
	if (t->colour)
		fputs("\033[0m", t->out);
	if (e->device < 0) {
		fputs(": no CUDA device was used\n", t->out);
		return;
	}
	if (found)
		parts.needs = e->smallest.vram;
	left = estimate_parts__left(estimate__room(e, (size_t)e->device), &parts);
	put_room(e, of, has);
	if (grows)
		put_growth(t, e->verdict == VERDICT_FITS ? "but" : "and");
	snprintf(buf, sizeof(buf), "%s%s", bound ? "at least " : "", bytes(a, parts.needs));
	if (e->verdict == VERDICT_FITS && left >= 0)
		fprintf(t->out, "%s needs %s of %s, %s are left\n", colon, buf, of,
			bytes(b, (uint64_t)left));
	else if (e->verdict == VERDICT_DOES_NOT_FIT && left < 0)
		fprintf(t->out, "%s needs %s, but %s: %s are missing\n", colon, buf, has,
			bytes(b, (uint64_t)-left));
	else
		fprintf(t->out, "%s needs %s, %s\n", colon, buf, has);
	if (found && e->parts.needs > parts.needs)
		fprintf(t->out, "  with more memory PyTorch would take up to %s, %s of it cached\n",
			bytes(a, e->parts.needs), bytes(b, e->parts.bytes[PART_CACHED]));
	if (grows)
		put_growing(t);
	for (size_t i = 0; bound && estimate__bound(e, i, why, sizeof(why)); i++)
		text__paragraph(t->out, text__one_line(t->width), "  ", "    ", "a lower bound: %s",
				estimate__bound(e, i, why, sizeof(why)));
	if (e->verdict != VERDICT_FITS || !e->run.ooms)
		return;
	fprintf(t->out, "  %" PRIu64 " %s refused, and the script continued\n", e->run.ooms,
		e->run.ooms == 1 ? "request for memory was" : "requests for memory were");
}

/* Prints the GPUs of --here, with the processes that hold their memory. */
static void put_here(struct text *t)
{
	const struct estimate *e = t->e;
	const struct estimate_here *here = e->args->here;
	const struct estimate_gpu *full;
	char left[24], total[24];

	for (unsigned i = 0; here && i < here->n; i++) {
		const struct estimate_gpu *g = &here->gpu[i];

		text__paragraph(t->out, text__one_line(t->width), "  ", "    ",
				"cuda:%u is GPU %u: %s, %s of %s free%s%s", i, g->gpu, g->name,
				bytes(left, g->free), bytes(total, g->total),
				*g->held ? "; held: " : "", g->held);
	}
	if (e->verdict != VERDICT_DOES_NOT_FIT || e->device < 0)
		return;
	full = estimate__gpu(e, (size_t)e->device);
	if (full && (leads_with_smallest(e) ? e->smallest.vram : e->parts.needs) <= full->total)
		fprintf(t->out, "  it would fit if nothing else held memory of GPU %u\n",
			full->gpu);
}

/* Prints the smallest device that fits, if it was asked for. */
static void put_smallest(struct text *t)
{
	const struct estimate_smallest *s = &t->e->smallest;
	char a[24];

	if (!s->asked)
		return;
	if (!s->found) {
		fprintf(t->out, "  the smallest --vram that fits was not found: %s\n", s->why);
		return;
	}
	fprintf(t->out, "  the smallest --vram that fits: %" PRIu64 "M (%s), %s\n", s->vram >> 20,
		bytes(a, s->vram),
		s->less_refused ? "and 2 MiB less does not: both were run"
				: "which was run; 2 MiB less was not tried");
}

/* ---- the refused request ---- */

/* Prints the first request of each device that was refused. */
static void put_overflow(struct text *t)
{
	const struct estimate *e = t->e;
	const struct model *m = e->named->model;
	char a[24], b[24], c[24], where[REPORT_TEXT];
	struct model_oom oom;
	struct row row;

	if (!e->run.ooms)
		return;
	for (size_t i = 0; i < model__devices(m); i++) {
		struct model_device d;

		if (!model__oom(m, i, 0, &oom))
			continue;
		model__device(m, i, &d);
		put_title(t, "What overflows");
		memset(&row, 0, sizeof(row));
		model__stack_row(m, oom.stack, oom.node, oom.thread, oom.walk, &row);
		words__location(where, &row, facts__get(e->named->facts, "cwd"), t->width - 4);
		fprintf(t->out, "  %s\n", where);
		fprintf(t->out, "  asked for %s of %s", bytes(a, oom.size), d.name);
		if (oom.has_totals)
			fprintf(t->out, " when %s were allocated, %s reserved",
				bytes(b, oom.allocated), bytes(c, oom.reserved));
		words__module(where, &row);
		fprintf(t->out, "\n  in %s%s%s\n", words__phase(oom.phase),
			*where ? ", module " : "", where);
	}
}

/* ---- parts ---- */

/* Prints a part with a bar. n of whole: bytes; note "": none. */
static void put_part(struct text *t, uint64_t n, uint64_t whole, const char *title,
		     const char *note)
{
	char a[24], bar[TEXT_BAR], first[TEXT_BAR + 64], rest[64];

	snprintf(first, sizeof(first), t->colour ? "  %10s  \033[36m%s\033[0m  " : "  %10s  %s  ",
		 bytes(a, n), text__bar(bar, n, whole, BAR, text__unicode(), /*fill=*/true));
	snprintf(rest, sizeof(rest), "  %10s  %*s  ", "", BAR, "");
	text__paragraph(t->out, text__one_line(t->width), first, rest, "%s%s%s", title,
			*note ? ": " : "", note);
}

/* Prints a sum below its parts. n: bytes; note "": none. */
static void put_sum(struct text *t, uint64_t n, const char *title, const char *note)
{
	char a[24];

	fprintf(t->out, "  %10s  %*s  %s%s%s\n", bytes(a, n), BAR, "", title, *note ? ", " : "",
		note);
}

/* Prints NCCL's memory, which is not in the sum because it is not measured. */
static void put_nccl(struct text *t)
{
	const struct estimate *e = t->e;
	struct device_figure nccl;
	char a[24];

	if (device_kind__nccl(e->args->kind, e->local_world_size, &nccl))
		text__paragraph(
			t->out, t->width, "  ", "  ",
			"Not included: NCCL's buffers, about %s for each communicator (%s: %s).",
			bytes(a, nccl.bytes), figure_source__name(nccl.source), nccl.from);
	else
		text__paragraph(t->out, t->width, "  ", "  ", "Not included: NCCL's buffers: %s.",
				nccl.from);
}

/* Prints the parts of the device that needs most. */
static void put_parts(struct text *t)
{
	const struct estimate *e = t->e;
	const struct estimate_parts *p = &e->parts;
	const struct device_figure *context = &e->context;
	struct model_device d;
	char note[192], text[96], step[40];

	model__device(e->full->model, (size_t)e->device, &d);
	snprintf(text, sizeof(text), "%s, at the peak", d.name);
	put_title(t, text);
	for (int i = 0; i < PART_ALLOCATED_NR; i++)
		if (p->bytes[i])
			put_part(t, p->bytes[i], p->needs, part_words[i].title, "");
	snprintf(note, sizeof(note), "%s, %s", text__step(step, d.peak_step),
		 words__phase(d.peak_phase));
	put_sum(t, p->allocated, "peak allocated",
		model__steps(e->full->model) ? note : words__phase(d.peak_phase));
	snprintf(note, sizeof(note), "%.1f %% of reserved",
		 100 * words__fragmentation(p->allocated, p->reserved));
	put_part(t, p->bytes[PART_CACHED], p->needs, part_words[PART_CACHED].title,
		 p->reserved_known ? note : "unknown for this allocator");
	put_sum(t, p->reserved, p->reserved_known ? "peak reserved" : "peak reserved, at least",
		"");
	if (p->bytes[PART_OUTSIDE])
		put_part(t, p->bytes[PART_OUTSIDE], p->needs, part_words[PART_OUTSIDE].title, "");
	snprintf(note, sizeof(note), "%s, %s", figure_source__name(context->source), context->from);
	put_part(t, p->bytes[PART_CONTEXT], p->needs, part_words[PART_CONTEXT].title, note);
	put_sum(t, p->needs, "total", "");
	if (p->bytes[PART_CACHED] > p->reserved / 50)
		text__paragraph(
			t->out, t->width, "  ", "  ",
			"PyTorch can give back part of the cached memory when memory is short; %s",
			e->smallest.found ? "the smallest --vram that fits accounts for that."
					  : "--min-vram finds the smallest size that works.");
	if (e->of_ranks && e->world_size > 1)
		put_nccl(t);
}

/* Prints all CUDA devices, if there are several. Returns 0 or -ENOMEM. */
static int put_devices(struct text *t)
{
	const struct estimate *e = t->e;
	const struct model *m = e->full->model;
	struct estimate_parts p;
	struct model_device d;
	char a[24], b[24], c[24];
	size_t n = 0;
	int err = 0;

	for (size_t i = 0; i < model__devices(m); i++) {
		model__device(m, i, &d);
		n += !device__on_host(d.device);
	}
	if (n < 2)
		return 0;
	put_title(t, "Device      Allocated    Reserved       Total");
	for (size_t i = 0; i < model__devices(m) && !err; i++) {
		model__device(m, i, &d);
		if (device__on_host(d.device))
			continue;
		err = estimate_parts(m, i, e->args->context.bytes, &p);
		if (!err)
			fprintf(t->out, "%-9s  %10s  %10s  %10s\n", d.name, bytes(a, p.allocated),
				bytes(b, p.reserved), bytes(c, p.needs));
	}
	return err;
}

static void put_phases(struct text *t)
{
	static const enum phase order[] = { PHASE_OTHER, PHASE_DATA, PHASE_FORWARD, PHASE_BACKWARD,
					    PHASE_OPTIMIZER };
	char a[24], b[24], c[32];
	struct model_phase p;

	if (model__main_device(t->e->full->model) != t->e->device)
		return; /* the model has phases only for its main device */
	put_title(t, "Phase           Peak allocated  Peak reserved   Times");
	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
		model__phase(t->e->full->model, order[i], &p);
		if (p.count)
			fprintf(t->out, "%-14s  %14s  %13s  %6s\n", words__phase(order[i]),
				bytes(a, p.peak_allocated), bytes(b, p.peak_reserved),
				text__count(c, sizeof(c), p.count));
	}
}

/* Prints the tables by module and by line. Returns 0 or -ENOMEM. */
static int put_tables(struct text *t)
{
	const struct analysis *a = t->e->full;
	struct report_text_opts modules = t->opts, lines = t->opts;
	int err;

	modules.by = BY_LAYER;
	put_title(t, "By module, at the peak");
	err = report_text__table(t->out, a->model, (size_t)t->e->device, a->dict, a->facts,
				 &modules);
	if (err)
		return err;
	put_title(t, "By line, at the peak");
	lines.by = BY_LINE;
	return report_text__table(t->out, a->model, (size_t)t->e->device, a->dict, a->facts,
				  &lines);
}

/* ---- unknowns ---- */

/* Prints an assumption of the dry run in words. name: k->name without control characters; an
 * unknown one is printed with its value or count. */
static void put_assumed(struct text *t, const struct known *k, const char *name)
{
	char value[256], bytes_[24];

	if (!strcmp(name, "cudnn_workspace"))
		fprintf(t->out, "cuDNN takes %s for a convolution (--cudnn-workspace)",
			bytes(bytes_, k->count));
	else if (!strcmp(name, "host_weights") && !k->count)
		fputs("weights created on the host are zeros", t->out);
	else if (!strcmp(name, "true_at"))
		fputs("the condition tested here is true", t->out);
	else if (!strcmp(name, "value_at") && k->value)
		fprintf(t->out, "%s is read here",
			text__clean(value, sizeof(value), k->value, strlen(k->value)));
	else if (k->value)
		fprintf(t->out, "%s %s", name,
			text__clean(value, sizeof(value), k->value, strlen(k->value)));
	else if (!k->file)
		fprintf(t->out, "%s %" PRIu64, name, k->count);
	else
		fputs(name, t->out);
}

/* Prints a line about something that the dry run did not know, or assumed. */
static void put_one_known(struct text *t, const struct known *k)
{
	const char *cwd = facts__get(t->e->full->facts, "cwd");
	char name[256], times[32], where[REPORT_TEXT];
	struct row row = { .file = k->file, .line = k->line, .func = k->func ? k->func : "" };
	bool nowhere = k->file && !strcmp(k->file, "?");

	text__clean(name, sizeof(name), k->name, strlen(k->name));
	fputs("  ", t->out);
	if (k->kind == KNOWN_DATA_DEPENDENT || k->kind == KNOWN_VALUE)
		fprintf(t->out, "%6s x %-14s", text__count(times, sizeof(times), k->count), name);
	else if (k->kind == KNOWN_ASSUMED)
		put_assumed(t, k, name);
	else
		fputs(name, t->out);
	if (nowhere)
		fputs("  a thread without Python", t->out);
	else if (k->file && k->func)
		fprintf(t->out, "  %s",
			words__location(where, &row, cwd, t->width > 50 ? t->width - 27 : 23));
	else if (k->file)
		fprintf(t->out, ": %s", words__place(where, k->file, k->line, cwd));
	fputc('\n', t->out);
}

static void put_known(struct text *t)
{
	static const char *const titles[KNOWN_NR] = {
		[KNOWN_DATA_DEPENDENT] =
			"Sizes that depend on values the dry run did not compute: a lower bound",
		[KNOWN_VALUE] = "Values that the script read but the dry run did not compute",
		[KNOWN_UNMODELLED] = "Not modelled: memory of these is missing from the figures",
		[KNOWN_ASSUMED] = "Assumed",
	};
	static const enum known_kind order[] = { KNOWN_DATA_DEPENDENT, KNOWN_VALUE,
						 KNOWN_UNMODELLED, KNOWN_ASSUMED };
	const struct known_list *l = &t->e->known;

	for (size_t o = 0; o < KNOWN_NR; o++) {
		size_t shown = 0;

		if (!l->kinds[order[o]])
			continue;
		put_title(t, titles[order[o]]);
		for (size_t i = 0; i < l->n; i++)
			if (l->all[i].kind == order[o] && shown++ < KNOWN_SHOWN)
				put_one_known(t, &l->all[i]);
		if (l->kinds[order[o]] > KNOWN_SHOWN)
			fprintf(t->out, "  + %zu more\n", l->kinds[order[o]] - KNOWN_SHOWN);
	}
}

/* ---- the run ---- */

/* Prints the command, what it ran on, and how the run ended. */
static void put_run(struct text *t)
{
	const struct estimate *e = t->e;
	const struct estimate_run *run = &e->full_run;
	const struct analysis *a = e->full;
	const struct dryrun_args *dryrun = &e->args->run.dryrun;
	const char *torch = facts__get(a->facts, "torch") ?: "unknown";
	int sm_major = 8, sm_minor = 0; /* of the dry run's A100 */
	char cmd[REPORT_TEXT / 2], clean[64], size[24], time[24], count[32], word[256];
	char spread[64] = "";

	report_text__command(cmd, sizeof(cmd), a->facts, t->width > 24 ? t->width - 2 : 24);
	fprintf(t->out, "%s\n", cmd);
	if (dryrun->sm_major) {
		sm_major = dryrun->sm_major;
		sm_minor = dryrun->sm_minor;
	}
	text__paragraph(t->out, text__one_line(t->width), "  ", "  ",
			"torch %s, on %s, %s, compute capability %d.%d (dry run)",
			text__clean(clean, sizeof(clean), torch, strlen(torch)),
			dryrun->name ?: "the dry run's A100", bytes(size, e->args->vram), sm_major,
			sm_minor);
	fputs("  ", t->out);
	if (e->of_ranks) {
		fprintf(t->out, "rank %u of %u, %u on a machine", e->rank, e->world_size,
			e->local_world_size);
		if (e->missing_key)
			fprintf(t->out, ": it waited without result for %s",
				text__clean(word, sizeof(word), e->missing_key,
					    strlen(e->missing_key)));
		fputs("\n  ", t->out);
	}
	text__time(time, sizeof(time), run->time);
	strcpy(count, "no");
	if (run->steps)
		text__count(count, sizeof(count), run->steps);
	fprintf(t->out, "%s optimizer step%s, %s; ", count, run->steps == 1 ? "" : "s", time);
	if (run->repeat.spread)
		snprintf(spread, sizeof(spread), " but for %s of cached memory",
			 bytes(size, run->repeat.spread));
	if (run->end == RUN_REPEATED && run->repeat.cycle == 1)
		fprintf(t->out, "stopped as steps %" PRIu64 " to %" PRIu64 " were equal%s\n",
			run->repeat.first, run->repeat.last, spread);
	else if (run->end == RUN_REPEATED)
		fprintf(t->out,
			"stopped as steps %" PRIu64 " to %" PRIu64
			" were the same %u steps twice\n",
			run->repeat.first, run->repeat.last, run->repeat.cycle);
	else if (run->end == RUN_GROWS)
		fprintf(t->out, "stopped as memory grew evenly over the last %d\n", REPEAT_GROWN);
	else if (run->end == RUN_STEPS)
		fputs(e->args->steps ? "stopped after the requested number of steps\n"
				     : "stopped some steps after the one that did not fit\n",
		      t->out);
	else if (estimate__failed(run))
		fputs("the script failed\n", t->out);
	else if (run->end == RUN_ENDED)
		fputs("the script ended\n", t->out);
	else
		fputs("stopped before its steps repeated\n", t->out);
	if (run->end != RUN_ENDED)
		fputs(run->at_end ? "  By then the script had ended.\n"
				  : "  The end of the script was not run.\n",
		      t->out);
}

int estimate_text(FILE *out, const struct estimate *e)
{
	struct text t = { .out = out, .e = e };
	int err = 0;

	t.opts = (struct report_text_opts){ .when = ROWS_AT_MARK,
					    .at = AT_PEAK,
					    .top = e->args->top,
					    .colour = e->args->colour,
					    .no_sums = true };
	t.width = report_text__width(out, &t.opts);
	t.colour = report_text__colour(out, &t.opts);
	put_verdict(&t);
	put_smallest(&t);
	put_here(&t);
	put_run(&t);
	put_overflow(&t);
	if (e->device >= 0) {
		put_parts(&t);
		err = put_devices(&t);
		put_phases(&t);
	}
	put_known(&t);
	if (e->device >= 0) {
		put_title(&t, "Advice");
		advice__text(out, &e->advice, 0, t.width);
		err = err ?: put_tables(&t);
	}
	if (!err)
		report_text__trust(out, e->full->model, e->full->facts, &t.opts);
	return err;
}
