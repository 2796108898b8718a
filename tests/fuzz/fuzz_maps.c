/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* libFuzzer target: bytes as the text of a maps file. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/proc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct maps m = { .n = 12345 };
	const struct map *map;
	size_t i;

	if (maps__parse((const char *)data, size, &m)) {
		if (m.n != 12345)
			abort(); /* outputs changed on failure */
		return 0;
	}
	for (i = 0; i < m.n; i++) {
		if (m.v[i].start >= m.v[i].end || (i && m.v[i].start < m.v[i - 1].start) ||
		    !m.v[i].path || strlen(m.v[i].path) > size || strchr(m.v[i].path, '\n'))
			abort();
		map = maps__find(&m, m.v[i].start);
		if (!map || m.v[i].start < map->start || m.v[i].start >= map->end)
			abort();
	}
	maps__free(&m);
	return 0;
}
