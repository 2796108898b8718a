/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/broker/peers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "serve/broker/ask.h"
#include "serve/broker/broker.h"
#include "serve/broker/jobs.h"
#include "serve/broker/processes.h"
#include "serve/broker/scanner.h"
#include "serve/broker/trace.h"
#include "serve/broker/users.h"
#include "serve/serve.h"
#include "serve/server/link.h"
#include "serve/server/sandbox.h"

#define AGAIN_AFTER UINT64_C(1000000000) /* ns, doubled with each failure */
#define AGAIN_MOST UINT64_C(60000000000)
#define STEADY UINT64_C(60000000000) /* ns; a process that ran longer did not fail at its start */
#define MEMORY (UINT64_C(4) << 30)   /* limit of the address space, in bytes */
#define FILES 4096		     /* limit of descriptors */
#define ENDS_WITHIN 2000	     /* ms */

/* ---- in the process ---- */

static bool give_up_rights(const struct broker *b, enum peer_kind kind)
{
	struct sandbox_opts d = {
		.uid = b->peers[kind].uid,
		.gid = b->peers[kind].gid,
	};
	struct sandbox_done done;
	const char *bounding;
	char why[256];

	if (kind == PEER_PUSH) {
		d.flags = SANDBOX_CONNECTS | SANDBOX_THREADS;
		d.readable = drop_names;
	}
	if (sandbox__rights(&d, &done, why)) {
		log_err("%s: %s", peer__name(kind), why);
		return false;
	}
	if (kind != PEER_WEB)
		return true;
	bounding = done.bounding ? "empty" : "as it was";
	if (done.landlock)
		log_debug("gave up rights: Landlock %d, seccomp: %s, bounding set: %s",
			  done.landlock, done.filtered ? "yes" : "no", bounding);
	else
		log_warn("this kernel has no Landlock: the processes that read recordings and that "
			 "push can read every file that their user can");
	return true;
}

static void wipe(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
}

/* Erases the secrets of other processes from this process's memory. The broker keeps its copy,
 * because the pages are private. */
static void forget_secrets(const struct serve_secrets *s, enum peer_kind kind)
{
	if (kind != PEER_WEB) {
		wipe(s->token);
		wipe(s->cert);
		wipe(s->key);
	}
	if (kind != PEER_PUSH)
		wipe(s->push_token);
}

struct starting {
	const struct broker *b;
	enum peer_kind kind;
	int link_fd;
};

static int run_kind(const struct broker *b, enum peer_kind kind, int link_fd, const int *listens,
		    size_t n)
{
	/* PEER_LOOK keeps the broker's rights, because it reads other processes. */
	if (kind != PEER_LOOK && !give_up_rights(b, kind))
		return EXIT_FAILED;
	if (kind == PEER_WEB)
		return web__run(b->args, link_fd, listens, n);
	if (kind == PEER_PUSH)
		return push__run(b->args, link_fd);
	return scanner__run(b->args, link_fd, b->guard);
}

static int run_peer(void *ctx)
{
	static const char *const names[PEER_NR] = {
		[PEER_WEB] = "memtrace-web", [PEER_PUSH] = "memtrace-push", [PEER_LOOK] = "memtrace-look"
	};
	const struct starting *s = ctx;
	const struct broker *b = s->b;
	int keep[SERVE_LISTEN + 1] = { s->link_fd }, listens[SERVE_LISTEN], status;
	size_t n = 0;

	for (; s->kind == PEER_WEB && n < b->n_listens; n++)
		keep[n + 1] = listens[n] = b->listens[n].fd;
	forget_secrets(&b->args->secrets, s->kind);
	/* Send log lines to the broker, because a process with the log file could overwrite it. */
	log__relay_to(s->link_fd, peer__name(s->kind));
	prctl(PR_SET_NAME, names[s->kind]);
	status = EXIT_FAILED;
	if (!subprocess__close_others(keep, n + 1))
		status = run_kind(b, s->kind, s->link_fd, listens, n);
	fflush(stderr);
#ifdef __SANITIZE_ADDRESS__
	__lsan_do_leak_check(); /* _exit() skips the leak check */
#endif
	return status;
}

