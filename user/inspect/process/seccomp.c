/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/container.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/subprocess.h"
#include "base/text.h"
#include "inspect/arch.h"

#define FILTERED 1
#define NOT_FILTERED 2

/*
 * Runs in a child process and returns FILTERED or NOT_FILTERED. The filter makes uretprobe fail
 * with EBADMSG. A kernel that does not apply the filter kills the child with SIGILL, since the call
 * comes from the wrong address. Older kernels do not know the call.
 */
static int try_uretprobe(void *ctx)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH_SYS_URETPROBE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EBADMSG),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	(void)ctx;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return NOT_FILTERED; /* no filters in this kernel */
	return syscall(ARCH_SYS_URETPROBE) < 0 && errno == EBADMSG ? FILTERED : NOT_FILTERED;
}

bool seccomp__filters_returns(void)
{
	static int known; /* 0: not tried yet */
	struct subprocess p;
	int status;

	if (!known && getenv("MEMTRACE_FILTERED_RETURNS"))
		known = FILTERED;
	else if (ARCH_SYS_URETPROBE < 0)
		known = NOT_FILTERED;
	if (known)
		return known == FILTERED;
	/* If the child failed, assume that filters apply. */
	known = !subprocess__start(&(struct subprocess_opts){ .main = try_uretprobe }, &p) &&
				subprocess__wait(&p, /*ms=*/-1, &status) &&
				(WIFSIGNALED(status) || WEXITSTATUS(status) == NOT_FILTERED)
			? NOT_FILTERED
			: FILTERED;
	return known == FILTERED;
}

/* Seccomp mode of one thread, as seccomp__mode(), or -errno. */
static int thread_mode(pid_t pid, const char *tid)
{
	char path[64], line[256];
	int mode = -ENOENT;
	FILE *status;

	snprintf(path, sizeof(path), "/proc/%d/task/%.20s/status", (int)pid, tid);
	status = fopen(path, "re");
	if (!status)
		return -errno;
	while (mode < 0 && fgets(line, sizeof(line), status))
		if (text__starts(line, "Seccomp:"))
			mode = atoi(line + 8);
	fclose(status);
	return mode;
}

int seccomp__mode(const struct proc *proc)
{
	int mode, highest = -ENOENT;
	struct dirent *entry;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)proc__pid(proc));
	dir = opendir(path);
	if (!dir)
		return -errno;
	while ((entry = readdir(dir))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		mode = thread_mode(proc__pid(proc), entry->d_name);
		if (mode > highest)
			highest = mode;
	}
	closedir(dir);
	return highest;
}

bool seccomp__allows_returns(const struct proc *proc)
{
	return !seccomp__filters_returns() || seccomp__mode(proc) == 0;
}

bool seccomp__keeps_shadow_stack(const char *release)
{
	int major = 0, minor = 0;

	return sscanf(release, "%d.%d", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 11));
}
