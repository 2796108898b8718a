/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_PROC_GROUP_H
#define MT_CAPTURE_PROC_GROUP_H
/*
 * The processes that a capture follows, as the kernel side keeps them: who forks, execs and ends is
 * known there before any of it has run, see bpf/group.bpf.c. Here: loading that, numbers and
 * groups, and what has happened.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "memtrace.h"
#include "group.h"

struct proc_group;

/* Loads and attaches the programs. NULL with errno and *why (static text). */
struct proc_group *proc_group__new(const char **why);
void proc_group__free(struct proc_group *k); /* NULL is fine */

/* Maps to be shared with the probes' programs. */
int proc_group__processes_fd(const struct proc_group *k);
int proc_group__members_fd(const struct proc_group *k);
/* A number for a set of probes' programs: not 0. */
uint32_t proc_group__new_group(struct proc_group *k);

/*
 * Follows this process from now on; it belongs to no group and has no number. 0, -EEXIST where it
 * is followed already (it was forked by one that is), -ENOSPC, or -errno.
 */
int proc_group__add(struct proc_group *k, pid_t pid);
/* A number for one that is followed and has none, before it gets a group. > 0, -ENOSPC, or -ESRCH
 * where it has ended. */
int proc_group__number(struct proc_group *k, pid_t pid);
/* Was there none left, ever? */
bool proc_group__was_full(const struct proc_group *k);
/* It has none any more and belongs to no group. The number stays taken until
 * proc_group__free_number(). */
void proc_group__give_back(struct proc_group *k, pid_t pid, uint32_t number);
/* Its hits are recorded by this group's programs from now on; 0: by none. 0, or -ESRCH where that
 * process has ended. */
int proc_group__set_group(struct proc_group *k, pid_t pid, uint32_t number, uint32_t group);
/* No event of it is recorded any more, but ends of code objects are. 0 or -ESRCH. */
int proc_group__stop(struct proc_group *k, pid_t pid, uint32_t number);
/* It and those it forks from now on are followed no more; the number is still its own. */
void proc_group__forget(struct proc_group *k, pid_t pid, uint32_t number);
/* The number may be given to another process. */
void proc_group__free_number(struct proc_group *k, uint32_t number);

/* What the programs know of it, shared with them: may be written at any time. number: below
 * MT_MEMBERS. */
struct mt_member *proc_group__member(struct proc_group *k, uint32_t number);

/* Children of those that are followed do not join (they do unless told so). */
void proc_group__alone(struct proc_group *k);
/* Tells of every process that is not followed and runs another program from now on
 * (MT_GROUP_STRANGER). */
void proc_group__tell_untracked(struct proc_group *k);

/* Calls fn for all that has happened, in order. fn returns 0 or -errno, which stops. 0 or -errno. */
int proc_group__consume(struct proc_group *k, int (*fn)(void *ctx, const struct mt_rec_group *r),
			void *ctx);
/* Readable when something has happened; until the next proc_group__consume(). Owned by k. */
int proc_group__wake_fd(const struct proc_group *k);
/* Forked processes that could not be followed: MT_WATCHED are, or nobody could be told. */
uint64_t proc_group__missed(const struct proc_group *k);
/* Strangers that were not told of since there was no room. */
uint64_t proc_group__untold(const struct proc_group *k);

#endif
