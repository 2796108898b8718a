/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Replays the allocations of a recording through PyTorch's own CUDA caching allocator, with other
 * settings or another amount of memory. The allocator is the target's libc10_cuda on the dry run's
 * device (docs/internals/DRYRUN.md). It runs in a process without Python and the rest of PyTorch. A
 * try takes about 15 ms plus 0.3 us per event.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct failure; /* base/exit.h: exit status and text */
struct replay;
struct user;

#define REPLAY_NOWHERE UINT64_MAX

struct replay_opts {
	const char *path; /* path of the recording; "-": standard input */
	/* Interpreter whose PyTorch to use. NULL: the recorded one, if trust.h allows it. */
	const char *python;
	/* The arguments of the present command, quoted for a shell, for the message that tells to
	 * repeat it with --python. NULL: the message has a placeholder instead. */
	const char *again;
	/* True if memtrace-bpf has just run the recorded command itself, as `user` (NULL: the
	 * present user). Then the replay may run the command's PyTorch, whoever can change its
	 * files. */
	bool own;
	const struct user *user;
	/* Index of the CUDA device to replay; -1: the device with the largest peak. */
	int device;
	/* The fields below can differ from try to try. */

	/* Settings as in PYTORCH_CUDA_ALLOC_CONF; "": PyTorch's defaults; NULL: the recording's
	 * own. */
	const char *alloc_conf;
	uint64_t vram; /* total memory of the device, bytes; 0: no limit */
	/* Rebuilds the blocks from before the first event without their recorded layout, even under
	 * the recording's own settings. Other settings require it, so both become comparable. */
	bool afresh;
	/* Called after each event that changed `reserved`. May be NULL. */
	int (*curve)(void *ctx, uint64_t event, uint64_t time, uint64_t allocated,
		     uint64_t reserved);
	void *ctx;
};

struct replay_oom {
	bool there;	/* an out-of-memory error occurred; the other fields are valid */
	uint64_t event; /* number of the event in the recording at which it occurred, from 0 */
	uint64_t time;	/* time of this event, ns */
	uint64_t asked; /* size of the block that did not fit, bytes */
	uint64_t allocated, reserved; /* bytes at the failure */
	/* Line of user code, clean for a terminal; "": unknown. */
	char where[256];
	char module[128];
};

/* All sizes are bytes on the replayed device. */
struct replay_result {
	uint64_t events; /* replayed allocations and frees, up to an out-of-memory error */
	uint64_t peak_allocated, peak_reserved;
	uint64_t peak_requested; /* peak of requested bytes; 0: not recorded */
	/* Event in the recording, and its time, at which peak_reserved was first reached. */
	uint64_t reserved_event, reserved_time;
	uint64_t end_allocated, end_reserved;
	double fragmentation; /* (peak_reserved - peak_allocated) / peak_reserved */
	uint64_t segments;    /* number of cudaMallocs live at the peak; expandable segments do not
				 count */
	uint64_t takes;	      /* number of all calls of cudaMalloc */
	/* Number of allocations that succeeded only after the allocator gave back cached memory. */
	uint64_t retries;
	/* Peak of device memory taken by other code: the CUDA context and other libraries. */
	uint64_t outside;
	struct replay_oom oom; /* first out-of-memory error */
};

/* Accuracy of the replay: its totals under the recording's own settings, compared with the recorded
 * ones after each event. */
struct replay_truth {
	/* True if the recording has its settings; otherwise the replay uses PyTorch's defaults. */
	bool settings_known;
	uint64_t events; /* number of compared events */
	bool equal;	 /* true if reserved and allocated were the same after each of them */
	uint64_t first;	 /* first differing event of the recording; REPLAY_NOWHERE: none */
	/* Time of the first difference, and reserved bytes there. */
	uint64_t first_time, first_recorded, first_replayed;
	uint64_t largest; /* largest difference of reserved bytes */
	int64_t at_peak;  /* replayed minus recorded peak of reserved bytes */
	char why[384];	  /* likely reason of the difference; "": none */
};

/* Facts about an open recording. The replay owns the strings. */
struct replay_about {
	const char *torch;	/* PyTorch version of the recording; "": unknown */
	const char *lib;	/* path of the libc10_cuda in use */
	const char *lib_torch;	/* PyTorch version of lib; "": unknown */
	const char *alloc_conf; /* the recording's settings; NULL: not recorded */
	int device;
	uint64_t vram;				/* recorded memory of the device; 0: unknown */
	uint64_t events;			/* number of allocations and frees on the device */
	uint64_t peak_allocated, peak_reserved; /* recorded peaks; 0: the recording has no totals */
	uint64_t before;			/* bytes of blocks from before the first event */
	uint64_t lost;
	uint64_t ooms;	/* recorded out-of-memory errors */
	bool requested; /* true if at least 99 % of the allocations have their requested bytes */
	unsigned pools; /* number of streams and private pools */
	struct replay_truth truth;
};

/* Reads the recording into an unnamed file in TMPDIR (a few bytes per event), finds the allocator,
 * and replays the recording once under its own settings. On an error returns NULL and sets *f. */
struct replay *replay__open(const struct replay_opts *opts, struct failure *f);
const struct replay_about *replay__about(const struct replay *r);
/* Replays with the fields of opts after `device`. Returns 0, also after an out-of-memory error (see
 * ret->oom), or -errno and *f, for example if PyTorch refuses the settings. */
int replay__try(struct replay *r, const struct replay_opts *opts, struct replay_result *ret,
		struct failure *f);
/* Finds by bisection the smallest vram, in steps of 2 MiB, without an out-of-memory error. *ret is
 * the result with that vram. Returns as replay__try(). */
int replay__smallest(struct replay *r, const struct replay_opts *opts, uint64_t *vram,
		     struct replay_result *ret, struct failure *f);
void replay__close(struct replay *r); /* NULL is fine */

/* Prints the results of tries as text or JSON. */

struct replay_tried {
	const char *alloc_conf; /* allocator settings; "": PyTorch's defaults */
	bool own;		/* true for the recording's own settings */
	bool failed;		/* true if PyTorch refused the settings; why has the reason */
	char why[256];
	struct replay_result result;
	uint64_t smallest; /* smallest memory that fits; 0: not searched */
	const char *costs; /* drawbacks of the settings, as text; "": none */
};

struct replay_found {
	const struct replay_about *about;
	uint64_t vram;	    /* bytes of the device; 0: no limit */
	bool recorded_vram; /* vram is that of the recording, not of an option */
	const struct replay_tried *v;
	size_t n;
	bool searched;
	/* Recommended try after a search; NULL: no try is better. */
	const struct replay_tried *best;
	char verdict[256]; /* result of the search, as text */
};

void replay_print__text(FILE *out, const struct replay_found *f);
/* Returns 0 or -errno. */
int replay_print__json(FILE *out, const struct replay_found *f);

/* Tries a list of useful settings and recommends one. */

/*
 * Makes all tries. opts: only vram counts. *v belongs to the caller, for free(), and starts with
 * the recording's own settings. Sets v, n, searched, best and verdict of *found. A recommendation
 * must save 1 % and more than the replay's known error. Returns 0, or -errno and *f.
 */
int replay__search(struct replay *r, const struct replay_opts *opts, struct replay_tried **v,
		   struct replay_found *found, struct failure *f);
