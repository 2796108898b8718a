/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "hostmem/residency.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/array.h"
#include "lib/io.h"

#define TEXT_MAX (256u << 20)
#define READ_AT_ONCE 65536
#define PAGE_PRESENT (UINT64_C(1) << 63) /* Documentation/admin-guide/mm/pagemap.rst */
#define ENTRIES 4096			 /* entries of pagemap read at once */

/* Reads a file of /proc from its beginning to its end. */
static int read_all(int fd, char **text, size_t *len)
{
	size_t cap = 0;
	ssize_t n;
	int err;

	*text = NULL;
	*len = 0;
	do {
		err = *len > TEXT_MAX ? -EFBIG : array__grow(text, &cap, *len + READ_AT_ONCE, 1);
		if (err)
			return err;
		n = io__read(fd, *text + *len, READ_AT_ONCE);
		if (n < 0)
			return (int)n;
		*len += (size_t)n;
	} while (n);
	return 0;
}

/* The lines of a map begin with its line of /proc/PID/maps, whose first character is a digit of an
 * address. All others begin with a capital. */
static bool begins_map(const char *line)
{
	return (*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f');
}

static int parse_rss(const char *line, const char *end, uint64_t *bytes)
{
	static const char rss[] = "Rss:";
	uint64_t kib = 0;

	if ((size_t)(end - line) < sizeof(rss) - 1 || memcmp(line, rss, sizeof(rss) - 1) != 0)
		return 0;
	line += sizeof(rss) - 1;
	while (line < end && *line == ' ')
		line++;
	if (line == end || *line < '0' || *line > '9')
		return -EINVAL;
	for (; line < end && *line >= '0' && *line <= '9'; line++)
		if (__builtin_mul_overflow(kib, 10, &kib) ||
		    __builtin_add_overflow(kib, (uint64_t)(*line - '0'), &kib))
			return -EINVAL;
	return __builtin_mul_overflow(kib, 1024, bytes) ? -EINVAL : 0;
}

int residency__parse(const char *text, size_t len, struct residency *ret)
{
	const char *line = text, *end = text + len, *next;
	char *heads = malloc(len + 1);
	size_t n = 0, cap = 0, used = 0;
	uint64_t *bytes = NULL;
	int err = heads ? 0 : -ENOMEM;

	for (; !err && line < end; line = next) {
		const char *eol = memchr(line, '\n', (size_t)(end - line));

		eol = eol ?: end;
		next = eol < end ? eol + 1 : end;
		if (!begins_map(line)) {
			err = n ? parse_rss(line, eol, &bytes[n - 1]) : -EINVAL;
			continue;
		}
		err = array__grow(&bytes, &cap, n + 1, sizeof(*bytes));
		if (err)
			break;
		bytes[n++] = 0;
		memcpy(heads + used, line, (size_t)(eol - line));
		used += (size_t)(eol - line);
		heads[used++] = '\n';
	}
	if (!err)
		err = maps__parse(heads, used, &ret->maps);
	free(heads);
	if (!err && ret->maps.n != n) {
		maps__free(&ret->maps);
		err = -EINVAL;
	}
	if (err)
		free(bytes);
	else
		ret->bytes = bytes;
	return err;
}

int residency__read(const struct proc *p, struct residency *ret)
{
	int fd = proc__open_entry(p, "smaps"), err;
	size_t len;
	char *text;

	if (fd < 0)
		return fd;
	err = read_all(fd, &text, &len);
	close(fd);
	if (!err && !len)
		err = -ESRCH; /* the process is ending */
	if (!err)
		err = residency__parse(text, len, ret);
	free(text);
	return err;
}

void residency__free(struct residency *r)
{
	maps__free(&r->maps);
	free(r->bytes);
	*r = (struct residency){ 0 };
}

int residency__open_pages(const struct proc *p)
{
	return proc__open_entry(p, "pagemap");
}

int residency__count(int pages, uint64_t start, uint64_t end, uint64_t *ret)
{
	uint64_t entries[ENTRIES], page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t at = start / page, last = end / page;

	*ret = 0;
	while (at < last) {
		size_t n = last - at < ENTRIES ? last - at : ENTRIES;
		ssize_t got = io__pread(pages, entries, n * sizeof(*entries),
					at * sizeof(*entries));

		if (got < 0)
			return (int)got;
		for (size_t i = 0; i < (size_t)got / sizeof(*entries); i++)
			*ret += entries[i] & PAGE_PRESENT ? page : 0;
		if ((size_t)got < n * sizeof(*entries))
			return -ESRCH; /* the process is ending */
		at += n;
	}
	return 0;
}
