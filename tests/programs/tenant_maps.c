/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A process that looks like PyTorch until it has been read: tenant_maps OWN OTHER EVENTS MS HOW.
 * Maps its own library. MS ms after other processes have opened or closed that EVENTS times, it
 * maps OTHER in the place of its code. HOW: "map" over it, "move" (mremap) over it, or "back" and
 * forth from the first event on. Both files have their code at 0x1000. Prints "ready", and
 * "swapped" when it has. Ends when its standard input does.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <unistd.h>

#define BASE ((char *)0x7e0000000000)
#define PAGE 0x1000
#define CODE (BASE + 2 * PAGE) /* not next to the others, so that it stays a mapping of its own */

static void map(char *at, int fd, long offset, int prot)
{
	if (mmap(at, PAGE, prot, MAP_PRIVATE | MAP_FIXED, fd, offset) == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
}

static void put(int other, const char *how)
{
	char *from;

	if (strcmp(how, "move") != 0) {
		map(CODE, other, PAGE, PROT_READ | PROT_EXEC);
		return;
	}
	from = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, other, PAGE);
	if (mremap(from, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, CODE) == MAP_FAILED)
		perror("mremap");
}

static int count_events(int watch)
{
	char buf[4096];
	int n = 0;
	ssize_t len = read(watch, buf, sizeof(buf));

	for (char *e = buf; len > 0 && e < buf + len;) {
		struct inotify_event *i = (void *)e;

		n++;
		e += sizeof(*i) + i->len;
	}
	return n;
}

int main(int argc, char **argv)
{
	int own, other, watch, events, wanted;
	const char *how;

	if (argc < 6)
		return 2;
	own = open(argv[1], O_RDONLY);
	other = open(argv[2], O_RDONLY);
	wanted = atoi(argv[3]);
	how = argv[5];
	mmap(BASE, 6 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	map(BASE, own, 0, PROT_READ | PROT_EXEC);
	map(CODE, own, PAGE, PROT_READ | PROT_EXEC);
	map(BASE + 5 * PAGE, own, 2 * PAGE, PROT_READ);
	watch = inotify_init1(IN_NONBLOCK);
	inotify_add_watch(watch, argv[1], IN_OPEN | IN_CLOSE_NOWRITE);
	puts("ready");
	fflush(stdout);
	for (events = 0;;) {
		struct pollfd fds[2] = { { .fd = 0, .events = POLLIN },
					 { .fd = watch, .events = POLLIN } };
		char c;

		if (poll(fds, 2, events && !strcmp(how, "back") ? 0 : -1) > 0 && fds[0].revents &&
		    read(0, &c, 1) <= 0)
			return 0;
		events += count_events(watch);
		if (events && !strcmp(how, "back")) {
			map(CODE, other, PAGE, PROT_READ | PROT_EXEC);
			usleep(500);
			map(CODE, own, PAGE, PROT_READ | PROT_EXEC);
			usleep(500);
		} else if (wanted && events >= wanted) {
			usleep((unsigned)atoi(argv[4]) * 1000);
			put(other, how);
			puts("swapped");
			fflush(stdout);
			wanted = 0;
		}
	}
}
