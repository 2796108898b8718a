/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ESTIMATE_TCP_STORE_SERVE_H
#define MT_ESTIMATE_TCP_STORE_SERVE_H
/*
 * A process of our own that serves a store (tcp_store.h) on 127.0.0.1, for as long as we live.
 * Anybody on this machine can connect, as with PyTorch's: it holds nothing but what the job puts
 * there.
 */
#include <stdint.h>

struct user;
struct tcp_store_server;

/* Becomes the user (NULL: stays who we are). NULL with errno. */
struct tcp_store_server *tcp_store_server__start(const struct user *user);
uint16_t tcp_store_server__port(const struct tcp_store_server *s);
/* Ends the process. The first key that was waited for in vain, else NULL; owned by s. */
const char *tcp_store_server__end(struct tcp_store_server *s);
void tcp_store_server__free(struct tcp_store_server *s); /* NULL is fine */

#endif
