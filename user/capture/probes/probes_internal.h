/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by the files that implement probes.h. A demux passes the records of one ring to the feeds
 * of processes, by the number in the record. A feed is a function that takes a process's
 * records. */
#include <stddef.h>
#include <stdint.h>

#include "capture/kernel/bpf_ring.h"
#include "capture/probes.h"
#include "memtrace.h"
#include "group.h"

typedef int (*feed_fn)(void *ctx, const void *rec, size_t len);

struct demux {
	struct {
		feed_fn fn; /* NULL: no feed */
		void *ctx;
	} at[MT_MEMBERS];
	/* Called for a record of a process without a feed; may add one. May be NULL. */
	void (*unknown)(void *ctx);
	void *unknown_ctx;
};

/*
 * Passes one record to its process's feed, or drops it if there is none. Ends of code objects go
 * to all feeds: another process may then read its own object at that address again, which does no
 * harm. 0, or an error of a feed; -ENOMEM if any feed returned it.
 */
int demux__deal(struct demux *f, const void *rec, size_t len);
/* Sets the feed of the process with this number; fn NULL: removes it. */
void demux__set(struct demux *f, uint32_t number, feed_fn fn, void *ctx);

/*
 * The programs can run in two places: in the kernel (probes_kernel.c), or in the process itself
 * (probes_inside.c). probes__load() chooses one of them, and probes.c calls it through struct
 * probes_place. These functions return the same as those of the same name in probes.h.
 */

#define RECORD_TYPES 32 /* more than there are types */
#define PROBES_ONE (-1) /* instead of a PID; see probes_place.attached */

struct probes_place {
	void (*free)(struct probes *p); /* frees everything; called when detached */
	int (*attach)(struct probes *p, pid_t pid, const struct hook *h);
	/* Attaches a hook in a group, for one process only; NULL: not possible. */
	int (*attach_own)(struct probes *p, pid_t pid, const struct hook *h);
	/* Is the hook attached? pid 0: for the whole group. PROBES_ONE: for one process only, at
	 * least once. A PID: for this process, either by itself or with the group. */
	bool (*attached)(const struct probes *p, pid_t pid, enum hook_id id);
	int (*attach_calls)(struct probes *p, pid_t pid, enum call_probe which,
			    const struct call_file *file, const struct probe_site *sites, size_t n);
	void (*begin_detach)(struct probes *p); /* may be NULL */
	/* pid 0: detaches everything; otherwise only what is attached for this process alone. */
	void (*detach)(struct probes *p, pid_t pid);
	size_t (*renew)(
		struct probes *p); /* sets lost breakpoints again: probes__renew(); may be NULL */
	void (*detach_hook)(struct probes *p, enum hook_id id); /* detaches one hook without waiting
								   for the kernel; may be NULL */
	void (*prepare_sleepable)(struct probes *p);		/* may be NULL */
	int (*go_sleepable)(struct probes *p, pid_t pid, const struct hook *hooks);
	void (*forget_wake)(
		struct probes *p); /* makes probes.wake unreadable, until the next new stack */
	void (*consumed)(struct probes *p); /* called after the ring was drained and has room again;
					       may be NULL */
	int (*counters)(const struct probes *p, uint32_t number, uint64_t c[MT_CNT_NR]);
	/* Sets a process's counters to 0. With a group only. */
	void (*zero_counters)(struct probes *p, uint32_t number);
	/* A key is an address with the process's number: own_key() in the programs. */
	int (*add_root)(struct probes *p, uint64_t key);
	void (*clear_roots)(struct probes *p, uint32_t number);
	int (*set_module_type)(struct probes *p, uint64_t key, enum mt_module_type is);
	void (*detach_malloc)(struct probes *p);
	int (*attach_host)(struct probes *p,
			   const char **way); /* probes__attach_host(); NULL: not possible */
	void (*skipped)(const struct probes *p, struct probes_skipped *ret); /* NULL: never any */
};

struct file_id {
	uint64_t inode;
	uint32_t dev_major, dev_minor;
};

/* An instruction in a file. */
struct place {
	struct file_id file;
	uint64_t offset;
};

