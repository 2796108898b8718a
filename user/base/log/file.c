/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log/internal.h"
#include "base/outfile.h"

static int file = -1;
static uint64_t missed;
static bool failing;

/* Accepts regular files and character devices. A FIFO or socket could block, or show the log to
 * its owner. */
static int check_file(int fd, bool made)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (S_ISCHR(st.st_mode))
		return 0;
	if (!S_ISREG(st.st_mode))
		return -ENOTSUP;
	/* An existing file must have one name and belong to us, because its owner could read and
	 * change the log. */
	return made || (st.st_nlink == 1 && outfile__is_ours(&st)) ? 0 : -EACCES;
}

int log_file__open(const char *path)
{
	/* O_NONBLOCK: opening a FIFO without a reader must not block. */
	const int flags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	int fd = open(path, flags | O_CREAT | O_EXCL, 0600), err;
	bool made = fd >= 0;

	if (fd < 0 && errno == EEXIST)
		fd = open(path, flags);
	if (fd < 0)
		return errno == ENXIO ? -ENOTSUP : -errno;
	if (made)
		outfile__give(fd);
	err = check_file(fd, made);
	if (!err && fcntl(fd, F_SETFL, O_APPEND))
		err = -errno;
	if (err) {
		close(fd);
		return err;
	}
	log__close();
	file = fd;
	return 0;
}

int log_file__take(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || (flags & O_ACCMODE) != O_WRONLY || !(flags & O_APPEND) ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC))
		return -EBADF;
	log__close();
	file = fd;
	return 0;
}

void log__close(void)
{
	if (file >= 0)
		close(file);
	file = -1;
	missed = 0;
	failing = false;
}

int log_file__fd(void)
{
	return file;
}

/* Writing beyond RLIMIT_FSIZE would send SIGXFSZ, which ends the process. */
static bool fits(size_t len)
{
	struct rlimit rl;
	struct stat st;

	if (getrlimit(RLIMIT_FSIZE, &rl) || rl.rlim_cur == RLIM_INFINITY)
		return true;
	return !fstat(file, &st) &&
	       (!S_ISREG(st.st_mode) || (uint64_t)st.st_size + len <= rl.rlim_cur);
}

void log_file__append(const char *line, size_t len, const char **why)
{
	ssize_t n;

	*why = NULL;
	do {
		errno = EFBIG;
		n = fits(len) ? write(file, line, len) : -1;
	} while (n < 0 && errno == EINTR);
	if (n == (ssize_t)len) {
		failing = false;
		return;
	}
	missed++;
	if (!failing)
		*why = n < 0 ? outfile__why(-errno) : outfile__why(-ENOSPC);
	failing = true;
	/* End a partial line, so that the next line starts on its own. */
	if (n > 0 && write(file, "\n", 1) < 0)
		errno = 0;
}

uint64_t log_file__missed(void)
{
	uint64_t n = failing ? 0 : missed;

	if (n)
		missed = 0;
	return n;
}
