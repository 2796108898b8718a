/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Records the processes of one job on many hosts at the same time: asks the `serve` of each host
 * for a recording of each process, and keeps the recordings in one folder. All recordings begin at
 * the same moment. For that, it first measures how far the clock of each host is from ours.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- the servers ---- */

#define HOSTS_MAX 16384
#define HOSTS_NAME 128	/* longest name of a host, in bytes with the NUL */
#define HOSTS_PORT 8000 /* port of a server that is given without one */

struct hosts {
	struct hosts_one {
		char *url;	 /* "https://10.0.0.1:8000", without "/" at the end */
		char *name;	 /* name of the host for messages, cleaned */
		const char *why; /* static: why there is no server to ask; NULL: there is one */
	} * all;
	size_t n, room;
	/* UIDs of pods: only processes in these pods are recorded. No pods: all processes are. */
	char **pods;
	size_t n_pods, pods_room;
	bool http; /* hosts without a scheme get http:// instead of https:// */
};

/* Adds a server: URL, HOST or HOST:PORT, and its name (NULL: its host). Returns 0, -ENOMEM, or
 * -EINVAL with *why, a static text. */
int hosts__add(struct hosts *h, const char *server, const char *name, const char **why);
/* Adds the servers of a file ("-": standard input): each line has a server and, after a space, an
 * optional name. "#" begins a comment. Returns 0 or an exit code, logged. */
int hosts__read(struct hosts *h, const char *path);
/* The URL of the first server that would get a token unencrypted over a network; NULL: none. */
const char *hosts__unencrypted(const struct hosts *h);
void hosts__free(struct hosts *h);

/* Hosts from a batch system or a cluster, through its own client program. */

/* Adds the hosts of a Slurm job. nodes: a list such as "node[1-8]", which `scontrol` expands; NULL:
 * the one in SLURM_JOB_NODELIST. Returns 0 or an exit code, logged. */
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
	/* ns: the captures begin at a multiple of this on our clock; 0: as soon as possible */
	uint64_t align;
	uint64_t lead;	   /* ns between the requests and the begin of the captures, at least */
	uint64_t timeout;  /* ns: how long a host may take to answer */
	uint64_t max_size; /* bytes of a recording */
	unsigned parallel; /* most calls at the same time */
	bool host;	   /* also record host memory by line */
	bool force;	   /* as folder__create() */
	bool as_json;	   /* the result as a JSON document */
};

/* Logs its errors. Prints the result and the missing recordings to out. Returns 0, EXIT_UNUSABLE if
 * a recording is missing, or EXIT_FAILED. */
int fetch__run(const struct fetch_opts *o, FILE *out);
