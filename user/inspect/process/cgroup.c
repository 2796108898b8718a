/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
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
#include "inspect/cgroup.h"

#include <string.h>
#include <unistd.h>

#include "base/io.h"

#define ID 64
#define UID 36
#define UID_PLAIN 32
#define TEXT_MAX (64u << 10)

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

static size_t without(const char *s, size_t len, const char *end)
{
	return ends_with(s, len, end) ? len - strlen(end) : len;
}

static void set(char *to, size_t size, const char *from, size_t len)
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
			set(c->runtime, sizeof(c->runtime), known[i].name, strlen(known[i].name));
	}
}

/* Takes a container id: "<id>", "docker-<id>.scope". */
static bool take_container(struct cgroup *c, const char *part, size_t len)
{
	size_t before;

	len = without(part, len, ".scope");
	if (len < ID || !is_hex(part + len - ID, ID))
		return false;
	before = len - ID;
	if (before && (part[before - 1] != '-' || ends_with(part, before, "conmon-")))
		return false;
	set(c->container, sizeof(c->container), part + before, ID);
	c->name[0] = c->runtime[0] = '\0';
	if (before)
		set_runtime(c, part, before - 1);
	return true;
}

static bool is_uid(const char *s, char dash)
{
	static const size_t dashes[] = { 8, 13, 18, 23 };
	size_t i, at = 0;

	for (i = 0; i < UID; i++) {
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

/* Takes a pod: "pod<uid>", "kubepods-burstable-pod<uid_>.slice". */
static bool take_pod(struct cgroup *c, const char *part, size_t len)
{
	size_t i, n;

	len = without(part, len, ".slice");
	n = len >= UID + 3 && !memcmp(part + len - UID - 3, "pod", 3)		    ? UID
	    : len >= UID_PLAIN + 3 && !memcmp(part + len - UID_PLAIN - 3, "pod", 3) ? UID_PLAIN
										    : 0;
	if (!n || (len > n + 3 && part[len - n - 4] != '-'))
		return false;
	part += len - n;
	if (n == UID ? !is_uid(part, '-') && !is_uid(part, '_') : !is_hex(part, n))
		return false;
	set(c->pod, sizeof(c->pod), part, n);
	for (i = 0; i < n; i++)
		c->pod[i] = c->pod[i] == '_' ? '-' : c->pod[i];
	return true;
}

static bool take_name(struct cgroup *c, const char *runtime, const char *name, size_t len)
{
	if (!len)
		return false;
	set(c->runtime, sizeof(c->runtime), runtime, strlen(runtime));
	set(c->name, sizeof(c->name), name, len);
	c->container[0] = '\0';
	return true;
}

/* Takes a component with a name instead of an id. before: the previous component. */
static bool take_named(struct cgroup *c, const char *part, size_t len, const char *before,
		       size_t before_len)
{
	static const char payload[] = "lxc.payload.", machine[] = "machine-",
			  nspawn[] = "systemd-nspawn@";

	if (len > strlen(payload) && !memcmp(part, payload, strlen(payload)))
		return take_name(c, "lxc", part + strlen(payload), len - strlen(payload));
	if (before_len == 3 && !memcmp(before, "lxc", 3))
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

/* Parses one hierarchy's path. True: it has a container or a pod. */
static bool parse_path(struct cgroup *c, const char *path, size_t len)
{
	const char *part = path, *before = path, *end = path + len;
	size_t n, before_len = 0;
	bool found = false;

	for (; part < end; before = part, before_len = n, part += n + 1) {
		n = 0;
		while (part + n < end && part[n] != '/' && part[n] != ':')
			n++;
		if (take_container(c, part, n)) {
			found = true;
			if (before_len && !c->runtime[0])
				set_runtime(c, before, before_len);
		} else if (take_pod(c, part, n)) {
			/* Outer components only describe the node of the pod. */
			found = true;
			c->container[0] = c->name[0] = c->runtime[0] = '\0';
		} else if (take_named(c, part, n, before, before_len)) {
			found = true;
		}
	}
	return found;
}

/* Parses a line. Returns the rank of its hierarchy, higher is preferred; 0: malformed. *path: the
 * text after the second colon. */
static int rank_of(const char *line, size_t len, const char **path, size_t *path_len)
{
	const char *first = memchr(line, ':', len), *second;
	size_t n;

	second = first ? memchr(first + 1, ':', len - (size_t)(first + 1 - line)) : NULL;
	if (!second || second + 1 == line + len || second[1] != '/')
		return 0;
	*path = second + 1;
	*path_len = len - (size_t)(second + 1 - line);
	n = (size_t)(second - first - 1);
	if (*path_len <= 1)
		return 1;
	return !n ? 4 : memmem(first + 1, n, "memory", 6) ? 3 : 2;
}

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
		weight = n && !memchr(text, '\0', n) ? rank_of(text, n, &path, &path_len) : 0;
		memset(&c, 0, sizeof(c));
		if (weight && path_len < TEXT_MAX && parse_path(&c, path, path_len))
			weight += 8;
		if (weight > best) {
			best = weight;
			*ret = c;
			set(ret->path, sizeof(ret->path), path, path_len);
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
