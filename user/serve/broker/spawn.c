/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/broker/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "serve/server/sandbox.h"

#define PREFIX "memtrace-bpf: "
#define FILE_NAME 216  /* bytes of a file's name with its descriptor */
#define CANNOT_RUN 126 /* exit code, as of a shell that cannot execute a program */

#ifndef MFD_EXEC
#define MFD_EXEC 0x10U /* since Linux 6.3; older kernels reject the flag and do not need it */
#endif

/* Makes a copy of this program with mode 0111, and returns its descriptor. A process that executes
 * an unreadable file is not dumpable from its first instruction on. So processes of the same user
 * cannot take its descriptors. -1: no executable memfd. */
static int unreadable_copy(void)
{
	static int copy = -2; /* not made yet */
	int self;
	struct stat st;
	off_t at = 0;

	if (copy != -2)
		return copy;
	copy = -1;
#ifndef __SANITIZE_ADDRESS__ /* its leak check traces this process */
	self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	copy = memfd_create("memtrace-bpf", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	if (copy < 0 && errno == EINVAL)
		copy = memfd_create("memtrace-bpf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (self < 0 || copy < 0 || fstat(self, &st))
		goto failed;
	while (at < st.st_size) {
		ssize_t n = sendfile(copy, self, &at, (size_t)(st.st_size - at));

		if (n <= 0 && errno != EINTR)
			goto failed;
	}
	if (fchmod(copy, 0111) ||
	    fcntl(copy, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE))
		goto failed;
	close(self);
	return copy;
failed:
	log_warn("cannot copy the program into memory to run workers: %s. Until a worker has "
		 "opened its recording, other processes of the same user can read its memory",
		 strerror(errno));
	if (self >= 0)
		close(self);
	if (copy >= 0)
		close(copy);
	copy = -1;
#else
	(void)self, (void)st, (void)at;
#endif
	return copy;
}

/* In the worker. 0 or an exit code. */
static int give_up_rights(const struct spawn_opts *o)
{
	char self[4096], why[256] = "";
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const char *runnable[16] = { self };
	struct sandbox_opts d = {
		.uid = o->uid,
		.gid = o->gid,
		.flags = SANDBOX_EXECS,
		.readable = sandbox_linking,
		.runnable = runnable,
	};

	self[n > 0 ? n : 0] = '\0';
	for (size_t i = 0; sandbox_libraries[i] && i + 2 < sizeof(runnable) / sizeof(*runnable);
	     i++)
		runnable[i + 1] = sandbox_libraries[i];
	if (!sandbox__drop_rights(&d, /*done=*/NULL, why))
		return 0;
	dprintf(STDERR_FILENO, PREFIX "%s\n", why);
	return CANNOT_RUN;
}

/* Clears the environment but for a few variables, because other processes may read it. 0 or an exit
 * code. */
static int keep_few_variables(void)
{
	static const char *const names[] = { "TZ",	     "LANG",	      "LC_ALL",
					     "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS",
					     "NO_COLOR",     HANDED };
	char *values[sizeof(names) / sizeof(*names)];
	bool lost = false;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *v = getenv(names[i]);

		values[i] = v ? strdup(v) : NULL;
		lost |= v && !values[i];
	}
	clearenv();
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		lost |= values[i] && setenv(names[i], values[i], 1);
	return lost ? CANNOT_RUN : 0;
}

/* Runs in the new process. A worker without rights gets no log file: the broker reads its standard
 * error. Other processes share the broker's log file. */
static int prepare_process(void *ctx)
{
	const struct spawn_opts *o = ctx;
	int status = 0;

	if (o->drop)
		status = keep_few_variables() ?: give_up_rights(o);
	else
		log__hand_on(/*file_only=*/true);
	return status;
}

/* Makes "MEMTRACE_FILES=3:run.mtr,4:other.mtr", or the name alone if there are no files. */
static int name_files(const struct spawn_opts *o, char *text, size_t size)
{
	size_t at = (size_t)snprintf(text, size, HANDED);

	for (size_t i = 0; i < o->n_files; i++) {
		int n = snprintf(text + at, size - at, "%c%d:%s", i ? ',' : '=', o->files[i].fd,
				 o->files[i].name);

		if (n < 0 || (size_t)n >= size - at)
			return -E2BIG;
		at += (size_t)n;
	}
	return 0;
}

/* Starts the program again as o says. err: descriptor for its standard error. 0 or -errno. */
static int start_process(const struct spawn_opts *o, int err, struct subprocess *ret)
{
	const struct subprocess_limit limits[] = { { RLIMIT_CPU, o->cpu_seconds },
						   { RLIMIT_AS, o->memory } };
	const char *argv[SPAWN_ARGS + 2] = { "memtrace-bpf" }, *env[SPAWN_ENV + 3];
	struct subprocess_fd fds[SPAWN_FILES + 1];
	struct subprocess_opts so;
	/* a process that drops its rights must not be readable for others of its user */
	int copy = o->drop ? unreadable_copy() : -1;
	char files[SPAWN_FILES * FILE_NAME]; /* the variable that tells the descriptors */
	size_t n = 0, n_env = 0;

	if (o->n_files > SPAWN_FILES || name_files(o, files, sizeof(files)))
		return -E2BIG;
	for (size_t i = 0; i < SPAWN_ARGS && o->argv[i]; i++)
		argv[i + 1] = o->argv[i];
	for (const char *const *e = o->env; e && *e && n_env < SPAWN_ENV; e++)
		env[n_env++] = *e;
	env[n_env++] = files;
	env[n_env++] = "NO_COLOR=1"; /* no colors, because programs read the messages */
	env[n_env] = NULL;
	for (size_t i = 0; i < o->n_files; i++)
		fds[n++] = (struct subprocess_fd){ o->files[i].fd, o->files[i].fd };
	if (o->keep >= 0)
		fds[n++] = (struct subprocess_fd){ o->keep, o->keep };
	so = (struct subprocess_opts){
		.program = "/proc/self/exe",
		.argv = argv,
		.env = env,
		.refused = PREFIX "cannot start the program's file again: it was replaced, or the "
				  "unprivileged user cannot read it\n",
		.prepare = prepare_process,
		.ctx = (void *)o,
		.err = err,
		.fds = fds,
		.n_fds = n,
		.group = SUBPROCESS_OWN_SESSION,
		.ends_group = true,
		/* `record` ends on SIGTERM, and `run` forwards it to its command. */
		.death_signal = SIGTERM,
		.nice_by = o->nice_by,
		.limits = limits,
	};
	if (copy >= 0)
		so.program_fd = copy;
	if (o->out >= 0)
		so.out = o->out;
	if (o->drop) {
		so.death_signal = SIGKILL;
		so.n_limits = SANDBOX_SANITIZED ? 1 : 2; /* sanitizers exceed RLIMIT_AS */
	}
	return subprocess__start(&so, ret);
}

int spawn__self(const struct spawn_opts *o, struct spawned *ret)
{
	int pipe_fds[2], err;

	*ret = (struct spawned){ .err_fd = -1 };
	if (pipe2(pipe_fds, O_CLOEXEC))
		return -errno;
	err = start_process(o, pipe_fds[1], &ret->process);
	close(pipe_fds[1]);
	if (err) {
		close(pipe_fds[0]);
		return err;
	}
	ret->err_fd = pipe_fds[0];
	fcntl(ret->err_fd, F_SETFL, O_NONBLOCK);
	return 0;
}

/* Appends text to s->last, which keeps the last SPAWN_LAST bytes. */
static void append_to_last(struct spawned *s, const char *text, size_t n)
{
	size_t drop = s->n_last + n > SPAWN_LAST ? s->n_last + n - SPAWN_LAST : 0;

	if (drop > s->n_last) {
		text += n - SPAWN_LAST;
		n = SPAWN_LAST;
		drop = s->n_last;
	}
	memmove(s->last, s->last + drop, s->n_last - drop);
	s->n_last -= drop;
	memcpy(s->last + s->n_last, text, n);
	s->n_last += n;
}

void spawned__read(struct spawned *s)
{
	char buf[4096];

	/* Limit each call, because the process may write without end. */
	for (int i = 0; i < 16 && s->err_fd >= 0; i++) {
		ssize_t n = read(s->err_fd, buf, sizeof(buf));

		if (n > 0) {
			append_to_last(s, buf, (size_t)n);
		} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
			close(s->err_fd);
			s->err_fd = -1;
		} else {
			break;
		}
	}
}

