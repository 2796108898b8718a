/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/hooks.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "capture/ending/oom_log.h"
#include "capture/kernel.h"
#include "ending.skel.h"
#include "inspect/proc.h"
#include "group.h"

#define ENDS MT_WATCHED /* ends not taken yet; the oldest one gives way */

struct ending_hooks {
	struct ending_bpf *skel;
	struct ring_buffer *ring;
	struct mt_rec_ending *ends; /* ENDS; pid 0: free */
	size_t next;
	const char *missing;
	struct oom_log *log; /* NULL: not readable */
	void (*fn)(void *ctx, const struct mt_rec_ending *r);
	void *ctx;
};

static int on_record(void *ctx, void *data, size_t len)
{
	struct ending_hooks *h = ctx;
	const struct mt_rec_ending *r = data;

	if (len < sizeof(*r))
		return -EBADMSG;
	if (r->what == MT_ENDING_EXIT)
		h->ends[h->next++ % ENDS] = *r;
	else if (h->fn)
		h->fn(h->ctx, r);
	return 0;
}

static int load(struct ending_hooks *h)
{
	int err;

	h->skel = ending_bpf__open();
	if (!h->skel)
		return -errno;
	h->skel->rodata->pid_ns = proc__pid_namespace();
	/* Only the probes need the state of members. */
	err = bpf_map__set_autocreate(h->skel->maps.members, false);
	return err ? err : ending_bpf__load(h->skel);
}

static const char *missing_in(const struct ending_hooks *h)
{
	const struct ending_bpf *s = h->skel;

	if (!s->links.on_signal)
		return "the senders of signals, and whether one was the OOM killer";
	if (!s->links.on_victim)
		return "whether it was the OOM killer";
	return s->links.on_out_of_memory || h->log ? "" : "which limit the OOM killer enforced";
}

/* The end itself must be known. All else completes it. */
static int attach(struct ending_hooks *h)
{
	struct ending_bpf *s = h->skel;

	s->links.on_exit = bpf_program__attach(s->progs.on_exit);
	if (!s->links.on_exit)
		return -errno;
	s->links.on_signal = bpf_program__attach(s->progs.on_signal);
	s->links.on_victim = bpf_program__attach(s->progs.on_victim);
	s->links.on_out_of_memory = bpf_program__attach(s->progs.on_out_of_memory);
	h->missing = missing_in(h);
	return 0;
}

/* Why the kernel does not permit the programs. */
static const char *refusal(enum bpf_token_state state, const char *otherwise)
{
	if (state == BPF_TOKEN_HERE)
		return "BPF tokens of memtrace-bpf-token do not allow the programs of --on-kill: "
		       "run memtrace-bpf as root, outside of the user namespace";
	return state >= BPF_TOKEN_NOT_DELEGATED ? bpf_token__text(state) : otherwise;
}

struct ending_hooks *ending_hooks__new(const char **why)
{
	struct ending_hooks *h = calloc(1, sizeof(*h));
	int err = -ENOMEM;

	*why = "out of memory";
	if (!h)
		goto failed;
	h->ends = calloc(ENDS, sizeof(*h->ends));
	if (!h->ends)
		goto failed;
	h->log = oom_log__open();
	*why = "the kernel refused the programs that see how processes end";
	libbpf_log__quiet();
	err = load(h);
	if (err)
		goto refused;
	h->ring = ring_buffer__new(bpf_map__fd(h->skel->maps.endings), on_record, h, NULL);
	err = h->ring ? attach(h) : -errno;
	if (!err)
		return h;
refused:
	if (err == -EPERM || err == -EACCES)
		*why = refusal(bpf_token__state(), *why);
failed:
	ending_hooks__free(h);
	errno = -err;
	return NULL;
}

void ending_hooks__free(struct ending_hooks *h)
{
	if (!h)
		return;
	ring_buffer__free(h->ring);
	ending_bpf__destroy(h->skel);
	oom_log__close(h->log);
	free(h->ends);
	free(h);
}

int ending_hooks__processes_fd(const struct ending_hooks *h)
{
	return bpf_map__fd(h->skel->maps.processes);
}

int ending_hooks__follow(struct ending_hooks *h, pid_t pid)
{
	uint32_t key = pid, entry = 0;

	return bpf_map_update_elem(bpf_map__fd(h->skel->maps.processes), &key, &entry, BPF_ANY)
		       ? -errno
		       : 0;
}

const char *ending_hooks__missing(const struct ending_hooks *h)
{
	return h->missing;
}

int ending_hooks__wake_fd(const struct ending_hooks *h)
{
	return ring_buffer__epoll_fd(h->ring);
}

int ending_hooks__consume(struct ending_hooks *h,
			  void (*fn)(void *ctx, const struct mt_rec_ending *r), void *ctx)
{
	int n;

	h->fn = fn;
	h->ctx = ctx;
	n = ring_buffer__consume(h->ring);
	return n < 0 ? n : 0;
}

bool ending_hooks__take(struct ending_hooks *h, pid_t pid, uint64_t since,
			struct mt_rec_ending *ret)
{
	for (size_t i = 0; i < ENDS; i++) {
		if (h->ends[i].pid != (uint32_t)pid || h->ends[i].time < since)
			continue;
		*ret = h->ends[i];
		h->ends[i].pid = 0;
		return true;
	}
	return false;
}

bool ending_hooks__oom_report(struct ending_hooks *h, pid_t pid, struct oom_report *ret)
{
	/* The log has PIDs of the initial namespace. */
	return h->log && !h->skel->rodata->pid_ns && oom_log__find(h->log, pid, ret);
}

uint64_t ending_hooks__lost(const struct ending_hooks *h)
{
	return __atomic_load_n(&h->skel->bss->lost, __ATOMIC_SEQ_CST);
}
