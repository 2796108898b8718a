/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_KIN_H
#define MT_CAPTURE_KIN_H
/*
 * The processes that a capture follows, as the kernel side keeps them: who forks, execs and ends is known there before any of it
 * has run, see bpf/family.bpf.h. Here: loading that, numbers and groups, and what has happened.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "memtrace.h"
#include "family.h"

struct kin;

/* Loads and attaches the programs. NULL with errno and *why (static text). */
struct kin *kin__new(const char **why);
void kin__free(struct kin *k); /* NULL is fine */

/* Maps to be shared with the probes' programs. */
int kin__family_fd(const struct kin *k);
int kin__members_fd(const struct kin *k);
/* A number for a set of probes' programs: not 0. */
uint32_t kin__new_group(struct kin *k);

/*
 * Follows this process from now on; it belongs to no group and has no number. 0, -EEXIST where it is followed already (it was
 * forked by one that is), -ENOSPC, or -errno.
 */
int kin__add(struct kin *k, pid_t pid);
/* A number for one that is followed and has none, before it gets a group. > 0, -ENOSPC, or -ESRCH where it has ended. */
int kin__number(struct kin *k, pid_t pid);
/* Was there none left, ever? */
bool kin__was_full(const struct kin *k);
/* It has none any more and belongs to no group. The number stays taken until kin__free_number(). */
void kin__give_back(struct kin *k, pid_t pid, uint32_t number);
/* Its hits are recorded by this group's programs from now on; 0: by none. 0, or -ESRCH where that process has ended. */
int kin__set_group(struct kin *k, pid_t pid, uint32_t number, uint32_t group);
/* No event of it is recorded any more, but ends of code objects are. 0 or -ESRCH. */
int kin__stop(struct kin *k, pid_t pid, uint32_t number);
/* It and those it forks from now on are followed no more; the number is still its own. */
void kin__forget(struct kin *k, pid_t pid, uint32_t number);
/* The number may be given to another process. */
void kin__free_number(struct kin *k, uint32_t number);

/* What the programs know of it, shared with them: may be written at any time. number: below MT_MEMBERS. */
struct mt_member *kin__member(struct kin *k, uint32_t number);

/* Children of those that are followed do not join (they do unless told so). */
void kin__alone(struct kin *k);
/* Tells of every process that is not followed and runs another program from now on (MT_KIN_STRANGER). */
void kin__tell_strangers(struct kin *k);

/* Calls fn for all that has happened, in order. fn returns 0 or -errno, which stops. 0 or -errno. */
int kin__consume(struct kin *k, int (*fn)(void *ctx, const struct mt_rec_kin *r), void *ctx);
/* Readable when something has happened; until the next kin__consume(). Owned by k. */
int kin__wake_fd(const struct kin *k);
/* Forked processes that could not be followed: MT_WATCHED are, or nobody could be told. */
uint64_t kin__missed(const struct kin *k);
/* Strangers that were not told of since there was no room. */
uint64_t kin__untold(const struct kin *k);

#endif
