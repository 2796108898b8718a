/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Results of --fail-if as JSON and text. */
#include "report/fail.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/exit.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "model/words.h"
#include "report/doc.h"

#define COLUMNS 100 /* columns of a location */

static void json_amount(struct json *j, const char *key, enum cond_unit unit, uint64_t value,
			double share)
{
	if (unit == COND_SHARE)
		json__double(j, key, share, 6);
	else if (unit == COND_TIME)
		json__seconds(j, key, value, 9);
	else
		json__uint(j, key, value);
}

static void json_blame(struct json *j, const struct blame *b)
{
	if (b->kind == BLAME_LARGEST)
		json__string(j, "blame_at", moment_names[b->at]);
	json__string(j, "blame_is", blame__kind(b->kind));
	if (*b->note)
		json__string(j, "note", b->note);
	json__open_array(j, "blame");
	for (size_t i = 0; i < b->n; i++) {
		const struct row *r = &b->rows[i];

		json__open_object(j, NULL);
		json__uint(j, "bytes", r->bytes);
		json__uint(j, "count", r->count);
		report_json__line(j, r);
		json__string(j, "category", r->category);
		if (r->name)
			json__string(j, "name", r->name);
		json__close_object(j);
	}
	json__close_array(j);
}

static void json_failing(struct json *j, const struct failing *r)
{
	const struct cond_result *c = &r->result;

	json__open_object(j, NULL);
	json__string(j, "condition", r->condition);
	if (c->verdict == COND_UNKNOWN)
		json__null(j, "holds");
	else
		json__bool(j, "holds", c->verdict == COND_HOLDS);
	json__string(j, "text", c->text);
	json__string(j, "recording", r->recording);
	if (r->has_rank)
		json__uint(j, "rank", r->rank);
	json__string(j, "device", r->device);
	if (c->verdict != COND_UNKNOWN) {
		json__string(j, "figure", cond__figure_name(c->figure));
		json_amount(j, "value", c->unit, c->value, c->share);
		json_amount(j, "limit", c->unit, c->limit, c->share_limit);
		if (c->figure >= COND_GROWTH)
			json__seconds(j, "until", c->at, 9);
	}
	json_blame(j, &r->blame);
	json__close_object(j);
}

void report_fail__json(struct json *j, const struct report_fail *f, size_t from)
{
	json__open_array(j, "failed");
	for (size_t i = from; i < report_fail__count(f); i++)
		json_failing(j, report_fail__at(f, i));
	json__close_array(j);
}

/* Writes " on cuda:0 of rank 2 (job.2)". */
static void say_where(const struct failing *r, char *buf, size_t size)
{
	char name[256], rank[40] = "";

	if (r->has_rank)
		snprintf(rank, sizeof(rank), " of rank %" PRIu64, r->rank);
	snprintf(buf, size, "%s%s%s (%s)", r->device ? " on " : "", r->device ? r->device : "",
		 rank, text__clean(name, sizeof(name), r->recording, strlen(r->recording)));
}

static void say_blame(const struct failing *r)
{
	static const char *const titles[] = {
		[BLAME_GREW] = "largest growth, by line",
		[BLAME_HOLDS_BACK] =
			"memory that cannot be returned to CUDA, by the line that holds "
			"most of the same segment",
		[BLAME_OTHERS] = "memory allocated outside PyTorch's allocator",
	};
	const struct blame *b = &r->blame;
	char at[REPORT_TEXT], module[REPORT_TEXT], bytes[24];

	if (*b->note)
		fprintf(stderr, "  %s\n", b->note);
	if (!b->n)
		return;
	if (b->kind == BLAME_LARGEST)
		fprintf(stderr, "  largest at the %s:\n",
			b->at == AT_TIME  ? "time asked for"
			: b->at == AT_OOM ? "first out of memory"
					  : moment_names[b->at]);
	else
		fprintf(stderr, "  %s:\n", titles[b->kind]);
	for (size_t i = 0; i < b->n; i++) {
		const struct row *row = &b->rows[i];

		words__location(at, row, r->cwd, COLUMNS);
		words__cut(words__module(module, row), 40);
		fprintf(stderr, "  %10s  %-15s  %s%s%s%s\n",
			text__bytes(bytes, sizeof(bytes), row->bytes), words__role(row->category),
			at, *module ? " [" : "", module, *module ? "]" : "");
	}
}

static int say_one(const struct failing *r, bool others)
{
	const struct cond_result *c = &r->result;
	char where[400], by[40] = "", when[40] = "", text[24];

	say_where(r, where, sizeof(where));
	switch (c->verdict) {
	case COND_NO:
		return EXIT_OK;
	case COND_UNKNOWN:
		if (r->empty && others) {
			log_info("--fail-if '%s' was not judged%s: %s", r->condition, where,
				 c->text);
			return EXIT_OK;
		}
		log_err("--fail-if '%s' cannot be judged%s: %s", r->condition, where, c->text);
		return EXIT_FAILED;
	case COND_HOLDS:
		break;
	}
	if (c->unit == COND_BYTES && c->value > c->limit)
		snprintf(by, sizeof(by), ", by %s",
			 text__bytes(text, sizeof(text), c->value - c->limit));
	if (c->figure >= COND_GROWTH)
		snprintf(when, sizeof(when), " until %s", text__time(text, sizeof(text), c->at));
	log_err("--fail-if '%s' holds%s: %s%s%s", r->condition, where, c->text, when, by);
	say_blame(r);
	return EXIT_HELD;
}

int report_fail__say(const struct report_fail *f, int status)
{
	bool others = false;

	fflush(stdout);
	for (size_t i = 0; i < report_fail__count(f); i++)
		others |= !report_fail__at(f, i)->empty;
	for (size_t i = 0; i < report_fail__count(f); i++) {
		int mine = say_one(report_fail__at(f, i), others);

		status = mine > status ? mine : status;
	}
	return status;
}
