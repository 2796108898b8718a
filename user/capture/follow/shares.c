/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/pick.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"

size_t shares__count(const struct place *v, size_t n, const struct owner *owner)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += v[i].owner == owner;
	return count;
}

/* Sets the number of each owner's places of this rank; rank NULL: of all ranks. */
static void count_places(const struct place *v, size_t n, const unsigned *rank)
{
	for (size_t i = 0; i < n; i++)
		v[i].owner->places = 0;
	for (size_t i = 0; i < n; i++)
		v[i].owner->places += !rank || v[i].rank == *rank;
}

struct owner *shares__largest(const struct place *v, size_t n)
{
	struct owner *largest = NULL;

	count_places(v, n, NULL);
	for (size_t i = 0; i < n; i++)
		if (!largest || v[i].owner->places > largest->places)
			largest = v[i].owner;
	return largest;
}

/* Tries the ranks from the lowest on. Chooses the owner with the most places, and of these the
 * youngest. */
size_t shares__choose(const struct place *v, size_t n, const struct owner *owner, unsigned rank)
{
	size_t found = SHARES_NONE;

	for (unsigned r = 0; r <= rank && found == SHARES_NONE; r++) {
		/* places that an owner must have to lose one */
		size_t at_least = r < rank ? 0 : 1;

		count_places(v, n, &r);
		for (size_t i = 0; i < n && r == rank; i++)
			if (v[i].owner == owner) { /* the newcomer counts, too */
				at_least = owner->places + 1;
				break;
			}
		for (size_t i = 0; i < n; i++) {
			const struct place *place = &v[i];

			/* Equally many places: only a younger place of the same owner is better. */
			if (place->rank != r || place->owner->places < at_least ||
			    (place->owner->places == at_least &&
			     (found == SHARES_NONE || place->owner != v[found].owner ||
			      place->came < v[found].came)))
				continue;
			found = i;
			at_least = place->owner->places;
		}
	}
	return found;
}

/* ---- the owner of a process: a user or a container ---- */

#define NAMESPACES 32 /* the kernel's limit of nested user namespaces */

/* True if this control group is below the slice of a user, who may make control groups there
 * (systemd). *uid: the user. */
static bool find_slice_user(const char *path, unsigned *uid)
{
	int len = 0; /* bytes of the slice's path; 0: the pattern does not match as a whole */

	/* In a control group namespace, the path may start with "/..". */
	while (!strncmp(path, "/../", 4))
		path += 3;
	return sscanf(path, "/user.slice/user-%u.slice%n", uid, &len) == 1 && len &&
	       (path[len] == '/' || !path[len]);
}

/* Finds the outermost container of a path, since a container may make control groups that look like
 * others. *ret: c with that container, or c. */
static void find_outermost(const struct cgroup *c, struct cgroup *ret)
{
	char line[CGROUP_PATH_MAX + 8];
	const char *end = c->path;
	int n;

	*ret = *c;
	while (*end) {
		end += strcspn(end + 1, "/:") + 1;
		n = snprintf(line, sizeof(line), "0::%.*s\n", (int)(end - c->path), c->path);
		cgroup__parse(line, (size_t)n, ret);
		if (*ret->container || *ret->name)
			return;
	}
	*ret = *c;
}

/* Opens the user namespace directly below ours that holds the process. A descriptor, or -1: the
 * process is in ours, or that is not known. */
static int open_namespace(pid_t pid)
{
	struct stat ours, st;
	int fd, parent;
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	if (stat("/proc/self/ns/user", &ours) || stat(path, &st) ||
	    (st.st_ino == ours.st_ino && st.st_dev == ours.st_dev))
		return -1;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	for (int i = 0; fd >= 0 && i < NAMESPACES; i++) {
		parent = ioctl(fd, NS_GET_PARENT);
		if (parent < 0 || fstat(parent, &st) ||
		    (st.st_ino == ours.st_ino && st.st_dev == ours.st_dev)) {
			if (parent >= 0)
				close(parent);
			break;
		}
		close(fd);
		fd = parent;
	}
	return fd;
}

/* Names the owner of the process's user namespace. False: the process is in ours, or that is not
 * known. buf must be "". */
static bool name_namespace_owner(pid_t pid, char *buf, size_t size)
{
	int fd = open_namespace(pid);
	struct stat st;
	uid_t user;

	if (fd < 0)
		return false;
	if (!ioctl(fd, NS_GET_OWNER_UID, &user) && user)
		snprintf(buf, size, "user %u", user);
	else if (!fstat(fd, &st))
		snprintf(buf, size, "user namespace %lu", (unsigned long)st.st_ino);
	close(fd);
	return *buf;
}

/* Writes the owner's name: see owners__of(). */
static void name_owner(const struct pick_process *p, char *buf, size_t size)
{
	struct cgroup c;
	unsigned user;

	*buf = '\0';
	find_outermost(&p->cgroup, &c);
	if ((*c.container || *c.name) && find_slice_user(p->cgroup.path, &user))
		snprintf(buf, size, "user %u", user);
	else if (*c.container || *c.name)
		snprintf(buf, size, "container %s", *c.container ? c.container : c.name);
	else if (!name_namespace_owner(p->pid, buf, size))
		snprintf(buf, size, "user %u", p->real_uid);
}

struct owner *owners__named(struct owners *o, const char *name)
{
	struct owner *owner = NULL;

	for (size_t i = 0; i < o->n; i++) {
		if (o->v[i]->uses && !strcmp(o->v[i]->name, name))
			return owner__share(o->v[i]);
		owner = o->v[i]->uses ? owner : o->v[i];
	}
	if (!owner) {
		if (array__grow(&o->v, &o->cap, o->n + 1, sizeof(*o->v)))
			return NULL;
		owner = calloc(1, sizeof(*owner));
		if (!owner)
			return NULL;
		o->v[o->n++] = owner;
	}
	*owner = (struct owner){ .uses = 1 };
	snprintf(owner->name, sizeof(owner->name), "%s", name);
	return owner;
}

struct owner *owners__of(struct owners *o, const struct pick_process *p)
{
	char name[OWNER_NAME];

	name_owner(p, name, sizeof(name));
	return owners__named(o, name);
}

struct owner *owner__share(struct owner *w)
{
	if (w)
		w->uses++;
	return w;
}

void owner__drop(struct owner *w)
{
	if (w)
		w->uses--;
}

void owners__free(struct owners *o)
{
	for (size_t i = 0; i < o->n; i++)
		free(o->v[i]);
	free(o->v);
	*o = (struct owners){ 0 };
}
