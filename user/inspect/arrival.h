/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Arrival of PyTorch in a process: whether its libraries are mapped, whether their code may have
 * run, and stopping a command that memtrace-bpf started while it attaches. */
#include <stdbool.h>
#include <sys/types.h>

#include "inspect/proc.h"

/* Whether the code of a file named libc10 is mapped. All of PyTorch's allocations pass through
 * libc10. */
bool arrival__maps_torch(const struct maps *maps);
/* True if the mapping has code of CUDA's driver or runtime, by the file's name. */
bool arrival__is_cuda(const struct map *map);
/* Whether code of CUDA's driver or runtime is mapped. */
bool arrival__maps_cuda(const struct maps *maps);
/* True if the code of a file named libc10 is mapped, and the file defines functions of namespace
 * c10. unreadable: the result for a file that cannot be opened, such as one on another user's FUSE
 * mount. */
bool arrival__maps_c10_functions(const struct proc *proc, const struct maps *maps, bool unreadable);
/*
 * Whether certainly no code of PyTorch's libraries has run: none is mapped, or one is not relocated
 * yet. The dynamic linker maps all libraries of a dlopen(), relocates all, then calls their
 * constructors (glibc elf/dl-open.c, musl ldso/dynlink.c). A library is relocated once the first
 * pointer in its .init_array points into itself.
 */
bool arrival__no_torch_code_ran(const struct proc *proc, const struct maps *maps);

/*
 * Stops the first thread of a command that memtrace-bpf started, for the milliseconds that
 * attaching takes. Not for other processes.
 * It uses PTRACE_SEIZE and PTRACE_INTERRUPT, which send no signal and cause no additional EINTR. If
 * memtrace-bpf ends in any way, the kernel resumes the thread.
 */

struct ptrace_hold {
	pid_t pid;  /* 0: no thread is held */
	int signal; /* signal that was about to be delivered at the stop, 0: none */
};

/*
 * Stops the first thread of pid, a child of the calling thread's process, and waits for the stop.
 * 0. On errors no thread is held: -ECHILD: the child ended; or -EPERM, -ESRCH and others from
 * ptrace().
 */
int ptrace_hold__take(struct ptrace_hold *h, pid_t pid);
/* Resumes the thread; call it from the thread that called ptrace_hold__take(). Does nothing if no
 * thread is held. */
void ptrace_hold__release(struct ptrace_hold *h);