bool spawned__ended(struct spawned *s, int *status)
{
	if (!subprocess__ended(&s->process, status))
		return false;
	spawned__read(s);
	return true;
}

void spawned__close(struct spawned *s)
{
	subprocess__kill(&s->process);
	if (s->err_fd >= 0)
		close(s->err_fd);
	s->err_fd = -1;
}

/* Returns the text after a prefix; line itself if it does not begin with it. */
static const char *skip(const char *line, const char *end, const char *prefix)
{
	size_t n = strlen(prefix);

	return (size_t)(end - line) >= n && !strncmp(line, prefix, n) ? line + n : line;
}

/* Skips the prefixes of our messages, as in "memtrace-bpf: error: TEXT", and in argp's
 * "memtrace-bpf report: TEXT". */
static const char *skip_prefix(const char *line, const char *end)
{
	const char *command, *colon;

	line = skip(line, end, PREFIX);
	command = skip(line, end, "memtrace-bpf ");
	if (command != line) {
		colon = memchr(command, ':', (size_t)(end - command));
		line = colon && colon + 2 < end ? colon + 2 : command;
	}
	return skip(skip(line, end, "error: "), end, "warning: ");
}

#define ADVICE "See `" /* "See `memtrace-bpf help report`." is advice for a terminal */

/* True for a message of memtrace-bpf or of one of its commands. */
static bool is_of_us(const char *line, const char *end)
{
	const char *rest = skip(line, end, "memtrace-bpf");

	return rest != line && (size_t)(end - line) > strlen(PREFIX) && strchr(": ", *rest);
}

/* Chooses among the lines of standard error. A line of memtrace-bpf replaces earlier lines; another
 * line replaces only lines that are not of memtrace-bpf. Advice for a terminal does not count. */
char *spawned__last_message(const struct spawned *s, char *buf, size_t size)
{
	const char *line = s->last, *end = s->last + s->n_last, *line_end;
	const char *best = NULL, *best_end = NULL;
	bool best_is_ours = false;

	for (; line < end; line = line_end + 1) {
		bool is_ours = is_of_us(line, end), is_advice;

		line_end = memchr(line, '\n', (size_t)(end - line));
		line_end = line_end ? line_end : end;

		is_advice = skip(line, line_end, ADVICE) != line;
		if (line_end == line || is_advice)
			continue;
		if (best_is_ours && !is_ours)
			continue;
		best = is_ours ? skip_prefix(line, line_end) : line;
		best_end = line_end;
		best_is_ours = is_ours;
	}
	if (!best)
		return text__clean(buf, size, "", 0);
	return text__clean(buf, size, best, (size_t)(best_end - best));
}
