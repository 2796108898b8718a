/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Files that clients send. This process keeps no part of them: each piece goes into the broker's
 * pipe as it arrives, and while the pipe is full, the connection is not read. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/web/web.h"

/* The broker's answer: the trace, and the pipe. */
static void on_open(struct request *r, json_t *answer, int fd)
{
	struct state_trace *t = routes_trace__take(r, answer);
	char *id = t ? strdup(t->id) : NULL;

	if (!id || fd < 0) {
		if (fd >= 0)
			close(fd);
		free(id);
		request__error(r, 503, NULL, "the server cannot receive the file");
		return;
	}
	request__keep(r, id, free);
	r->upload.to = fd;
	request__resume(r);
}

void receive__begin(struct request *r, uint64_t size)
{
	const char *name = request__query(r, "name");

	r->upload.state = UPLOAD_ASKED;
	r->upload.to = -1;
	request__ask(r,
		     json_pack("{s:s, s:s*, s:I}", "do", "upload", "name",
			       name && *name ? name : NULL, "size", (json_int_t)size),
		     on_open);
}

/* The broker has closed the pipe: the trace was deleted, or its file cannot be written. */
static void on_closed(struct request *r)
{
	const struct state_trace *t = serve_state__trace(&r->web->state, request__kept(r));
	const char *why = t ? json_string_value(json_object_get(t->facts, "error")) : NULL;

	request__error(r, 503, /*field=*/NULL, "%s", why ? why : "the file's trace was deleted");
}

/* Lets the request take its time for the next WEB_PACE bytes. */
static void keep_pace(struct request *r, size_t n)
{
	r->upload.paced += n;
	if (r->upload.paced < WEB_PACE)
		return;
	r->upload.paced = 0;
	r->conn->began = r->web->now;
}

size_t receive__take(struct request *r, const char *data, size_t size)
{
	ssize_t n = write(r->upload.to, data, size);

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		r->conn->began = r->web->now;
		r->suspended = true;
		MHD_suspend_connection(r->mhd);
		return size;
	}
	if (n < 0) {
		on_closed(r);
		return size;
	}
	keep_pace(r, (size_t)n);
	return size - (size_t)n;
}

/* True if the request waits until its pipe takes more. */
static bool waits_for_pipe(const struct request *r)
{
	return r->upload.state == UPLOAD_OPEN && r->suspended && !r->read;
}

size_t receive__poll(const struct web *web, struct pollfd fds[WEB_UPLOADS])
{
	size_t n = 0;

	for (const struct request *r = web->requests; r && n < WEB_UPLOADS; r = r->next)
		if (waits_for_pipe(r))
			fds[n++] = (struct pollfd){ .fd = r->upload.to, .events = POLLOUT };
	return n;
}

void receive__resume(struct web *web, const struct pollfd *fds, size_t n)
{
	for (struct request *r = web->requests; r; r = r->next)
		for (size_t i = 0; i < n && waits_for_pipe(r); i++)
			if (fds[i].fd == r->upload.to && fds[i].revents) {
				r->conn->began = web->now;
				request__resume(r);
			}
}
