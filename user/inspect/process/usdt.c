/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/elf.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/site.h"

#define NT_STAPSDT 3
#define NOTES_MAX (1u << 20)
#define CODE_LEN 16

/* Reads a NUL-terminated text in [*pos, end) and moves *pos past it. NULL: not terminated. */
static const char *next_text(const uint8_t *notes, size_t *pos, size_t end)
{
	const char *s = (const char *)notes + *pos;
	const char *nul = *pos < end ? memchr(s, '\0', end - *pos) : NULL;

	if (nul)
		*pos += (size_t)(nul - s) + 1;
	return nul ? s : NULL;
}

/* Reads the probe in a note's descriptor. False: another probe, or malformed. */
static bool read_note(const uint8_t *notes, size_t pos, size_t end, const char *provider,
		      const char *name, struct usdt *ret)
{
	const char *note_provider, *note_name, *args;
	uint64_t addresses[3];

	if (end - pos < sizeof(addresses))
		return false;
	memcpy(addresses, notes + pos, sizeof(addresses));
	pos += sizeof(addresses);
	note_provider = next_text(notes, &pos, end);
	note_name = note_provider ? next_text(notes, &pos, end) : NULL;
	args = note_name ? next_text(notes, &pos, end) : NULL;
	if (!args || strcmp(note_provider, provider) || strcmp(note_name, name) ||
	    strlen(args) >= sizeof(ret->args))
		return false;
	*ret = (struct usdt){ .pc = addresses[0], .base = addresses[1], .semaphore = addresses[2] };
	memcpy(ret->args, args, strlen(args) + 1);
	return true;
}

size_t usdt__notes(const uint8_t *notes, size_t len, const char *provider, const char *name,
		   struct usdt *v, size_t max)
{
	size_t pos = 0, found = 0;
	uint64_t desc, next;
	Elf64_Nhdr header;

	while (found < max && pos <= len && len - pos >= sizeof(header)) {
		memcpy(&header, notes + pos, sizeof(header));
		/* lengths have 32 bits: these sums cannot overflow */
		desc = pos + sizeof(header) + ((uint64_t)header.n_namesz + 3) / 4 * 4;
		next = desc + ((uint64_t)header.n_descsz + 3) / 4 * 4;
		if (desc + header.n_descsz > len)
			break;
		if (header.n_type == NT_STAPSDT && header.n_namesz == 8 &&
		    !memcmp(notes + pos + sizeof(header), "stapsdt", 8) &&
		    read_note(notes, desc, desc + header.n_descsz, provider, name, &v[found]))
			found++;
		pos = next;
	}
	return found;
}

/* ---- arguments ---- */

/* PyTorch has static probes on x86 only (c10/util/static_tracepoint.h). Offsets in struct pt_regs,
 * arch/x86/include/uapi/asm/ptrace.h; names by size: 8, 4, 2, 1 bytes. */
static const struct {
	uint16_t offset;
	const char *name[4];
} registers[] = {
	{ 80, { "rax", "eax", "ax", "al" } },	   { 40, { "rbx", "ebx", "bx", "bl" } },
	{ 88, { "rcx", "ecx", "cx", "cl" } },	   { 96, { "rdx", "edx", "dx", "dl" } },
	{ 104, { "rsi", "esi", "si", "sil" } },	   { 112, { "rdi", "edi", "di", "dil" } },
	{ 32, { "rbp", "ebp", "bp", "bpl" } },	   { 152, { "rsp", "esp", "sp", "spl" } },
	{ 72, { "r8", "r8d", "r8w", "r8b" } },	   { 64, { "r9", "r9d", "r9w", "r9b" } },
	{ 56, { "r10", "r10d", "r10w", "r10b" } }, { 48, { "r11", "r11d", "r11w", "r11b" } },
	{ 24, { "r12", "r12d", "r12w", "r12b" } }, { 16, { "r13", "r13d", "r13w", "r13b" } },
	{ 8, { "r14", "r14d", "r14w", "r14b" } },  { 0, { "r15", "r15d", "r15w", "r15b" } },
};

/* Parses "%rax" at *s and moves *s past it. *offset: the register's offset in struct pt_regs.
 * whole: only 8-byte names. */
static bool parse_register(const char **s, bool whole, uint16_t *offset)
{
	size_t len, i, form;

	if (**s != '%')
		return false;
	++*s;
	len = strspn(*s, "abcdefghijklmnopqrstuvwxyz0123456789");
	for (i = 0; i < sizeof(registers) / sizeof(registers[0]); i++) {
		for (form = 0; form < (whole ? 1 : 4); form++) {
			const char *name = registers[i].name[form];

			if (strlen(name) != len || memcmp(name, *s, len))
				continue;
			*s += len;
			*offset = registers[i].offset;
			return true;
		}
	}
	return false;
}

