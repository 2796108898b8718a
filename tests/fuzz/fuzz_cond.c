/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: a condition's text, then NUL and values for it. An accepted condition must keep
 * its text, evaluate equal values equally and give safe text. A rejected one must have a safe
 * reason.
 */
#include <stdlib.h>
#include <string.h>

#include "record/cond.h"
#include "terminal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void feed(struct cond *c, const uint8_t *data, size_t size)
{
	struct cond_values v = { .time = 0 };
	struct cond_result a, b;

	for (; size >= 8; data += 8, size -= 8) {
		uint64_t x;

		memcpy(&x, data, sizeof(x));
		v.time += x >> (x & 63);
		v.step += x >> (x >> 6 & 63);
		v.has_steps = x & 1 << 12;
		v.series = x >> 13 & 3;
		v.sampled = x & 1 << 15;
		v.judge_largest = x & 1 << 16;
		v.v[x % COND_FIGURES] = (struct cond_value){ x >> 17 & 1, x >> (x >> 18 & 63),
							     x >> (x >> 24 & 63) };
		if (cond__eval(c, &v, &a) || cond__eval(c, &v, &b))
			continue;
		if (a.verdict != b.verdict || !*a.text || strcmp(a.text, b.text) ||
		    !terminal__harmless(a.text, strlen(a.text)))
			abort();
		if (!(x & 0xff << 20))
			cond__forget(c, v.series);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[2048], *why;
	size_t len = strnlen((const char *)data, size);
	struct cond *c;

	if (len >= sizeof(text))
		len = sizeof(text) - 1;
	memcpy(text, data, len);
	text[len] = '\0';
	if (cond__parse(text, &c, &why)) {
		if (!why || !*why || !terminal__harmless(why, strlen(why)))
			abort();
		free(why);
		return 0;
	}
	if (strcmp(cond__text(c), text))
		abort();
	feed(c, data + len, size - len);
	cond__free(c);
	return 0;
}
