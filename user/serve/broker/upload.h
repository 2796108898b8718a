/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Files that clients send: recordings, and memory snapshots of PyTorch, which become recordings.
 * The web process writes the bytes to a pipe, so that it has no file open. */
#include <jansson.h>
#include <stddef.h>
#include <sys/poll.h>

struct broker;
struct peer;

/* Handles the request "upload". */
void upload__asked(struct peer *p, json_t *msg);
/* Copies what has arrived. A complete file becomes the trace's recording, or a job imports it. */
void upload__pump(struct broker *b);
/* Deletes uploads that failed: their clients know why. Those of earlier servers stay. */
void upload__sweep(struct broker *b);
/* Fills in at most room descriptors to wait for; returns their number. */
size_t upload__poll(const struct broker *b, struct pollfd *fds, size_t room);
