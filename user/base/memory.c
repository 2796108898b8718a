/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

#define TEXT_MAX (256u << 10) /* bytes of a file of /proc */
#define DEEPEST 16	      /* levels of cgroups below one whose processes are read */

/* ---- the cgroup of a process ---- */

/* Finds the cgroup's path in the text of /proc/PID/cgroup: in the line of the memory controller,
 * otherwise in that of v2. Sets *path to it, within the text. Returns its length; 0: none. */
static size_t find_path(const char *cgroups, const char **path, bool *v2)
{
	size_t found = 0, len;

	for (const char *line = cgroups; *line; line += len + (line[len] == '\n')) {
		const char *first, *second;

		len = strcspn(line, "\n");
		first = memchr(line, ':', len);
		second = first ? memchr(first + 1, ':', len - (size_t)(first + 1 - line)) : NULL;
		if (!second || second[1] != '/')
			continue;
		if (second == first + 1 && !found) {
			*v2 = true;
		} else {
			const char *name = memmem(first, (size_t)(second - first), "memory", 6);

			/* a whole word in the list of controllers */
			if (!name || (name[-1] != ':' && name[-1] != ',') ||
			    (name + 6 != second && name[6] != ','))
				continue;
			*v2 = false;
		}
		*path = second + 1;
		found = len - (size_t)(second + 1 - line);
		if (!*v2)
			break;
	}
	return found;
}

/* True if a line of mountinfo, which this changes, mounts the hierarchy of the memory controller:
 * then *root is the mounted part of the hierarchy, and *at where it is mounted. */
static bool is_mount_of(char *line, bool v2, char **root, char **at)
{
	char *rest = strstr(line, " - "), *save = NULL, *type, *options;

	if (!rest)
		return false;
	*rest = '\0';
	type = strtok_r(rest + 3, " ", &save);
	strtok_r(NULL, " ", &save);
	options = strtok_r(NULL, " ", &save);
	if (!type || strcmp(type, v2 ? "cgroup2" : "cgroup") != 0)
		return false;
	if (!v2) {
		char *option, *more = NULL;

		for (option = options ? strtok_r(options, ",", &more) : NULL;
		     option && strcmp(option, "memory") != 0; option = strtok_r(NULL, ",", &more))
			;
		if (!option)
			return false;
	}
	for (int i = 0; i < 3; i++) /* ID, ID of the parent, device */
		strtok_r(i ? NULL : line, " ", &save);
	*root = strtok_r(NULL, " ", &save);
	*at = strtok_r(NULL, " ", &save);
	if (!*root || !*at)
		return false;
	io__unescape_path(*root);
	io__unescape_path(*at);
	return true;
}

/* Sets m->dir to the folder of the cgroup: the mount point `at`, and the part of its path (len
 * bytes) below the mounted root. Returns 0, or -ENOENT: the cgroup is not below that root. */
static int set_dir(struct memcg *m, const char *root, const char *at, const char *path, size_t len)
{
	size_t root_len = strlen(root);
	int dir_len;

	if (root_len == 1) /* "/" */
		root_len = 0;
	if (len < root_len || memcmp(path, root, root_len) ||
	    (len > root_len && path[root_len] != '/') || memmem(path, len, "/..", 3))
		return -ENOENT;
	path += root_len;
	len -= root_len;
	if (len == 1)
		len = 0;
	m->top = strlen(at);
	dir_len = snprintf(m->dir, sizeof(m->dir), "%s%.*s", at, (int)len, path);
	return dir_len < (int)sizeof(m->dir) ? 0 : -ENOENT;
}

int memcg__parse(const char *cgroups, const char *mounts, struct memcg *ret)
{
	const char *path = NULL;
	char *text = strdup(mounts), *save = NULL, *root, *at;
	size_t len;
	int err = text ? -ENOENT : -ENOMEM;

	*ret = (struct memcg){ 0 };
	len = find_path(cgroups, &path, &ret->v2);
	for (char *line = text && len ? strtok_r(text, "\n", &save) : NULL; line && err;
	     line = strtok_r(NULL, "\n", &save)) {
		if (is_mount_of(line, ret->v2, &root, &at))
			err = set_dir(ret, root, at, path, len);
	}
	free(text);
	return err;
}

