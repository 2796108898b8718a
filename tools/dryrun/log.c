// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "dryrun.h"
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUCKETS 256

struct name {
	struct name *next;
	char text[];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct name *seen[BUCKETS];
static int fd = -1;

void log__lock(void)
{
	pthread_mutex_lock(&mutex);
}

void log__unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

/* Lock held. Several processes may share the file. */
static int file(const char *path)
{
	if (fd < 0)
		fd = strcmp(path, "-") ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)
				       : STDERR_FILENO;
	return fd;
}

void log__open(void)
{
	const char *path = dryrun__config()->log;

	pthread_mutex_lock(&mutex);
	if (file(path) < 0)
		fprintf(stderr,
			"memtrace-bpf: dry run: no log: MEMTRACE_DRYRUN_LOG cannot be opened: %s\n",
			strerror(errno));
	pthread_mutex_unlock(&mutex);
}

void dryrun__log(const char *format, ...)
{
	const char *path = dryrun__config()->log;
	char line[2048]; /* space for a path and a text */
	va_list args;
	int n;

	if (!path)
		return;
	va_start(args, format);
	n = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (n < 0)
		return;
	if ((size_t)n > sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	pthread_mutex_lock(&mutex);
	/* One write a line. A failure cannot be reported. */
	if (file(path) >= 0 && write(fd, line, (size_t)n) < 0)
		fd = -1;
	pthread_mutex_unlock(&mutex);
}

static unsigned int hash(const char *text)
{
	unsigned int h = 5381;

	while (*text)
		h = h * 33 + (unsigned char)*text++;
	return h % BUCKETS;
}

void dryrun__unmodelled(const char *name)
{
	struct name **bucket = &seen[hash(name)], *n;
	size_t size = strlen(name) + 1;

	if (!dryrun__config()->log)
		return;
	pthread_mutex_lock(&mutex);
	for (n = *bucket; n; n = n->next)
		if (!strcmp(n->text, name))
			break;
	if (!n) {
		struct name *fresh = malloc(sizeof(*fresh) + size);

		if (fresh) {
			memcpy(fresh->text, name, size);
			fresh->next = *bucket;
			*bucket = fresh;
		}
	}
	pthread_mutex_unlock(&mutex);
	if (!n)
		dryrun__log("unmodelled %s", name);
}
