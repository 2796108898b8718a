/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The processes that the broker talks to: what speaks HTTP, what pushes, what looks at the targets.
 * Each is a child of its own. */
#include "serve/broker/broker.h"

#include <errno.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "lib/clock.h"
#include "lib/exit.h"
#include "log/config.h"
#include "serve/sandbox.h"

#define AGAIN_AFTER UINT64_C(1000000000) /* ns, doubled with each failure */
#define AGAIN_MOST UINT64_C(60000000000)
#define STEADY UINT64_C(60000000000) /* after that it has not failed at its start */
#define MEMORY (UINT64_C(4) << 30)   /* bytes of address space */
#define FILES 4096		     /* descriptors */
#define ENDS_WITHIN 20		     /* tenths of a second */

static const char *const names[PEER_NR] = {
	[PEER_WEB] = "web", [PEER_PUSH] = "push", [PEER_LOOK] = "look"
};

/* ---- in the child ---- */

static void give_up_rights(const struct broker *b, enum peer_kind kind, const int *keep,
			   size_t n_keep, pid_t parent)
{
	struct sandbox_opts d = {
		.who = names[kind],
		.uid = b->peers[kind].uid,
		.gid = b->peers[kind].gid,
		.flags = kind == PEER_PUSH ? SANDBOX_CONNECTS | SANDBOX_THREADS : 0,
		.readable = kind == PEER_PUSH ? drop_names : NULL,
		.keep = keep,
		.n_keep = n_keep,
		.death_signal = SIGKILL,
		.parent = parent,
		.memory = MEMORY,
		.files = FILES,
	};
	struct sandbox_done done;
	char why[256];

	if (!sandbox__rights(&d, &done, why)) {
		if (kind == PEER_WEB && !done.landlock)
			log_warn("Landlock is not to be had here: what reads recordings and what "
				 "pushes may read whatever their user may");
		else if (kind == PEER_WEB)
			log_debug("rights are given up: Landlock %d, seccomp: %s, bounding set: %s",
				  done.landlock, done.filtered ? "yes" : "no",
				  done.bounding ? "empty" : "as it was");
		return;
	}
	log_err("%s: %s", names[kind], why);
	_exit(EXIT_FAILED);
}

/* It reads other processes, for which it needs what we may. */
static void keep_rights(int link_fd, pid_t parent)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_FAILED);
	if (link_fd > 3)
		close_range(3, (unsigned)link_fd - 1, 0);
	close_range((unsigned)link_fd + 1, ~0U, 0);
}

static void wipe(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
}

/* What is another one's is nothing to be found in this one's memory. The pages are our own: the
 * broker's stay. */
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

static void run(const struct broker *b, enum peer_kind kind, int link_fd, pid_t parent)
	__attribute__((noreturn));
static void run(const struct broker *b, enum peer_kind kind, int link_fd, pid_t parent)
{
	int keep[SERVE_LISTEN + 1] = { link_fd }, listens[SERVE_LISTEN], status = EXIT_FAILED;
	size_t n = 0;

	for (; kind == PEER_WEB && n < b->n_listens; n++)
		keep[n + 1] = listens[n] = b->listens[n].fd;
	forget_secrets(&b->args->secrets, kind);
	setpgid(0, 0); /* Ctrl-C is for us, who then ask it to end */
	/* what it says into the log goes by way of the broker: who has the file could write over it
	 */
	log__relay_to(link_fd, names[kind]);
	prctl(PR_SET_NAME, kind == PEER_WEB    ? "memtrace-web"
			   : kind == PEER_PUSH ? "memtrace-push"
					       : "memtrace-look");
	if (kind == PEER_LOOK)
		keep_rights(link_fd, parent);
	else
		give_up_rights(b, kind, keep, n + 1, parent);
	if (kind == PEER_WEB)
		status = web__run(b->args, link_fd, listens, n);
	else if (kind == PEER_PUSH)
		status = push__run(b->args, link_fd);
	else
		status = scanner__run(b->args, link_fd);
	fflush(stderr);
#ifdef __SANITIZE_ADDRESS__
	__lsan_do_leak_check(); /* which is otherwise for those that end by exit() */
#endif
	_exit(status);
}

/* ---- in the broker ---- */

int peer__start(struct broker *b, enum peer_kind kind)
{
	struct peer *p = &b->peers[kind];
	pid_t parent = getpid();
	int fds[2], err = link__pair(fds);

	*p = (struct peer){ .b = b,
			    .kind = kind,
			    .pidfd = -1,
			    .failures = p->failures,
			    .begun = clock__monotonic() };
	broker__new_user(b, &p->uid, &p->gid);
	if (!err) {
		p->pid = fork();
		if (!p->pid) {
			close(fds[0]);
			run(b, kind, fds[1], parent);
		}
		err = p->pid < 0 ? -errno : 0;
		close(fds[1]);
		p->link = link__new(fds[0]);
		if (!p->link)
			err = -ENOMEM;
	}
	if (!err) {
		p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0u);
		err = p->pidfd < 0 ? -errno : 0;
	}
	if (!err) {
		if (kind != PEER_LOOK)
			peer__meet(p);
		return 0;
	}
	log_err("%s: cannot be started: %s", names[kind], strerror(-err));
	if (p->pid > 0) {
		kill(p->pid, SIGKILL);
		waitpid(p->pid, NULL, 0);
	}
	link__free(p->link);
	*p = (struct peer){ .b = b, .kind = kind, .pidfd = -1 };
	return err;
}

