/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/outfile.h"
#include "base/user.h"

#define BUFFER (64 * 1024) /* bytes of a stream's buffer */
#define USE_DIRECTLY 1

struct outfile {
	char *path, *base; /* base: the name in the folder; points into path */
	enum outfile_how how;
	bool force;
	bool waits;  /* for outfile__replace(): the old file still exists */
	bool device; /* standard output, a character device or a FIFO, which are never renamed or
			removed */
	int dir, fd;
	FILE *stream;
	int err;		    /* error of the first failed write to the stream, negative */
	char created[NAME_MAX + 1]; /* current name of our file in the folder */
};

/* The file that a signal removes. The handler may run at any time, so `armed` is set last and
 * cleared first. */
static struct {
	volatile sig_atomic_t armed;
	int dir;
	char name[NAME_MAX + 1];
} on_signal;

const char *outfile__why(int err)
{
	switch (-err) {
	case EEXIST:
		return "it exists; -f replaces it";
	case ELOOP:
		return "it is a symbolic link, and another user may have made it; give the path "
		       "that `readlink -f` prints for it";
	case EISDIR:
		return "it is a folder; name a file";
	case ENOTSUP:
		return "it is neither a file nor a device that can be written to";
	case ENOENT:
		return "the folder does not exist; make it first";
	case ENOTDIR:
		return "a part of its path is a file, not a folder";
	case ENOSPC:
		return "the disk is full (no space left on device); free some space, or write "
		       "elsewhere";
	case EDQUOT:
		return "the disk quota is used up; free some space, or write elsewhere";
	case EFBIG:
		return "it would be larger than files may be here (ulimit -f, or the file system)";
	case EACCES:
		return "permission denied; write to a folder of your own";
	default:
		return strerror(-err);
	}
}

/* Reads an ID from an environment variable. False: the variable is missing or not a number. */
static bool sudo_id(const char *name, uid_t *ret)
{
	const char *text = getenv(name);

	return text && user__parse_id(text, ret);
}

bool outfile__is_ours(const struct stat *st)
{
	uid_t uid;

	return st->st_uid == geteuid() ||
	       (!geteuid() && sudo_id("SUDO_UID", &uid) && st->st_uid == uid);
}

void outfile__give(int fd)
{
	uid_t uid, gid;

	if (geteuid() != 0 || !sudo_id("SUDO_UID", &uid) || !sudo_id("SUDO_GID", &gid))
		return;
	/* Ignore failures: vfat has no owners, and network file systems may refuse root. */
	if (fchown(fd, uid, gid))
		return;
}

/* Creates a new file of mode 0600 in an open folder. Returns a descriptor or -errno. */
static int create_at(int dir, const char *name)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY,
			0600);

	return fd < 0 ? -errno : fd;
}

/* Creates a file with a random name, o->created, in the folder of the final file. Returns a
 * descriptor or -errno. */
static int create_temporary(struct outfile *o)
{
	uint64_t random;
	int fd, tries = 8;

	do {
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return -EIO;
		snprintf(o->created, sizeof(o->created), ".%.200s.%016" PRIx64, o->base, random);
		fd = create_at(o->dir, o->created);
	} while (fd == -EEXIST && --tries);
	return fd;
}

/* Checks what has the file's name now. Returns USE_DIRECTLY for a device or FIFO to write to, 0 if
 * there is no file or it may be replaced, otherwise -errno. */