/* ---- first messages to a peer ---- */

static json_t *hello(const struct broker *b)
{
	const struct serve_args *a = b->args;
	json_t *limits = json_pack("{s:I,s:i,s:i,s:f,s:I}", "max_events", (json_int_t)a->max_events,
				   "max_traces", (int)a->max_traces, "max_captures",
				   (int)a->max_captures, "max_duration_s",
				   (double)a->max_duration / 1e9, "disk_bytes",
				   (json_int_t)(a->max_disk > INT64_MAX ? INT64_MAX : a->max_disk));
	json_t *o = json_pack("{s:s,s:s,s:f,s:b,s:o,s:o,s:f}", "event", "hello", "version",
			      MEMTRACE_VERSION, "start", b->start, "can_trace", b->can_trace,
			      "limits", limits, "formats", jobs__formats(), "interval",
			      (double)a->interval / 1e9);

	if (o && !b->can_trace)
		json_object_set_new(o, "why", json_string(b->why));
	return o;
}

/* The targets before the first search, without processes. */
static json_t *first_targets(const struct broker *b)
{
	json_t *list = json_array();

	for (size_t i = 0; i < b->args->n_targets; i++)
		json_array_append_new(list, processes__target(&b->args->targets[i], json_array()));
	return json_pack("{s:s,s:o}", "event", "targets", "targets", list);
}

/* Sends the current state to the process, once. */
static void meet(struct peer *p)
{
	struct broker *b = p->b;

	if (!b->processes.targets)
		b->processes.targets = first_targets(b);
	peer__send(p, hello(b), -1);
	peer__send(p, json_incref(b->processes.targets), -1);
	for (size_t i = 0; i < b->processes.n; i++)
		peer__send(p, json_incref(b->processes.v[i].msg), -1);
	for (size_t i = 0; i < b->traces.n; i++)
		trace__tell_one(p, b->traces.v[i]);
	p->met = true;
}

/* ---- in the broker ---- */

int peer__start(struct broker *b, enum peer_kind kind)
{
	static const struct subprocess_limit limits[] = { { RLIMIT_NOFILE, FILES },
							  { RLIMIT_AS, MEMORY } };
	struct peer *p = &b->peers[kind];
	size_t n_limits = SANDBOX_SANITIZED ? 1 : 2;
	int fds[2], err;

	*p = (struct peer){
		.b = b, .kind = kind, .failures = p->failures, .begun = clock__monotonic()
	};
	users__new(b, &p->uid, &p->gid);
	if (kind == PEER_LOOK) {
		n_limits = 0;
		scan_guard__enter(b->guard, 0, "");
	}
	err = link__pair(fds);
	if (err)
		goto failed;
	err = subprocess__start(
		&(struct subprocess_opts){
			.main = run_peer,
			.ctx = &(struct starting){ b, kind, fds[1] },
			.in = SUBPROCESS_INHERIT,
			.out = SUBPROCESS_INHERIT,
			.err = SUBPROCESS_INHERIT,
			.keep_all_fds = true, /* run_peer() closes them after the log */
			.group = SUBPROCESS_OWN_GROUP,
			.death_signal = SIGKILL,
			.limits = limits,
			.n_limits = n_limits,
		},
		&p->process);
	close(fds[1]);
	p->link = link__new(fds[0]);
	if (!err && !p->link)
		err = -ENOMEM;
	if (err)
		goto failed;
	if (kind != PEER_LOOK)
		meet(p);
	return 0;
failed:
	log_err("%s: cannot be started: %s", peer__name(kind), strerror(-err));
	subprocess__kill(&p->process);
	link__free(p->link);
	p->link = NULL;
	return err;
}

