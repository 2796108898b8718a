/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The processes with the most memory. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct memcg;

#define OTHERS 10

struct others {
	bool of_cgroup; /* they are in a cgroup; false: on the machine, as far as visible */
	uint64_t time;	/* of this reading: CLOCK_MONOTONIC, ns; 0: none */
	size_t n;	/* entries */
	size_t all;	/* processes that were looked at */
	struct other {
		pid_t pid;
		uint64_t rss; /* bytes */
		char name[64];
	} top[OTHERS]; /* most memory first */
};

/* Reads the processes of a cgroup and below it; m NULL: of the machine. At most 4,096 processes. */
void others__read(struct others *o, const struct memcg *m);
