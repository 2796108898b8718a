/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/kernel.h"
#include "capture/probes/proc_group.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "capture/probes/probes_internal.h"
#include "group.skel.h"
#include "inspect/proc.h"

struct proc_group {
	struct group_bpf *skel;
	struct ring_buffer *ring;
	struct mt_member *members;
	uint32_t groups; /* the last result of proc_group__new_group() */
	/* arguments of proc_group__consume() */
	int (*fn)(void *ctx, const struct mt_rec_group *r);
	void *ctx;
};

static size_t members_size(void)
{
	return (MT_MEMBERS * sizeof(struct mt_member) + 4095) & ~(size_t)4095;
}

static int on_record(void *ctx, void *data, size_t len)
{
	struct proc_group *group = ctx;

	return len < sizeof(struct mt_rec_group) ? -EBADMSG : group->fn(group->ctx, data);
}

/* Maps the numbers' states and opens the ring. 0 or -errno. */
static int open_maps(struct proc_group *group)
{
	void *at = mmap(NULL, members_size(), PROT_READ | PROT_WRITE, MAP_SHARED,
			proc_group__members_fd(group), 0);

	if (at == MAP_FAILED)
		return -errno;
	group->members = at;
	group->ring = ring_buffer__new(bpf_map__fd(group->skel->maps.comings), on_record, group,
				       NULL);
	return group->ring ? 0 : -errno;
}

/* Loads and attaches the programs. processes: descriptor of a map to use; negative: a new one. 0 or
 * -errno. */
static int load(struct proc_group *group, int processes)
{
	int err;

	group->skel = group_bpf__open();
	if (!group->skel)
		return -errno;
	group->skel->rodata->pid_ns = proc__pid_namespace();
	err = processes >= 0 ? bpf_map__reuse_fd(group->skel->maps.processes, processes) : 0;
	if (err)
		return err;
	err = group_bpf__load(group->skel);
	if (err)
		return err;
	err = open_maps(group);
	return err ? err : group_bpf__attach(group->skel);
}

struct proc_group *proc_group__new(int processes, const char **why)
{
	struct proc_group *group = calloc(1, sizeof(*group));
	int err;

	*why = "out of memory";
	if (!group)
		return NULL;
	*why = "the kernel refused the programs that follow processes";
	libbpf_log__quiet();
	err = load(group, processes);
	if (!err)
		return group;
	if ((err == -EPERM || err == -EACCES) && bpf_token__state() >= BPF_TOKEN_NOT_DELEGATED)
		*why = bpf_token__text(bpf_token__state());
	else if (err == -EPERM || (err == -EACCES && *caps__missing()))
		*why = "loading BPF programs is not permitted: CAP_BPF and CAP_PERFMON are needed; "
		       "run it with sudo";
	proc_group__free(group);
	errno = -err;
	return NULL;
}

void proc_group__free(struct proc_group *group)
{
	if (!group)
		return;
	ring_buffer__free(group->ring);
	if (group->members)
		munmap(group->members, members_size());
	group_bpf__destroy(group->skel);
	free(group);
}

int proc_group__processes_fd(const struct proc_group *group)
{
	return bpf_map__fd(group->skel->maps.processes);
}

int proc_group__members_fd(const struct proc_group *group)
{
	return bpf_map__fd(group->skel->maps.members);
}

uint32_t proc_group__new_group(struct proc_group *group)
{
	/* 16 bits: a number is used again long after its set is gone. */
	group->groups = group->groups % UINT16_MAX + 1;
	return group->groups;
}

struct mt_member *proc_group__member(struct proc_group *group, uint32_t number)
{
	return &group->members[number & (MT_MEMBERS - 1)];
}

