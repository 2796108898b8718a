/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/container.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"

/*
 * Components of a path that identify a container or pod. The innermost counts, since a Kubernetes
 * node of kind is itself a container:
 *
 *   /docker/<id>                            docker, cgroupfs driver
 *   /system.slice/docker-<id>.scope         docker, systemd driver
 *   /kubepods/burstable/pod<uid>/<id>       Kubernetes, cgroupfs driver
 *   /kubepods.slice/.../kubepods-burstable-pod<uid_>.slice/cri-containerd-<id>.scope
 *                                           Kubernetes, systemd driver
 *   /system.slice/containerd.service/kubepods-pod<uid_>.slice:cri-containerd:<id>
 *                                           a systemd path under the cgroupfs driver
 *   /machine.slice/libpod-<id>.scope/container
 *                                           podman; its monitor is in libpod-conmon-<id>.scope
 *   /lxc.payload.<name>/..., /lxc/<name>    LXC
 *   /machine.slice/machine-<name>.scope     systemd-nspawn; also systemd-nspawn@<name>.service
 */

/* Characters of a container's id, and of a pod's UID with and without dashes. */
#define ID_LEN 64
#define UID_LEN 36
#define UID_PLAIN_LEN 32
#define PATH_TEXT_MAX (64u << 10)
#define DELETED " (deleted)" /* the kernel's suffix of a removed control group's path */

