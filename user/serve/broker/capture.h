/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Running captures: each is a `record` or `run` process. */
#include <jansson.h>
#include <stdint.h>

#define CAPTURE_START_WITHIN UINT64_C(30000000000) /* time limit for attaching, ns */
#define CAPTURE_GRACE UINT64_C(30000000000)	   /* time after the end of the duration, ns */

struct broker;
struct peer;
struct trace;

/* Handles the request "capture". */
void capture__asked(struct peer *p, json_t *msg);
/* Asks a capture to end; its recording is completed. */
void capture__stop(struct trace *t);
/* Reads what the capture reports, and ends it at its deadline. now: monotonic, ns. */
void capture__pump(struct broker *b, struct trace *t, uint64_t now);
