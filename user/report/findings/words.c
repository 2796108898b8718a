/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The names of findings, and findings as text of at most 20 lines and as JSON. */
#include "report/findings.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "model/growth_summary.h"
#include "model/words.h"
#include "record/dict.h"
#include "report/findings/internal.h"

#define PAGE_LINES 20
#define SAVINGS_HEAD "Could be saved at the peak:\n"
#define LAST_LINES 3 /* "+ 2 more", an empty line, where to look next */
#define TITLE_TEXT 64
#define SHARE_TEXT 96
#define NO_FAULT_TEXT (GROWTH_SUMMARY_TEXT + 256)

static const struct {
	const char *name, *title;
	bool saving;
} codes[FINDING_NR] = {
	[FINDING_OUT_OF_MEMORY] = { "out_of_memory", "Out of memory" },
	[FINDING_LEAK] = { "leak", "Leak" },
	[FINDING_GRAPH_KEPT] = { "graph_kept", "Leak of autograd's graph" },
	[FINDING_CALLS_KEEP] = { "calls_keep", "Calls of the model keep memory" },
	[FINDING_PEAKS_GROW] = { "peaks_grow", "Peaks of steps grow" },
	[FINDING_CACHE_GROWS] = { "cache_grows", "Cached memory grows" },
	[FINDING_OTHERS_GROW] = { "others_grow", "Memory of other code grows" },
	[FINDING_PINNED_GROWS] = { "pinned_grows", "Cached pinned memory grows" },
	[FINDING_COPIES_GROW] = { "copies_grow", "Private memory grows" },
	[FINDING_FRAGMENTATION] = { "fragmentation", "Fragmentation" },
	[FINDING_RETRIES] = { "retries", "Allocations retried" },
	[FINDING_OTHER_PROCESSES] = { "other_processes", "Memory of other processes" },
	[FINDING_DEVICE_SHARED] = { "device_shared", "Memory on another rank's device" },
	[FINDING_RANKS_DIFFER] = { "ranks_differ", "Ranks differ" },
	[FINDING_OPTIMIZERS] = { "optimizer_state_twice", "Optimizer state twice" },
	[FINDING_NO_GRAD] = { "no_grad", "Evaluation keeps activations" },
	[FINDING_CASTS] = { "autocast_casts", "Autocast casts again" },
	[FINDING_OUTPUTS_HELD] = { "outputs_held", "Outputs held during backward" },
	[FINDING_MODEL_COPIES] = { "model_copies", "Several copies of a model", true },
	[FINDING_WEIGHTS_HELD] = { "weights_held", "Weights held twice", true },
	[FINDING_STATE_HELD] = { "state_held", "Optimizer state held twice", true },
	[FINDING_GRADIENTS_LATE] = { "gradients_late", "Gradients live in forward", true },
	[FINDING_LOGITS] = { "logits", "Logits", true },
	[FINDING_BUFFERS] = { "buffers", "Equal buffers", true },
	[FINDING_DDP_BUCKETS] = { "ddp_buckets", "Gradients stored twice", true },
	[FINDING_CACHED] = { "cached", "Cached memory", true },
	[FINDING_MALLOC_FREE] = { "malloc_free", "Free memory inside malloc", true },
	[FINDING_PINNED_CACHED] = { "pinned_cached", "Cached pinned memory", true },
	[FINDING_PINNED_ROUNDING] = { "pinned_rounding", "Rounding of pinned memory", true },
	[FINDING_TRACING] = { "tracing", "Cost of tracing", true },
};

bool finding__is_fault(enum finding_code c)
{
	return !codes[c].saving;
}

static size_t count_lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* Writes "cuda:0 3.2 GiB allocated, peak 4.0 GiB of 80.0 GiB". */
static void say_device(FILE *out, const struct findings_source *source, int device)
{
	char now[24], peak[24], total[24];
	struct model_device d;
	uint64_t all;

	model__device(source->model, (size_t)device, &d);
	all = words__device_total(source->facts, &d);
	fprintf(out, "%s %s allocated, peak %s%s", d.name,
		text__bytes(now, sizeof(now), d.allocated), words__about(d.peak_is),
		text__bytes(peak, sizeof(peak), d.peak_allocated));
	if (all)
		fprintf(out, " of %s", text__bytes(total, sizeof(total), all));
}

