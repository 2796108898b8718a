/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* libFuzzer target: bytes as a function's code; the first two bytes choose the other arguments. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "process/insn.h"
#include "process/site.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The site must be at the start of an instruction, with no branch before it. */
static void check_site(const uint8_t *code, size_t size, const struct site *s)
{
	struct insn in;
	size_t pos = 0;

	while (pos < s->offset) {
		if (insn__decode(code + pos, size - pos, &in) || in.flow != INSN_NEXT)
			abort();
		pos += in.length;
	}
	if (pos != s->offset || insn__decode(code + pos, size - pos, &in) || in.length != s->length)
		abort();
	if (s->length == 5 && code[pos] == 0x0f && code[pos + 1] == 0x1f)
		abort();
	if (!memchr(s->text, '\0', sizeof(s->text)) || !s->text[0] || s->cls == SITE_NONE)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct site s;
	uint8_t *code;

	if (size < 2)
		return 0;
	/* a copy of the exact size, so that sanitizers find reads beyond it */
	code = malloc(size - 2 ? size - 2 : 1);
	if (!code)
		return 0;
	memcpy(code, data + 2, size - 2);
	if (!site__pick(code, size - 2, data[0] & 0x40 ? size - 2 : data[1], data[0] & 0x3f, &s))
		check_site(code, size - 2, &s);
	free(code);
	return 0;
}
