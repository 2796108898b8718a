/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Prints findings, as text of at most 20 lines and as JSON. */
#include "report/findings.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "model/words.h"
#include "record/dict.h"

#define LINES 20
#define LAST_LINES 3 /* "+ 2 more", an empty line, where to look next */

static size_t lines_of(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* Writes "cuda:0 3.2 GiB allocated, peak 4.0 GiB of 80.0 GiB". */
static void say_device(FILE *out, const struct findings_of *of, int device)
{
	char now[24], peak[24], total[24];
	struct model_device d;
	uint64_t all;

	model__device(of->model, (size_t)device, &d);
	all = words__device_total(of->facts, &d);
	fprintf(out, "%s %s allocated, peak %s%s", d.name,
		text__bytes(now, sizeof(now), d.allocated), words__about(d.peak_is),
		text__bytes(peak, sizeof(peak), d.peak_allocated));
	if (all)
		fprintf(out, " of %s", text__bytes(total, sizeof(total), all));
}

/* The head: the program, its main device, and how much was seen. */
static void say_head(FILE *out, const struct findings_of *of, size_t width)
{
	char program[128], steps[48], time[24], each[24];
	char *text = NULL;
	size_t size, n = model__whole_steps(of->model);
	int device = model__main_device(of->model);
	FILE *mem = open_memstream(&text, &size);

	if (!mem)
		return;
	fprintf(mem, "%s: ", of->name);
	if (*words__program(program, sizeof(program), of->facts))
		fprintf(mem, "%s; ", program);
	if (device >= 0) {
		say_device(mem, of, device);
		fputs("; ", mem);
	}
	if (n)
		fprintf(mem, "%s of %s in ",
			text__counted(steps, sizeof(steps), n,
				      model__steps_are_calls(of->model) ? "call" : "step"),
			text__time(each, sizeof(each), model__step_time(of->model)));
	fputs(text__time(time, sizeof(time), model__length(of->model, of->duration)), mem);
	fclose(mem);
	text__paragraph(out, width, "", "  ", "%s", text);
	free(text);
}

/* Memory that a finding's share is of. */
static const char *whole_of(const struct finding *f)
{
	if (f->code == FINDING_CACHED || f->code == FINDING_CACHE_GROWS)
		return "reserved memory";
	return strcmp(f->device, "host") ? "the peak" : "resident memory";
}

/* A finding in its lines. number: from 1; 0: a saving. Owned text, NULL if memory is short. */
static char *one(const struct finding *f, size_t number, size_t width)
{
	char *text = NULL, first[24], part[24], bytes[24], share[96] = "";
	size_t size;
	FILE *mem = open_memstream(&text, &size);

	if (!mem)
		return NULL;
	if (number)
		snprintf(first, sizeof(first), "%2zu. ", number);
	else
		snprintf(first, sizeof(first), "  - ");
	if (f->bytes && f->whole && f->code != FINDING_OUT_OF_MEMORY)
		snprintf(share, sizeof(share), " (%s, %s %% of %s)",
			 text__bytes(bytes, sizeof(bytes), f->bytes),
			 text__percent(part, f->bytes, f->whole), whole_of(f));
	text__paragraph(mem, width, first, "    ", "%s%s%s: %s%s", finding__title(f->code),
			*f->device ? " on " : "", f->device, f->text, share);
	if (*f->remedy)
		text__paragraph(mem, width, "    do: ", "        ", "%s", f->remedy);
	fclose(mem);
	return text;
}

/* Names the command that shows the details. */
static void say_next(FILE *out, const struct findings_of *of, const struct findings *f)
{
	char at[32];

	if (of->pid)
		snprintf(at, sizeof(at), "-p %d", (int)of->pid);
	if (f->n && f->faults && f->all[0].per_step > 0)
		fprintf(out, "\nDetails: %smemtrace-bpf leaks %s\n", of->pid ? "sudo " : "",
			of->pid ? at : of->name);
	else if (of->pid)
		fprintf(out, "\nDetails: sudo memtrace-bpf %s (live view)\n", at);
	else
		fprintf(out, "\nDetails: memtrace-bpf report --advice %s\n", of->name);
}

void findings__text(FILE *out, const struct findings_of *of, const struct findings *f, size_t width)
{
	size_t used, shown = 0;
	char *head = NULL;
	size_t size;
	FILE *mem = open_memstream(&head, &size);

	if (!mem)
		return;
	say_head(mem, of, width);
	if (!f->faults)
		text__paragraph(mem, width, "", "  ", "%s: %s; no out of memory.",
				f->judged ? "Nothing is wrong" : "Nothing wrong was seen",
				f->growth);
	fclose(mem);
	fputs(head, out);
	used = lines_of(head);
	free(head);
	for (size_t i = 0; i < f->n; i++) {
		bool title = i == f->faults;
		char *text = one(&f->all[i], title || i > f->faults ? 0 : i + 1, width);

		if (!text)
			return;
		if (used + title + lines_of(text) + LAST_LINES > LINES) {
			free(text);
			break;
		}
		if (title)
			fputs("Could be saved at the peak:\n", out);
		fputs(text, out);
		used += title + lines_of(text);
		shown++;
		free(text);
	}
	if (shown < f->n)
		fprintf(out, "  + %zu more (--format json has all)\n", f->n - shown);
	say_next(out, of, f);
}

static void put_finding(struct json *j, const struct finding *f)
{
	json__open_object(j, NULL);
	json__string(j, "code", finding__code(f->code));
	json__bool(j, "fault", finding__is_fault(f->code));
	json__string(j, "device", *f->device ? f->device : NULL);
	json__uint(j, "bytes", f->bytes);
	if (f->whole)
		json__double(j, "share", (double)f->bytes / (double)f->whole, 4);
	else
		json__string(j, "share", NULL);
	if (f->per_step > 0)
		json__double(j, "bytes_per_step", f->per_step, 1);
	json__string(j, "text", f->text);
	json__string(j, "where", *f->where ? f->where : NULL);
	json__string(j, "held_by", *f->held_by ? f->held_by : NULL);
	json__string(j, "confidence", f->sure);
	json__string(j, "remedy", *f->remedy ? f->remedy : NULL);
	json__close_object(j);
}

void findings__json(struct json *j, const struct findings_of *of, const struct findings *f)
{
	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	if (of->format)
		json__uint(j, "recording_format", of->format);
	json__close_object(j);
	json__string(j, "name", of->name);
	json__seconds(j, "duration", of->duration, 6);
	words__put_window(j, of->model);
	json__uint(j, "events", model__events(of->model));
	json__uint(j, "lost", words__lost(of->model, of->facts));
	json__bool(j, "complete", of->complete);
	json__uint(j, "steps", model__whole_steps(of->model));
	json__bool(j, "growth_known", f->judged);
	json__string(j, "growth", f->growth);
	json__uint(j, "faults", f->faults);
	json__open_array(j, "findings");
	for (size_t i = 0; i < f->n; i++)
		put_finding(j, &f->all[i]);
	json__close_array(j);
	json__close_object(j);
}
