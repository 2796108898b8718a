/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Prints the recordings that came, and the missing ones. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "serve/fetch/internal.h"

/* The clock with the largest offset, and the largest error of all. */
static const struct fetch_host *clocks(const struct fetch *f, uint64_t *error)
{
	const struct fetch_host *most = NULL;

	*error = 0;
	for (size_t i = 0; i < f->n; i++) {
		const struct fetch_host *h = &f->hosts[i];

		if (h->error == UINT64_MAX)
			continue;
		*error = h->error > *error ? h->error : *error;
		if (!most || llabs(h->offset) > llabs(most->offset))
			most = h;
	}
	return most;
}

static void print_missing(const struct fetch *f, FILE *out)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++) {
		const struct fetch_host *h = &f->hosts[i];

		if (*h->why)
			fprintf(out, "%s  %s: %s\n", n++ ? "" : "Missing:\n", h->is->name, h->why);
		for (size_t k = 0; k < h->n; k++) {
			const struct fetch_process *p = &h->processes[k];
			char rank[32] = "";

			if (p->rank >= 0)
				snprintf(rank, sizeof(rank), "rank %" PRId64 ", ", p->rank);
			if (p->state != FETCH_KEPT)
				fprintf(out, "%s  %s: %sPID %" PRId64 ": %s\n",
					n++ ? "" : "Missing:\n", h->is->name, rank, p->pid, p->why);
			else if (!p->complete)
				fprintf(out, "  %s: %sPID %" PRId64 ": its recording has no end\n",
					h->is->name, rank, p->pid);
		}
	}
}

static void print_text(const struct fetch *f, FILE *out)
{
	size_t kept = fetch__count(f, FETCH_KEPT), hosts = 0;
	uint64_t error, bytes = 0;
	const struct fetch_host *most = clocks(f, &error);
	char a[32], b[32], c[24], word[PATH_MAX];

	for (size_t i = 0; i < f->n; i++) {
		bool any = false;

		for (size_t k = 0; k < f->hosts[i].n; k++)
			if (f->hosts[i].processes[k].state == FETCH_KEPT) {
				bytes += f->hosts[i].processes[k].entry.bytes;
				any = true;
			}
		hosts += any;
	}
	fprintf(out, "%s: %s of %s recordings, from %zu of %zu hosts, %s\n",
		folder__path(f->folder), text__count(a, sizeof(a), kept),
		text__count(b, sizeof(b), f->processes), hosts, f->n,
		text__bytes(c, sizeof(c), bytes));
	if (most)
		fprintf(out, "Clocks differ by up to %s (%s), measured to within %s\n",
			text__time(a, sizeof(a), (uint64_t)llabs(most->offset)), most->is->name,
			text__time(c, sizeof(c), error));
	print_missing(f, out);
	if (kept)
		fprintf(out, "Next: memtrace-bpf report %s\n",
			text__shell(word, sizeof(word), folder__path(f->folder))
				?: folder__path(f->folder));
}

static void put_host(struct json *j, const struct fetch_host *h)
{
	bool known = h->error != UINT64_MAX;

	json__open_object(j, NULL);
	json__string(j, "host", h->is->name);
	json__string(j, "url", h->is->url);
	json__bool(j, "answered", h->answered);
	if (*h->why)
		json__string(j, "why", h->why);
	if (known) {
		json__int(j, "clock_offset_ns", h->offset);
		json__uint(j, "clock_offset_error_ns", h->error);
	}
	json__open_array(j, "processes");
	for (size_t k = 0; k < h->n; k++) {
		const struct fetch_process *p = &h->processes[k];
		bool kept = p->state == FETCH_KEPT;

		json__open_object(j, NULL);
		json__int(j, "pid", p->pid);
		json__uint_or_null(j, "rank", p->rank >= 0, (uint64_t)p->rank);
		json__string(j, "file", kept ? p->entry.file : NULL);
		if (kept) {
			json__bool(j, "complete", p->complete);
			json__uint(j, "bytes", p->entry.bytes);
			json__uint(j, "events", p->entry.events);
		} else {
			json__string(j, "why", p->why);
		}
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

static void print_json(const struct fetch *f, FILE *out)
{
	struct json *j = json__new(out, true);
	char date[40];

	if (!j)
		return;
	json__open_object(j, NULL);
	json__string(j, "folder", folder__path(f->folder));
	json__uint(j, "processes", f->processes);
	json__uint(j, "kept", fetch__count(f, FETCH_KEPT));
	json__string(j, "begin", f->begin ? text__date(date, sizeof(date), f->begin) : NULL);
	json__open_array(j, "hosts");
	for (size_t i = 0; i < f->n; i++)
		put_host(j, &f->hosts[i]);
	json__close_array(j);
	json__close_object(j);
	json__free(j);
}

void fetch_result__print(const struct fetch *f, FILE *out)
{
	if (f->o->as_json)
		print_json(f, out);
	else
		print_text(f, out);
}
