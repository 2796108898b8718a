/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PROCESS_CGROUP_H
#define MT_PROCESS_CGROUP_H
/*
 * Which container and pod a process is in, as far as the path of its control group tells: docker,
 * containerd, CRI-O, podman, Kubernetes, LXC, systemd-nspawn, with either of their cgroup drivers,
 * cgroup v1 and v2.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CGROUP_PATH_MAX 1024

/* All text is hostile, but for what consists of hexadecimal digits; "" where there is none. */
struct cgroup {
	char path[CGROUP_PATH_MAX]; /* of the hierarchy that the rest is from; cut at its size */
	char container[65];	    /* the id: 64 hexadecimal digits */
	char runtime[24];	    /* docker, containerd, crio, podman, nerdctl, lxc, nspawn */
	char name[65];		    /* of the container, where the path has one (LXC, nspawn) */
	char pod[37]; /* the pod's UID: 8-4-4-4-12 hexadecimal digits, or 32 without dashes (static
			 pods) */
};

/* The text of /proc/PID/cgroup. Anything may be in it; what is not understood is left out. */
void cgroup__parse(const char *text, size_t len, struct cgroup *ret);
/* 0, or -errno: there is no such process, or its control groups may not be read; then all is "". */
int cgroup__read(pid_t pid, struct cgroup *ret);
/* In the same pod, else the same container, else both in none. */
bool cgroup__same_place(const struct cgroup *a, const struct cgroup *b);

#endif