/* Takes an unused number; 0: none. */
static uint32_t claim_number(struct proc_group *group)
{
	uint32_t i;

	for (i = 1; i < MT_MEMBERS; i++) {
		uint32_t none = 0;

		if (__atomic_compare_exchange_n(&group->members[i].busy, &none, 1, false,
						__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return i;
	}
	return 0;
}

/* The programs may try to claim a number at any time: they add to busy, and take that back if it
 * was in use. So this leaves busy as it is. */
static void clear_member(struct mt_member *m)
{
	memset(m->module_code, 0, sizeof(m->module_code));
	m->type_cell = 0;
	memset(&m->node, 0, sizeof(m->node));
}

void proc_group__free_number(struct proc_group *group, uint32_t number)
{
	struct mt_member *m = proc_group__member(group, number);

	clear_member(m);
	__atomic_fetch_sub(&m->busy, 1, __ATOMIC_SEQ_CST);
}

int proc_group__add(struct proc_group *group, pid_t pid)
{
	uint32_t key = pid, entry = 0;

	if (!bpf_map_update_elem(proc_group__processes_fd(group), &key, &entry, BPF_NOEXIST))
		return 0;
	return errno == E2BIG ? -ENOSPC : -errno;
}

/* Changes the map's entry of a process, if it has this number. 0, or -ESRCH: it has not. The
 * process may exec or end before the update: the record about that, which is still to come, sets
 * things right. */
static int change_entry(struct proc_group *group, pid_t pid, uint32_t number, uint32_t entry)
{
	uint32_t key = pid, now;

	if (bpf_map_lookup_elem(proc_group__processes_fd(group), &key, &now) ||
	    MT_GROUP_NUMBER(now) != number)
		return -ESRCH;
	return bpf_map_update_elem(proc_group__processes_fd(group), &key, &entry, BPF_EXIST)
		       ? -ESRCH
		       : 0;
}

int proc_group__hand_over(struct proc_group *group, uint32_t number, pid_t pid)
{
	clear_member(proc_group__member(group, number));
	return change_entry(group, pid, 0, MT_GROUP(0, number));
}

int proc_group__number(struct proc_group *group, pid_t pid)
{
	uint32_t number = claim_number(group);

	if (!number)
		return -ENOSPC;
	if (!change_entry(group, pid, 0, MT_GROUP(0, number)))
		return (int)number;
	proc_group__free_number(group, number);
	return -ESRCH;
}

void proc_group__give_back(struct proc_group *group, pid_t pid, uint32_t number)
{
	change_entry(group, pid, number, 0);
}

int proc_group__set_group(struct proc_group *k, pid_t pid, uint32_t number, uint32_t group)
{
	return change_entry(k, pid, number, MT_GROUP(group, number));
}

int proc_group__stop(struct proc_group *group, pid_t pid, uint32_t number)
{
	uint32_t key = pid, now;

	if (bpf_map_lookup_elem(proc_group__processes_fd(group), &key, &now))
		return -ESRCH;
	return change_entry(group, pid, number, now | MT_GROUP_STOPPED);
}

void proc_group__forget(struct proc_group *group, pid_t pid, uint32_t number)
{
	uint32_t key = pid, entry;

	/* Its PID may have become another process's, with another number. */
	if (!bpf_map_lookup_elem(proc_group__processes_fd(group), &key, &entry) &&
	    MT_GROUP_NUMBER(entry) == number)
		bpf_map_delete_elem(proc_group__processes_fd(group), &key);
}

void proc_group__leave_children(struct proc_group *group)
{
	__atomic_store_n(&group->skel->bss->alone, 1, __ATOMIC_SEQ_CST);
}

void proc_group__report_strangers(struct proc_group *group)
{
	__atomic_store_n(&group->skel->bss->strangers, 1, __ATOMIC_SEQ_CST);
}

int proc_group__consume(struct proc_group *group,
			int (*fn)(void *ctx, const struct mt_rec_group *r), void *ctx)
{
	int n;

	group->fn = fn;
	group->ctx = ctx;
	n = ring_buffer__consume(group->ring);
	return n < 0 ? n : 0;
}

int proc_group__wake_fd(const struct proc_group *group)
{
	return ring_buffer__epoll_fd(group->ring);
}

uint64_t proc_group__missed(const struct proc_group *group)
{
	return __atomic_load_n(&group->skel->bss->missed, __ATOMIC_SEQ_CST);
}

uint64_t proc_group__unreported(const struct proc_group *group)
{
	return __atomic_load_n(&group->skel->bss->unreported, __ATOMIC_SEQ_CST);
}
