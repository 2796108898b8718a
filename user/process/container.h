/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PROCESS_CONTAINER_H
#define MT_PROCESS_CONTAINER_H
/*
 * What a container and a pod are called: a control group has only their ids (cgroup.h). Names are
 * in what the runtime keeps of the container on the host, and, if that cannot be read, in what the
 * process itself was given to know; which of the two it was is said.
 */
#include <sys/types.h>

#include "process/cgroup.h"

#define CONTAINER_NAME_MAX 256

/* Hostile text; "" where it is not known. */
struct container_names {
	char name[CONTAINER_NAME_MAX]; /* of the container */
	const char *name_from; /* static text: "docker", "OCI bundle", "/run/.containerenv"; NULL */
	char pod[CONTAINER_NAME_MAX];	/* of the pod */
	char space[CONTAINER_NAME_MAX]; /* and its Kubernetes namespace */
	const char *pod_from; /* "OCI bundle", "POD_NAME", "HOSTNAME": the environment it was
				 started with; NULL */
};

/*
 * Looks for them. pid may have ended, which only takes sources away. root: in front of the paths of
 * the host, "" but for tests. ret is filled always.
 */
void container__names(pid_t pid, const struct cgroup *c, const char *root,
		      struct container_names *ret);

#endif
