/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Traces of torch.profiler (Kineto): Chrome trace events as JSON. Their times are microseconds from
 * baseTimeNanoseconds on, by the host's clock. */

struct facts;
struct json;

/* Writes the events of a trace into the open array, with their times in microseconds since the
 * recording's start. Reads the file twice. Returns 0, or -errno: -EBADMSG: not such a trace;
 * -EMSGSIZE: an event is too large; -ESTALE: the start of the recording is not known. */
int kineto__merge(struct json *j, const char *path, const struct facts *f);
