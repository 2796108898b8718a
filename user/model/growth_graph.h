/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Words about memory that autograd's graph keeps: "saved for MulBackward0, graph of global h". */
#include <stdbool.h>
#include <stddef.h>

/* Whether autograd's graph holds what has this name. */
bool growth_graph__has(const char *name);
/* The tensor that keeps the graph: its length, and *at. 0: not known. */
size_t growth_graph__keeper(const char *name, const char **at);
/* "the graph of h, saved for MulBackward0" or "autograd's graph, saved for MulBackward0", cleaned.
 * brief: without what it was saved for, if the keeper is known. Returns buf. */
char *growth_graph__words(const char *name, bool brief, char *buf, size_t size);
/* How to free it: "keep its value (loss.item(), .detach())". backward: a backward pass ran. */
const char *growth_graph__remedy(const char *name, bool backward);
