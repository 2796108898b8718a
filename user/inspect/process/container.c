/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/container.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/io.h"
#include "base/subprocess.h"
#include "base/text.h"

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
#define OWN_FILES_WITHIN 500 /* ms for a process's own files to answer */
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
static void set_runtime(struct cgroup *cgroup, const char *prefix, size_t len)
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
			copy_text(cgroup->runtime, sizeof(cgroup->runtime), known[i].name,
				  strlen(known[i].name));
	}
}

/* Stores the container id of a path component such as "<id>" or "docker-<id>.scope". False: the
 * component has no id. */
static bool take_container(struct cgroup *cgroup, const char *part, size_t len)
{
	size_t prefix_len;

	len = cut_suffix(part, len, ".scope");
	if (len < ID_LEN || !is_hex(part + len - ID_LEN, ID_LEN))
		return false;
	prefix_len = len - ID_LEN;
	if (prefix_len && (part[prefix_len - 1] != '-' || ends_with(part, prefix_len, "conmon-")))
		return false;
	copy_text(cgroup->container, sizeof(cgroup->container), part + prefix_len, ID_LEN);
	cgroup->name[0] = cgroup->runtime[0] = '\0';
	if (prefix_len)
		set_runtime(cgroup, part, prefix_len - 1);
	return true;
}

/* True if s begins with a UID: 8-4-4-4-12 hexadecimal digits, with this dash. */
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

/* True if the component ends with "pod" and a UID of this length; does not check the UID. */
static bool ends_with_uid(const char *part, size_t len, size_t uid_len)
{
	return len >= uid_len + 3 && !memcmp(part + len - uid_len - 3, "pod", 3);
}

/* Stores the pod's UID, if a path component is "pod<uid>" or like
 * "kubepods-burstable-pod<uid_>.slice". True: it is. */
static bool take_pod(struct cgroup *cgroup, const char *part, size_t len)
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
	copy_text(cgroup->pod, sizeof(cgroup->pod), part, uid_len);
	for (i = 0; i < uid_len; i++)
		cgroup->pod[i] = cgroup->pod[i] == '_' ? '-' : cgroup->pod[i];
	return true;
}

/* Stores the name of a container without an id. False: the name is empty. */
static bool take_name(struct cgroup *cgroup, const char *runtime, const char *name, size_t len)
{
	if (!len)
		return false;
	copy_text(cgroup->runtime, sizeof(cgroup->runtime), runtime, strlen(runtime));
	copy_text(cgroup->name, sizeof(cgroup->name), name, len);
	cgroup->container[0] = '\0';
	return true;
}

/* Stores a container's name, if a path component has one instead of an id (LXC, nspawn). True: it
 * has. previous: the component before it. */
static bool take_named(struct cgroup *cgroup, const char *part, size_t len, const char *previous,
		       size_t previous_len)
{
	static const char payload[] = "lxc.payload.", machine[] = "machine-",
			  nspawn[] = "systemd-nspawn@";

	if (len > strlen(payload) && !memcmp(part, payload, strlen(payload)))
		return take_name(cgroup, "lxc", part + strlen(payload), len - strlen(payload));
	if (previous_len == 3 && !memcmp(previous, "lxc", 3))
		return take_name(cgroup, "lxc", part, len);
	if (len > strlen(machine) && !memcmp(part, machine, strlen(machine)) &&
	    ends_with(part, len, ".scope") && !memmem(part, len, "qemu", 4))
		return take_name(cgroup, "nspawn", part + strlen(machine),
				 len - strlen(machine) - strlen(".scope"));
	if (len > strlen(nspawn) && !memcmp(part, nspawn, strlen(nspawn)) &&
	    ends_with(part, len, ".service"))
		return take_name(cgroup, "nspawn", part + strlen(nspawn),
				 len - strlen(nspawn) - strlen(".service"));
	return false;
}

