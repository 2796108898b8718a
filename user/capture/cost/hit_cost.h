/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The cost of a probe's hit on this host, without the program that it runs. */
#include <stdint.h>

/*
 * ns of a thread's time. Measured like hits in a busy process: other data has replaced the kernel's
 * in the processor's caches.
 */
struct hit_cost {
	uint32_t emulated; /* at an instruction that the kernel emulates; see inspect/site.h */
	uint32_t stepped;  /* at any other instruction */
};

/* Puts a probe with an empty program on this offset of our own file, for our process. Returns a
 * descriptor that holds the probe, or -errno. */
typedef int (*hit_cost_probe)(uint64_t offset);

/* Calls two functions of ours without a probe and with one: about 60 ms, nearly all of it to remove
 * the probes. 0 or -errno. */
int hit_cost__measure(hit_cost_probe probe, struct hit_cost *ret);
