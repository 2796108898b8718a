/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The cost of a probe's hit on this host, without the program that it runs, by the kind of the
 * probed place. */
#include <stdbool.h>
#include <stdint.h>

/* Cost of a hit, ns of a thread's time. */
struct hit_cost {
	uint32_t emulated; /* if the kernel emulates the probed instruction; see inspect/site.h */
	uint32_t stepped;  /* if the probed instruction is any other */
};

/* A place in our own executable file. */
struct hit_place {
	uint64_t offset;
	uint64_t ref_ctr; /* file offset of a USDT's semaphore; 0: none */
	bool returns;	  /* the return of the function at .offset */
};

/* Puts a probe with an empty program on a place, for the calling process. Returns a descriptor that
 * holds the probe, or -errno. */
typedef int (*hit_cost_probe)(const struct hit_place *at);

/* Bytes of other data between two hits, which replaces the kernel's in the processor's caches. */
enum hit_pace {
	HIT_SELDOM = 4 << 20, /* in a busy process */
	HIT_OFTEN = 1 << 20,  /* many thousand times a second: only in the nearest cache */
};

/* Calls two functions of ours without a probe and with one: about 60 ms, nearly all of it to remove
 * the probes. 0 or -errno. */
int hit_cost__measure(hit_cost_probe probe, enum hit_pace pace, struct hit_cost *ret);

/* Kinds of places. */
enum hit_site {
	HIT_PUSH, /* an instruction that the kernel emulates */
	HIT_NOP,
	HIT_NOP5,    /* x86-64: Linux 6.18 replaces a probed one with a call, which is cheaper */
	HIT_NOP10,   /* x86-64: the kernels after that do so with these instead */
	HIT_STEPPED, /* an instruction that the kernel single-steps */
	HIT_RETURN,  /* the return of a function: a trap at its entry, and one at the return */
	HIT_USDT,    /* a nop that the program skips while the probe's semaphore is 0 */
	HIT_SITES,
};

#define HIT_ENOTSUPP 524 /* the kernel's ENOTSUPP: it puts no probe on the instruction */

struct hit_site_cost {
	int err;     /* 0; -ENOTSUP: not on this machine; -ECHILD: our process ended before it had
			measured this; or -errno, -HIT_ENOTSUPP: the kernel refused the probe */
	uint32_t ns; /* median time that a hit adds, in a loop */
	bool call;   /* the kernel has replaced the nop with a call */
	bool fork_dies;	 /* with .call: a child forked after a hit dies when it comes there */
	bool overwrites; /* with .call: it writes below the stack pointer, where functions that call
			    no others keep data */
};

/* Name of a kind in text: "5-byte nop". */
const char *hit_site__name(enum hit_site site);
/* True if a kind's cost is known, and a probe there does no harm. */
bool hit_site__is_safe(const struct hit_site_cost *cost);
/*
 * Measures all kinds in a child process, since the kernel's calls are not safe to have in ours. The
 * child calls functions of ours in a loop, without a probe and with one: about 50 ms, most of it to
 * remove the probes. Needs one thread, as base/subprocess.h does. 0, or -errno: nothing was
 * measured.
 */
int hit_cost__sites(hit_cost_probe probe, struct hit_site_cost ret[HIT_SITES]);
