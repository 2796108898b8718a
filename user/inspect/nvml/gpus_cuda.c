/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/subprocess.h"
#include "inspect/nvml.h"

/* Starts the helper with fd as its standard input. 0 or -errno. */
static int start_helper(int fd, struct subprocess *helper)
{
	int program = gpus__write_helper(), err;
	char parent[16];
	const char *argv[] = { "memtrace-bpf", "cuda-memory", parent, NULL };

	if (program < 0)
		return program;
	snprintf(parent, sizeof(parent), "%d", (int)getpid());
	err = subprocess__start(&(struct subprocess_opts){ .program_fd = program,
							   .argv = argv,
							   .in = fd,
							   .group = SUBPROCESS_OWN_SESSION,
							   .death_signal = SIGKILL },
				helper);
	close(program);
	return err;
}

static void fail(struct gpus_cuda *ret, const char *why)
{
	*ret = (struct gpus_cuda){ 0 };
	snprintf(ret->why, sizeof(ret->why), "%s", why);
}

/* Takes the helper's answer. */
static void take_answer(int fd, struct gpus_cuda *ret)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (poll(&p, 1, GPUS_CUDA_WITHIN * 1000) <= 0) {
		fail(ret, "CUDA did not answer within 10 s");
		return;
	}
	if (recv(fd, ret, sizeof(*ret), MSG_DONTWAIT) != sizeof(*ret) || ret->n > GPUS_CUDA_MAX) {
		fail(ret, "CUDA ended the helper process");
		return;
	}
	ret->why[sizeof(ret->why) - 1] = '\0';
	for (uint32_t i = 0; i < ret->n; i++)
		ret->device[i].name[sizeof(ret->device[i].name) - 1] = '\0';
}

void gpus_cuda__read(struct gpus_cuda *ret)
{
	struct subprocess helper;
	int fd[2], err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd)) {
		fail(ret, strerror(errno));
		return;
	}
	err = start_helper(fd[1], &helper);
	close(fd[1]);
	if (err) {
		fail(ret, "the helper process cannot be started");
	} else {
		take_answer(fd[0], ret);
		/* A call into a failed GPU cannot be interrupted, so nothing waits for its end. */
		subprocess__signal(&helper, SIGKILL);
		close(helper.pidfd);
	}
	close(fd[0]);
}
