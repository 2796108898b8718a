/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The ledger of host memory in words, the same in all outputs. */
#include <stddef.h>
#include <stdio.h>

#include "record/host.h"

struct json;

/* A part for people, such as "CPU tensors" or "malloc"; NULL: no such part. */
const char *host_words__part(unsigned part);
/* Meaning of a part's second figure, to follow the number: "free inside"; NULL: it has none. */
const char *host_words__second(unsigned part);
/* What the part consists of, one sentence for explanations; NULL: no such part. */
const char *host_words__meaning(unsigned part);
/* Writes the largest parts on one line: "CPU tensors 1.2 GiB, malloc 310 MiB, unknown 2 MiB".
 * Parts below 1 % of the total are added up as "other". Returns buf. */
char *host_words__line(char *buf, size_t size, const struct host_sheet *s);
/* Writes "parts": an object of each part, with label, of_rss (whether it is part of RSS), bytes,
 * known, second and second_label. */
void host_words__json(struct json *j, const struct host_sheet *s);
/*
 * Prints the parts as a table, largest first, and the figures next to RSS below it. columns: width.
 * 0 or -ENOMEM.
 */
int host_words__table(FILE *out, const struct host_sheet *s, size_t columns);
