/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The same window of one job from many hosts: asks the `serve` of each host for a recording of each
 * process, which all begin at the same moment, and keeps them in one folder. First it measures how
 * far the clock of each host is from ours, so that the moment is the same on hosts whose clocks
 * differ.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- the servers that are asked ---- */

#define HOSTS_MAX 16384
#define HOSTS_NAME 128 /* longest name, with its NUL */
#define HOSTS_PORT 8000

struct hosts {
	struct hosts_one {
		char *url;	 /* "https://10.0.0.1:8000", without "/" at the end */
		char *name;	 /* for people; clean for a terminal */
		const char *why; /* static: why it cannot be asked; NULL: it can */
	} * all;
	size_t n, room;
	/* UIDs of pods: only their processes count. None: all do. */
	char **pods;
	size_t n_pods, pods_room;
	bool http; /* hosts without a scheme get http:// instead of https:// */
};

/* Adds a server: URL, HOST or HOST:PORT, and its name (NULL: its host). Returns 0, -ENOMEM, or
 * -EINVAL with *why, a static text. */
int hosts__add(struct hosts *h, const char *server, const char *name, const char **why);
/* Adds those of a file: a server on each line and, after a space, its name. "#" begins a comment.
 * Returns 0 or an exit code, logged. */
int hosts__read(struct hosts *h, const char *path);
/* The first server that would get a token unencrypted, from another machine; NULL: none. */
const char *hosts__unencrypted(const struct hosts *h);
void hosts__free(struct hosts *h);

/* Hosts from a batch system or a cluster, through its own client program. */

/* Adds the hosts of a Slurm job: of a list such as "node[1-8]" (NULL: SLURM_JOB_NODELIST), which
 * `scontrol` expands. Returns 0 or an exit code, logged. */
int hosts__add_slurm(struct hosts *h, const char *nodes);
/*
 * Adds the memtrace-bpf pods (the DaemonSet of the Helm chart) on the nodes of the job's pods,
 * which the label selector chooses, through `kubectl`. Only processes of the job's pods count:
 * h->pods. space: the namespace of the DaemonSet. Anybody who may make pods in another namespace
 * can give them its label, and would get the token. Nodes with no running pod of memtrace-bpf, or
 * several, are added as missing. Returns as hosts__add_slurm().
 */
int hosts__add_kubernetes(struct hosts *h, const char *selector, const char *space);

/* ---- asking them ---- */

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