/* Parses one argument, "-8@-56(%rbp)", at *s and moves *s past it. */
static bool parse_arg(const char **s, struct mt_usdt_arg *arg)
{
	char *end;
	long number;

	errno = 0;
	number = strtol(*s, &end, 10);
	if (errno || end == *s || *end != '@')
		return false;
	number = number < 0 ? -number : number;
	if (number != 1 && number != 2 && number != 4 && number != 8)
		return false;
	*arg = (struct mt_usdt_arg){ .size = (uint8_t)number };
	*s = end + 1;
	if (**s == '%')
		return parse_register(s, /*whole=*/false, &arg->reg);
	arg->memory = 1;
	if (**s != '(') {
		number = strtol(*s, &end, 10);
		if (errno || end == *s || number < INT32_MIN || number > INT32_MAX)
			return false;
		arg->disp = (int32_t)number;
		*s = end;
	}
	if (**s != '(')
		return false;
	++*s;
	if (!parse_register(s, /*whole=*/true, &arg->reg) || **s != ')')
		return false;
	++*s;
	return true;
}

int usdt__args(const char *args, struct mt_usdt_arg *v, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		args += strspn(args, " ");
		if (!parse_arg(&args, &v[i]) || (*args && *args != ' '))
			return -EINVAL;
	}
	return 0;
}

/* ---- in a file ---- */

/* Adjusts addresses as linked by the shift of .stapsdt.base, in case a tool moved the file's
 * sections. */
static void adjust_addresses(const struct elf *elf, struct usdt *u)
{
	uint64_t base, size;

	if (!u->base || elf__section(elf, ".stapsdt.base", &base, &size))
		return;
	u->pc += base - u->base;
	if (u->semaphore)
		u->semaphore += base - u->base;
}

/* True if vaddr can be a semaphore: 2 bytes in the section .probes. Elsewhere the kernel's writes
 * to the semaphore would do damage. */
static bool is_semaphore(const struct elf *elf, uint64_t vaddr)
{
	uint64_t addr, size;

	return elf__section(elf, ".probes", &addr, &size) == 0 && size >= 2 && vaddr >= addr &&
	       vaddr - addr <= size - 2;
}

/* Sets the places at pc where a probe can be. Returns 0, -EINVAL: none can, or -ENOTSUP: only one
 * that kernels make a call of, whose harm is known. */
static int find_places(const struct elf *elf, uint64_t pc, struct usdt_site *ret)
{
	static const uint8_t long_nop[] = { 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0 };
	uint8_t code[CODE_LEN] = { 0 };
	size_t len = sizeof(code), at;
	uint64_t offset;
	struct site site;
	int err;

	/* less at the end of a segment */
	while (len && elf__read(elf, pc, code, len))
		len--;
	if (!len || elf__vaddr_to_offset(elf, pc, &offset))
		return -EINVAL;
	*ret = (struct usdt_site){ 0 };
	err = site__pick(ELF_X86_64, code, len, 0, SITE_FIRST, &site);
	if (!err)
		ret->offset = offset;
	ret->nop = !err && code[0] == 0x90;
	at = code[0] == 0x90; /* newer macros write a nop and a long nop */
	if (!memcmp(code + at, long_nop, sizeof(long_nop)))
		ret->long_nop = offset + at;
	if (ret->offset || ret->long_nop)
		return 0;
	return err == -ENOTSUP ? -ENOTSUP : -EINVAL;
}

/* Appends the site of a probe to *ret. Returns 0, or the error of find_places(). */
static int add_site(const struct elf *elf, struct usdt *probe, size_t n_args,
		    struct usdt_sites *ret)
{
	struct usdt_site *site = &ret->site[ret->n];
	int err;

	adjust_addresses(elf, probe);
	if (usdt__args(probe->args, ret->args[ret->n].arg, n_args))
		return -EINVAL;
	err = find_places(elf, probe->pc, site);
	if (err)
		return err;
	if (probe->semaphore && !is_semaphore(elf, probe->semaphore))
		return -EINVAL;
	if (probe->semaphore && elf__vaddr_to_offset(elf, probe->semaphore, &site->semaphore))
		return -EINVAL;
	ret->n++;
	return 0;
}

/* As usdt__find(), for an x86-64 file. *ret may be changed on failure. */
static int find_in(const struct elf *elf, const char *provider, const char *name, size_t n_args,
		   struct usdt_sites *ret)
{
	struct usdt probes[USDT_SITES_MAX + 1];
	uint8_t *notes;
	size_t len, n, i;
	int err;

	err = elf__section_bytes(elf, ".note.stapsdt", NOTES_MAX, &notes, &len);
	if (err)
		return err;
	n = usdt__notes(notes, len, provider, name, probes, USDT_SITES_MAX + 1);
	free(notes);
	if (!n)
		return -ENOENT;
	if (n > USDT_SITES_MAX)
		return -EINVAL;
	for (i = 0; i < n && !err; i++)
		err = add_site(elf, &probes[i], n_args, ret);
	return err;
}

int usdt__find(const struct elf *elf, const char *provider, const char *name, size_t n,
	       struct usdt_sites *ret)
{
	struct usdt_sites sites = { .n = 0 };
	int err;

	if (n > MT_ASKED_ARGS)
		return -EINVAL;
	err = elf__machine(elf) == ELF_X86_64 ? find_in(elf, provider, name, n, &sites) : -ENOENT;
	if (!err)
		*ret = sites;
	return err;
}
