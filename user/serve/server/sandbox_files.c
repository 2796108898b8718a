/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Landlock by direct system calls: the C library has no wrappers, and old headers lack new
 * flags. */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "serve/server/sandbox_internal.h"

/* Constants of include/uapi/linux/landlock.h, Linux 6.12 */
#define FS_TRUNCATE (UINT64_C(1) << 14)	 /* Landlock version 3 */
#define FS_IOCTL_DEV (UINT64_C(1) << 15) /* Landlock version 5 */
#define NET_BIND_TCP UINT64_C(1)	 /* Landlock version 4 */
#define NET_CONNECT_TCP UINT64_C(2)
#define SCOPE_ABSTRACT_SOCKETS UINT64_C(1) /* Landlock version 6 */
#define SCOPE_SIGNALS UINT64_C(2)

#define FS_FIRST ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1) /* all rights of Landlock version 1 */
#define FS_OF_FILES                                                                                \
	(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |                              \
	 LANDLOCK_ACCESS_FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV)
#define FS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FS_RUN (FS_READ | LANDLOCK_ACCESS_FS_EXECUTE)
#define FS_WRITE                                                                                   \
	(FS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |                   \
	 LANDLOCK_ACCESS_FS_REMOVE_FILE | FS_TRUNCATE)

struct rules {
	uint64_t fs, net, scoped;
};

static int version(void)
{
	long v = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	return v < 0 ? 0 : (int)v;
}

static size_t size_of(int v)
{
	return v < 4   ? offsetof(struct rules, net)
	       : v < 6 ? offsetof(struct rules, scoped)
		       : sizeof(struct rules);
}

static int allow(int rules, const char *path, uint64_t access)
{
	struct landlock_path_beneath_attr beneath = { 0 };
	struct stat st;
	int fd = open(path, O_PATH | O_CLOEXEC), err = 0;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	if (fstat(fd, &st)) {
		err = -errno;
	} else {
		beneath.allowed_access = S_ISDIR(st.st_mode) ? access : access & FS_OF_FILES;
		beneath.parent_fd = fd;
		if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0))
			err = -errno;
	}
	close(fd);
	return err;
}

static int allow_all(int rules, const char *const *paths, uint64_t access)
{
	int err = 0;

	for (; paths && *paths && !err; paths++)
		err = allow(rules, *paths, access);
	return err;
}

int sandbox__make_rules(const struct sandbox_opts *o, int *ret, int *ret_version)
{
	struct rules r = { .fs = FS_FIRST };
	int v = version(), fd, err;

	*ret = -1;
	*ret_version = v;
	if (v < 1)
		return 0;
	if (v >= 2)
		r.fs |= LANDLOCK_ACCESS_FS_REFER;
	if (v >= 3)
		r.fs |= FS_TRUNCATE;
	if (v >= 4)
		r.net = NET_BIND_TCP | (o->flags & SANDBOX_CONNECTS ? 0 : NET_CONNECT_TCP);
	if (v >= 5)
		r.fs |= FS_IOCTL_DEV;
	if (v >= 6)
		r.scoped = SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS;
	fd = syscall(SYS_landlock_create_ruleset, &r, size_of(v), 0);
	if (fd < 0)
		return -errno;
	err = allow_all(fd, o->readable, FS_READ & r.fs);
	if (!err)
		err = allow_all(fd, o->writable, FS_WRITE & r.fs);
	if (!err)
		err = allow_all(fd, o->runnable, FS_RUN & r.fs);
	if (err) {
		close(fd);
		return err;
	}
	*ret = fd;
	return 0;
}

int sandbox__enforce_rules(int fd)
{
	return syscall(SYS_landlock_restrict_self, fd, 0) ? -errno : 0;
}
