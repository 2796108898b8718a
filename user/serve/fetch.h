/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The same window of one job from many hosts: asks the `serve` of each host for a recording of each
 * process, which all begin at the same moment, and keeps them in one folder. First it measures how
 * far the clock of each host is from ours, so that the moment is the same on hosts whose clocks
 * differ.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "serve/hosts.h"

struct fetch_opts {
	const struct hosts *hosts;
	const char *token, *ca; /* as http_opts; NULL: none */
	const char *target;	/* name of a target; NULL: all */
	const char *folder;
	uint64_t duration, steps; /* ns; steps 0: no bound */
	uint64_t max_events;	  /* 0: the server's default */
	uint64_t align;		  /* ns: begin at a multiple of this on our clock; 0: soon */
	uint64_t lead;		  /* ns between the requests and the begin, at least */
	uint64_t timeout;	  /* ns: how long a host may take to answer */
	uint64_t max_size;	  /* bytes of a recording */
	unsigned parallel;
	bool host;    /* also record host memory by line */
	bool force;   /* as folder__create() */
	bool as_json; /* the result as a JSON document */
};

/* Logs its errors. Prints the result and the missing recordings to out. Returns 0, EXIT_UNUSABLE if
 * a recording is missing, or EXIT_FAILED. */
int fetch__run(const struct fetch_opts *o, FILE *out);