/* Returns the device that the head names; -1: none. Tensors that were not recorded have no
 * figures. */
static int head_device(const struct findings_source *source)
{
	if (facts__get(source->facts, "torch_came"))
		return model__find_device(source->model, "host");
	return model__main_device(source->model);
}

/* Prints the head: program, main device, number and time of steps. Returns false if memory is
 * short. */
static bool say_head(FILE *out, const struct findings_source *source, size_t width)
{
	char name[PATH_MAX], program[128], steps[48], time[24], each[24];
	char *text = NULL;
	size_t size, whole_steps = model__whole_steps(source->model);
	int device = head_device(source);
	FILE *mem = open_memstream(&text, &size);

	if (!mem)
		return false;
	fprintf(mem, "%s: ", text__clean(name, sizeof(name), source->name, strlen(source->name)));
	if (*words__program(program, sizeof(program), source->facts))
		fprintf(mem, "%s; ", program);
	if (device >= 0) {
		say_device(mem, source, device);
		fputs("; ", mem);
	}
	if (whole_steps)
		fprintf(mem, "%s of %s in ",
			text__counted(steps, sizeof(steps), whole_steps,
				      model__steps_are_calls(source->model) ? "call" : "step"),
			text__time(each, sizeof(each), model__step_time(source->model)));
	fputs(text__time(time, sizeof(time), model__length(source->model, source->duration)), mem);
	if (fclose(mem) || !text) {
		free(text);
		return false;
	}
	text__paragraph(out, width, "", "  ", "%s", text);
	free(text);
	return true;
}

/* Returns the name of the figure in f->whole, which the finding's bytes are a share of. */
static const char *whole_name(const struct finding *f)
{
	switch (f->code) {
	case FINDING_CACHED:
	case FINDING_FRAGMENTATION:
	case FINDING_CACHE_GROWS:
		return "reserved memory";
	case FINDING_PINNED_GROWS:
		return "pinned memory";
	case FINDING_COPIES_GROW:
		return "private memory";
	case FINDING_OTHER_PROCESSES:
		return "the device";
	default:
		return strcmp(f->device, "host") ? "the peak" : "resident memory";
	}
}

/* True if the text of such a finding lacks its bytes and their share. */
static bool has_share(enum finding_code c)
{
	return c != FINDING_OUT_OF_MEMORY && c != FINDING_RANKS_DIFFER && c != FINDING_RETRIES;
}

/* Writes "Leak on cuda:0". Returns buf. */
static char *say_title(const struct finding *f, char *buf, size_t size)
{
	snprintf(buf, size, "%s%s%s", codes[f->code].title, *f->device ? " on " : "", f->device);
	return buf;
}

/* Writes "232.00 MiB, 21 % of the peak"; "": not known, or the text has it. Returns buf. */
static char *say_share(const struct finding *f, char *buf, size_t size)
{
	char part[24], bytes[24];

	*buf = '\0';
	if (f->bytes && f->whole && has_share(f->code))
		snprintf(buf, size, "%s, %s %% of %s", text__bytes(bytes, sizeof(bytes), f->bytes),
			 text__percent(part, f->bytes, f->whole), whole_name(f));
	return buf;
}

/* Prints a finding. number: the fault's number, from 1; 0: a saving, which gets a dash. ranks: as
 * for findings_page__add(). */
