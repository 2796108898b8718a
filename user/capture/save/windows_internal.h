/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by windows.c (time) and windows_file.c (files). */
#include "capture/decode/step_clock.h"
#include "capture/save/windows.h"
#include "capture/save/windows_values.h"
#include "record/flight.h"
#include "record/folder.h"

struct windows {
	struct sink sink; /* first */
	struct windows_opts opts;
	struct dict *dict;
	const struct facts *facts;
	struct flight *flight;
	struct cond *on, *until;
	struct values *values; /* figures of conditions; NULL: no conditions */
	bool held; /* `on` held at the last judgement; a window begins when it changes to true */
	struct step_clock clock;
	bool at_step;  /* the next whole step begins a window */
	uint64_t skip; /* ends of steps before that window */
	bool planned;  /* skip and at_step are set */
	uint64_t due;  /* time of the next window of --every, ns */
	uint64_t now;  /* time of the last tick, ns */
	/* The window of --at: its moment on the wall clock, ns since 1970 (0: none), that moment in
	 * the events' time as of the last tick, and time 0 of the events on the kernel's clock. */
	uint64_t appointed, appointed_time, zero;
	/* The open window. */
	uint64_t begun;	      /* begin, ns */
	uint64_t begun_steps; /* ends of steps before it */
	bool whole;	      /* it began with a step */
	/* The complete windows. */
	struct outfile *file;
	char *last; /* path of the last one */
	struct window_kept {
		char *name;	       /* file name in the folder */
		struct folder_gap gap; /* gap that remains when it is dropped */
	} * kept;		       /* oldest first */
	unsigned int n_kept;
	char reason[32]; /* reason why the last one ended */
	unsigned int written;
	int err;
	bool said;
};

/* True if windows end with something that happened, and nothing begins them. */
static inline bool windows__look_back(const struct windows_opts *o)
{
	return o->on_oom || o->on_kill;
}

/* Callbacks of the flight recorder, in windows_file.c. */
int windows__open_file(void *ctx, unsigned int number);
int windows__file_done(void *ctx, const struct flight_report *r, int err);
