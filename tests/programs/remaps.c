/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * remaps OWN OTHER N: maps the file OWN as a dynamic linker would, and at the N-th time that OWN is
 * opened or closed by anybody maps the code of OTHER over its code, at the same addresses. Prints
 * "ready", and "swapped" when it has. Ends with its input. Both files have their code at 0x1000.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 0x1000

static void map(char *at, int prot, int fd, off_t offset)
{
	if (mmap(at, PAGE, prot, MAP_PRIVATE | MAP_FIXED, fd, offset) == MAP_FAILED)
		exit(3);
}

/* The number of opens and closes that have come. */
static int events(int in)
{
	char buf[4096] __attribute__((aligned(8)));
	ssize_t len = read(in, buf, sizeof(buf));
	int n = 0;

	for (char *e = buf; e < buf + len;) {
		const struct inotify_event *i = (const void *)e;

		n++;
		e += sizeof(*i) + i->len;
	}
	return n;
}

int main(int argc, char **argv)
{
	int own = open(argv[1], O_RDONLY), other = open(argv[2], O_RDONLY), in = inotify_init1(0);
	int left = argc > 3 ? atoi(argv[3]) : 1;
	struct pollfd wait[2] = { { .fd = 0, .events = POLLIN }, { .fd = in, .events = POLLIN } };
	/* Gaps between the parts, so that the kernel does not join mappings. */
	char *at = mmap(NULL, 6 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (own < 0 || other < 0 || at == MAP_FAILED)
		return 3;
	map(at, PROT_READ | PROT_EXEC, own, 0);
	map(at + 2 * PAGE, PROT_READ | PROT_EXEC, own, PAGE);
	map(at + 5 * PAGE, PROT_READ, own, 2 * PAGE);
	if (inotify_add_watch(in, argv[1], IN_OPEN | IN_CLOSE_NOWRITE) < 0)
		return 3;
	puts("ready");
	fflush(stdout);
	while (poll(wait, 2, -1) > 0 && !wait[0].revents) {
		if (!wait[1].revents || left <= 0)
			continue;
		left -= events(in);
		if (left > 0)
			continue;
		map(at + 2 * PAGE, PROT_READ | PROT_EXEC, other, PAGE);
		puts("swapped");
		fflush(stdout);
		wait[1].fd = -1;
	}
	return 0;
}