static void print_finding(FILE *out, const struct finding *f, size_t number, const char *ranks,
			  size_t width)
{
	char lead[24] = "  - ", title[TITLE_TEXT], in_ranks[340] = "";
	char share[SHARE_TEXT], brackets[SHARE_TEXT + 3] = "";

	if (*say_share(f, share, sizeof(share)))
		snprintf(brackets, sizeof(brackets), " (%s)", share);
	if (number)
		snprintf(lead, sizeof(lead), "%2zu. ", number);
	if (ranks && f->code != FINDING_RANKS_DIFFER && f->code != FINDING_DEVICE_SHARED)
		snprintf(in_ranks, sizeof(in_ranks), " in %s", ranks);
	text__paragraph(out, width, lead, "    ", "%s%s: %s%s", say_title(f, title, sizeof(title)),
			in_ranks, f->text, brackets);
	if (*f->remedy)
		text__paragraph(out, width, "    do: ", "        ", "%s", f->remedy);
}

void findings_page__begin(struct findings_page *p)
{
	if (p->broken)
		return;
	p->mem = open_memstream(&p->text, &p->size);
	p->broken = !p->mem;
}

/* Closes mem, and prints before and then its text. Returns false, and prints nothing, if the page
 * would get more than max_lines lines, or if memory is short (p->broken). */
static bool flush_lines(struct findings_page *p, const char *before, size_t max_lines)
{
	bool fits = false;

	if (p->broken)
		return false;
	p->broken = fclose(p->mem) || !p->text;
	p->mem = NULL;
	if (!p->broken)
		fits = p->lines + count_lines(before) + count_lines(p->text) <= max_lines;
	if (fits) {
		fputs(before, p->out);
		fputs(p->text, p->out);
		p->lines += count_lines(before) + count_lines(p->text);
	}
	free(p->text);
	p->text = NULL;
	return fits;
}

void findings_page__end_head(struct findings_page *p, size_t faults)
{
	p->faults = faults;
	flush_lines(p, "", /*max_lines=*/SIZE_MAX);
}

/* Returns the line above a finding, "" for most. follows_faults: it is the first that is no fault. */
static const char *say_heading(const struct finding *f, bool follows_faults)
{
	if (f->code == FINDING_TRACING)
		return "About the recording:\n";
	return follows_faults ? SAVINGS_HEAD : "";
}

void findings_page__add(struct findings_page *p, const struct finding *f, const char *ranks)
{
	bool saving = p->shown >= p->faults, follows_faults = p->shown == p->faults;

	if (p->left_out) {
		p->left_out++;
		return;
	}
	findings_page__begin(p);
	if (p->broken)
		return;
	print_finding(p->mem, f, saving ? 0 : p->shown + 1, ranks, p->width);
	if (flush_lines(p, say_heading(f, follows_faults), PAGE_LINES - LAST_LINES))
		p->shown++;
	else
		p->left_out++;
}

int findings_page__end(struct findings_page *p, const char *details)
{
	if (p->broken)
		return -ENOMEM;
	if (p->left_out)
		fprintf(p->out, "  + %zu more (--format json has all)\n", p->left_out);
	fprintf(p->out, "\nDetails: %s\n", details);
	return 0;
}

/* Writes the verdict on a job without faults: "Nothing is wrong: no growth from step to step in 120
 * steps; no out of memory." Returns buf. */
static char *say_no_fault(const struct findings *f, char *buf, size_t size)
{
	const char *once = *f->once ? "; came once, which is normal: " : "";

	snprintf(buf, size, "%s: %s%s%s; no out of memory.",
		 f->judged ? "Nothing is wrong" : "Nothing wrong was seen", f->growth, once,
		 f->once);
	return buf;
}

static void print_no_fault(FILE *out, const struct findings *f, size_t width)
{
	char text[NO_FAULT_TEXT];

	text__paragraph(out, width, "", "  ", "%s", say_no_fault(f, text, sizeof(text)));
}

