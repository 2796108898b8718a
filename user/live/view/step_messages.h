/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The last messages about captured processes, in their order, for readers that may come late. Each
 * is about a process of one user. Both their number and their bytes are bounded. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STEP_MESSAGES_KEPT 4096	       /* messages */
#define STEP_MESSAGES_BYTES (8u << 20) /* bytes of their texts together */

struct step_messages;

struct step_messages *step_messages__new(void);	   /* NULL: no memory */
void step_messages__free(struct step_messages *m); /* NULL is fine */
/* Adds a message and takes its text over, which came from malloc(). Drops the oldest ones beyond
 * the bounds, but not this one. */
void step_messages__add(struct step_messages *m, uid_t uid, char *text);
/* Notes that there is a process of this user. Without memory, its user may not read. */
void step_messages__add_user(struct step_messages *m, uid_t uid);
/* The callbacks of struct control_feed; ctx is the struct step_messages. Root and our own user get
 * all messages. */
size_t step_messages__users(void *ctx, const uid_t **ret);
const char *step_messages__next(void *ctx, uid_t uid, uint64_t *at);