static inline struct place place__of(const struct hook *hook)
{
	return (struct place){ { hook->inode, hook->dev_major, hook->dev_minor }, hook->offset };
}

static inline bool file_id__same(const struct file_id *a, const struct file_id *b)
{
	return a->inode == b->inode && a->dev_major == b->dev_major && a->dev_minor == b->dev_minor;
}

static inline bool place__same(const struct place *a, const struct place *b)
{
	return file_id__same(&a->file, &b->file) && a->offset == b->offset;
}

struct probes {
	const struct probes_place *in;
	struct bpf_ring *ring;
	int pidfd;	/* a pidfd of the target, borrowed; -1: none */
	int wake;	/* descriptor that is readable after a program saw a new stack */
	bool multi;	/* attached by uprobe.multi links, not perf's uprobes */
	bool sessions;	/* uprobe.session links are possible, too */
	bool sleepable; /* programs run that can wait for pages */
	bool old;	/* the programs are those for older kernels, bpf/memtrace_old.bpf.c */
	/* By number of the process: arguments of probes__want_level(). */
	uint8_t level[MT_MEMBERS];
	bool keep_modules[MT_MEMBERS];
	bool filter; /* without group: the programs compare the PID of each hit, since links by PID
			miss threads */
	/* Addresses of variables of the BPF programs, which are read and written while these run. */
	struct {
		uint8_t *stopped, *seen_code;
		uint64_t *notices, *code_epoch, *module_code;
		uint64_t *known_types; /* cache of the map of classes, for speed */
		/* Keys of pages that walks found absent. NULL, as known_types is, if the BPF
		 * programs run inside the process: then they use the map of classes without a
		 * cache, and no page stays absent. */
		uint64_t *absent;
		struct mt_usdt_args *asked_args;
		uint64_t *native_own;  /* address range of calls whose stacks are not copied: begin
					  and end */
		uint32_t *native_most; /* NULL: these programs copy no stacks */
		uint64_t *native_from;
		uint64_t *malloc_every, (*malloc_own)[2];
		struct mt_node_layout *node_layout;
		/* The detail that the BPF programs record. NULL: they run inside the process
		 * (struct inside) and record everything. */
		struct mt_detail *detail;
		const struct mt_timed *timed;
	} vars;
	probes_fn fn; /* arguments of probes__consume() */
	void *ctx;
	struct mt_py_layout py;
	uint64_t bumps, ends, both_until, forgotten; /* results of probes__bumps(), ... */
	struct place at_place[HOOK_NR];		     /* where each hook is attached */
	unsigned int users;			     /* users by probes__share() */
	/* With a group only: */
	struct proc_group *group;
	uint32_t group_id; /* number from proc_group__new_group(); 0: without group */
	struct probes_sets *sets;
	/* Files whose calls (false) or scopes of USDT probes (true) are attached. */
	struct attached_file {
		struct file_id id;
		bool scopes;
	} * files;
	size_t n_files;
	bool calls_each; /* calls into CUDA are attached for each process by itself: return probes
			    would end others that have a seccomp filter */
	struct demux feeds;
	uint64_t lost_ends; /* records of code objects' ends that were lost for processes whose
			       numbers others have now */
	/* Last result of probes__lost_ends(), and the value of probes__notices() before it was
	 * read. */
	uint64_t ends_sum, ends_notices;
	bool ends_known;
	bool empty;				    /* as in struct probes_opts */
	uint64_t records[MT_MEMBERS][RECORD_TYPES]; /* drained so far, by number of the process and
						       enum mt_rec_type */
};

/*
 * The PID for which to attach probes on calls into CUDA; 0: every process that maps the file. At
 * one address, all probes must have the same: on Linux 6.11 to 6.13 a return probe fires for every
 * process that has any probe there. They have, since the result depends on the file only.
 */
static inline pid_t probes__calls_pid(const struct probes *probes, pid_t pid,
				      const struct call_file *file)
{
	return probes__everywhere(probes) && !probes__calls_each(probes, file) ? 0 : pid;
}

/* Loads the programs into the process, and sets the rest of *probes. NULL with errno and *why. */
struct probes *probes_inside__load(const struct probes_opts *opts, const char **why);
