/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A child that drops its rights and then tries something. Include after cmocka.h. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "serve/server/sandbox.h"

#define NOBODY 65534
#define PASSED 42 /* differs from other exit codes, so that an early end does not count as passed */
#define REFUSED 100

struct attempt {
	struct sandbox_opts opts;
	int (*try)(const struct sandbox_done *done); /* PASSED, or a number for the failed check */
};

static int status_fd;

static inline int in_child(const struct attempt *a)
{
	struct sandbox_done done;
	char why[160] = "";

	status_fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	if (sandbox__drop_rights(&a->opts, &done, why)) {
		fprintf(stderr, "%s\n", why);
		return *why ? REFUSED : 99;
	}
	return a->try(&done);
}

static inline int outcome(struct attempt a)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(in_child(&a));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static inline struct sandbox_opts nobody(unsigned flags)
{
	return (struct sandbox_opts){ .uid = NOBODY, .gid = NOBODY, .flags = flags };
}

static inline void expect(struct attempt a, int want)
{
	int got = outcome(a);

	assert_int_equal(got, want);
}
