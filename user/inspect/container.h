/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Names of a container and its pod; a control group has only their ids (cgroup.h). They come from
 * the container runtime's files on the host or, if these are unreadable, from the process's own
 * files and environment. name_from and pod_from name the source.
 */
#include <sys/types.h>

#include "inspect/cgroup.h"

#define CONTAINER_NAME_MAX 256

/* Hostile text; "" if not known. */
struct container_names {
	char name[CONTAINER_NAME_MAX]; /* name of the container */
	const char *name_from; /* static text: "docker", "OCI bundle", "/run/.containerenv"; NULL */
	char pod[CONTAINER_NAME_MAX];	/* name of the pod */
	char space[CONTAINER_NAME_MAX]; /* Kubernetes namespace of the pod */
	/* "OCI bundle", or the variable of the initial environment: "POD_NAME", "HOSTNAME";
	 * NULL. */
	const char *pod_from;
};

/* Finds the names and always fills ret. If pid has ended, fewer sources remain. root: prefix of
 * paths on the host; "" except in tests. */
void container__names(pid_t pid, const struct cgroup *c, const char *root,
		      struct container_names *ret);
