/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: messages from the web process to the privileged broker, raw, one per line, as
 * from a compromised web process. Nothing is started: commands are checked instead. Each question
 * gets at most one answer, with a valid status and safe text.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "inspect/proc.h"
#include "serve/broker/ask.h"
#include "serve/broker/broker.h"
#include "serve/broker/jobs.h"
#include "terminal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_spawn__self(const struct spawn_opts *o, struct spawned *ret);

static char folder[] = "/dev/shm/memtrace-fuzz-XXXXXX";
static uint64_t boot_ns;
static struct serve_args args = {
	.targets = { { "job", TARGET_PID, 1, "1" },
		     { "all", TARGET_PATTERN, 0, "x" },
		     { "cmd", TARGET_COMMAND, 0, "true" },
		     { "", TARGET_ALL, 0, NULL } },
	.n_targets = 4,
	.max_events = 1000000,
	.max_traces = 4,
	.max_captures = 2,
	.max_duration = 60000000000,
	.max_disk = 1 << 30,
	.max_workers = 2,
	.interval = 1000000000,
};

/* Checks a command: only our own commands and valid values may run. */
int __wrap_spawn__self(const struct spawn_opts *o, struct spawned *ret)
{
	static const char *const commands[] = { "record",   "run",     "report", "leaks", "diff",
						"diagnose", "compare", "export", "dump",  "ps" };
	size_t known = 0, n = 0;

	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		known += !strcmp(o->argv[0], commands[i]);
	for (; o->argv[n]; n++) {
		if (n == SPAWN_ARGS || !terminal__utf8(o->argv[n], strlen(o->argv[n])))
			abort();
	}
	for (size_t i = 0; i < o->n_files; i++) {
		if (strchr(o->files[i].name, '/') || fcntl(o->files[i].fd, F_GETFD) < 0)
			abort();
	}
	if (known != 1 || (o->drop && o->keep >= 0) || o->out < 3)
		abort();
	*ret = (struct spawned){ .err_fd = -1 };
	return -EAGAIN;
}

static void clean_up(void)
{
	struct broker b = { .store.dir = -1 };
	char why[256];

	if (!store__open(&b.store, folder, why)) {
		b.store.own = true; /* the store is freed at the end */
		store__close(&b.store);
	}
}

static void set_up(void)
{
	struct proc *me;

	if (boot_ns)
		return;
	me = proc__open(getpid());
	if (!me || !mkdtemp(folder))
		abort();
	boot_ns = proc__started(me);
	proc__free(me);
	atexit(clean_up);
	log__set_level(LOG_ERROR);
}

static void hear_nothing(void *ctx, enum log_level level, const char *text)
{
	if (!terminal__harmless(text, strlen(text)))
		abort();
}

static int open_peer(struct broker *b, enum peer_kind kind)
{
	int fds[2];

	if (link__pair(fds) || !(b->peers[kind].link = link__new(fds[0])))
		abort();
	return fds[1];
}

static void add_trace(struct broker *b, const char *id, enum trace_state state)
{
	struct trace *t = trace__new(b, id);
	int fd = t ? store__create(&b->store, t->file) : -1;

	if (fd < 0 || write(fd, "MTR", 3) != 3)
		abort();
	close(fd);
	t->state = state;
}

static void begin(struct broker *b, int ends[PEER_NR])
{
	char why[256];
	json_t *msg = json_pack("{s:s,s:i,s:f,s:s,s:s}", "event", "process", "pid", (int)getpid(),
				"started", 1.5, "target", "job", "name", "python");

	*b = (struct broker){ .args = &args, .signals = -1, .can_trace = true };
	if (!msg || store__open(&b->store, folder, why))
		abort();
	for (int k = 0; k < PEER_NR; k++) {
		b->peers[k] = (struct peer){ .b = b, .kind = k };
		ends[k] = open_peer(b, k);
	}
	b->processes.v[0] = (struct broker_process){ .pid = getpid(),
						     .boot_ns = boot_ns,
						     .msg = msg };
	b->processes.n = 1;
	b->processes.targets = json_pack("{s:s,s:[{s:s,s:s,s:[i]},{s:s,s:s,s:[i,i]}]}", "event",
					 "targets", "targets", "name", "job", "kind", "pid", "pids",
					 (int)getpid(), "name", "all", "kind", "pattern", "pids",
					 (int)getpid(), 99);
	add_trace(b, "trace_1", TRACE_DONE);
	add_trace(b, "trace_2", TRACE_DONE);
	add_trace(b, "trace_3", TRACE_CAPTURING);
}

static void end(struct broker *b, int ends[PEER_NR])
{
	jobs__free(b);
	while (b->traces.n)
		trace__delete(b, b->traces.v[0]);
	for (int k = 0; k < PEER_NR; k++) {
		processes__forget(b, &b->peers[k]);
		link__free(b->peers[k].link);
		close(ends[k]);
	}
	json_decref(b->processes.v[0].msg);
	json_decref(b->processes.targets);
	store__close(&b->store);
}

struct heard {
	size_t answers;
};

static void on_answer(void *ctx, json_t *msg, int fd)
{
	struct heard *h = ctx;
	const char *detail = json_string_value(json_object_get(msg, "detail"));
	json_int_t status = json_integer_value(json_object_get(msg, "status"));

	if (fd >= 0)
		close(fd);
	if (!json_object_get(msg, "id"))
		return; /* the broker reported the failed start */
	h->answers++;
	if (json_integer_value(json_object_get(msg, "id")) < 1)
		abort();
	if (json_is_true(json_object_get(msg, "ok")))
		return;
	if (!detail || !*detail || !terminal__harmless(detail, strlen(detail)) || fd >= 0 ||
	    (status != 404 && status != 409 && status != 422 && status != 429 && status != 503))
		abort();
}

static void ask(struct broker *b, int ends[PEER_NR], const uint8_t *data, size_t size)
{
	struct link *l = link__new(dup(ends[PEER_WEB]));
	struct heard heard = { 0 };
	size_t asked = 0;

	if (!l)
		abort();
	while (size && b->peers[PEER_WEB].link && !b->peers[PEER_WEB].broken) {
		const uint8_t *at = memchr(data, '\n', size);
		size_t len = at ? (size_t)(at - data) : size;

		if (len && send(ends[PEER_WEB], data, len < 100000 ? len : 100000,
				MSG_NOSIGNAL | MSG_DONTWAIT) > 0) {
			asked++;
			peer__pump(&b->peers[PEER_WEB]);
			b->peers[PEER_WEB].met = true;
			jobs__pump(b, clock__monotonic());
			link__pump(l, on_answer, &heard);
		}
		data += at ? len + 1 : len;
		size -= at ? len + 1 : len;
	}
	if (b->processes.scanning)
		processes__release(b); /* act as a client that has read the result */
	jobs__pump(b, clock__monotonic());
	link__pump(l, on_answer, &heard);
	if (heard.answers > asked || b->traces.n > 16 || b->processes.n_held)
		abort();
	link__free(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct broker b;
	int ends[PEER_NR];

	set_up();
	log__divert(hear_nothing, NULL);
	begin(&b, ends);
	ask(&b, ends, data, size);
	end(&b, ends);
	return 0;
}
