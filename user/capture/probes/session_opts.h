/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The options of one session, the recording of one process. Options of the command line set some
 * of them: capture/capture_args.h. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"
#include "record/stream.h"

/* Difference of the clocks of this host and of a machine that collects recordings (fetch). */
struct clock_offset {
	int64_t offset; /* this host's clock minus the other's, ns */
	uint64_t error; /* the offset is wrong by at most this, ns */
	bool known;
};

/* A scope between two static probes of the target: --scope usdt:PROVIDER:BEGIN,END. */
struct usdt_scope {
	char provider[64], begin[64], end[64];
};

struct inside_memory;
struct proc_group;
struct probes_sets;

/* The switches of a capture. Each is a bool of struct session_opts and an option of the command
 * line: field, name of the option, help. A new switch needs a line here, and its use. */
#define SESSION_SWITCHES(SWITCH)                                                                   \
	SWITCH(requested, "requested",                                                             \
	       "Also record the requested size and the stream of each block (one more probe)")     \
	SWITCH(host, "host", "Also record all memory that the process maps on the host, by line")  \
	SWITCH(malloc_probes, "malloc-probes",                                                     \
	       "Also record a sample of the blocks inside malloc, by line: probes malloc and "     \
	       "free of one process, and implies --host")                                          \
	SWITCH(no_autograd, "no-autograd",                                                         \
	       "Do not link allocations in backward to their lines in forward (two probes less)")  \
	SWITCH(no_modules, "no-modules",                                                           \
	       "Do not record module entry and exit (less overhead; no time per module)")          \
	SWITCH(no_census, "no-census",                                                             \
	       "Do not read parameters, gradients and optimizer state from Python objects")        \
	SWITCH(native, "native",                                                                   \
	       "Also record the functions of compiled code (NCCL, cuBLAS ...) that take CUDA "     \
	       "memory, also from PyTorch's allocator for blocks of 1 MiB and more")

#define SESSION_SWITCH_FIELD(field, name, help) bool field;

struct session_opts {
	SESSION_SWITCHES(SESSION_SWITCH_FIELD)
	double cost; /* share of the target's time that the capture may add to it; 0: no limit */
	bool requested_if_there; /* like .requested, without a warning if PyTorch lacks the probe
				    for it */
	bool steps_only; /* record only the ends of optimizer steps: implies all no_* switches, and
			    no probe but those for steps and for the ends of code objects */
	bool wait_for_torch; /* begin when PyTorch is there, also with .host */
	bool host_alone;     /* like .host, if the first look at the process finds neither PyTorch
				nor CUDA */
	uint64_t steps;	     /* the stream ends after so many whole optimizer steps; 0: no bound */
	size_t ring_bytes; /* size of the ring in bytes, a power of two; 0: the default of 16 MiB */
	const char *scopes[STREAM_SCOPES];	/* names for the fact "scopes"; NULL: no more */
	struct usdt_scope usdt[MT_SCOPE_PAIRS]; /* an empty provider: no more */
	bool dry_run; /* the target computes nothing, so its steps take no time */
	bool started; /* the target is our child, which waits to run its program; that may be any
			 program */
	bool late; /* the target is not our child and does not wait for us; it has just begun, and
		      may turn out to be any program */
	/* The group of processes, with --children or several processes; otherwise NULL. */
	struct proc_group *group;
	struct probes_sets *sets; /* the group's sets of programs; NULL without a group */
	/* Number of the process in the group (proc_group.h); 0: the session gets one when it needs
	 * it, or there is no group. */
	uint32_t number;
	struct clock_offset clock_offset;
	/* memory shared with a child of ours that records itself; NULL: the kernel records the
	 * target. Never together with group */
	struct inside_memory *inside;
};

/* True if a process without PyTorch is recorded, too: its host memory. */
static inline bool session_opts__any_process(const struct session_opts *o)
{
	return (o->host || o->host_alone || o->malloc_probes) && !o->wait_for_torch &&
	       !o->steps_only && !o->inside;
}