int findings__text(FILE *out, const struct findings_source *source, const struct findings *f,
		   size_t width)
{
	struct findings_page page = { .out = out, .width = width };
	bool grows = f->faults && f->all[0].rate > 0;
	char details[2 * PATH_MAX], file[PATH_MAX];
	const char *quoted = text__shell(file, sizeof(file), source->name) ?: "FILE";

	findings_page__begin(&page);
	if (page.broken)
		return -ENOMEM;
	if (!say_head(page.mem, source, width)) {
		fclose(page.mem);
		free(page.text);
		return -ENOMEM;
	}
	if (!f->faults)
		print_no_fault(page.mem, f, width);
	findings_page__end_head(&page, f->faults);
	for (size_t i = 0; i < f->n; i++)
		findings_page__add(&page, &f->all[i], /*ranks=*/NULL);
	if (source->pid && grows)
		snprintf(details, sizeof(details), "sudo memtrace-bpf leaks -p %d",
			 (int)source->pid);
	else if (source->pid)
		snprintf(details, sizeof(details), "sudo memtrace-bpf -p %d (live view)",
			 (int)source->pid);
	else
		snprintf(details, sizeof(details), "memtrace-bpf %s %s",
			 grows ? "leaks" : "report --advice", quoted);
	return findings_page__end(&page, details);
}

void findings__list(FILE *out, const struct findings *f, size_t width)
{
	if (!f->faults)
		print_no_fault(out, f, width);
	for (size_t i = 0; i < f->n; i++) {
		bool follows_faults = i == f->faults;

		fputs(say_heading(&f->all[i], follows_faults), out);
		print_finding(out, &f->all[i], i < f->faults ? i + 1 : 0, /*ranks=*/NULL, width);
	}
}

void findings__put(struct json *j, const struct finding *f)
{
	char title[TITLE_TEXT], share[SHARE_TEXT];

	json__string(j, "code", codes[f->code].name);
	json__bool(j, "fault", finding__is_fault(f->code));
	json__string(j, "title", say_title(f, title, sizeof(title)));
	json__string(j, "device", *f->device ? f->device : NULL);
	json__uint(j, "bytes", f->bytes);
	if (f->whole)
		json__double(j, "share", (double)f->bytes / (double)f->whole, /*decimals=*/4);
	else
		json__null(j, "share");
	json__string(j, "share_text", *say_share(f, share, sizeof(share)) ? share : NULL);
	if (f->rate > 0)
		json__double(j, f->rate_key, f->rate, /*decimals=*/1);
	if (f->full_in_steps > 0)
		json__double(j, "full_in_steps", f->full_in_steps, 0);
	if (f->full_in_seconds > 0)
		json__double(j, "full_in_seconds", f->full_in_seconds, 0);
	json__string(j, "text", f->text);
	json__string(j, "where", *f->where ? f->where : NULL);
	json__string(j, "held_by", *f->held_by ? f->held_by : NULL);
	json__string(j, "confidence", f->sure);
	json__string(j, "remedy", *f->remedy ? f->remedy : NULL);
}

void findings__put_all(struct json *j, const struct findings *f)
{
	char no_fault[NO_FAULT_TEXT];

	json__bool(j, "growth_known", f->judged);
	json__string(j, "growth", f->growth);
	json__uint(j, "faults", f->faults);
	json__string(j, "no_fault", f->faults ? NULL : say_no_fault(f, no_fault, sizeof(no_fault)));
	json__open_array(j, "findings");
	for (size_t i = 0; i < f->n; i++) {
		json__open_object(j, NULL);
		findings__put(j, &f->all[i]);
		json__close_object(j);
	}
	json__close_array(j);
}

void findings__json(struct json *j, const struct findings_source *source, const struct findings *f)
{
	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	if (source->format)
		json__uint(j, "recording_format", source->format);
	json__close_object(j);
	json__string(j, "name", source->name);
	json__seconds(j, "duration", source->duration, /*decimals=*/6);
	words__put_window(j, source->model);
	json__uint(j, "events", model__events(source->model));
	json__uint(j, "lost", words__lost(source->model, source->facts));
	json__bool(j, "complete", source->complete);
	json__uint(j, "steps", model__whole_steps(source->model));
	findings__put_all(j, f);
	json__close_object(j);
}
