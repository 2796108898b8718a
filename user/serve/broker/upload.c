/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/broker/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "record/mtr.h"
#include "serve/broker/ask.h"
#include "serve/broker/broker.h"
#include "serve/broker/jobs.h"
#include "serve/broker/store.h"
#include "serve/broker/trace.h"

#define UPLOADS 2		      /* most at the same time */
#define PIPE_SIZE (1 << 20)	      /* bytes */
#define TAKEN_AT_ONCE (8 * PIPE_SIZE) /* most bytes of a file that one call copies */

/* ---- the request ---- */

static size_t count_uploads(const struct broker *b)
{
	size_t n = 0;

	for (size_t i = 0; i < b->traces.n; i++)
		n += b->traces.v[i]->upload != NULL;
	return n;
}

/* False: there is no room for a file of this size, and the request has been refused. */
static bool has_room(struct peer *p, json_int_t id, uint64_t size)
{
	struct broker *b = p->b;
	uint64_t used;

	if (size > b->args->max_disk) {
		ask__refuse(p, id, 422, "size", "the file is larger than --max-disk allows");
		return false;
	}
	if (count_uploads(b) >= UPLOADS) {
		ask__refuse(p, id, 429, /*field=*/NULL,
			    "%d files are being sent, the most at the same time: try again when "
			    "one has arrived",
			    UPLOADS);
		return false;
	}
	if (!trace__has_room(p, id))
		return false;
	used = store__used(&b->store) + traces__reserved(b) + jobs__reserved(b);
	if (used <= b->args->max_disk && size <= b->args->max_disk - used)
		return true;
	ask__refuse(p, id, 429, NULL,
		    "the server's folder has no room for the file (--max-disk): delete some "
		    "traces");
	return false;
}

/* Makes the pipe and the file. Returns the pipe's write end or -errno. */
static int open_upload(struct broker *b, struct trace *t, uint64_t size)
{
	struct trace_upload *u = calloc(1, sizeof(*u));
	int fds[2];

	if (!u)
		return -ENOMEM;
	t->upload = u;
	*u = (struct trace_upload){ .from = -1, .out = -1, .size = size };
	snprintf(u->part, sizeof(u->part), ".%s.part-upload", t->id);
	u->out = store__create(&b->store, u->part);
	if (u->out < 0)
		return u->out;
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	/* The pipe keeps its default size if the system allows less. */
	fcntl(fds[0], F_SETPIPE_SZ, PIPE_SIZE);
	u->from = fds[0];
	return fds[1];
}

/* The name that the client gives is shown, and is never a path. */
static void set_name(struct trace *t, const char *name)
{
	const char *end = name + strlen(name), *base = end;

	while (base > name && base[-1] != '/' && base[-1] != '\\')
		base--;
	text__clean(t->name, sizeof(t->name), base, (size_t)(end - base));
}

void upload__asked(struct peer *p, json_t *msg)
{
	static const struct field fields[] = { ASK_TEXT("name"),
					       ASK_COUNT("size", 1, INT64_MAX / 2),
					       { 0 } };
	json_int_t id = ask__id(msg);
	struct trace *t;
	char name[LINK_ID];
	uint64_t size;
	int to;

	if (!ask__fits(p, msg, fields))
		return;
	size = ask__count(msg, "size", 0);
	if (!size) {
		ask__refuse(p, id, 422, "size", "size: is missing");
		return;
	}
	if (!has_room(p, id, size))
		return;
	trace__make_id(p->b, name, sizeof(name));
	t = trace__new(p->b, name);
	if (!t) {
		ask__refuse(p, id, 503, NULL, "out of memory");
		return;
	}
	set_name(t, ask__text(msg, "name") ?: "");
	t->uploaded = t->fragmentation = true;
	t->begun = clock__date();
	to = open_upload(p->b, t, size);
	if (to < 0) {
		ask__refuse(p, id, 503, /*field=*/NULL, "cannot receive the file: %s",
			    strerror(-to));
		t->dropping = true; /* the peers do not know the trace yet */
		trace__delete(p->b, t);
		return;
	}
	trace__tell(p->b, t, /*soft=*/false);
	ask__answer(p, id, json_pack("{s:o}", "trace", trace__facts(t)), to);
}

/* ---- what arrives ---- */

/* Makes the complete file the trace's recording, or imports it. */
static void keep_file(struct broker *b, struct trace *t)
{
	struct trace_upload *u = t->upload;
	char path[48];
	bool is_recording;
	int err;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", u->out);
	is_recording = mtr_reader__is_recording(path);
	err = is_recording ? store__rename(&b->store, u->part, t->file)
			   : jobs__import(b, t, u->part);
	t->bytes = is_recording ? u->size : 0;
	if (err)
		trace__end_upload(b, t, /*remove=*/true);
	else
		trace__end_upload(b, t, /*remove=*/false);
	if (err)
		trace__fail(b, t, 503, strerror(-err));
	else if (is_recording)
		trace__finish(b, t);
}

/* Copies what is in the pipe. Returns 0 (more may come), 1 (all has arrived), -EPIPE (the client
 * has gone) or another -errno. */
static int take_bytes(struct trace_upload *u)
{
	uint64_t most = TAKEN_AT_ONCE;

	while (most && u->got < u->size) {
		uint64_t left = u->size - u->got;
		ssize_t n = splice(u->from, NULL, u->out, NULL, left < most ? left : most,
				   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		if (!n)
			return -EPIPE;
		u->got += (uint64_t)n;
		most -= (uint64_t)n;
	}
	return u->got == u->size;
}

void upload__pump(struct broker *b)
{
	/* From the end, because a trace may be deleted on the way. */
	for (size_t i = b->traces.n; i-- > 0;) {
		struct trace *t = b->traces.v[i];
		char why[128];
		int got;

		if (!t->upload)
			continue;
		got = take_bytes(t->upload);
		if (got > 0) {
			keep_file(b, t);
		} else if (got == -EPIPE) {
			trace__delete(b, t);
		} else if (got) {
			trace__end_upload(b, t, /*remove=*/true);
			snprintf(why, sizeof(why), "cannot write the file: %s", strerror(-got));
			trace__fail(b, t, 503, why);
		}
	}
}

void upload__sweep(struct broker *b)
{
	for (size_t i = b->traces.n; i-- > 0;) {
		struct trace *t = b->traces.v[i];

		if (t->uploaded && t->begun >= b->start && t->state == TRACE_FAILED && !t->dropping)
			trace__delete(b, t);
	}
}

size_t upload__poll(const struct broker *b, struct pollfd *fds, size_t room)
{
	size_t n = 0;

	for (size_t i = 0; i < b->traces.n && n < room; i++)
		if (b->traces.v[i]->upload)
			fds[n++] = (struct pollfd){ .fd = b->traces.v[i]->upload->from,
						    .events = POLLIN };
	return n;
}
