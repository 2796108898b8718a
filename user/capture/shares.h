/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Fair shares of a table with a fixed number of places. Each process in it belongs to an owner, a
 * user or a container. When the table is full, a process of an owner with few places takes one from
 * an owner with more.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OWNER_NAME 80

struct pick_process;

struct owner {
	char name[OWNER_NAME]; /* "user 1000", "container 0123..." */
	size_t uses;	       /* references; 0: the entry is free */
	size_t places;	       /* for shares__choose() */
	bool said;	       /* for the caller: a message about this owner was logged */
};

/* Owners by name. An entry does not move while it has references. */
struct owners {
	struct owner **v;
	size_t n, cap;
};

/*
 * The owner of a process, with a reference for the caller. NULL: out of memory. Processes of a user
 * count for the user under whatever ID they run:
 *  - in control groups that the user manages, and in user namespaces that the user made;
 *  - a set-user-ID program counts for the user who started it.
 * A container is an owner, because it can have any number of users; so is a user namespace of root.
 */
struct owner *owners__of(struct owners *o, const struct pick_process *p);
/* The same by name. */
struct owner *owners__named(struct owners *o, const char *name);
/* Another reference. NULL is fine. */
struct owner *owner__share(struct owner *w);
/* Returns a reference. NULL is fine. */
void owner__drop(struct owner *w);
void owners__free(struct owners *o);

/* A place that may be taken away. */
struct place {
	struct owner *owner;
	unsigned rank; /* places of a lower rank make room for any process of a higher one */
	uint64_t came; /* when it was given; the youngest goes first */
};

#define SHARES_NONE SIZE_MAX

/* Chooses the place that a process of this owner and rank takes: of a lower rank, or of an owner
 * who still has as many places of the same rank as this one afterwards. Else SHARES_NONE. */
size_t shares__choose(const struct place *v, size_t n, const struct owner *owner, unsigned rank);
/* The number of an owner's places. */
size_t shares__count(const struct place *v, size_t n, const struct owner *owner);
/* The owner with the most places. NULL: n is 0. */
struct owner *shares__largest(const struct place *v, size_t n);
