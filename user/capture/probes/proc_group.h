/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The processes that a capture follows, as the BPF programs know them: bpf/group.bpf.c sees each
 * fork, exec and exit before the process runs on. Loads these programs, gives numbers and groups to
 * processes, and reports what happened.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "memtrace.h"
#include "group.h"

struct proc_group;

/* Loads and attaches the programs. processes: the map of followed processes, shared with other
 * programs (capture/hooks.h); negative: a new one. NULL with errno and *why (static text). */
struct proc_group *proc_group__new(int processes, const char **why);
void proc_group__free(struct proc_group *k); /* NULL is fine */

/* Maps that the probes' programs share. */
int proc_group__processes_fd(const struct proc_group *k);
int proc_group__members_fd(const struct proc_group *k);
/* A new number, not 0, for a set of probes' programs. */
uint32_t proc_group__new_group(struct proc_group *k);

/* Follows a process from now on, without group and number. 0, -EEXIST (followed already, since a
 * followed process forked it), -ENOSPC, or -errno. */
int proc_group__add(struct proc_group *k, pid_t pid);
/* A number for a followed process without one, before it gets a group. > 0, -ENOSPC, or -ESRCH: it
 * has ended. */
int proc_group__number(struct proc_group *k, pid_t pid);
/* The process gives up its number and its group. The number stays taken until
 * proc_group__free_number(). */
void proc_group__give_back(struct proc_group *k, pid_t pid, uint32_t number);
/* This group's programs record the process's hits from now on; 0: none do. 0, or -ESRCH: it has
 * ended. */
int proc_group__set_group(struct proc_group *k, pid_t pid, uint32_t number, uint32_t group);
/* Stops recording its events, but not its ends of code objects. 0 or -ESRCH. */
int proc_group__stop(struct proc_group *k, pid_t pid, uint32_t number);
/* Stops following the process and those it forks later. It keeps its number. */
void proc_group__forget(struct proc_group *k, pid_t pid, uint32_t number);
/* Gives the number of a process that has left to another followed one, which has none. 0, or
 * -ESRCH: it has ended. */
int proc_group__hand_over(struct proc_group *k, uint32_t number, pid_t pid);
/* Frees a number for another process. */
void proc_group__free_number(struct proc_group *k, uint32_t number);

/* The programs' entry of a process, which they may write at any time. number: below MT_MEMBERS. */
struct mt_member *proc_group__member(struct proc_group *k, uint32_t number);

/* Children of followed processes do not join from now on; by default they do. */
void proc_group__alone(struct proc_group *k);
/* Reports each exec of a process that is not followed (MT_GROUP_STRANGER) from now on. */
void proc_group__tell_untracked(struct proc_group *k);

/* Calls fn for all that happened, in order. fn returns 0, or -errno to stop. 0 or -errno. */
int proc_group__consume(struct proc_group *k, int (*fn)(void *ctx, const struct mt_rec_group *r),
			void *ctx);
/* A descriptor that is readable after something happened, until the next proc_group__consume().
 * Owned by k. */
int proc_group__wake_fd(const struct proc_group *k);
/* Forked processes that are not followed: MT_WATCHED others are, or there was no room for the
 * report. */
uint64_t proc_group__missed(const struct proc_group *k);
/* Execs that were not reported, for lack of room. */
uint64_t proc_group__unreported(const struct proc_group *k);