static void take_message(void *ctx, json_t *msg, int fd)
{
	struct peer *p = ctx;
	json_t *log = json_object_get(msg, "log");

	/* Peers must not send descriptors. */
	if (fd >= 0)
		close(fd);
	if (json_is_object(log))
		log__relayed(p->process.pid, peer__name(p->kind), log);
	else if (p->kind == PEER_LOOK)
		processes__report(p->b, msg);
	else
		ask__handle(p, msg);
}

void peer__pump(struct peer *p)
{
	int err = p->link ? link__pump(p->link, take_message, p) : 0;

	if (err == -EPROTO) {
		log_err("%s: sent an invalid message: stopping it", peer__name(p->kind));
		p->broken = true;
	}
	/* -EPIPE: the process is about to end. */
	if (err) {
		link__free(p->link);
		p->link = NULL;
		subprocess__signal(&p->process, SIGTERM);
	}
	if (p->broken)
		subprocess__signal(&p->process, SIGKILL);
}

void peer__stop(struct peer *p, bool wait)
{
	int status;

	subprocess__signal(&p->process, SIGTERM);
	if (!wait)
		return;
	if (!subprocess__wait(&p->process, ENDS_WITHIN, &status)) {
		/* A file system may hold it in a wait that not even SIGKILL ends. */
		subprocess__signal(&p->process, SIGKILL);
		subprocess__wait(&p->process, ENDS_WITHIN, &status);
	}
	link__free(p->link);
	p->link = NULL;
}

static void forget_peer(struct broker *b, struct peer *p)
{
	link__free(p->link);
	p->link = NULL;
	jobs__forget(b, p, NULL);
	processes__forget(b, p);
	if (p->kind == PEER_LOOK) {
		for (size_t i = 0; i < b->processes.n; i++)
			b->processes.v[i].stale = true;
		processes__release(b);
	}
	for (size_t i = b->traces.n; i-- > 0;)
		if (b->traces.v[i]->asker == p) {
			b->traces.v[i]->asker = NULL;
			trace__delete(b, b->traces.v[i]);
		}
}

void peer__abandon(struct peer *p)
{
	struct broker *b = p->b;
	bool first = p->link;
	size_t i = 0;
	int status;

	subprocess__signal(&p->process, SIGKILL);
	forget_peer(b, p);
	while (i < BROKER_ABANDONED && b->abandoned[i].pid &&
	       !subprocess__ended(&b->abandoned[i], &status))
		i++;
	if (i == BROKER_ABANDONED) {
		if (first)
			log_err("%s: %d processes wait for file systems that do not answer, so no "
				"other is started until one ends",
				peer__name(p->kind), BROKER_ABANDONED);
		return;
	}
	p->again = clock__monotonic();
	b->abandoned[i] = p->process;
	p->process = (struct subprocess){ 0 };
}

bool peer__ended(struct peer *p)
{
	struct broker *b = p->b;
	uint64_t now = clock__monotonic(), pause = AGAIN_AFTER;
	int status;

	if (!subprocess__ended(&p->process, &status))
		return false;
	/* Read the last messages. */
	peer__pump(p);
	forget_peer(b, p);
	if (b->quit)
		return false;
	if (WIFSIGNALED(status))
		log_event(LOG_ERROR, "ended",
			  LOG_FIELDS(LOG_STRING("who", peer__name(p->kind)),
				     LOG_INT("signal", WTERMSIG(status))),
			  "%s: ended by signal %d (%s)", peer__name(p->kind), WTERMSIG(status),
			  sigdescr_np(WTERMSIG(status)));
	else
		log_event(LOG_ERROR, "ended",
			  LOG_FIELDS(LOG_STRING("who", peer__name(p->kind)),
				     LOG_INT("exit_code", WEXITSTATUS(status))),
			  "%s: ended with status %d", peer__name(p->kind), WEXITSTATUS(status));
	if (p->kind == PEER_WEB)
		return true;
	p->failures = now - p->begun > STEADY ? 0 : p->failures + 1;
	for (unsigned i = 1; i < p->failures && pause < AGAIN_MOST; i++)
		pause *= 2;
	p->again = now + (pause < AGAIN_MOST ? pause : AGAIN_MOST);
	return false;
}
