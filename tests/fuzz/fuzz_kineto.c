/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: a trace of a profiler, as JSON or compressed by gzip. An accepted trace must
 * give an array of JSON objects in plain ASCII, a rejected one a documented error.
 */
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/json.h"
#include "export/formats/perfetto.h"
#include "record/stream.h"
#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_array(const char *text, size_t size)
{
	json_t *all = json_loadb(text, size, 0, NULL), *event;
	size_t i;

	if (!json_array_size(all))
		abort();
	json_array_foreach(all, i, event)
		if (!json_is_object(event))
			abort();
	for (i = 0; i < size; i++)
		if (text[i] & 0x80)
			abort();
	json_decref(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct facts *f = facts__new();
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);
	struct json *j = out ? json__new(out, false) : NULL;
	int err;

	if (!f || !j || facts__set(f, "clock_zero_ns", "1700000000123456789"))
		abort();
	json__open_array(j, NULL);
	err = perfetto__merge(j, memory_file__of(data, size), f);
	json__close_array(j);
	json__free(j);
	if (fclose(out))
		abort();
	if (!err)
		check_array(text, n);
	else if (err != -EBADMSG && err != -EMSGSIZE)
		abort();
	free(text);
	facts__free(f);
	return 0;
}
