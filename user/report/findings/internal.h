/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Declarations shared by the files of findings. */
#include "report/findings.h"

/* Whether all texts were allocated. */
bool findings__is_whole(const struct finding *f);
void findings__free_texts(struct finding *f); /* frees the texts */
/* For qsort(): faults before savings, faults by code, savings by share. */
int findings__compare(const struct finding *a, const struct finding *b);
/* Writes the members of a finding into the open object. */
void findings__put(struct json *j, const struct finding *f);

/* A text of at most 20 lines: a head, then findings as long as there is room. Zero but for out and
 * width; begin, write the head to mem, end_head, add findings, end. */
struct findings_page {
	FILE *out, *mem;
	size_t width;
	char *text; /* of mem */
	size_t size, lines, faults, shown, left_out;
	bool broken; /* memory is short */
};
void findings_page__begin(struct findings_page *p);
/* faults: number of findings that are faults, which come first. */
void findings_page__end_head(struct findings_page *p, size_t faults);
/* ranks: the recordings that have it, such as "rank 2 of 4"; NULL: there is one recording. */
void findings_page__add(struct findings_page *p, const struct finding *f, const char *ranks);
/* details: a command that shows more. Returns 0, or -ENOMEM: something was left out. */
int findings_page__end(struct findings_page *p, const char *details);
