/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: raw messages between serve's processes, one per line, and the state that the
 * web process builds from them. A line that begins with '=' is a report, passed as the next
 * message's descriptor. The state must stay bounded and printable, also as Prometheus metrics.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/server/link.h"
#include "serve/server/state.h"
#include "serve/server/summary.h"
#include "serve/web/metrics.h"
#include "terminal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_process(const struct state_process *p)
{
	const char *const texts[] = { p->name, p->target, p->container, p->pod, p->why };

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		if (!terminal__harmless(texts[i], strlen(texts[i])))
			abort();
	}
	if (p->pid < 1 || p->n_devices > STATE_DEVICES || p->n_history > STATE_HISTORY ||
	    p->history_first >= STATE_HISTORY)
		abort();
	for (size_t i = 0; i < p->n_history; i++) {
		if (!p->history[(p->history_first + i) % STATE_HISTORY])
			abort();
	}
}

static void check_state(struct state *s)
{
	if (s->n_processes > STATE_PROCESSES || s->n_traces > STATE_TRACES)
		abort();
	for (size_t i = 0; i < s->n_processes; i++) {
		check_process(s->processes[i]);
		if (serve_state__process(s, s->processes[i]->pid) != s->processes[i])
			abort();
	}
	for (size_t i = 0; i < s->n_traces; i++) {
		if (!*s->traces[i]->id || serve_state__trace(s, s->traces[i]->id) != s->traces[i])
			abort();
		if (s->traces[i]->summary)
			json_decref(summary__short(s->traces[i]->summary));
	}
}

static void on_message(void *ctx, json_t *msg, int fd)
{
	struct state_trace *trace = NULL;
	struct state *s = ctx;
	uint64_t before = s->messages;
	int err = serve_state__take(s, msg, fd, &trace);

	if (err ? trace || s->messages != before : s->messages != before + 1)
		abort();
	if (trace && serve_state__trace(s, trace->id) != trace)
		abort();
}

static int report_fd(const uint8_t *data, size_t size)
{
	int fd = memfd_create("report", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size || lseek(fd, 0, SEEK_SET))
		abort();
	return fd;
}

/* Sends a message with none of serve's own code. */
static void put(int to, const uint8_t *data, size_t size, int fd)
{
	struct iovec io = { .iov_base = (void *)data, .iov_len = size };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };

	if (fd >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof(control.room);
		control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
						 .cmsg_level = SOL_SOCKET,
						 .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	}
	if (sendmsg(to, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && size)
		abort();
	if (fd >= 0)
		close(fd);
}

static void show(const struct state *s)
{
	static const struct metrics none;
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		abort();
	metrics__write(out, s, &none, s->messages & 1);
	if (fclose(out) || !terminal__utf8(text, len))
		abort();
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct state s;
	struct link *l;
	int fds[2], report = -1;

	if (link__pair(fds) || !(l = link__new(fds[1])))
		abort();
	serve_state__init(&s);
	while (size) {
		const uint8_t *end = memchr(data, '\n', size);
		size_t len = end ? (size_t)(end - data) : size;

		if (len && *data == '=' && report < 0)
			report = report_fd(data + 1, len - 1);
		else if (len) {
			put(fds[0], data, len < 100000 ? len : 100000, report);
			report = -1;
			if (link__pump(l, on_message, &s))
				break;
		}
		data += end ? len + 1 : len;
		size -= end ? len + 1 : len;
	}
	if (report >= 0)
		close(report);
	check_state(&s);
	show(&s);
	serve_state__release(&s);
	link__free(l);
	close(fds[0]);
	return 0;
}
