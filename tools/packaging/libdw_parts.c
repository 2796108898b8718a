/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * For the static program, in place of parts of libdw that it never uses: processors that it does not
 * run on, disassemblers, and bzip2. The linker takes these and leaves libdw's out, about 300 KiB.
 */
#include <stddef.h>

/* As libdw calls them: no backend for these machines. */
#define NO_BACKEND(name)                                                                           \
	void *name(void *elf, unsigned machine, void *backend);                                    \
	void *name(void *elf, unsigned machine, void *backend)                                     \
	{                                                                                          \
		(void)elf, (void)machine, (void)backend;                                           \
		return NULL;                                                                       \
	}

NO_BACKEND(i386_init)
NO_BACKEND(sh_init)
NO_BACKEND(ia64_init)
NO_BACKEND(alpha_init)
NO_BACKEND(arm_init)
NO_BACKEND(sparc_init)
NO_BACKEND(ppc_init)
NO_BACKEND(ppc64_init)
NO_BACKEND(s390_init)
NO_BACKEND(m68k_init)
NO_BACKEND(bpf_init)
NO_BACKEND(riscv_init)
NO_BACKEND(csky_init)

/* Members of a table that only disassemblers call. */
int x86_64_disasm(void);
int x86_64_disasm(void)
{
	return -1;
}

/* Whole files that are compressed by bzip2, such as kernel images: an error of libdw. */
int __libdw_bunzip2(void);
int __libdw_bunzip2(void)
{
	return 1;
}
