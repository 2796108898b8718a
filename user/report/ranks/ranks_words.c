/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Names of several recordings. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/words.h"
#include "report/ranks/ranks.h"

#define MOST_NAMES 4

size_t ranks__add_range(char *buf, size_t size, size_t len, uint64_t first, uint64_t last)
{
	if (len + 48 >= size)
		return len;
	return len + (size_t)snprintf(buf + len, size - len,
				      first == last ? "%s%" PRIu64 : "%s%" PRIu64 "-%" PRIu64,
				      len ? ", " : "", first, last);
}

/* Adds numbers of ranks, labels of workers, or names. */
static size_t add_numbers(const struct ranks *r, const bool *in, char *buf, size_t size)
{
	size_t len = 0, n = ranks__count(r), count = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < n;) {
		const struct rank *k = ranks__at(r, i);
		uint64_t first = k->number, last = first;

		if (k->worker || (in && !in[i])) {
			i++;
			continue;
		}
		for (i++, count++; i < n; i++) {
			k = ranks__at(r, i);
			if (k->worker) /* workers are between the ranks */
				continue;
			if ((in && !in[i]) || k->number != last + 1)
				break;
			last++;
			count++;
		}
		len = ranks__add_range(buf, size, len, first, last);
	}
	return count;
}

static size_t add_labels(const struct ranks *r, const bool *in, bool workers, char *buf,
			 size_t size)
{
	size_t len = strlen(buf), count = 0;

	for (size_t i = 0; i < ranks__count(r); i++) {
		const struct rank *k = ranks__at(r, i);

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
		return add_labels(r, in, false, buf, size);
	n = add_numbers(r, in, numbers, sizeof(numbers));
	if (n)
		snprintf(buf, size, "rank%s %s", n == 1 ? "" : "s", numbers);
	return n + (in ? add_labels(r, in, true, buf, size) : 0);
}

/* Writes "4 recordings of one job, ranks 0-3 of 4: python train.py". */
static void title(const struct ranks *r, char *buf, size_t size)
{
	size_t workers = ranks__workers(r);
	char numbers[256], world[32] = "", with[48] = "", all[40];

	text__counted(all, sizeof(all), ranks__count(r), "recording");
	if (ranks__one_tree(r)) {
		const struct process_node *root = &ranks__tree(r)->all[0];

		snprintf(buf, size, "%s of one process tree, root PID %" PRIu64 ": %s", all,
			 root->id.pid, *root->id.title ? root->id.title : root->name);
		return;
	}
	if (!ranks__one_job(r)) {
		snprintf(buf, size,
			 ranks__count(r) == 1
				 ? "%s"
				 : "%s together; they do not say that they are ranks of one job",
			 all);
		return;
	}
	ranks__list(r, NULL, numbers, sizeof(numbers));
	if (ranks__at(r, 0)->has_world)
		snprintf(world, sizeof(world), " of %" PRIu64, ranks__at(r, 0)->world);
	if (workers)
		snprintf(with, sizeof(with), " and %zu worker%s", workers, workers == 1 ? "" : "s");
	snprintf(buf, size, "%s of one job, %s%s%s: %s", all, numbers, world, with,
		 ranks__at(r, 0)->command);
}

void ranks__print_title(FILE *out, size_t width, const struct ranks *r)
{
	char text[REPORT_TEXT];

	title(r, text, sizeof(text));
	text__paragraph(out, width, "", "  ", "%s", words__cut(text, 2 * width));
	if (ranks__empty(r))
		text__paragraph(out, width, "", "  ",
				"%zu more without a memory event %s left aside", ranks__empty(r),
				ranks__empty(r) == 1 ? "is" : "are");
}

char *rank__devices(char *buf, size_t size, const struct rank *k)
{
	uint64_t first = 0, last = 0;
	char numbers[160] = "";
	const char *s = k->devices, *colon = strchr(s, ':');
	size_t kind = colon ? (size_t)(colon - s) + 1 : 0, len = 0;

	snprintf(buf, size, "%s", s);
	if (!colon || !strchr(s, ' '))
		return buf;
	for (bool any = false; s; s = strchr(s, ' ')) {
		uint64_t number;

		s += *s == ' ';
		if (strncmp(s, k->devices, kind) != 0)
			return buf;
		number = strtoull(s + kind, NULL, 10);
		if (any && number != last + 1)
			len = ranks__add_range(numbers, sizeof(numbers), len, first, last);
		if (!any || number != last + 1)
			first = number;
		last = number;
		any = true;
	}
	ranks__add_range(numbers, sizeof(numbers), len, first, last);
	snprintf(buf, size, "%.*s%s", (int)kind, k->devices, numbers);
	return buf;
}
