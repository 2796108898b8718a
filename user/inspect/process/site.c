/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/site.h"

#include <errno.h>

#include "inspect/elf.h"
#include "inspect/process/site_internal.h"

bool site__is_native(uint16_t machine)
{
#ifdef __aarch64__
	return machine == ELF_AARCH64;
#else
	return machine == ELF_X86_64;
#endif
}

int site__pick(uint16_t machine, const uint8_t *code, size_t size, uint64_t func_size,
	       unsigned args, struct site *ret)
{
	if (machine == ELF_X86_64)
		return site_x86__pick(code, size, func_size, args, ret);
	if (machine == ELF_AARCH64)
		return site_a64__pick(code, size, func_size, args, ret);
	return -ENOEXEC;
}