static bool is_hex(const char *s, size_t n)
{
	size_t i;

	for (i = 0; i < n && ((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')); i++)
		;
	return i == n;
}

static bool ends_with(const char *s, size_t len, const char *end)
{
	size_t n = strlen(end);

	return len >= n && !memcmp(s + len - n, end, n);
}

/* The length of s without this end, if s has it. */
static size_t cut_suffix(const char *s, size_t len, const char *end)
{
	return ends_with(s, len, end) ? len - strlen(end) : len;
}

static void copy_text(char *to, size_t size, const char *from, size_t len)
{
	if (len >= size)
		len = size - 1;
	memcpy(to, from, len);
	to[len] = '\0';
}

/* Sets the runtime from the prefix of the id, or from an outer component. */
static void set_runtime(struct cgroup *c, const char *prefix, size_t len)
{
	static const struct {
		const char *prefix, *name;
	} known[] = { { "docker", "docker" },
		      { "cri-containerd", "containerd" },
		      { "crio", "crio" },
		      { "libpod", "podman" },
		      { "nerdctl", "nerdctl" } };
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strlen(known[i].prefix) == len && !memcmp(known[i].prefix, prefix, len))
			copy_text(c->runtime, sizeof(c->runtime), known[i].name,
				  strlen(known[i].name));
	}
}

/* Stores the container id of a path component such as "<id>" or "docker-<id>.scope". False: the
 * component has no id. */
static bool take_container(struct cgroup *c, const char *part, size_t len)
{
	size_t prefix_len;

	len = cut_suffix(part, len, ".scope");
	if (len < ID_LEN || !is_hex(part + len - ID_LEN, ID_LEN))
		return false;
	prefix_len = len - ID_LEN;
	if (prefix_len && (part[prefix_len - 1] != '-' || ends_with(part, prefix_len, "conmon-")))
		return false;
	copy_text(c->container, sizeof(c->container), part + prefix_len, ID_LEN);
	c->name[0] = c->runtime[0] = '\0';
	if (prefix_len)
		set_runtime(c, part, prefix_len - 1);
	return true;
}

/* Whether s begins with a UID: 8-4-4-4-12 hexadecimal digits, with this dash. */
static bool is_uid(const char *s, char dash)
{
	static const size_t dashes[] = { 8, 13, 18, 23 };
	size_t i, at = 0;

	for (i = 0; i < UID_LEN; i++) {
		if (at < 4 && i == dashes[at]) {
			if (s[i] != dash)
				return false;
			at++;
		} else if (!is_hex(s + i, 1)) {
			return false;
		}
	}
	return true;
}

/* Whether the component ends with "pod" and a UID of this length; does not check the UID. */
static bool ends_with_uid(const char *part, size_t len, size_t uid_len)
{
	return len >= uid_len + 3 && !memcmp(part + len - uid_len - 3, "pod", 3);
}

/* Stores the pod's UID, if a path component is "pod<uid>" or like
 * "kubepods-burstable-pod<uid_>.slice". True: it is. */
static bool take_pod(struct cgroup *c, const char *part, size_t len)
{
	size_t i, uid_len = UID_LEN;

	len = cut_suffix(part, len, ".slice");
	if (!ends_with_uid(part, len, uid_len))
		uid_len = UID_PLAIN_LEN;
	if (!ends_with_uid(part, len, uid_len) ||
	    (len > uid_len + 3 && part[len - uid_len - 4] != '-'))
		return false;
	part += len - uid_len;
	if (uid_len == UID_LEN ? !is_uid(part, '-') && !is_uid(part, '_') : !is_hex(part, uid_len))
		return false;
	copy_text(c->pod, sizeof(c->pod), part, uid_len);
	for (i = 0; i < uid_len; i++)
		c->pod[i] = c->pod[i] == '_' ? '-' : c->pod[i];
	return true;
}

/* Stores the name of a container without an id. False: the name is empty. */
static bool take_name(struct cgroup *c, const char *runtime, const char *name, size_t len)
{
	if (!len)
		return false;
	copy_text(c->runtime, sizeof(c->runtime), runtime, strlen(runtime));
	copy_text(c->name, sizeof(c->name), name, len);
	c->container[0] = '\0';
	return true;
}

/* Stores a container's name, if a path component has one instead of an id (LXC, nspawn). True: it
 * has. previous: the component before it. */
static bool take_named(struct cgroup *c, const char *part, size_t len, const char *previous,
		       size_t previous_len)
{
	static const char payload[] = "lxc.payload.", machine[] = "machine-",
			  nspawn[] = "systemd-nspawn@";

	if (len > strlen(payload) && !memcmp(part, payload, strlen(payload)))
		return take_name(c, "lxc", part + strlen(payload), len - strlen(payload));
	if (previous_len == 3 && !memcmp(previous, "lxc", 3))
		return take_name(c, "lxc", part, len);
	if (len > strlen(machine) && !memcmp(part, machine, strlen(machine)) &&
	    ends_with(part, len, ".scope") && !memmem(part, len, "qemu", 4))
		return take_name(c, "nspawn", part + strlen(machine),
				 len - strlen(machine) - strlen(".scope"));
	if (len > strlen(nspawn) && !memcmp(part, nspawn, strlen(nspawn)) &&
	    ends_with(part, len, ".service"))
		return take_name(c, "nspawn", part + strlen(nspawn),
				 len - strlen(nspawn) - strlen(".service"));
	return false;
}

/* Parses one hierarchy's path into *c. True: the path has a container or a pod. */
static bool parse_path(struct cgroup *c, const char *path, size_t len)
{
	const char *part = path, *previous = path, *end = path + len;
	size_t len_part, previous_len = 0;
	bool found = false;

	for (; part < end; previous = part, previous_len = len_part, part += len_part + 1) {
		len_part = 0;
		while (part + len_part < end && part[len_part] != '/' && part[len_part] != ':')
			len_part++;
		if (take_container(c, part, len_part)) {
			found = true;
			if (previous_len && !c->runtime[0])
				set_runtime(c, previous, previous_len);
		} else if (take_pod(c, part, len_part)) {
			/* Outer components only describe the node of the pod. */
			found = true;
			c->container[0] = c->name[0] = c->runtime[0] = '\0';
		} else if (take_named(c, part, len_part, previous, previous_len)) {
			found = true;
		}
	}
	return found;
}

/* Parses a line "number:controllers:path". Returns the rank of its hierarchy: 4 cgroup v2, 3 the v1
 * controller "memory", 2 others of v1, 1 the root of any; 0: malformed. */
static int rank_line(const char *line, size_t len, const char **path, size_t *path_len)
{
	const char *colon = memchr(line, ':', len), *colon2;
	size_t controllers_len;

	colon2 = colon ? memchr(colon + 1, ':', len - (size_t)(colon + 1 - line)) : NULL;
	if (!colon2 || colon2 + 1 == line + len || colon2[1] != '/')
		return 0;
	*path = colon2 + 1;
	*path_len = len - (size_t)(colon2 + 1 - line);
	controllers_len = (size_t)(colon2 - colon - 1);
	if (*path_len <= 1)
		return 1;
	if (!controllers_len)
		return 4;
	return memmem(colon + 1, controllers_len, "memory", 6) ? 3 : 2;
}

/* Takes the hierarchy with the highest rank; any with a container or pod outranks all others. */
void cgroup__parse(const char *text, size_t len, struct cgroup *ret)
{
	struct cgroup c;
	const char *path = NULL, *end;
	size_t n, path_len = 0;
	int weight, best = 0;

	memset(ret, 0, sizeof(*ret));
	for (; len; text += n, len -= n) {
		end = memchr(text, '\n', len);
		n = end ? (size_t)(end - text) : len;
		weight = n && !memchr(text, '\0', n) ? rank_line(text, n, &path, &path_len) : 0;
		memset(&c, 0, sizeof(c));
		c.deleted = weight && ends_with(path, path_len, DELETED);
		path_len -= c.deleted ? strlen(DELETED) : 0;
		if (weight && path_len < PATH_TEXT_MAX && parse_path(&c, path, path_len))
			weight += 8; /* preferred to all without */
		if (weight > best) {
			best = weight;
			*ret = c;
			copy_text(ret->path, sizeof(ret->path), path, path_len);
		}
		n += end ? 1 : 0;
	}
}

int cgroup__read(pid_t pid, struct cgroup *ret)
{
	char text[16384];
	ssize_t len = io__text_of_process(pid, "cgroup", text, sizeof(text));

	memset(ret, 0, sizeof(*ret));
	if (len < 0)
		return (int)len;
	cgroup__parse(text, (size_t)len, ret);
	return 0;
}

bool cgroup__same_place(const struct cgroup *a, const struct cgroup *b)
{
	if (a->pod[0] || b->pod[0])
		return !strcmp(a->pod, b->pod);
	return !strcmp(a->container, b->container) && !strcmp(a->name, b->name);
}

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

/* Reads a file below a process's root; links stay below it. As read_open_file(). */
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

/* Sets `to` to the first of these annotations that has a text. */
static void set_annotation(char *to, const json_t *annotations, const char *const keys[])
{
	for (; *keys && !to[0]; keys++)
		set_text(to, json_string_value(json_object_get(annotations, *keys)));
}

/* Reads the annotations in an OCI bundle, written by containerd's CRI, CRI-O, nerdctl or podman.
 * True: they name the container or the pod. */
static bool read_bundle(const char *path, struct container_names *n)
{
	static const char *const names[] = { "io.kubernetes.cri.container-name",
					     "io.kubernetes.container.name", "nerdctl/name",
					     "io.podman.annotations.name", NULL };
	static const char *const pods[] = { "io.kubernetes.cri.sandbox-name",
					    "io.kubernetes.pod.name", NULL };
	static const char *const spaces[] = { "io.kubernetes.cri.sandbox-namespace",
					      "io.kubernetes.pod.namespace", NULL };
	json_t *j = read_json(path);
	const json_t *annotations = json_object_get(j, "annotations");

	set_annotation(n->name, annotations, names);
	set_annotation(n->pod, annotations, pods);
	set_annotation(n->space, annotations, spaces);
	json_decref(j);
	if (n->name[0])
		n->name_from = "OCI bundle";
	if (n->pod[0])
		n->pod_from = "OCI bundle";
	return n->name[0] || n->pod[0];
}

/* Reads the OCI bundle of a container, from the first place that has it. */
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

/* Tries the sources in turn: first those that the container cannot change. */
void container__names(pid_t pid, const struct cgroup *c, const char *root,
		      struct container_names *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (c->name[0]) {
		set_text(ret->name, c->name);
		ret->name_from = "cgroup";
	}
	if (c->container[0])
		read_docker(root, c->container, ret);
	if (c->container[0] && !ret->name[0])
		read_bundles(root, c->container, ret);
	if (c->container[0] && !ret->name[0])
		read_containerenv(pid, ret);
	if (c->pod[0] && !ret->pod[0])
		read_environment(pid, ret);
}

/* Number of container ids in a path. */
static unsigned count_ids(const char *path)
{
	unsigned n = 0;

	for (size_t len; *path; path += len ?: 1) {
		len = strspn(path, "0123456789abcdef");
		n += len == ID_LEN;
	}
	return n;
}

bool container__is_gone(const struct cgroup *c, const char *root)
{
	char path[PATH_MAX];

	if (c->deleted)
		return true;
	/* docker inside of a container has its files there. */
	if (strcmp(c->runtime, "docker") != 0 || count_ids(c->path) != 1)
		return false;
	snprintf(path, sizeof(path), "%s/var/lib/docker/containers", root);
	if (access(path, F_OK))
		return false;
	snprintf(path, sizeof(path), "%s/var/lib/docker/containers/%s", root, c->container);
	return access(path, F_OK) && errno == ENOENT;
}
