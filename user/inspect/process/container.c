/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/container.h"

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"

#define FILE_MAX (1u << 20)

/* Reads a file whole and closes it; the caller frees the text. NULL: too long, or fd is negative. */
static char *read_open_file(int fd, size_t *len)
{
	char *buf;
	ssize_t got = 0;

	*len = 0;
	if (fd < 0)
		return NULL;
	buf = malloc(FILE_MAX + 1);
	if (buf)
		got = io__read(fd, buf, FILE_MAX);
	close(fd);
	if (buf && (got < 0 || got == FILE_MAX)) {
		free(buf);
		return NULL;
	}
	*len = (size_t)got;
	if (buf)
		buf[got] = '\0';
	return buf;
}

static char *read_file(const char *path, size_t *len)
{
	return read_open_file(io__open_regular(AT_FDCWD, path, LINKS_FOLLOW, NULL), len);
}

/* Opens a file below a process's root; links stay below it. */
static char *read_file_of(pid_t pid, const char *path, size_t *len)
{
	char root[48];
	int dir, fd;

	snprintf(root, sizeof(root), "/proc/%d/root", (int)pid);
	dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = dir < 0 ? -1 : io__open_regular(dir, path, LINKS_IN_ROOT, NULL);
	if (dir >= 0)
		close(dir);
	return read_open_file(fd, len);
}

static void set_text(char *to, const char *from)
{
	if (from && from[0])
		snprintf(to, CONTAINER_NAME_MAX, "%s", from);
}

static json_t *read_json(const char *path)
{
	size_t len;
	char *text = read_file(path, &len);
	json_t *j = text ? json_loadb(text, len, 0, NULL) : NULL;

	free(text);
	return j;
}

/* Reads docker's own configuration of the container. */
static void read_docker(const char *root, const char *id, struct container_names *n)
{
	char path[PATH_MAX];
	const char *name;
	json_t *j;

	snprintf(path, sizeof(path), "%s/var/lib/docker/containers/%s/config.v2.json", root, id);
	j = read_json(path);
	name = json_string_value(json_object_get(j, "Name"));
	if (name) {
		set_text(n->name, name[0] == '/' ? name + 1 : name);
		n->name_from = "docker";
	}
	json_decref(j);
}

/* Reads the annotations in an OCI bundle, written by containerd's CRI, CRI-O, nerdctl or podman. */
static bool read_bundle(const char *path, struct container_names *n)
{
	static const char *const names[] = { "io.kubernetes.cri.container-name",
					     "io.kubernetes.container.name", "nerdctl/name",
					     "io.podman.annotations.name" };
	static const char *const pods[] = { "io.kubernetes.cri.sandbox-name",
					    "io.kubernetes.pod.name" };
	static const char *const spaces[] = { "io.kubernetes.cri.sandbox-namespace",
					      "io.kubernetes.pod.namespace" };
	json_t *j = read_json(path), *a = json_object_get(j, "annotations");
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]) && !n->name[0]; i++)
		set_text(n->name, json_string_value(json_object_get(a, names[i])));
	for (i = 0; i < sizeof(pods) / sizeof(pods[0]) && !n->pod[0]; i++)
		set_text(n->pod, json_string_value(json_object_get(a, pods[i])));
	for (i = 0; i < sizeof(spaces) / sizeof(spaces[0]) && !n->space[0]; i++)
		set_text(n->space, json_string_value(json_object_get(a, spaces[i])));
	json_decref(j);
	if (n->name[0])
		n->name_from = "OCI bundle";
	if (n->pod[0])
		n->pod_from = "OCI bundle";
	return n->name[0] || n->pod[0];
}

static void read_bundles(const char *root, const char *id, struct container_names *n)
{
	static const char *const places[] = {
		"%s/run/containerd/io.containerd.runtime.v2.task/k8s.io/%s/config.json",
		"%s/run/containerd/io.containerd.runtime.v2.task/default/%s/config.json",
		"%s/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/%s/config.json",
		"%s/run/containers/storage/overlay-containers/%s/userdata/config.json",
		"%s/var/lib/containers/storage/overlay-containers/%s/userdata/config.json",
	};
	char path[PATH_MAX];
	size_t i;

	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(path, sizeof(path), places[i], root, id);
#pragma GCC diagnostic pop
		if (read_bundle(path, n))
			return;
	}
}

/* Reads podman's file in the container. The container could have replaced it. */
static void read_containerenv(pid_t pid, struct container_names *n)
{
	char *text, *line;
	size_t len;

	text = read_file_of(pid, "/run/.containerenv", &len);
	line = text ? strstr(text, "name=\"") : NULL;
	if (line && (line == text || line[-1] == '\n')) {
		line[6 + strcspn(line + 6, "\"\n")] = '\0';
		set_text(n->name, line + 6);
		n->name_from = n->name[0] ? "/run/.containerenv" : NULL;
	}
	free(text);
}

/* Reads the initial environment: a pod's name is the HOSTNAME of its processes, and manifests often
 * set POD_NAME. */
static void read_environment(pid_t pid, struct container_names *n)
{
	static const char *const variables[] = { "POD_NAME=", "HOSTNAME=" };
	static const char *const from[] = { "POD_NAME", "HOSTNAME" };
	char *text = malloc(FILE_MAX + 1), *p;
	ssize_t len;
	size_t i, size;

	if (!text)
		return;
	len = io__text_of_process(pid, "environ", text, FILE_MAX + 1);
	for (i = 0; i < 2 && !n->pod[0]; i++) {
		for (p = text; p < text + len; p += strlen(p) + 1) {
			size = strlen(variables[i]);
			if (strncmp(p, variables[i], size))
				continue;
			set_text(n->pod, p + size);
			n->pod_from = n->pod[0] ? from[i] : NULL;
			break;
		}
	}
	free(text);
}

void container__names(pid_t pid, const struct cgroup *c, const char *root,
		      struct container_names *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (c->name[0]) {
		set_text(ret->name, c->name);
		ret->name_from = "cgroup";
	}
	if (c->container[0]) {
		read_docker(root, c->container, ret);
		if (!ret->name[0])
			read_bundles(root, c->container, ret);
		if (!ret->name[0])
			read_containerenv(pid, ret);
	}
	if (c->pod[0] && !ret->pod[0])
		read_environment(pid, ret);
}
