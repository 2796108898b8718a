/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The processes that a capture follows, as the BPF programs know them: bpf/group.bpf.c sees each
 * fork, exec and exit before the process runs on. These functions load those programs, give
 * numbers and groups to processes, and report forks, execs and exits. A process's number is its
 * place in the tables that the programs share; its group is the number of the set of probe
 * programs that records it.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "memtrace.h"
#include "group.h"

struct proc_group;

/* Loads and attaches the programs that follow processes. processes: the map of followed processes,
 * if other programs share it (ending/hooks.h); negative: make a new one. NULL with errno and *why
 * (static text). */
struct proc_group *proc_group__new(int processes, const char **why);
void proc_group__free(struct proc_group *group); /* NULL is fine */

/* Descriptors of the maps that the programs of probes share. Owned by group. */
int proc_group__processes_fd(const struct proc_group *group);
int proc_group__members_fd(const struct proc_group *group);
/* A new group number, not 0, for a set of probe programs. */
uint32_t proc_group__new_group(struct proc_group *group);

/* Follows a process from now on; it has no group and no number. 0, -EEXIST (it is followed
 * already, since a followed process forked it), -ENOSPC, or -errno. */
int proc_group__add(struct proc_group *group, pid_t pid);
/* Gives a number to a followed process without one, before it gets a group. Returns the number,
 * which is positive, -ENOSPC, or -ESRCH: the process has ended. */
int proc_group__number(struct proc_group *group, pid_t pid);
/* The process gives up its number and its group. The number stays taken until
 * proc_group__free_number(). */
void proc_group__give_back(struct proc_group *group, pid_t pid, uint32_t number);
/* The programs of this group record the process from now on; group 0: none do. 0, or -ESRCH: the
 * process has ended. */
int proc_group__set_group(struct proc_group *k, pid_t pid, uint32_t number, uint32_t group);
/* Stops recording the process's events, but not the ends of its code objects. 0 or -ESRCH. */
int proc_group__stop(struct proc_group *group, pid_t pid, uint32_t number);
/* Stops following the process and those that it forks later. Its number stays taken. */
void proc_group__forget(struct proc_group *group, pid_t pid, uint32_t number);
/* Gives the number of a process that is not followed any more to another followed process, pid,
 * which has none. 0, or -ESRCH: that process has ended. */
int proc_group__hand_over(struct proc_group *group, uint32_t number, pid_t pid);
/* Frees a number for another process. */
void proc_group__free_number(struct proc_group *group, uint32_t number);

/* The programs' entry for the process with this number (below MT_MEMBERS). They may write to it at
 * any time. */
struct mt_member *proc_group__member(struct proc_group *group, uint32_t number);

/* Stops following children that followed processes fork from now on; by default they are
 * followed. */
void proc_group__leave_children(struct proc_group *group);
/* Reports each exec of a process that is not followed (MT_GROUP_STRANGER) from now on. */
void proc_group__report_strangers(struct proc_group *group);

/* Calls fn for each fork, exec and exit since the last call, in order. fn returns 0, or -errno to
 * stop. 0 or -errno. */
int proc_group__consume(struct proc_group *group,
			int (*fn)(void *ctx, const struct mt_rec_group *r), void *ctx);
/* A descriptor that is readable after a fork, exec or exit, until the next proc_group__consume().
 * Owned by group. */
int proc_group__wake_fd(const struct proc_group *group);
/* Number of forked processes that are not followed: MT_WATCHED others are, or the report of the
 * fork had no room. */
uint64_t proc_group__missed(const struct proc_group *group);
/* Number of execs that were not reported, for lack of room. */
uint64_t proc_group__unreported(const struct proc_group *group);
