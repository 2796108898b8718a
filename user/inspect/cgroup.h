/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Container and pod of a process, from the path of its control group. Supports docker, containerd,
 * CRI-O, podman, Kubernetes, LXC and systemd-nspawn, both cgroup drivers, and cgroup v1 and v2. */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CGROUP_PATH_MAX 1024

/* All text is hostile, except hexadecimal ids; "" if not known. */
struct cgroup {
	char path[CGROUP_PATH_MAX]; /* path in the hierarchy used, cut at its size */
	char container[65];	    /* id: 64 hexadecimal digits */
	char runtime[24];	    /* docker, containerd, crio, podman, nerdctl, lxc, nspawn */
	char name[65];		    /* name of the container, if in the path (LXC, nspawn) */
	/* UID of the pod: 8-4-4-4-12 hexadecimal digits, or 32 without dashes (static pods). */
	char pod[37];
};

/* text: content of /proc/PID/cgroup, any bytes. Unknown paths are ignored. */
void cgroup__parse(const char *text, size_t len, struct cgroup *ret);
/* 0, or -errno if the process does not exist or its control groups are not readable; then all is
 * "". */
int cgroup__read(pid_t pid, struct cgroup *ret);
/* Whether both are in the same pod; without pods, in the same container; or both in none. */
bool cgroup__same_place(const struct cgroup *a, const struct cgroup *b);
