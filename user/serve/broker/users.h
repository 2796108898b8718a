/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The users of the broker's processes. */
#include <sys/types.h>

struct broker;

/* Chooses the users of processes without rights and of commands. 0 or an exit code, logged. */
int users__choose(struct broker *b);
/* The user for the next process without rights, which no other process has. */
void users__new(const struct broker *b, uid_t *uid, gid_t *gid);
