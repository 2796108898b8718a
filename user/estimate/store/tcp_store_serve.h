/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A process that serves a store (tcp_store.h) on 127.0.0.1 as long as this process lives. */
#include <stdint.h>

struct user;
struct tcp_store_server;

/* Starts the process as this user (NULL: the present one). NULL with errno. */
struct tcp_store_server *tcp_store_server__start(const struct user *user);
uint16_t tcp_store_server__port(const struct tcp_store_server *s);
/* Ends the process. Returns the first key whose wait timed out, or NULL; s owns the text. */
const char *tcp_store_server__end(struct tcp_store_server *s);
void tcp_store_server__free(struct tcp_store_server *s); /* NULL is fine */
