/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Constructor and destructor of the library. */
#include <errno.h>
#include <inttypes.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "breakpoints.h"
#include "library.h"

#define DRAIN_AT_END 2000 /* ms */

/* Checks that the descriptor is still the recorder's memfd. */
static bool is_ours(int fd, uint64_t device, uint64_t inode)
{
	struct stat st;

	return !fstat(fd, &st) && st.st_dev == device && st.st_ino == inode;
}

static struct mt_inside *map_shared(int *fd)
{
	const char *text = getenv(MT_INSIDE_ENV);
	uint64_t device, inode;
	struct mt_inside *s;

	if (!text || sscanf(text, "%d:%" SCNu64 ":%" SCNu64, fd, &device, &inode) != 3 ||
	    !is_ours(*fd, device, inode))
		return NULL;
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (s == MAP_FAILED)
		return NULL;
	/* Children of the process inherit the variable and the descriptor but are not recorded. */
	if (s->magic == MT_INSIDE_MAGIC && s->pid == (__u32)getpid())
		return s;
	munmap(s, sizeof(*s));
	return NULL;
}

static int mark_recorded(void)
{
	void *p = mmap(NULL, MT_INSIDE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	if (p == MAP_FAILED || madvise(p, MT_INSIDE_PAGE, MADV_WIPEONFORK))
		return -errno;
	recorded = p;
	return 0;
}

static int begin(int fd)
{
	struct mt_inside_variables v = { 0 };
	int err = ring__map(fd, shared->ring_bytes);
	size_t i;

	if (!err)
		err = programs__share(fd, &v);
	if (!err)
		err = mark_recorded();
	if (!err)
		err = signals__take(breakpoints__trap);
	if (err)
		return err;
	programs__set_returns(breakpoints__returns());
	/* Records of the program that the process ran before exec. */
	ring__abandon();
	for (i = 0; i < MT_INSIDE_SITES; i++)
		shared->site[i] = (struct mt_inside_site){ 0 };
	shared->variables = v;
	shared->slots[0] = breakpoints__slots();
	shared->slots[1] = breakpoints__near_slots();
	shared->returns = breakpoints__returns();
	shared->linker = _r_debug.r_brk;
	*recorded = 1;
	return 0;
}

__attribute__((constructor)) static void start(void)
{
	int fd, err;

	shared = map_shared(&fd);
	if (!shared)
		return;
	err = begin(fd);
	shared->problem = err ? -err : 0;
	__atomic_add_fetch(&shared->image, 1, __ATOMIC_SEQ_CST);
	if (!err)
		breakpoints__wait(breakpoints__torch_is_here() ? MT_INSIDE_ARRIVED
							       : MT_INSIDE_STARTS);
}

/* Lets the recorder read the last records: it reads the names in them from this process. */
static void end(void)
{
	if (recorded && *recorded)
		ring__wait_for_reader(DRAIN_AT_END);
}

__attribute__((destructor)) static void finish(void)
{
	end();
}

__attribute__((visibility("default"), noreturn)) void _exit(int status)
{
	end();
	for (;;)
		_Exit(status);
}