static void hear(void *ctx, json_t *msg, int fd)
{
	struct peer *p = ctx;
	json_t *log = json_object_get(msg, "log");

	/* Nobody has to send us any. */
	if (fd >= 0)
		close(fd);
	if (json_is_object(log))
		log__relayed(p->pid, names[p->kind], log);
	else if (p->kind == PEER_LOOK)
		broker__looked(p->b, msg);
	else
		broker__asked(p, msg);
}

void peer__pump(struct peer *p)
{
	int err = p->link ? link__pump(p->link, hear, p) : 0;

	if (err == -EPROTO) {
		log_err("%s: does not speak as it should: it is ended", names[p->kind]);
		p->broken = true;
	}
	/* -EPIPE: it ends, and is waited for; until then nothing comes from there. */
	if (err) {
		link__free(p->link);
		p->link = NULL;
		if (p->pid > 0)
			kill(p->pid, SIGTERM);
	}
	if (p->broken && p->pid > 0)
		kill(p->pid, SIGKILL);
}

void peer__send(struct peer *p, json_t *msg, int fd)
{
	int err = -EPIPE;

	if (p->link && msg) {
		err = link__send(p->link, msg, fd);
	} else {
		json_decref(msg);
		if (fd >= 0)
			close(fd);
	}
	/* It has not listened for thousands of messages: what it believes is wrong from here on. */
	if (err == -ENOBUFS || err == -ENOMEM) {
		log_err("%s: does not listen: it is ended", names[p->kind]);
		p->broken = true;
	}
}

void broker__tell(struct broker *b, json_t *msg, int fd, bool soft)
{
	for (int k = 0; k < PEER_LOOK && msg; k++) {
		struct peer *p = &b->peers[k];

		if (!p->link || !p->met)
			continue;
		if (soft)
			link__offer(p->link, json_incref(msg));
		else
			peer__send(p, json_incref(msg), fd < 0 ? -1 : dup(fd));
	}
	json_decref(msg);
}

void peer__stop(struct peer *p, bool wait)
{
	for (int i = 0; p->pid > 0 && i < ENDS_WITHIN; i++) {
		if (!i)
			kill(p->pid, SIGTERM);
		if (!wait)
			return;
		if (waitpid(p->pid, NULL, WNOHANG) == p->pid)
			p->pid = 0;
		else
			nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
	}
	if (p->pid > 0 && wait) {
		kill(p->pid, SIGKILL);
		waitpid(p->pid, NULL, 0);
		p->pid = 0;
	}
	if (!wait)
		return;
	link__free(p->link);
	p->link = NULL;
	if (p->pidfd >= 0)
		close(p->pidfd);
	p->pidfd = -1;
}

static void forget(struct broker *b, struct peer *p)
{
	link__free(p->link);
	p->link = NULL;
	if (p->pidfd >= 0)
		close(p->pidfd);
	p->pidfd = -1;
	p->pid = 0;
	jobs__forget(b, p, NULL);
	broker__forget_held(b, p);
	if (p->kind == PEER_LOOK) {
		for (size_t i = 0; i < b->n_processes; i++)
			b->processes[i].stale = true;
		broker__release(b);
	}
	for (size_t i = b->n_traces; i-- > 0;)
		if (b->traces[i]->asker == p) {
			b->traces[i]->asker = NULL;
			trace__delete(b, b->traces[i]);
		}
}

bool peer__ended(struct peer *p)
{
	struct broker *b = p->b;
	uint64_t now = clock__monotonic(), pause = AGAIN_AFTER;
	int status;

	if (p->pid <= 0 || waitpid(p->pid, &status, WNOHANG) != p->pid)
		return false;
	p->pid = 0;
	/* What it said last. */
	peer__pump(p);
	forget(b, p);
	if (b->quit)
		return false;
	if (WIFSIGNALED(status))
		log_event(LOG_ERROR, "ended",
			  LOG_FIELDS(LOG_STRING("who", names[p->kind]),
				     LOG_INT("signal", WTERMSIG(status))),
			  "%s: was ended by signal %d (%s)", names[p->kind], WTERMSIG(status),
			  sigdescr_np(WTERMSIG(status)));
	else
		log_event(LOG_ERROR, "ended",
			  LOG_FIELDS(LOG_STRING("who", names[p->kind]),
				     LOG_INT("exit_code", WEXITSTATUS(status))),
			  "%s: has ended with status %d", names[p->kind], WEXITSTATUS(status));
	if (p->kind == PEER_WEB)
		return true;
	p->failures = now - p->begun > STEADY ? 0 : p->failures + 1;
	for (unsigned i = 1; i < p->failures && pause < AGAIN_MOST; i++)
		pause *= 2;
	p->again = now + (pause < AGAIN_MOST ? pause : AGAIN_MOST);
	return false;
}
