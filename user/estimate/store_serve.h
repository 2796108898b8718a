/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ESTIMATE_STORE_SERVE_H
#define MT_ESTIMATE_STORE_SERVE_H
/*
 * A process of our own that serves a store (estimate_store.h) on 127.0.0.1, for as long as we live.
 * Anybody on this machine can connect, as with PyTorch's: it holds nothing but what the job puts
 * there.
 */
#include <stdint.h>

struct user;
struct store_server;

/* Becomes the user (NULL: stays who we are). NULL with errno. */
struct store_server *store_server__start(const struct user *user);
uint16_t store_server__port(const struct store_server *s);
/* Ends the process. The first key that was waited for in vain, else NULL; owned by s. */
const char *store_server__end(struct store_server *s);
void store_server__free(struct store_server *s); /* NULL is fine */

#endif
