/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/site.h"

#include <errno.h>

#include "inspect/elf.h"
#include "inspect/process/site_internal.h"

#define ENTRY_BYTES 16 /* enough for any instruction */
#define BODY_MAX 4096  /* bytes of a function whose probe may be after the entry */

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

int site__of_symbol(const struct elf *elf, const struct elf_sym *sym, bool entry_only,
		    unsigned args, struct site *site)
{
	/* On x86-64 the rest of the function shows whether the entry has a second place. */
	bool only_start = (entry_only && elf__machine(elf) != ELF_X86_64) || sym->size > BODY_MAX;
	uint8_t code[BODY_MAX];
	size_t len = only_start ? ENTRY_BYTES : sym->size;
	uint64_t func_size = entry_only && only_start ? 0 : sym->size;

	if (!sym->size || sym->size < len)
		len = sym->size ?: ENTRY_BYTES;
	if (entry_only)
		args |= SITE_FIRST;
	return elf__read(elf, sym->value, code, len)
		       ?: site__pick(elf__machine(elf), code, len, func_size, args, site);
}
