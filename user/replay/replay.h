/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPLAY_REPLAY_H
#define MT_REPLAY_REPLAY_H
/*
 * The blocks of a recording, in order, once more through PyTorch's own CUDA caching allocator,
 * under other settings or with another amount of memory: the target's own libc10_cuda, on the dry
 * run's device (docs/DRYRUN.md), in a process of its own that has neither Python nor the rest of
 * PyTorch in it and ends with the try (some 15 ms and 0.3 us an event).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct failure; /* capture/session.h: exit status and text */
struct replay;
struct user;

#define REPLAY_NOWHERE UINT64_MAX

struct replay_opts {
	const char *path;   /* the recording, "-": standard input */
	const char *python; /* an interpreter that has the PyTorch to use; NULL: the one that was
			       recorded, if only root can change it */
	const char *again;  /* arguments of this call, quoted for a shell: for the message that
			       offers --python; NULL: just the file's place */
	/* The recording is of a command that we have just run, as this user (NULL: as we are): the
	 * same user may run its PyTorch again, whoever can change it. */
	bool own;
	const struct user *user;
	int device; /* index of the CUDA device; -1: the one that most was allocated on. A replay is
		       of one device */
	/* From here on what may differ from try to try. */
	const char *alloc_conf; /* as PYTORCH_CUDA_ALLOC_CONF has it; "": PyTorch's defaults; NULL:
				   the recording's own */
	uint64_t vram; /* bytes of the device, what is not PyTorch's included; 0: no limit */
	/*
	 * What was there before the first event is laid out anew under the recording's own
	 * settings, too, as it must be under others, so that both can be compared.
	 */
	bool afresh;
	/* Where not NULL: `reserved` and `allocated` after each event in which the first changed. */
	int (*curve)(void *ctx, uint64_t event, uint64_t time, uint64_t allocated,
		     uint64_t reserved);
	void *ctx;
};

struct replay_oom {
	bool there;
	uint64_t event;		      /* the recording's event that it was at, from 0 on */
	uint64_t time;		      /* ns, of it */
	uint64_t asked;		      /* bytes of the block that did not fit */
	uint64_t allocated, reserved; /* when it failed */
	char where[256]; /* line of user code that asked, "" where it is not known; cleaned for a
			    terminal */
	char module[128];
};

/* All in bytes, of the one device. */
struct replay_result {
	uint64_t events; /* allocations and frees that were replayed: up to an OOM */
	uint64_t peak_allocated, peak_reserved;
	uint64_t peak_requested; /* what the program had asked for at the most; 0: not recorded */
	uint64_t reserved_event,
		reserved_time; /* where peak_reserved was first reached; event: the recording's */
	uint64_t end_allocated, end_reserved;
	double fragmentation; /* (peak_reserved - peak_allocated) / peak_reserved */
	uint64_t segments; /* cudaMallocs not given back, at the peak; expandable segments are none */
	uint64_t takes;	   /* cudaMallocs in all */
	uint64_t retries; /* allocations that the device refused at first: cached memory was given
			     back for them */
	uint64_t outside; /* the most that the device had taken from it by others: the context,
			     other libraries, at the peak */
	struct replay_oom oom; /* the first */
};

/* How true a replay is: the recording under its own settings against what it says itself, after
 * each event. */
struct replay_truth {
	bool settings_known; /* the recording says under which settings it was made; else PyTorch's
				defaults are taken */
	uint64_t events;     /* compared */
	bool equal;	     /* reserved and allocated were the recorded ones after each of them */
	uint64_t first; /* the first that was not: the recording's event; REPLAY_NOWHERE: none */
	uint64_t first_time, first_recorded, first_replayed; /* reserved there */
	uint64_t largest; /* the largest difference in reserved at any event, bytes */
	int64_t at_peak;  /* replayed less recorded peak of reserved */
	char why[384];	  /* what is known of the reason; "" */
};

/* What is known of the recording, once it is open. Strings are owned by the replay. */
struct replay_about {
	const char *torch;	/* of the recording, "" not known */
	const char *lib;	/* the libc10_cuda that is used */
	const char *lib_torch;	/* its version, "" not known */
	const char *alloc_conf; /* the recording's own settings, NULL: not recorded */
	int device;
	uint64_t vram;				/* the device's memory as recorded, 0: not known */
	uint64_t events;			/* allocations and frees of the device */
	uint64_t peak_allocated, peak_reserved; /* as recorded; 0: no totals */
	uint64_t before;			/* bytes that were there before the first event */
	uint64_t lost;
	uint64_t ooms;	/* times that memory ran out when it was recorded */
	bool requested; /* sizes are those asked for, of (almost) all blocks */
	unsigned pools; /* streams and private pools that blocks were told apart by */
	struct replay_truth truth;
};

/*
 * Reads the recording into a file without a name in TMPDIR (some bytes an event), finds the
 * allocator, and replays it once under its own settings. NULL and *f.
 */
struct replay *replay__open(const struct replay_opts *opts, struct failure *f);
const struct replay_about *replay__about(const struct replay *r);
/* Of opts only what follows `device` is looked at. 0, also where memory ran out: ret->oom. Else
 * -errno and *f (settings that PyTorch refuses ...). */
int replay__try(struct replay *r, const struct replay_opts *opts, struct replay_result *ret,
		struct failure *f);
/* The smallest vram, in steps of 2 MiB, that a try with these settings does not run out of, found
 * by bisection; *ret is of that try. */
int replay__smallest(struct replay *r, const struct replay_opts *opts, uint64_t *vram,
		     struct replay_result *ret, struct failure *f);
void replay__close(struct replay *r); /* NULL is fine */

/* All of it for one try. */
int replay__run(const struct replay_opts *opts, struct replay_result *ret, struct failure *f);

#endif
