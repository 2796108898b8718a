/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/container.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "inspect/proc.h"

/* True if the process maps the file that is gVisor's memory (pkg/sentry/pgalloc). */
static bool maps_gvisor(const struct maps *maps)
{
	for (size_t i = 0; i < maps->n; i++) {
		if (text__starts(maps->v[i].path, "/memfd:runsc-memory"))
			return true;
	}
	return false;
}

/* True if the arguments have a word that Kata Containers uses in names of folders and images. */
static bool says_kata(const char *cmdline, size_t len)
{
	static const char *const words[] = { "kata", "/run/vc/" };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (memmem(cmdline, len, words[i], strlen(words[i])))
			return true;
	}
	return false;
}

static bool is_vm_program(const char *program)
{
	/* qemu-system-x86_64; distributions have others between the words */
	return (text__starts(program, "qemu") && strstr(program, "system")) ||
	       text__starts(program, "qemu-kvm") || text__starts(program, "cloud-hypervisor") ||
	       text__starts(program, "firecracker") || text__starts(program, "crosvm");
}

enum guest_kind guest__judge(const char *exe, const char *cmdline, size_t len,
			     const struct maps *maps)
{
	char argv0[PATH_MAX];
	const char *program;
	size_t argv0_len = strnlen(cmdline, len);

	if (argv0_len >= sizeof(argv0))
		argv0_len = sizeof(argv0) - 1;
	memcpy(argv0, cmdline, argv0_len);
	argv0[argv0_len] = '\0';
	program = map__base_name(argv0);
	if (text__starts(map__base_name(exe), "runsc") || text__starts(program, "runsc-") ||
	    maps_gvisor(maps))
		return GUEST_GVISOR;
	if (text__starts(program, "containerd-shim-kata") ||
	    ((is_vm_program(program) || is_vm_program(map__base_name(exe)) ||
	      text__starts(program, "virtiofsd")) &&
	     says_kata(cmdline, len)))
		return GUEST_KATA;
	return is_vm_program(program) || is_vm_program(map__base_name(exe)) ? GUEST_VM : GUEST_NONE;
}

enum guest_kind guest__kind(const struct proc *proc, const struct maps *maps)
{
	char exe[PATH_MAX];
	const char *cmdline;
	size_t len;

	cmdline = proc__cmdline(proc, &len);
	return guest__judge(proc__exe(proc, exe, sizeof(exe)), cmdline, len, maps);
}

const char *guest__text(enum guest_kind kind)
{
	switch (kind) {
	case GUEST_GVISOR:
		return "belongs to gVisor (runsc): the programs in it run under gVisor's own "
		       "kernel, so probes of this host never see them. Run the job in a container "
		       "of another runtime, such as runc";
	case GUEST_KATA:
		return "belongs to a virtual machine of Kata Containers: the programs in it are "
		       "processes of the machine's kernel. Run memtrace-bpf in the machine, or "
		       "start the job there with `memtrace-bpf run --inside`";
	case GUEST_VM:
		return "is a virtual machine: the programs in it are processes of the machine's "
		       "kernel. Run memtrace-bpf in the machine";
	case GUEST_NONE:
		break;
	}
	return "";
}

bool guest__in_gvisor(const char *release, const char *version)
{
	/* Newer gVisors have their name in the release. The version has been the same since 2018
	 * (pkg/sentry/syscalls/linux). */
	return strstr(release, "gvisor") || !strcmp(version, "#1 SMP Sun Jan 10 15:06:54 PST 2016");
}
