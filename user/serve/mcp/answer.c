/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Answers of commands: their output, cut to the bound of an answer. */
#include "serve/mcp/answer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/subprocess.h"

#define MESSAGES_MAX 4096		 /* bytes of standard error in an answer */
#define OUTPUT_MAX ((uint64_t)256 << 20) /* a command that writes more fails */
#define SPACE ((uint64_t)8 << 30)	 /* address space of a command that only reads */
#define PATIENCE 2000			 /* ms between SIGINT and SIGKILL */

struct job {
	int folder;
	int out, err; /* memory files */
};

static int enter(void *ctx)
{
	return fchdir(((struct job *)ctx)->folder) ? EXIT_FAILURE : 0;
}

/* A client that only closes our input still reads the answer. */
static bool hangs_up(int client)
{
	struct pollfd p = { .fd = client };

	return poll(&p, 1, 0) == 1 && p.revents & (POLLERR | POLLHUP);
}

/* Waits for the end. Returns the exit status, or -1 if the process had to be ended. */
static int wait_for(struct subprocess *p, int seconds, int client, bool *hung_up)
{
	uint64_t until = clock__monotonic() + (uint64_t)seconds * 1000000000;
	int status;

	while (!subprocess__wait(p, 100, &status)) {
		*hung_up = hangs_up(client);
		if (!*hung_up && clock__monotonic() < until)
			continue;
		/* A recorder saves what it has. */
		subprocess__signal(p, SIGINT);
		if (!subprocess__wait(p, PATIENCE, &status))
			subprocess__kill(p);
		return -1;
	}
	return status;
}

static size_t size_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : (size_t)st.st_size;
}

/* Bytes of the text that end with a whole line, or at least with a whole character. */
static size_t cut(const char *text, size_t len, size_t most)
{
	size_t n = most;

	if (len <= most)
		return len;
	while (n && text[n - 1] != '\n')
		n--;
	for (n = n ? n : most; n && (text[n] & 0xc0) == 0x80;)
		n--;
	return n;
}

static void put_file(FILE *f, int fd, size_t most, const char *what)
{
	size_t all = size_of(fd), len = all < most + 4 ? all : most + 4, kept;
	char *text = malloc(len + 1);
	ssize_t n = text ? io__pread(fd, text, len, 0) : -1;

	if (n > 0) {
		text[n] = '\0';
		kept = cut(text, (size_t)n, most);
		fwrite(text, 1, kept, f);
		if (kept < all)
			fprintf(f,
				"\n[%s cut: the first %zu of %zu bytes. Ask for fewer rows (top), "
				"a device, or a filter.]\n",
				what, kept, all);
	}
	free(text);
}

static void take_output(FILE *f, const struct mcp_opts *o, const struct job *j,
			const struct mcp_argv *a, struct mcp_answer *ret)
{
	size_t all = size_of(j->out);

	if (a->json && all > o->max_answer) {
		/* A part of a document is not valid JSON. */
		ret->failed = true;
		fprintf(f,
			"the document has %zu bytes, and an answer has at most %zu: ask for fewer "
			"rows (top), or for the format text",
			all, o->max_answer);
		return;
	}
	put_file(f, j->out, o->max_answer, "output");
	if (!size_of(j->err))
		return;
	if (!a->json || ret->failed) {
		fputs(all ? "\nMessages:\n" : "", f);
		put_file(f, j->err, MESSAGES_MAX, "messages");
	}
}

static int run(const struct mcp_tool *t, const struct mcp_argv *a, struct job *j, int client,
	       struct mcp_answer *ret)
{
	const struct subprocess_limit limits[] = { { RLIMIT_FSIZE, OUTPUT_MAX },
						   { RLIMIT_CORE, 0 },
						   { RLIMIT_AS, SPACE } };
	/* JSON-RPC is UTF-8 wherever the client runs. */
	static const char *const env[] = { "LC_ALL=C.UTF-8", NULL };
	bool reads = !t->attaches && !t->runs;
	struct subprocess p = { 0 };
	int status, err = subprocess__start(
			    &(struct subprocess_opts){ .program = "/proc/self/exe",
						       .argv = (const char *const *)a->v,
						       .env = env,
						       .prepare = enter,
						       .ctx = j,
						       .out = j->out,
						       .err = j->err,
						       .group = SUBPROCESS_OWN_GROUP,
						       .ends_group = true,
						       .death_signal = SIGINT,
						       .limits = reads ? limits : NULL,
						       .n_limits = reads ? 3 : 0 },
			    &p);

	if (err)
		return err;
	status = wait_for(&p, t->seconds, client, &ret->hung_up);
	/* 4: a condition holds, or the job does not fit. That is an answer. */
	ret->failed = status < 0 || !WIFEXITED(status) ||
		      (WEXITSTATUS(status) && WEXITSTATUS(status) != 4);
	return status < 0 && !ret->hung_up ? -ETIMEDOUT : 0;
}

int mcp_answer__of_command(struct mcp_answer *ret, const struct mcp_opts *o,
			   const struct mcp_tool *t, const struct mcp_argv *a, int client)
{
	struct job j = { .folder = o->folder,
			 .out = memfd_create("answer", MFD_CLOEXEC),
			 .err = memfd_create("messages", MFD_CLOEXEC) };
	FILE *f;
	int err = j.out < 0 || j.err < 0 ? -errno : 0;

	*ret = (struct mcp_answer){ 0 };
	f = open_memstream(&ret->text, &ret->len);
	if (f && !err)
		err = run(t, a, &j, client, ret);
	if (f && err) {
		ret->failed = true;
		fprintf(f, "%s: %s", t->name,
			err == -ETIMEDOUT ? "it took too long and was ended" : strerror(-err));
	} else if (f) {
		take_output(f, o, &j, a, ret);
	}
	if (j.out >= 0)
		close(j.out);
	if (j.err >= 0)
		close(j.err);
	return !f || fclose(f) ? -ENOMEM : 0;
}
