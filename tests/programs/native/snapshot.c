/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "snapshot.h"

#include <sys/uio.h>
#include <unistd.h>

#define MOST (16 * 1024)

__attribute__((noinline)) int snapshot(int depth)
{
	static char copy[MOST];
	struct snapshot s = { 0 };
	struct iovec to = { copy, 1 }, from = { 0 };

#ifdef __x86_64__
	__asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"
			 : "=r"(s.ip), "=r"(s.sp), "=r"(s.fp));
#else
	__asm__ volatile("adr %0, .\n\tmov %1, sp\n\tmov %2, x29\n\tmov %3, x30"
			 : "=r"(s.ip), "=r"(s.sp), "=r"(s.fp), "=r"(s.lr));
#endif
	/* The stack may end before. */
	for (s.size = MOST; s.size; s.size -= 256) {
		from = (struct iovec){ (void *)(uintptr_t)s.sp, s.size };
		to.iov_len = s.size;
		if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)s.size)
			break;
	}
	if (write(1, &s, sizeof(s)) != sizeof(s) || write(1, copy, s.size) != (ssize_t)s.size)
		return -1;
	return depth;
}