/* Parses one hierarchy's path into *cgroup. True: the path has a container or a pod. */
static bool parse_path(struct cgroup *cgroup, const char *path, size_t len)
{
	const char *part = path, *previous = path, *end = path + len;
	size_t len_part, previous_len = 0;
	bool found = false;

	for (; part < end; previous = part, previous_len = len_part, part += len_part + 1) {
		len_part = 0;
		while (part + len_part < end && part[len_part] != '/' && part[len_part] != ':')
			len_part++;
		if (take_container(cgroup, part, len_part)) {
			found = true;
			if (previous_len && !cgroup->runtime[0])
				set_runtime(cgroup, previous, previous_len);
		} else if (take_pod(cgroup, part, len_part)) {
			/* Outer components only describe the node of the pod. */
			found = true;
			cgroup->container[0] = cgroup->name[0] = cgroup->runtime[0] = '\0';
		} else if (take_named(cgroup, part, len_part, previous, previous_len)) {
			found = true;
		}
	}
	return found;
}

/* Parses a line "number:controllers:path"; *path_len: length of its path. Returns the rank of its
 * hierarchy: 4 cgroup v2, 3 the v1 controller "memory", 2 others of v1, 1 the root of any; 0:
 * malformed. */
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

/* Takes the hierarchy with the highest rank. Any with a container or a pod outranks all others. */
void cgroup__parse(const char *text, size_t len, struct cgroup *ret)
{
	struct cgroup candidate;
	const char *path = NULL, *end;
	size_t len_line, path_len = 0;
	int rank, best_rank = 0;

	memset(ret, 0, sizeof(*ret));
	for (; len; text += len_line, len -= len_line) {
		end = memchr(text, '\n', len);
		len_line = end ? (size_t)(end - text) : len;
		rank = len_line && !memchr(text, '\0', len_line)
			       ? rank_line(text, len_line, &path, &path_len)
			       : 0;
		memset(&candidate, 0, sizeof(candidate));
		candidate.deleted = rank && ends_with(path, path_len, DELETED);
		path_len -= candidate.deleted ? strlen(DELETED) : 0;
		if (rank && path_len < PATH_TEXT_MAX && parse_path(&candidate, path, path_len))
			rank += 8; /* more than rank_line() gives */
		if (rank > best_rank) {
			best_rank = rank;
			*ret = candidate;
			copy_text(ret->path, sizeof(ret->path), path, path_len);
		}
		len_line += end ? 1 : 0;
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

/* Reads a file whole and closes it; the caller frees the text. NULL: too
 * long, unreadable, fd is negative, or memory is short. */
static char *read_open_file(int fd, size_t *len)
{
	char *buf;
	ssize_t got;

	*len = 0;
	if (fd < 0)
		return NULL;
	buf = malloc(FILE_MAX + 1);
	if (!buf) {
		close(fd);
		return NULL;
	}
	got = io__read(fd, buf, FILE_MAX);
	close(fd);
	if (got < 0 || got == FILE_MAX) { /* the file may be longer */
		free(buf);
		return NULL;
	}
	buf[got] = '\0';
	*len = (size_t)got;
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

/* Copies a name, unless there is none. */
static void set_text(char *to, const char *from)
{
	if (from && from[0])
		snprintf(to, CONTAINER_NAME_MAX, "%s", from);
}

/* NULL: unreadable, too long, or no JSON. */
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
static void read_environment(pid_t pid, struct container_names *names)
{
	static const char *const prefixes[] = { "POD_NAME=", "HOSTNAME=" };
	static const char *const sources[] = { "POD_NAME", "HOSTNAME" };
	char *text = malloc(FILE_MAX + 1), *variable;
	ssize_t len;
	size_t i, size;

	if (!text)
		return;
	len = io__text_of_process(pid, "environ", text, FILE_MAX + 1);
	for (i = 0; i < 2 && !names->pod[0]; i++) {
		for (variable = text; variable < text + len; variable += strlen(variable) + 1) {
			size = strlen(prefixes[i]);
			if (strncmp(variable, prefixes[i], size))
				continue;
			set_text(names->pod, variable + size);
			names->pod_from = names->pod[0] ? sources[i] : NULL;
			break;
		}
	}
	free(text);
}

/* ---- names ---- */

/* Sources that the container cannot change. */
static void read_hosts_files(const struct cgroup *cgroup, const char *root,
			     struct container_names *n)
{
	if (cgroup->name[0]) {
		set_text(n->name, cgroup->name);
		n->name_from = "cgroup";
	}
	if (cgroup->container[0])
		read_docker(root, cgroup->container, n);
	if (cgroup->container[0] && !n->name[0])
		read_bundles(root, cgroup->container, n);
}

static bool has_all_names(const struct cgroup *cgroup, const struct container_names *n)
{
	return (!cgroup->container[0] || n->name[0]) && (!cgroup->pod[0] || n->pod[0]);
}

/* The process's own files and environment. */
static void read_own_files(pid_t pid, const struct cgroup *cgroup, struct container_names *n)
{
	if (cgroup->container[0] && !n->name[0])
		read_containerenv(pid, n);
	if (cgroup->pod[0] && !n->pod[0])
		read_environment(pid, n);
}

void container__names(pid_t pid, const struct cgroup *cgroup, const char *root,
		      struct container_names *ret)
{
	memset(ret, 0, sizeof(*ret));
	read_hosts_files(cgroup, root, ret);
	read_own_files(pid, cgroup, ret);
}

struct own_files {
	pid_t pid;
	const struct cgroup *cgroup;
	atomic_uint progress;
	struct container_names names;
};

static int run_helper(void *ctx)
{
	struct own_files *o = ctx;

	read_own_files(o->pid, o->cgroup, &o->names);
	return 0;
}

void container__names_in_time(pid_t pid, const struct cgroup *cgroup, struct container_names *ret,
			      struct subprocess_lost *lost)
{
	struct own_files *o;

	memset(ret, 0, sizeof(*ret));
	read_hosts_files(cgroup, "", ret);
	if (has_all_names(cgroup, ret))
		return;
	o = mmap(NULL, sizeof(*o), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (o == MAP_FAILED)
		return;
	*o = (struct own_files){ .pid = pid, .cgroup = cgroup, .names = *ret };
	if (!subprocess__try(run_helper, o, &o->progress, OWN_FILES_WITHIN, lost))
		*ret = o->names;
	munmap(o, sizeof(*o));
}

void container__show(const struct cgroup *cgroup, const struct container_names *names,
		     char *container, char *pod)
{
	const char *name, *pod_name = cgroup->pod;
	char id[16];

	snprintf(id, sizeof(id), "%.12s", cgroup->container);
	name = *cgroup->name ? cgroup->name : id;
	if (names && *names->name)
		name = names->name;
	if (names && *names->pod)
		pod_name = names->pod;
	text__clean(container, CONTAINER_SHOWN, name, strlen(name));
	text__clean(pod, CONTAINER_SHOWN, pod_name, strlen(pod_name));
}

/* ---- the end of containers ---- */

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

/* True if one of this host's own runtimes made the control group. Its path tells: a user can choose
 * names only below the user's own slice, root of a container only below the container's group. */
static bool is_of_host(const struct cgroup *cgroup)
{
	static const char *const starts[] = {
		"/docker/",
		"/system.slice/docker-",
		"/libpod_parent/",
		"/machine.slice/libpod-",
		"/kubepods/",
		"/kubepods.slice/",
		"/kubepods-",
		"/system.slice/containerd.service/kubepods",
		"/system.slice/crio-",
		"/system.slice/nerdctl-",
		"/default/",
	};

	/* A path of this length may be cut. */
	if (!*cgroup->container || count_ids(cgroup->path) != 1 ||
	    strlen(cgroup->path) >= sizeof(cgroup->path) - 1)
		return false;
	for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++)
		if (text__starts(cgroup->path, starts[i]))
			return true;
	return false;
}

/* Quotes a name for a shell. False: it is none, or would be an option. */
static bool is_word(const char *name, char *quoted, size_t size)
{
	return *name && *name != '-' && text__shell(quoted, size, name);
}

char *container__end_command(char *buf, size_t size, const struct cgroup *cgroup,
			     const struct container_names *names)
{
	bool by_docker = !strcmp(cgroup->runtime, "docker");
	char name[CONTAINER_NAME_MAX + 8], space[CONTAINER_NAME_MAX + 8];
	const char *from = by_docker ? "docker" : "OCI bundle";
	int len = 0;

	*buf = '\0';
	if (!is_of_host(cgroup))
		return buf;
	/* What ends a container of a pod does not last: the kubelet starts another one. */
	if (*cgroup->pod && names->pod_from && !strcmp(names->pod_from, "OCI bundle") &&
	    is_word(names->pod, name, sizeof(name)) && is_word(names->space, space, sizeof(space)))
		len = snprintf(buf, size, "kubectl delete pod %s -n %s", name, space);
	if (!*cgroup->pod && (by_docker || !strcmp(cgroup->runtime, "podman"))) {
		if (!names->name_from || strcmp(names->name_from, from) != 0 ||
		    !is_word(names->name, name, sizeof(name)))
			snprintf(name, sizeof(name), "%.12s", cgroup->container);
		len = snprintf(buf, size, "sudo %s rm -f %s", cgroup->runtime, name);
	}
	if (len < 0 || (size_t)len >= size) /* a part of a name may be another name */
		*buf = '\0';
	return buf;
}

/* Folders that have an entry for each container of a runtime, as long as it exists. */
static const struct {
	const char *runtime, *folders; /* a pattern of glob() */
} homes[] = {
	{ "docker", "/var/lib/docker/containers" },
	/* Docker's own folder may have moved and left this one behind. */
	{ "docker", "/run/containerd/io.containerd.runtime.v*/*" },
	{ "containerd", "/run/containerd/io.containerd.runtime.v*/*" },
	{ "containerd", "/run/k3s/containerd/io.containerd.runtime.v*/*" },
	{ "nerdctl", "/run/containerd/io.containerd.runtime.v*/*" },
	{ "podman", "/var/lib/containers/storage/*-containers" },
	{ "podman", "/run/containers/storage/*-containers" },
	{ "crio", "/var/lib/containers/storage/*-containers" },
	{ "crio", "/run/containers/storage/*-containers" },
};

enum entry { ENTRY_UNKNOWN, ENTRY_MISSING, ENTRY_FOUND };

/* For glob(): goes on where a folder does not exist, and ends where one is not readable. */
static int on_error(const char *path, int err)
{
	(void)path;
	return err != ENOENT && err != ENOTDIR;
}

/* Looks for a container in the folders of a pattern. ENTRY_UNKNOWN: there are none. */
static enum entry find_entry(const char *root, const char *folders, const char *id)
{
	enum entry found = ENTRY_UNKNOWN;
	char path[PATH_MAX];
	glob_t g = { 0 };

	snprintf(path, sizeof(path), "%s%s", root, folders);
	if (glob(path, GLOB_NOSORT, on_error, &g) == GLOB_ABORTED)
		found = ENTRY_FOUND; /* it may be there */
	for (size_t i = 0; i < g.gl_pathc && found != ENTRY_FOUND; i++) {
		snprintf(path, sizeof(path), "%s/%s", g.gl_pathv[i], id);
		found = access(path, F_OK) && errno == ENOENT ? ENTRY_MISSING : ENTRY_FOUND;
	}
	globfree(&g);
	return found;
}

bool container__is_gone(const struct cgroup *cgroup, const char *root)
{
	/* The cgroupfs driver of Kubernetes does not name the runtime. */
	bool any = *cgroup->pod && !*cgroup->runtime, missing = false;

	if (cgroup->deleted)
		return true;
	if (!is_of_host(cgroup))
		return false;
	for (size_t i = 0; i < sizeof(homes) / sizeof(*homes); i++) {
		enum entry e;

		if (!any && strcmp(cgroup->runtime, homes[i].runtime) != 0)
			continue;
		e = find_entry(root, homes[i].folders, cgroup->container);
		if (e == ENTRY_FOUND)
			return false;
		missing |= e == ENTRY_MISSING;
	}
	return missing;
}
