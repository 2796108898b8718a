/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/pick.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/subprocess.h"

#define SECOND UINT64_C(1000000000) /* ns */
#define CHECK_EVERY 50		    /* ms between two checks whether the helper computes */
#define BLOCKED_MOST (SECOND / 2)   /* time that the helper may spend waiting for one process */
#define ANSWER_MOST (10 * SECOND)   /* time for one process in all; a busy machine takes long */
#define OWNER_MOST (SECOND / 5)	    /* time for all processes of an owner in a scan */
#define HELD_FOR (10 * SECOND)	 /* time that a process is left out at first; doubles each time */
#define HELD_MOST (600 * SECOND) /* longest time that a process is left out */
#define HELD 256		 /* processes that are remembered as left out */
#define LOST 32			 /* helpers that did not end, at most */
#define LOST_OF_OWNER 2		 /* helpers that did not end because of one owner, at most */

/* A process that is left out for a while, because its files did not answer. */
struct held {
	pid_t pid;
	struct owner *owner;
	uint64_t started; /* as in struct pick_process */
	uint64_t until;	  /* left out until then; CLOCK_MONOTONIC, ns */
	unsigned times;	  /* number of times that the process was left out */
};

/* Time that an owner's processes took in this scan. */
struct spent {
	struct owner *owner;
	uint64_t ns;
};

/* A helper that got SIGKILL and has not ended: the kernel may still wait for a file system. */
struct lost {
	struct subprocess process;
	struct owner *owner;
};

struct torch_scan {
	bool (*look)(pid_t pid);
	struct owners owners;
	struct subprocess helper;
	int link; /* socket to the helper; -1: no helper */
	struct held held[HELD];
	size_t next_held; /* number of entries made in `held`; a new one replaces the oldest */
	struct spent *spent;
	size_t n_spent, cap_spent;
	struct lost lost[LOST];
};

/* The helper's answer about a process. */
struct answer {
	pid_t pid;
	int has_torch;
};

/* ---- the helper ---- */

struct helper {
	const struct torch_scan *scan;
	int link;
};

/* The helper: answers for each PID whether the process has PyTorch. */
static int run_helper(void *ctx)
{
	const struct helper *helper = ctx;
	struct answer answer;
	pid_t pid;

	if (subprocess__close_others(&helper->link, 1))
		return 1;
	while (recv(helper->link, &pid, sizeof(pid), 0) == sizeof(pid)) {
		answer = (struct answer){ pid, helper->scan->look(pid) };
		if (send(helper->link, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer))
			break;
	}
	return 0;
}

/* Starts the helper. 0 or -errno. */
static int start_helper(struct torch_scan *scan)
{
	int fds[2], err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return -errno;
	err = subprocess__start(
		&(struct subprocess_opts){
			.main = run_helper,
			.ctx = &(struct helper){ scan, fds[1] },
			/* A helper that cannot be ended must not hold our output open. */
			.err = 0,
			.keep_all_fds = true, /* help() closes them */
			.group = SUBPROCESS_OWN_GROUP,
			.death_signal = SIGKILL,
		},
		&scan->helper);
	close(fds[1]);
	if (err)
		close(fds[0]);
	else
		scan->link = fds[0];
	return err;
}

/* Collects helpers that have ended. Returns how many that were lost for this owner have not; owner
 * NULL: for all. */
static size_t count_lost(struct torch_scan *scan, const struct owner *owner)
{
	size_t n = 0;
	int status;

	for (size_t i = 0; i < LOST; i++) {
		struct lost *lost = &scan->lost[i];

		if (!lost->process.pid)
			continue;
		if (subprocess__ended(&lost->process, &status)) {
			owner__drop(lost->owner);
			*lost = (struct lost){ 0 };
		} else {
			n += !owner || lost->owner == owner;
		}
	}
	return n;
}

/* Kills the helper without waiting for its end. */
static void abandon_helper(struct torch_scan *scan, struct owner *owner)
{
	subprocess__signal(&scan->helper, SIGKILL);
	for (size_t i = 0; i < LOST; i++) {
		if (scan->lost[i].process.pid)
			continue;
		scan->lost[i] = (struct lost){ scan->helper, owner__share(owner) };
		break;
	}
	scan->helper = (struct subprocess){ 0 };
	close(scan->link);
	scan->link = -1;
}

/* ---- a question ---- */

/* Waits for the helper's answer. Returns 0 and *has_torch; -ETIMEDOUT; or -EPIPE: the helper ended.
 */
static int await_answer(struct torch_scan *scan, pid_t pid, bool *has_torch)
{
	uint64_t begun = clock__monotonic(), blocked = 0;
	struct pollfd readable = { .fd = scan->link, .events = POLLIN };
	struct answer answer;

	while (poll(&readable, 1, CHECK_EVERY) <= 0) {
		/* Computing does not count: another process may take the CPU. */
		if (!subprocess__computes(&scan->helper))
			blocked += CHECK_EVERY * UINT64_C(1000000);
		if (blocked >= BLOCKED_MOST || clock__monotonic() - begun >= ANSWER_MOST)
			return -ETIMEDOUT;
	}
	if (recv(scan->link, &answer, sizeof(answer), MSG_DONTWAIT) != sizeof(answer) ||
	    answer.pid != pid)
		return -EPIPE;
	*has_torch = answer.has_torch;
	return 0;
}

