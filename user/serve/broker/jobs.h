/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Workers: processes without rights that read recordings; and `dump`, which reads a process. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/poll.h>
#include <sys/types.h>

struct broker;
struct peer;
struct trace;

/* Handles the requests compare, diff, dump, export, leaks, ranks and report. */
void jobs__asked(struct peer *p, json_t *msg);
/* Makes the report for trace__done(). 0 or -errno. */
int jobs__report(struct broker *b, struct trace *t);
/* Starts waiting jobs and reads running ones. now: monotonic, ns. */
void jobs__pump(struct broker *b, uint64_t now);
/* Fills in at most room descriptors to wait for; returns their number. */
size_t jobs__poll(const struct broker *b, struct pollfd *fds, size_t room);
/* Ends the jobs of a peer (NULL: none) or of a trace (NULL: none). */
void jobs__forget(struct broker *b, const struct peer *p, const struct trace *t);
/* Ends the job of the peer's request with this id, without an answer. A running export goes on, and
 * its file is kept. */
void jobs__cancel(struct broker *b, const struct peer *p, json_int_t id);
void jobs__free(struct broker *b);
/* Bytes of the folder that running exports may still take. */
uint64_t jobs__reserved(const struct broker *b);