int memcg__find(pid_t pid, struct memcg *ret)
{
	char *cgroups = malloc(TEXT_MAX);
	char *mounts = malloc(TEXT_MAX);
	ssize_t n = -ENOMEM;

	if (cgroups && mounts)
		n = io__text_of_process(pid, "cgroup", cgroups, TEXT_MAX);
	if (n >= 0)
		n = io__text("/proc/self/mountinfo", mounts, TEXT_MAX);
	if (n >= 0)
		n = memcg__parse(cgroups, mounts, ret);
	free(cgroups);
	free(mounts);
	return n < 0 ? (int)n : 0;
}

const char *memcg__path(const struct memcg *m)
{
	return m->dir[m->top] ? m->dir + m->top : "/";
}

/* ---- figures ---- */

static int open_dir(const struct memcg *m)
{
	return open(m->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Returns the number in a file of a cgroup's folder; MEMCG_NONE: there is no such file, or it says
 * "max" or v1's huge value. */
static uint64_t number_in(int dir, const char *name)
{
	char text[64], *end;
	unsigned long long n;

	if (io__text_at(dir, name, text, sizeof(text)) <= 0)
		return MEMCG_NONE;
	n = strtoull(text, &end, 10);
	return end == text || n >= UINT64_C(1) << 62 ? MEMCG_NONE : n;
}

/* Returns the number of this name in a text with a name and a number on each line; MEMCG_NONE: the
 * text does not have the name. */
static uint64_t named_number(const char *text, const char *name)
{
	size_t len = strlen(name);
	const char *line = text;

	while (line) {
		const char *end;

		if (!strncmp(line, name, len) && line[len] == ' ')
			return strtoull(line + len + 1, NULL, 10);
		end = strchr(line, '\n');
		line = end ? end + 1 : NULL;
	}
	return MEMCG_NONE;
}

void memcg__read(const struct memcg *m, struct memcg_figures *ret)
{
	char text[16384];
	int dir = open_dir(m);
	bool v2 = m->v2;
	uint64_t active;

	ret->limit = number_in(dir, v2 ? "memory.max" : "memory.limit_in_bytes");
	ret->usage = number_in(dir, v2 ? "memory.current" : "memory.usage_in_bytes");
	ret->peak = number_in(dir, v2 ? "memory.peak" : "memory.max_usage_in_bytes");
	ret->swap_limit = number_in(dir, v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes");
	ret->swap_usage = number_in(dir,
				    v2 ? "memory.swap.current" : "memory.memsw.usage_in_bytes");
	io__text_at(dir, v2 ? "memory.events" : "memory.oom_control", text, sizeof(text));
	ret->oom_kills = named_number(text, "oom_kill");
	io__text_at(dir, "memory.stat", text, sizeof(text));
	ret->swap = v2 ? ret->swap_usage : named_number(text, "total_swap");
	ret->anon = named_number(text, v2 ? "anon" : "total_rss");
	ret->file = named_number(text, v2 ? "file" : "total_cache");
	ret->cache = named_number(text, v2 ? "inactive_file" : "total_inactive_file");
	active = named_number(text, v2 ? "active_file" : "total_active_file");
	ret->cache = active == MEMCG_NONE || ret->cache == MEMCG_NONE ? MEMCG_NONE
								      : ret->cache + active;
	/* v1 counts sockets outside of usage, and only of cgroups with a limit for them */
	ret->sock = v2 ? named_number(text, "sock") : MEMCG_NONE;
	ret->kernel = v2 ? named_number(text, "kernel")
			 : number_in(dir, "memory.kmem.usage_in_bytes");
	ret->kernel_stack = v2 ? named_number(text, "kernel_stack") : MEMCG_NONE;
	ret->slab = v2 ? named_number(text, "slab") : MEMCG_NONE;
	ret->page_tables = v2 ? named_number(text, "pagetables") : MEMCG_NONE;
	if (dir >= 0)
		close(dir);
}

uint64_t memcg__left(const struct memcg_figures *f)
{
	uint64_t cache = f->cache == MEMCG_NONE ? 0 : f->cache, in_use;

	if (f->limit == MEMCG_NONE || f->usage == MEMCG_NONE)
		return MEMCG_NONE;
	in_use = f->usage > cache ? f->usage - cache : 0;
	return f->limit > in_use ? f->limit - in_use : 0;
}

bool memcg__climb(struct memcg *m)
{
	char *slash = strrchr(m->dir + m->top, '/');

	if (!m->dir[m->top] || !slash)
		return false;
	*slash = '\0';
	return true;
}

bool memcg__limiting(const struct memcg *m, struct memcg *ret)
{
	struct memcg at = *m;
	uint64_t lowest = MEMCG_NONE, limit;

	do {
		int dir = open_dir(&at);

		limit = number_in(dir, at.v2 ? "memory.max" : "memory.limit_in_bytes");
		if (dir >= 0)
			close(dir);
		if (limit < lowest) {
			lowest = limit;
			*ret = at;
		}
	} while (memcg__climb(&at));
	return lowest != MEMCG_NONE;
}

bool memcg__with_inode(const struct memcg *m, uint64_t inode, struct memcg *ret)
{
	struct stat st;

	*ret = *m;
	do {
		if (!stat(ret->dir, &st) && st.st_ino == inode)
			return true;
	} while (memcg__climb(ret));
	return false;
}

bool memcg__with_path(const struct memcg *m, const char *path, struct memcg *ret)
{
	size_t path_len = strlen(path);

	*ret = *m;
	do {
		const char *at = memcg__path(ret);
		size_t len = strlen(at);

		if (path_len >= len && !strcmp(path + path_len - len, at))
			return true;
	} while (memcg__climb(ret));
	return false;
}

/* ---- processes ---- */

/* Reads at most `most` PIDs of the processes in a cgroup. Returns their number. */
static size_t read_pids(int dir, pid_t *pids, size_t most)
{
	int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC), pid;
	size_t n = 0;
	FILE *f;

	if (fd < 0)
		return 0;
	f = fdopen(fd, "r");
	if (!f) {
		close(fd);
		return 0;
	}
	while (n < most && fscanf(f, "%d", &pid) == 1)
		pids[n++] = pid;
	fclose(f);
	return n;
}

/* Reads at most `most` PIDs of the processes in a cgroup and the cgroups below. Closes dir, the
 * cgroup's folder. Returns their number. */
static size_t pids_below(int dir, unsigned int depth, pid_t *pids, size_t most)
{
	struct dirent *entry;
	size_t n;
	DIR *listing;

	if (dir < 0)
		return 0;
	n = read_pids(dir, pids, most);
	listing = fdopendir(dir);
	if (!listing) {
		close(dir);
		return n;
	}
	while (depth < DEEPEST && n < most && (entry = readdir(listing))) {
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			n += pids_below(openat(dirfd(listing), entry->d_name,
					       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
					depth + 1, pids + n, most - n);
	}
	closedir(listing);
	return n;
}

size_t memcg__pids(const struct memcg *m, pid_t *pids, size_t most)
{
	return pids_below(open(m->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0, pids, most);
}

bool memory__field(const char *text, const char *name, uint64_t *bytes)
{
	const char *at = strstr(text, name);

	if (!at || sscanf(at + strlen(name), "%" SCNu64, bytes) != 1)
		return false;
	*bytes *= 1024;
	return true;
}

/* Lowers *bytes to what is left in the tightest of our control group and those above it. Returns 0
 * or -ENOMEM. */
static int bound_by_cgroups(uint64_t *bytes)
{
	struct memcg_figures f;
	struct memcg m;
	int err = memcg__find(getpid(), &m);

	if (err)
		return err == -ENOMEM ? err : 0;
	do {
		memcg__read(&m, &f);
		if (memcg__left(&f) < *bytes)
			*bytes = memcg__left(&f);
	} while (memcg__climb(&m));
	return 0;
}

int memory__available(uint64_t *bytes)
{
	char buf[4096];

	if (io__text("/proc/meminfo", buf, sizeof(buf)) < 0 ||
	    !memory__field(buf, "\nMemAvailable:", bytes)) {
		*bytes = 0;
		return 0;
	}
	return bound_by_cgroups(bytes);
}

uint64_t memory__own(void)
{
	char buf[128];
	uint64_t pages, of_files;

	if (io__text("/proc/self/statm", buf, sizeof(buf)) < 0 ||
	    sscanf(buf, "%*u %" SCNu64 " %" SCNu64, &pages, &of_files) != 2 || of_files > pages)
		return 0;
	return (pages - of_files) * (uint64_t)sysconf(_SC_PAGESIZE);
}
