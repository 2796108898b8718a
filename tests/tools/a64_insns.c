/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Decodes A64 code from standard input, for tools/dev/a64.py. One line for each word: address,
 * word, kind (enum insn_a64_kind, -1: not decoded), branch target, registers that may be written,
 * change of the stack pointer, place of a stored x30. Numbers are hexadecimal, "-" means none.
 *
 *   a64_insns ADDRESS < CODE
 *
 * With --sites: reads lines "ARGS HEX", and prints the site of each function (HEX: all of its
 * code): offset, class, text, return address, stack pointer, place of x30.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/elf.h"
#include "inspect/process/insn_a64.h"
#include "inspect/site.h"

static void print_insn(uint64_t at, const uint8_t *code)
{
	struct insn_a64 in = { 0 };
	uint64_t target = at;
	uint32_t word;

	memcpy(&word, code, sizeof(word));
	if (insn_a64__decode(code, INSN_A64_SIZE, &in)) {
		printf("%" PRIx64 " %08x -1 - 0 - -\n", at, word);
		return;
	}
	printf("%" PRIx64 " %08x %d ", at, word, in.kind);
	if (in.kind == A64_ADR && word >> 31)
		printf("%" PRIx64, (target & ~(uint64_t)0xfff) + (uint64_t)in.target * 4096);
	else if (in.has_target || in.kind == A64_ADR || in.kind == A64_LITERAL)
		printf("%" PRIx64, target + (uint64_t)in.target);
	else
		printf("-");
	printf(" %x ", in.writes);
	if (in.has_sp)
		printf("%d ", in.sp);
	else
		printf("- ");
	if (in.stores_x30)
		printf("%d\n", in.x30_at);
	else
		printf("-\n");
}

static int print_sites(void)
{
	static char line[1 << 20];
	static uint8_t code[1 << 19];
	char *hex, *end;
	struct site s;
	unsigned args;
	size_t n;

	while (fgets(line, sizeof(line), stdin)) {
		args = (unsigned)strtoul(line, &hex, 16);
		hex += strspn(hex, " ");
		for (n = 0; n < sizeof(code) && hex[2 * n] > ' '; n++) {
			const char two[3] = { hex[2 * n], hex[2 * n + 1], '\0' };

			code[n] = (uint8_t)strtoul(two, &end, 16);
		}
		if (site__pick(ELF_AARCH64, code, n, n, args, &s))
			printf("none\n");
		else
			printf("+%u class %d, %s; return %d, sp %d, x30 at %d\n", s.offset, s.cls,
			       s.text, s.ret, s.sp, s.x30_saved_at);
	}
	return 0;
}

int main(int argc, char **argv)
{
	uint8_t code[INSN_A64_SIZE];
	uint64_t at;

	if (argc == 2 && !strcmp(argv[1], "--sites"))
		return print_sites();
	if (argc != 2) {
		fprintf(stderr, "usage: a64_insns ADDRESS | --sites\n");
		return 2;
	}
	for (at = strtoull(argv[1], NULL, 16); fread(code, 1, sizeof(code), stdin) == sizeof(code);
	     at += sizeof(code))
		print_insn(at, code);
	return 0;
}
