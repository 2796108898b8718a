/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Functions that are found by an address in the process's memory, which the process may write. */
#include <errno.h>
#include <string.h>

#include "inspect/elf.h"
#include "inspect/torch/torch_internal.h"

#define PLACES 64 /* pointers to one function in a file's data */
#define NAME_MAX_LEN 64

/* By what the file exports: a user can mount any file under any name. */
static bool is_file(const struct elf *e, const struct hook_file *in)
{
	struct elf_sym sym;

	return !elf__dynsym(e, in->symbol, &sym);
}

static bool is_text(const struct elf *e, uint64_t vaddr, const char *text)
{
	char buf[NAME_MAX_LEN];
	size_t len = strlen(text) + 1;

	return len <= sizeof(buf) && !elf__read(e, vaddr, buf, len) && !memcmp(buf, text, len);
}

static bool in_type(const struct elf *e, const struct hook_file *in, uint64_t function)
{
	struct elf_sym sym;
	uint64_t value;

	return !elf__dynsym(e, in->symbol, &sym) &&
	       !elf__pointer(e, sym.value + in->offset, &value) && value == function;
}

static bool in_table(const struct elf *e, const struct hook_file *in, uint64_t function)
{
	uint64_t at[PLACES], value, name;
	size_t i, n = elf__pointers_to(e, function, at, PLACES);

	for (i = 0; i < n; i++) {
		if (at[i] >= in->offset && !elf__pointer(e, at[i] - in->offset, &name) &&
		    is_text(e, name, in->name) && !elf__pointer(e, at[i], &value) &&
		    value == function)
			return true;
	}
	return false;
}

/* Whether the file itself says that this function is the one. */
static bool is_fixed(const struct elf *e, const struct hook_file *in, uint64_t function)
{
	switch (in->source) {
	case HOOK_OF_TYPE:
		return in_type(e, in, function);
	case HOOK_OF_TABLE:
		return in_table(e, in, function);
	default:
		return false;
	}
}

/* The function's virtual address in its file, and its offset. 0 or -errno with why_not. */
static int place_of(const struct elf *e, const struct map *map, uint64_t addr, struct hook *h,
		    uint64_t *vaddr, uint64_t *offset)
{
	uint64_t bias = 0;
	int err = elf__bias(e, map->start, map->offset, &bias);

	*vaddr = addr - bias;
	/* must match the mapping, or the probe would be set elsewhere */
	if (err || elf__vaddr_to_offset(e, *vaddr, offset) ||
	    *offset != addr - map->start + map->offset)
		return torch__refuse_hook(h, -ERANGE, "its file does not match its mapping");
	return 0;
}

static int fill(const struct proc *p, struct elf *e, const struct map *map, uint64_t addr,
		const struct hook_file *in, unsigned args, struct hook *h)
{
	uint64_t vaddr, offset, start, size;
	int err;

	if (!is_file(e, in))
		return torch__refuse_hook(h, -EXDEV,
					  "its address is in another file than it has to be");
	err = place_of(e, map, addr, h, &vaddr, &offset);
	if (err)
		return err;
	if (elf__function(e, vaddr, &start, &size))
		size = 0;
	else if (start != vaddr)
		return torch__refuse_hook(h, -EINVAL, "its address is not where a function begins");
	h->fixed = !elf__is_memory(e) && is_fixed(e, in, vaddr);
	return torch__set_hook(p, e, map, vaddr, offset, size, args, h);
}

int hook__at_address(const struct proc *p, const struct maps *m, uint64_t addr,
		     const struct hook_file *in, unsigned args, struct hook *h)
{
	const struct map *map = maps__find(m, addr);
	struct elf *e;
	int err;

	if (!map || !map->x)
		return torch__refuse_hook(h, -EFAULT, "its address is not in mapped code");
	if (!map->inode)
		return torch__refuse_hook(h, -ENOENT, "its code is not from a file");
	e = elf__open_map(p, map);
	if (!e)
		return torch__refuse_hook(h, -errno,
					  errno == ENOEXEC || errno == EIO
						  ? "its file is not an ELF file that can be read"
						  : "its file cannot be opened");
	err = fill(p, e, map, addr, in, args, h);
	elf__free(e);
	return err;
}
