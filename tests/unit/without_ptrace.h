/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Runs a function without CAP_SYS_PTRACE, as root of a container has it. */
#include <linux/capability.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WITHOUT_PTRACE_ALREADY 77 /* this process lacks the capability, too */

/* Runs fn in a child process. Returns its result, WITHOUT_PTRACE_ALREADY or -1. */
static inline int without_ptrace__run(int (*fn)(void))
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	pid_t pid = fork();
	int status;

	if (!pid) {
		if (syscall(SYS_capget, &h, data))
			_exit(99);
		if (!(data[0].effective & 1u << CAP_SYS_PTRACE))
			_exit(WITHOUT_PTRACE_ALREADY);
		data[0].effective &= ~(1u << CAP_SYS_PTRACE);
		data[0].permitted &= ~(1u << CAP_SYS_PTRACE);
		_exit(syscall(SYS_capset, &h, data) ? 99 : fn());
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}
