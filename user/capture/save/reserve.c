/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"

struct reserve {
	int dir;	/* descriptor of the folder; negative: none */
	int fd;		/* the file without a name; negative: none */
	uint64_t bytes; /* to set aside */
};

/* Sets the room aside in a file without a name. Returns 0 or -errno. */
static int set_aside(struct reserve *reserve)
{
	int err;

	reserve->fd = openat(reserve->dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (reserve->fd < 0)
		return errno == EISDIR ? -EOPNOTSUPP : -errno; /* EISDIR: no O_TMPFILE here */
	err = fallocate(reserve->fd, 0, 0, (off_t)reserve->bytes) ? -errno : 0;
	if (err)
		reserve__release(reserve);
	return err;
}

/* Opens the folder of path, or path itself if it is a folder. Returns a descriptor, or -1 with
 * errno. */
static int open_folder(const char *path)
{
	char *copy = strdup(path);
	struct stat st;
	int fd = -1;

	if (!copy)
		return -1;
	fd = open(!stat(path, &st) && S_ISDIR(st.st_mode) ? path : dirname(copy),
		  O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(copy);
	return fd;
}

struct reserve *reserve__new(const char *path, uint64_t bytes)
{
	struct reserve *reserve = calloc(1, sizeof(*reserve));
	int err;

	if (!reserve)
		return NULL;
	reserve->fd = -1;
	reserve->bytes = bytes;
	reserve->dir = open_folder(path);
	err = reserve->dir < 0 ? -errno : set_aside(reserve);
	if (!err)
		return reserve;
	reserve__free(reserve);
	errno = -err;
	return NULL;
}

void reserve__release(struct reserve *reserve)
{
	if (reserve->fd >= 0)
		close(reserve->fd);
	reserve->fd = -1;
}

void reserve__renew(struct reserve *reserve)
{
	int err = reserve->fd < 0 ? set_aside(reserve) : 0;

	if (err)
		log_warn("no room can be set aside for the next file: %s", strerror(-err));
}

void reserve__free(struct reserve *reserve)
{
	if (!reserve)
		return;
	reserve__release(reserve);
	if (reserve->dir >= 0)
		close(reserve->dir);
	free(reserve);
}

/* Our cgroup is the one with the limit, or one below it. */
bool reserve__shares_limit(pid_t pid, char *path, size_t size)
{
	struct memcg ours, its, limiting;
	size_t len;

	if (memcg__find(getpid(), &ours) || memcg__find(pid, &its) ||
	    !memcg__limiting(&its, &limiting))
		return false;
	len = strlen(limiting.dir);
	if (strncmp(ours.dir, limiting.dir, len) || (ours.dir[len] && ours.dir[len] != '/'))
		return false;
	snprintf(path, size, "%s", memcg__path(&limiting));
	return true;
}

/* True if this process may be exempt from the OOM killer: see reserve__protect(). */
static bool may_be_exempt(pid_t pid)
{
	struct memcg ours, limiting;
	char path[256];

	if (memcg__find(getpid(), &ours) || !memcg__limiting(&ours, &limiting))
		return true;
	return pid && reserve__shares_limit(pid, path, sizeof(path));
}

/* Exempts this process from the OOM killer. 0 or -errno. */
static int exempt(void)
{
	static const char never[] = "-1000";
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	int err = fd < 0 ? -errno : io__write(fd, never, strlen(never));

	if (fd >= 0)
		close(fd);
	return err;
}

void reserve__protect(pid_t pid)
{
	int err = may_be_exempt(pid) ? exempt() : -EBUSY;

	if (err)
		log_debug("the OOM killer may choose this process, too: %s",
			  err == -EBUSY ? "its cgroup has a limit of its own" : strerror(-err));
	/* Without MCL_FUTURE: mappings beyond RLIMIT_MEMLOCK would fail without CAP_IPC_LOCK. */
	if (mlockall(MCL_CURRENT | MCL_ONFAULT))
		log_debug("the pages of this process may be paged out: %s", strerror(errno));
}
