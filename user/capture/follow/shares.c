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
#include "base/text.h"

size_t shares__count(const struct place *places, size_t n, const struct owner *owner)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += places[i].owner == owner;
	return count;
}

/* Sets the number of each owner's places of this rank; rank NULL: of all ranks. */
static void count_places(const struct place *places, size_t n, const unsigned *rank)
{
	for (size_t i = 0; i < n; i++)
		places[i].owner->places = 0;
	for (size_t i = 0; i < n; i++)
		places[i].owner->places += !rank || places[i].rank == *rank;
}

struct owner *shares__largest(const struct place *places, size_t n)
{
	struct owner *largest = NULL;

	count_places(places, n, /*rank=*/NULL);
	for (size_t i = 0; i < n; i++)
		if (!largest || places[i].owner->places > largest->places)
			largest = places[i].owner;
	return largest;
}

/* Tries the ranks from the lowest on. Chooses the owner with the most places, and of these the
 * youngest. */
size_t shares__choose(const struct place *places, size_t n, const struct owner *owner,
		      unsigned rank)
{
	size_t found = SHARES_NONE;

	for (unsigned rank_now = 0; rank_now <= rank && found == SHARES_NONE; rank_now++) {
		/* places that an owner must have to lose one */
		size_t at_least = rank_now < rank ? 0 : 1;

		count_places(places, n, &rank_now);
		for (size_t i = 0; i < n && rank_now == rank; i++)
			if (places[i].owner == owner) { /* the newcomer counts, too */
				at_least = owner->places + 1;
				break;
			}
		for (size_t i = 0; i < n; i++) {
			const struct place *place = &places[i];

			/* Equally many places: only a younger place of the same owner is better. */
			if (place->rank != rank_now || place->owner->places < at_least ||
			    (place->owner->places == at_least &&
			     (found == SHARES_NONE || place->owner != places[found].owner ||
			      place->came < places[found].came)))
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
	while (text__starts(path, "/../"))
		path += 3;
	return sscanf(path, "/user.slice/user-%u.slice%n", uid, &len) == 1 && len &&
	       (path[len] == '/' || !path[len]);
}

/* Finds the outermost container of a path, since a container may make control groups that look like
 * others. *ret: cgroup with that container, or cgroup. */
static void find_outermost(const struct cgroup *cgroup, struct cgroup *ret)
{
	char line[CGROUP_PATH_MAX + 8];
	const char *end = cgroup->path;
	int len;

	*ret = *cgroup;
	/* Try longer and longer beginnings of the path. */
	while (*end) {
		end += 1 + strcspn(end + 1, "/:"); /* the end of the next part, without its '/' */
		len = snprintf(line, sizeof(line), "0::%.*s\n", (int)(end - cgroup->path),
			       cgroup->path);
		cgroup__parse(line, (size_t)len, ret);
		if (*ret->container || *ret->name)
			return;
	}
	*ret = *cgroup;
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
static void name_owner(const struct pick_process *process, char *buf, size_t size)
{
	struct cgroup cgroup;
	unsigned user;

	*buf = '\0';
	find_outermost(&process->cgroup, &cgroup);
	if ((*cgroup.container || *cgroup.name) && find_slice_user(process->cgroup.path, &user))
		snprintf(buf, size, "user %u", user);
	else if (*cgroup.container || *cgroup.name)
		snprintf(buf, size, "container %s",
			 *cgroup.container ? cgroup.container : cgroup.name);
	else if (!name_namespace_owner(process->pid, buf, size))
		snprintf(buf, size, "user %u", process->real_uid);
}

struct owner *owners__named(struct owners *owners, const char *name)
{
	struct owner *owner = NULL;

	for (size_t i = 0; i < owners->n; i++) {
		if (owners->v[i]->uses && !strcmp(owners->v[i]->name, name))
			return owner__share(owners->v[i]);
		owner = owners->v[i]->uses ? owner : owners->v[i];
	}
	if (!owner) {
		if (array__grow(&owners->v, &owners->cap, owners->n + 1, sizeof(*owners->v)))
			return NULL;
		owner = calloc(1, sizeof(*owner));
		if (!owner)
			return NULL;
		owners->v[owners->n++] = owner;
	}
	*owner = (struct owner){ .uses = 1 };
	snprintf(owner->name, sizeof(owner->name), "%s", name);
	return owner;
}

struct owner *owners__of(struct owners *owners, const struct pick_process *process)
{
	char name[OWNER_NAME];

	name_owner(process, name, sizeof(name));
	return owners__named(owners, name);
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

void owners__free(struct owners *owners)
{
	for (size_t i = 0; i < owners->n; i++)
		free(owners->v[i]);
	free(owners->v);
	*owners = (struct owners){ 0 };
}
