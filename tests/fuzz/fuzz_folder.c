/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: the index of a folder of recordings and, after a NUL, the totals of a rolling
 * folder. Both may be hostile. Accepted data must be equal after writing and reading, and log
 * messages must be safe to print.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "model/inputs.h"
#include "record/folder.h"
#include "record/mtr_rolling.h"
#include "terminal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[] = "/dev/shm/memtrace-fuzz-XXXXXX", index_path[64], totals_path[64];

/* Log messages go to a terminal, too. */
static void check_message(void *ctx, enum log_level level, const char *text)
{
	if (!terminal__harmless(text, strlen(text)))
		abort();
}

static void clean_up(void)
{
	unlink(index_path);
	unlink(totals_path);
	rmdir(dir);
}

static void set_up(void)
{
	if (index_path[0])
		return;
	if (!mkdtemp(dir))
		abort();
	snprintf(index_path, sizeof(index_path), "%s/" FOLDER_INDEX, dir);
	snprintf(totals_path, sizeof(totals_path), "%s/" TOTALS_FILE, dir);
	atexit(clean_up);
	log__divert(check_message, NULL);
}

static void put(const char *path, const uint8_t *data, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	close(fd);
}

/* Writes the index with an empty change and reads it again. */
static void rewrite(struct folder *f)
{
	const struct folder_entry *had, *have;
	struct folder_entry first;
	struct folder *other;
	size_t n, m, gaps, other_gaps;

	had = folder__entries(f, &n);
	folder__gaps(f, &gaps);
	if (!n)
		return;
	first = had[0]; /* f reads its index again */
	if (folder__add(f, &first))
		return;
	if (folder__read(dir, &other, NULL))
		abort();
	had = folder__entries(f, &n);
	have = folder__entries(other, &m);
	folder__gaps(other, &other_gaps);
	if (n != m || gaps != other_gaps)
		abort();
	for (size_t i = 0; i < n; i++) {
		if (strcmp(had[i].file, have[i].file) || strchr(had[i].file, '/') ||
		    had[i].pid != have[i].pid || had[i].events != have[i].events ||
		    had[i].n_devices != have[i].n_devices)
			abort();
	}
	folder__free(other);
}

static void check_rolling(void)
{
	static const struct model_opts at[] = { { .at = AT_PEAK },
						{ .at = AT_END },
						{ .at = AT_OOM },
						{ .at = AT_TIME, .at_time = 5 } };
	struct rolling_view *v;
	const char *segment;
	char *text = NULL;
	size_t len = 0;
	FILE *out;

	if (!rolling_view__is(dir) || rolling_view__open(dir, &v))
		return;
	out = open_memstream(&text, &len);
	for (size_t i = 0; out && i < sizeof(at) / sizeof(at[0]); i++) {
		if (rolling_view__segment(v, &at[i], i % 2 ? "cuda:0" : NULL, &segment))
			continue;
		rolling_view__print(v, out);
	}
	if (!out || fclose(out))
		abort();
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		if (!terminal__harmless(line, strlen(line)))
			abort();
	}
	free(text);
	rolling_view__free(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t len = strnlen((const char *)data, size);
	struct folder *f;
	const char *why = NULL;
	int err;

	set_up();
	put(index_path, data, len);
	unlink(totals_path);
	if (len < size)
		put(totals_path, data + len + 1, size - len - 1);
	check_rolling();
	err = folder__read(dir, &f, &why);
	if (err) {
		/* Of an index of a newer version the code says all. */
		if (!why && err != -EPROTONOSUPPORT)
			abort();
		return 0;
	}
	rewrite(f);
	folder__free(f);
	return 0;
}
