/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/native/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1 /* its own calls and its shadow memory need more than we allow */
#else
#define SANITIZED 0
#endif

#ifdef __x86_64__
#define MACHINE AUDIT_ARCH_X86_64
#else
#define MACHINE AUDIT_ARCH_AARCH64
#endif

#define MEMORY_MAX (8ULL << 30) /* address space: files are mapped as a whole */

/* Memory, and descriptors that the process has. */
static const int allowed[] = {
	SYS_read,	  SYS_write,	     SYS_pread64, SYS_readv,	    SYS_recvmsg,
	SYS_recvfrom,	  SYS_sendmsg,	     SYS_sendto,  SYS_close,	    SYS_fstat,
	SYS_lseek,	  SYS_mmap,	     SYS_munmap,  SYS_mremap,	    SYS_mprotect,
	SYS_madvise,	  SYS_brk,	     SYS_futex,	  SYS_rt_sigreturn, SYS_exit,
	SYS_exit_group,	  SYS_clock_gettime, SYS_getpid,  SYS_gettid,	    SYS_restart_syscall,
	SYS_rt_sigaction, SYS_rt_sigprocmask
};
#define N_ALLOWED (sizeof(allowed) / sizeof(*allowed))

static int filter_calls(void)
{
	struct sock_filter code[4 + N_ALLOWED + 2];
	struct sock_fprog prog = { .filter = code };
	unsigned short n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						 offsetof(struct seccomp_data, arch));
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MACHINE, 1, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL);
	/* Numbers of the x32 ABI are others, so the list does not have them. */
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						 offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < N_ALLOWED; i++)
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							 (unsigned)allowed[i],
							 (unsigned char)(N_ALLOWED - i), 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	prog.len = n;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) ? -errno : 0;
}

/* The kernel ends this process first if memory is short. */
static void offer_to_oom_killer(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	io__write(fd, "1000", 4);
	close(fd);
}

int confine__self(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };
	struct rlimit memory = { MEMORY_MAX, MEMORY_MAX }, no_core = { 0, 0 };

	offer_to_oom_killer();
	if (setrlimit(RLIMIT_CORE, &no_core) ||
	    (!SANITIZED && (setrlimit(RLIMIT_AS, &memory) || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))))
		return -errno;
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &h, none))
		return -errno;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return SANITIZED ? 0 : filter_calls();
}
