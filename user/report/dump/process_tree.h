/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Which process of several recordings started which. Recordings name the ancestors of their process
 * (capture/follow/tracees.c), also those without a recording, such as a router without
 * PyTorch. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct facts;
struct json;
struct map64;

#define PROCESS_ANCESTORS 8
#define PROCESS_NAME 64
#define PROCESS_NONE UINT32_MAX

/* A process as a recording names it. With the start, a PID is of one process, also on other hosts.
 * Texts are clean. */
struct process_id {
	uint64_t pid, started; /* started: CLOCK_BOOTTIME, ns; 0: not known */
	char title[256];       /* command line, the program without its folder */
};

/* The facts of one recording. name: the one in multiprocessing, or "" for a process that it did not
 * start. */
struct process_facts {
	struct process_id own, ancestors[PROCESS_ANCESTORS]; /* nearest first */
	size_t n_ancestors;
	char name[PROCESS_NAME];
};

/* Reads the hostile facts of a recording. command: its clean command line. Leaves out facts
 * that make no sense. */
void process_facts__read(struct process_facts *ret, const struct facts *f, const char *command);
/* Writes the name for people: the one of multiprocessing, "fork server", or the script or title. */
char *process_id__name(const struct process_id *p, const char *name, char buf[PROCESS_NAME]);

struct process_node {
	struct process_id id;
	char name[PROCESS_NAME];
	uint32_t recording; /* index of its first recording; PROCESS_NONE: none */
	uint32_t parent;    /* index of a node; PROCESS_NONE: it is a root */
	uint32_t depth;	    /* number of its ancestors */
	uint64_t own;	    /* bytes of its recordings */
	uint64_t all;	    /* the same with its descendants */
};

struct process_tree {
	struct process_node *all; /* parents before children, in order of the tree */
	size_t n, room;
	size_t roots;
	size_t recordings;    /* recordings that say which process they are of */
	struct map64 *places; /* private: processes while they are added */
};

/* True if the same process started both, and their names differ at most in a number at the end. */
bool process_node__is_like(const struct process_node *a, const struct process_node *b);
/* Adds recordings, then finishes: sorts and sums. Returns 0 or -ENOMEM. bytes: the recording's.
 * process_tree__add() must be called in the order of the recordings' indices. */
int process_tree__add(struct process_tree *t, const struct process_facts *f, uint32_t recording,
		      uint64_t bytes);
int process_tree__finish(struct process_tree *t);
void process_tree__free(struct process_tree *t);
/* Writes the array "processes". */
void process_tree__json(struct json *j, const struct process_tree *t);
