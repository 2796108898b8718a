/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Rows that are the same in several recordings, and their texts, which outlive the recordings. */
#include <stdint.h>
#include <string.h>

#include "base/hash.h"
#include "model/model.h"

struct row_set {
	struct strings *texts; /* for strings__keep(): equal texts have equal addresses */
	struct strings *ids;   /* identity of each row, by its number */
};

/* Returns 0 or -ENOMEM; call row_set__drop() in both cases. */
int row_set__init(struct row_set *s);
void row_set__drop(struct row_set *s);
/* Orders texts; NULL counts as "". */
static inline int row_set__compare(const char *a, const char *b)
{
	if (!a || !b)
		return (a && *a) - (b && *b);
	return strcmp(a, b);
}

/* Replaces the row's texts with copies in texts. Returns 0, or -ENOMEM with a part of them
 * replaced. */
int row_set__keep(struct strings *texts, struct row *row);
/* Finds or adds a row by its identity: file, func, line, source, node_class, the module's texts,
 * category, name, thread, phase, before_attach and filtered. kind and stack: further texts, or
 * NULL. All texts must come from row_set__keep() with s->texts. *ret: the row's number, from 0 in
 * the order of adding. Returns 0 or -ENOMEM. */
int row_set__number(struct row_set *s, const struct row *words, const char *kind, const char *stack,
		    uint32_t *ret);
