/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The users of the broker's processes. */
#include <sys/types.h>

struct broker;

/* Chooses the users of processes without rights and of commands. 0 or an exit code, logged. */
int users__choose(struct broker *b);
/* Chooses user and group of the next process without rights: random ones that no other process of
 * the server has, or those of b->ids. */
void users__new(const struct broker *b, uid_t *uid, gid_t *gid);
