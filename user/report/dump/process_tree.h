/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The tree of the processes of several recordings. Each recording names the ancestors of its
 * process (capture/follow/tracees.c), also those without a recording, such as a router without
 * PyTorch. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct facts;
struct json;
struct map64;

#define PROCESS_ANCESTORS 8 /* most ancestors of a process that count */
#define PROCESS_NAME 64
#define PROCESS_NONE UINT32_MAX /* no index */

/* Identity of a process. PID and start together tell it from others, also on other hosts. Texts are
 * clean. */
struct process_id {
	uint64_t pid, started; /* started: CLOCK_BOOTTIME, ns; 0: not known */
	char title[256];       /* command line, the program without its folder */
};

/* Facts of one recording about its process. */
struct process_facts {
	struct process_id own, ancestors[PROCESS_ANCESTORS]; /* nearest first */
	size_t n_ancestors;
	char name[PROCESS_NAME]; /* name in multiprocessing; "": that did not start the process */
};

/* Reads the hostile facts of a recording. command: its clean command line. Leaves out facts
 * that make no sense. */
void process_facts__read(struct process_facts *ret, const struct facts *f, const char *command);
/* Writes the name to print: name if it is not "", "fork server" or the like, the script, or the
 * title. */
char *process_id__name(const struct process_id *p, const char *name, char buf[PROCESS_NAME]);

struct process_node {
	struct process_id id;
	char name[PROCESS_NAME];
	uint32_t recording; /* index of its first recording; PROCESS_NONE: none */
	uint32_t parent;    /* index of a node; PROCESS_NONE: it is a root */
	uint32_t depth;	    /* number of its ancestors */
	uint64_t own;	    /* bytes allocated in its recordings */
	uint64_t all;	    /* bytes of the process and its descendants */
};

struct process_tree {
	struct process_node *all; /* the processes: each is followed by its descendants */
	size_t n, room;
	size_t roots;	      /* number of processes without a parent */
	size_t recordings;    /* recordings that say which process they are of */
	struct map64 *places; /* private: finds processes while they are added */
};

/* True if both processes have the same parent, and names that differ at most in a number at the
 * end. */
bool process_node__is_like(const struct process_node *a, const struct process_node *b);
/* Adds recordings, then finishes: sorts and sums. Returns 0 or -ENOMEM. bytes: the recording's.
 * process_tree__add() must be called in the order of the recordings' indices. */
int process_tree__add(struct process_tree *t, const struct process_facts *f, uint32_t recording,
		      uint64_t bytes);
int process_tree__finish(struct process_tree *t);
void process_tree__free(struct process_tree *t);
/* Writes the array "processes". */
void process_tree__json(struct json *j, const struct process_tree *t);
