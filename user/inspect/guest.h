/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Processes of this host that run programs under a kernel of their own: gVisor, virtual machines.
 * The programs are no processes of the host, or their code does not run from the files that probes
 * belong to. So the host's kernel sees none of their calls.
 */
#include <stdbool.h>
#include <stddef.h>

struct maps;
struct proc;

enum guest_kind {
	GUEST_NONE,
	GUEST_GVISOR, /* gVisor's kernel, its file server, or one of its address spaces */
	GUEST_KATA,   /* a virtual machine of Kata Containers, or a helper of one */
	GUEST_VM,     /* another virtual machine */
};
/* exe: where /proc/PID/exe leads; "" if unknown. cmdline: len bytes of arguments, each with a NUL.
 * All three are hostile: a process that looks like a guest is at worst not traced. */
enum guest_kind guest__judge(const char *exe, const char *cmdline, size_t len,
			     const struct maps *maps);
/* The same of an open process. */
enum guest_kind guest__kind(const struct proc *p, const struct maps *maps);
/* Why it cannot be traced and what to do; static text. "" for GUEST_NONE. */
const char *guest__text(enum guest_kind kind);
/* True if this process itself runs in gVisor, by the release and the version of uname(). */
bool guest__in_gvisor(const char *release, const char *version);
