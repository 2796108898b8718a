/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* libFuzzer target: bytes as an ELF file. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inspect/elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int look(const char *name, const struct elf_sym *sym, void *ctx)
{
	const struct elf *e = ctx;
	uint64_t start = 0, len = 0, off;
	uint8_t buf[16];

	(void)strlen(name);
	(void)elf__vaddr_to_offset(e, sym->value, &off);
	(void)elf__read(e, sym->value, buf, sizeof(buf));
	if (!elf__function(e, sym->value, &start, &len) &&
	    (sym->value < start || sym->value - start >= len))
		abort();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elf_sym sym;
	uint64_t a, b;
	struct elf *e;
	int fd;

	fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0)
		abort();
	if (write(fd, data, size) != (ssize_t)size) {
		close(fd);
		return 0;
	}
	e = elf__open_fd(fd);
	if (!e)
		return 0;
	(void)elf__dynsym(e, "alpha", &sym);
	(void)elf__dynsym(e, "a", &sym);
	(void)elf__section(e, ".text", &a, &b);
	(void)elf__bias(e, 0x7f0000001000, 0x1000, &a);
	(void)elf__pointer(e, 0x2000, &a);
	if (elf__pointers_to(e, 0x1000, &b, 1) > 1)
		abort();
	(void)elf__each_dynsym(e, look, e);
	if (strlen(elf__soname(e)) > 255)
		abort();
	elf__free(e);
	return 0;
}