static int check_existing(const struct outfile *o)
{
	struct stat st;

	if (fstatat(o->dir, o->base, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	switch (st.st_mode & S_IFMT) {
	case S_IFCHR:
		return USE_DIRECTLY;
	case S_IFIFO:
		if (!o->force)
			return -EEXIST;
		/* Another user may have created the FIFO in a public folder to read our output. */
		return outfile__is_ours(&st) ? USE_DIRECTLY : -EACCES;
	case S_IFREG:
		return o->force ? 0 : -EEXIST;
	case S_IFLNK:
		return -ELOOP;
	case S_IFDIR:
		return -EISDIR;
	default:
		return -ENOTSUP;
	}
}

/* Opens a device or FIFO to write to. Returns 0 or -errno. */
static int open_device(struct outfile *o)
{
	struct stat st;

	o->device = true;
	o->fd = openat(o->dir, o->base, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY);
	if (o->fd < 0)
		return -errno;
	/* The device may have been replaced by a file since the check. */
	if (fstat(o->fd, &st))
		return -errno;
	return S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode) ? 0 : -EEXIST;
}

/* Opens the device, or creates the file: under its own name, or under a temporary one if it is to
 * get its name later. Returns 0 or -errno. */
static int open_file(struct outfile *o)
{
	int existing = check_existing(o), err;

	if (existing < 0)
		return existing;
	if (existing)
		return open_device(o);
	if (o->how == OUTFILE_DIRECT && !o->force) {
		if (snprintf(o->created, sizeof(o->created), "%s", o->base) >=
		    (int)sizeof(o->created))
			return -ENAMETOOLONG;
		o->fd = create_at(o->dir, o->base);
	} else {
		o->fd = create_temporary(o);
	}
	if (o->fd < 0) {
		err = o->fd;
		o->created[0] = 0;
		return err;
	}
	outfile__give(o->fd);
	o->waits = o->how == OUTFILE_DIRECT && o->force;
	return 0;
}

/* Opens the folder and sets o->base. Returns 0 or -errno. */
static int open_folder(struct outfile *o)
{
	char *slash = strrchr(o->path, '/');

	o->base = slash ? slash + 1 : o->path;
	if (!*o->path)
		return -ENOENT;
	if (!*o->base || !strcmp(o->base, ".") || !strcmp(o->base, ".."))
		return -EISDIR;
	if (!slash) {
		o->dir = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	} else if (slash == o->path) {
		o->dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	} else {
		*slash = 0;
		o->dir = open(o->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		*slash = '/';
	}
	return o->dir < 0 ? -errno : 0;
}

/* Returns 0 or -errno. */
static int open_stdout(struct outfile *o)
{
	o->device = true;
	o->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	return o->fd < 0 ? -errno : 0;
}

int outfile__create(const char *path, enum outfile_how how, bool force, struct outfile **ret)
{
	struct outfile *o = calloc(1, sizeof(*o));
	int err;

	if (!o)
		return -ENOMEM;
	o->how = how;
	o->force = force;
	o->dir = o->fd = -1;
	o->path = strdup(strcmp(path, "-") ? path : "standard output");
	if (!o->path)
		err = -ENOMEM;
	else if (!strcmp(path, "-"))
		err = open_stdout(o);
	else
		err = open_folder(o) ?: open_file(o);
	if (err) {
		outfile__discard(o);
		return err;
	}
	*ret = o;
	return 0;
}

int outfile__flush(FILE *out)
{
	errno = 0;
	if (!fflush(out) && !ferror(out))
		return 0;
	if (!errno) {
		/* stdio has lost the error of an earlier write: the next write fails in the same
		 * way. */
		clearerr(out);
		fputc('\n', out);
		fflush(out);
	}
	return errno ? -errno : -EIO;
}

int outfile__fd(const struct outfile *o)
{
	return o->fd;
}

const char *outfile__name(const struct outfile *o)
{
	return o->path;
}

/* Writes for the stream, and keeps the first error in o->err: stdio has lost errno when the file is
 * closed. Returns the bytes written. */
static ssize_t stream_write(void *cookie, const char *buf, size_t size)
{
	struct outfile *o = cookie;
	size_t done = 0;
	ssize_t n;

	while (done < size && !o->err) {
		n = write(o->fd, buf + done, size - done);
		if (n > 0)
			done += n;
		else if (n == 0)
			o->err = -EIO;
		else if (errno != EINTR)
			o->err = -errno;
	}
	if (o->err)
		errno = -o->err;
	return done;
}

FILE *outfile__stream(struct outfile *o)
{
	const cookie_io_functions_t io = { .write = stream_write };

	if (!o->stream) {
		o->stream = fopencookie(o, "w", io);
		if (o->stream)
			setvbuf(o->stream, NULL, _IOFBF, BUFFER);
	}
	return o->stream;
}

/* Closes the stream and the descriptor, if they are open. Returns 0, or -errno of the first error,
 * also of an earlier write. */
static int close_all(struct outfile *o)
{
	int err = 0;

	if (o->stream && fclose(o->stream) && !o->err)
		err = -errno ?: -EIO;
	o->stream = NULL;
	if (o->err)
		err = o->err;
	/* Network file systems and quotas report some errors only here. */
	if (o->fd >= 0 && close(o->fd) && !err && errno != EINTR)
		err = -errno;
	o->fd = -1;
	return err;
}

/* Gives the complete file its name. Without force, a file that has the name by now stays. Returns 0
 * or -errno. */
static int take_name(struct outfile *o)
{
	if (o->force)
		return renameat(o->dir, o->created, o->dir, o->base) ? -errno : 0;
	if (!renameat2(o->dir, o->created, o->dir, o->base, RENAME_NOREPLACE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	/* The file system does not have RENAME_NOREPLACE. link() does not replace files either. */
	if (linkat(o->dir, o->created, o->dir, o->base, 0))
		return -errno;
	unlinkat(o->dir, o->created, 0);
	return 0;
}

/* Stops the signal handler from removing the file of o. */
static void disarm(const struct outfile *o)
{
	if (on_signal.armed && on_signal.dir == o->dir)
		on_signal.armed = 0;
}

/* Frees o; its file is closed. */
static void release(struct outfile *o)
{
	disarm(o);
	if (o->dir >= 0)
		close(o->dir);
	free(o->path);
	free(o);
}

int outfile__replace(struct outfile *o)
{
	if (!o->waits)
		return 0;
	if (renameat(o->dir, o->created, o->dir, o->base))
		return -errno;
	snprintf(o->created, sizeof(o->created), "%s", o->base);
	o->waits = false;
	return 0;
}

int outfile__commit(struct outfile *o)
{
	int err = outfile__replace(o);
	int closed = close_all(o);

	err = err ?: closed;
	if (o->how == OUTFILE_RENAME && !o->device) {
		err = err ?: take_name(o);
		if (err)
			unlinkat(o->dir, o->created, 0);
	}
	release(o);
	return err;
}

void outfile__discard(struct outfile *o)
{
	struct stat ours, there;

	if (!o)
		return;
	/* Remove our file only: another process may have replaced it. */
	if (o->created[0] && o->fd >= 0 && !fstat(o->fd, &ours) &&
	    !fstatat(o->dir, o->created, &there, AT_SYMLINK_NOFOLLOW) &&
	    ours.st_ino == there.st_ino && ours.st_dev == there.st_dev)
		unlinkat(o->dir, o->created, 0);
	close_all(o);
	release(o);
}

int outfile__rewrite(const char *dir, const char *name, int (*put)(FILE *out, const void *ctx),
		     const void *ctx)
{
	struct outfile *o;
	FILE *out;
	char *path;
	int err;

	if (asprintf(&path, "%s/%s", dir, name) < 0)
		return -ENOMEM;
	err = outfile__create(path, OUTFILE_RENAME, /*force=*/true, &o);
	free(path);
	if (err)
		return err;
	out = outfile__stream(o);
	err = out ? put(out, ctx) : -errno;
	if (!err)
		return outfile__commit(o);
	outfile__discard(o);
	return err;
}

/* The signal handler. SA_RESETHAND has restored the default action: the raised signal is blocked
 * until the handler returns, and then ends the program. */
static void remove_and_die(int sig)
{
	if (on_signal.armed)
		unlinkat(on_signal.dir, on_signal.name, 0);
	raise(sig);
}

void outfile__discard_on_signal(struct outfile *o)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_handler = remove_and_die, .sa_flags = SA_RESETHAND }, old;

	if (o->device || !o->created[0])
		return;
	on_signal.armed = 0;
	on_signal.dir = o->dir;
	memcpy(on_signal.name, o->created, sizeof(on_signal.name));
	on_signal.armed = 1;
	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		if (sigaction(signals[i], NULL, &old) || old.sa_handler == SIG_IGN)
			continue;
		sigaction(signals[i], &action, NULL);
	}
}