/* The entry of a process that was left out before; NULL: it was not. */
static struct held *find_held(struct torch_scan *scan, const struct pick_process *process)
{
	for (size_t i = 0; i < HELD; i++)
		if (scan->held[i].pid == process->pid && scan->held[i].started == process->started)
			return &scan->held[i];
	return NULL;
}

/* Leaves the process out for a while, twice as long each time. Logs that once for each owner. */
static void leave_out(struct torch_scan *scan, const struct pick_process *process,
		      struct owner *owner)
{
	struct held *held = find_held(scan, process);
	uint64_t pause = HELD_FOR;

	if (!held) {
		held = &scan->held[scan->next_held++ % HELD];
		owner__drop(held->owner);
		*held = (struct held){ .pid = process->pid,
				       .started = process->started,
				       .owner = owner__share(owner) };
	}
	for (unsigned i = 0; i < held->times && pause < HELD_MOST; i++)
		pause *= 2;
	held->until = clock__monotonic() + (pause < HELD_MOST ? pause : HELD_MOST);
	held->times++;
	if (!owner->said)
		log_warn("PID %d (%s) is left out for now: the files that it has mapped do not "
			 "answer; "
			 "look at its file systems, or give the PID with -p",
			 (int)process->pid, owner->name);
	owner->said = true;
}

/* The time that an owner's processes took in this scan, ns, to be updated. NULL: no memory. */
static uint64_t *get_spent(struct torch_scan *scan, struct owner *owner)
{
	for (size_t i = 0; i < scan->n_spent; i++)
		if (scan->spent[i].owner == owner)
			return &scan->spent[i].ns;
	if (array__grow(&scan->spent, &scan->cap_spent, scan->n_spent + 1, sizeof(*scan->spent)))
		return NULL;
	scan->spent[scan->n_spent] = (struct spent){ .owner = owner__share(owner) };
	return &scan->spent[scan->n_spent++].ns;
}

/* Asks the helper whether a process has PyTorch; starts the helper if necessary. Returns 0 and
 * *has_torch; -ETIMEDOUT: no answer in time; -EPIPE: the helper ended; or -errno: it did not start.
 */
static int ask_helper(struct torch_scan *scan, pid_t pid, bool *has_torch)
{
	int err = scan->link < 0 ? start_helper(scan) : 0;

	if (err)
		return err;
	if (send(scan->link, &pid, sizeof(pid), MSG_NOSIGNAL) != sizeof(pid))
		return -EPIPE;
	return await_answer(scan, pid, has_torch);
}

/* Asks the helper. If it fails, ends the helper and leaves the process out. */
static enum torch_scan_is ask_and_note(struct torch_scan *scan, const struct pick_process *process,
				       struct owner *owner)
{
	bool has_torch = false;
	int err = ask_helper(scan, process->pid, &has_torch);

	if (!err)
		return has_torch ? TORCH_YES : TORCH_NO;
	if (err == -ETIMEDOUT)
		leave_out(scan, process, owner);
	if (scan->link >= 0)
		abandon_helper(scan, owner);
	return TORCH_LATER;
}

enum torch_scan_is torch_scan__ask(struct torch_scan *scan, const struct pick_process *process)
{
	struct owner *owner = owners__of(&scan->owners, process);
	uint64_t *owner_ns = owner ? get_spent(scan, owner) : NULL;
	uint64_t begun = clock__monotonic();
	const struct held *held = find_held(scan, process);
	enum torch_scan_is answer = TORCH_LATER;

	if (owner_ns && *owner_ns < OWNER_MOST && !(held && begun < held->until) &&
	    count_lost(scan, owner) < LOST_OF_OWNER && count_lost(scan, /*owner=*/NULL) < LOST) {
		answer = ask_and_note(scan, process, owner);
		*owner_ns += clock__monotonic() - begun;
	}
	owner__drop(owner);
	return answer;
}

struct torch_scan *torch_scan__new(bool (*look)(pid_t pid))
{
	struct torch_scan *scan = calloc(1, sizeof(*scan));

	if (!scan)
		return NULL;
	scan->look = look;
	scan->link = -1;
	return scan;
}

void torch_scan__begin(struct torch_scan *scan)
{
	for (size_t i = 0; i < scan->n_spent; i++)
		owner__drop(scan->spent[i].owner);
	scan->n_spent = 0;
}

void torch_scan__free(struct torch_scan *scan)
{
	if (!scan)
		return;
	torch_scan__begin(scan);
	if (scan->link >= 0)
		close(scan->link);
	subprocess__kill(&scan->helper); /* ends at once, because the helper waits for a question */
	for (size_t i = 0; i < LOST; i++)
		if (scan->lost[i].process.pid)
			close(scan->lost[i].process.pidfd);
	free(scan->spent);
	owners__free(&scan->owners);
	free(scan);
}
