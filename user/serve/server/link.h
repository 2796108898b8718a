/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Messages between the processes of `serve` over a socket pair (SOCK_SEQPACKET). Each message is a
 * JSON object, with or without a file descriptor. Neither side trusts the other. Sending never
 * blocks: messages are queued, up to a limit.
 *
 * Questions of web and push to the broker have "id", an integer from 1 on, "do" and members. Each
 * gets one answer: {"id", "ok": true, ...} or
 * {"id", "ok": false, "status": 404|409|422|429|503, "detail", "field"?}. D: the answer has a
 * descriptor of a JSON document and its "size". The broker checks everything again.
 *
 *   capture  pid or model_name; duration_s, steps, max_events, start_at, align_s, clock_offset_ns,
 *            clock_offset_error_ns, enable_fragmentation, host, input_shape, batch_size, keep
 *            (false: a profile's trace, deleted when the process that asked for it deletes it
 *            or ends)                      -> trace, in state "starting"
 *   stop     trace_id                        -> trace; its end comes as an event
 *   delete   trace_id                        -> remaining; a capture is stopped first
 *   report   trace_id, at, by, device, top, filter, frames      -> D
 *   leaks    trace_id                        -> D of `leaks --steps`
 *   diagnose trace_id                        -> D
 *   diff     old, new (trace ids), by, at    -> D
 *   compare  traces: ids                     -> D
 *   export   trace_id, format, at, device    -> file: a name in the folder, size, type. Each file
 *            is made once and kept, at most 32 for a trace. A second question for the same file
 *            waits for the first
 *   cancel   asked: id of an earlier question of the sender. That question gets no answer, and its
 *            worker is killed. An export that is being made is completed and kept
 *   open     file: a name that `export` returned, or a trace's recording -> descriptor, size, type
 *   devices                                   -> D of `ps --device`
 *   dump     pid or model_name, by, top      -> D of the process's memory now
 *   upload   name, size: a recording or snapshot of so many bytes -> trace, and a pipe that takes
 *            them. The trace is "starting" until it has a recording, and gone if the pipe closes
 *            before all have arrived
 *   pushed   (only from push) pyroscope, otlp: {"sent", "failed", "dropped"} since the beginning
 *
 * Events of the broker have "event" and members. At the beginning it sends hello, targets, every
 * process and every trace. Times are in s since 1970.
 *
 *   hello    version, start, can_trace, why (if not), limits: max_events, max_traces,
 *            max_captures, max_duration_s, disk_bytes; formats: [{name, suffix, type, help}];
 *            interval (s between samples)
 *   targets  targets: [{name, kind: pid|pattern|command|all, pattern?, pids}], left_out: number of
 *            matching processes beyond the broker's limit
 *   process  pid, started, target (name or ""), name, rank?, container?, pod?, when it is new; with
 *            "gone": true when it has ended
 *   sample   pid, time, rss?, why?, devices: [{device, allocated?, reserved?, peak_allocated?,
 *            total?, used?, free?, ooms?, retries?}]. Figures that are not known are missing
 *   trace    trace, on each change and every half second while it captures; when it is done, with a
 *            descriptor of `report --format json --by line`. docs/reference/http.md has the members
 *   step, scope   trace_id, pid and the figures of a step, or of a scope's runs, while a capture
 *            with --figures runs: docs/reference/figures.md. Only for web; left out while
 *            many messages wait
 *   gone     trace_id
 *   push     from push: pyroscope, otlp, as above
 */
#include <jansson.h>
#include <stdbool.h>

#define LINK_MESSAGE 65536 /* largest message, in bytes */
#define LINK_ID 80	   /* size of a trace's ID, in bytes, with the NUL */
#define LINK_QUEUE 4096	   /* messages waiting to be sent, at most */
#define LINK_FDS 64	   /* waiting descriptors at which link__crowded() is true */

struct link;

/* Creates both ends, close-on-exec and non-blocking. Returns 0 or -errno. */
int link__pair(int fds[2]);
/* Takes over fd. NULL: no memory; fd is then closed. */
struct link *link__new(int fd);
void link__free(struct link *l); /* drops waiting messages; NULL is fine */
int link__fd(const struct link *l);
/* Events for poll(): POLLIN, with POLLOUT if messages are waiting to be sent. */
short link__events(const struct link *l);
/*
 * Sends msg with fd (-1: none), now or later. Always takes over both: the reference to msg, and fd,
 * which is closed after sending. Returns 0, -E2BIG (longer than LINK_MESSAGE), -ENOBUFS (queue
 * full) or -EPIPE (the other end is closed).
 */
int link__send(struct link *l, json_t *msg, int fd);
/* True if so many messages with descriptors are waiting that the caller should not open more
 * files for this link. */
bool link__crowded(const struct link *l);
/* Number of messages that are waiting to be sent. */
size_t link__waiting(const struct link *l);
/* Like link__send() without a descriptor, but drops msg with -ENOBUFS if any message is waiting.
 * For messages that are soon repeated. */
int link__offer(struct link *l, json_t *msg);
/*
 * Sends waiting messages and calls fn for each received one. fn borrows msg and must close fd (-1:
 * none). Returns 0, -EPIPE (the other end is closed) or -EPROTO (the message is not an object, too
 * long, or has several descriptors).
 */
int link__pump(struct link *l, void (*fn)(void *ctx, json_t *msg, int fd), void *ctx);
