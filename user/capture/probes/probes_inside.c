/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Runs the programs in the process itself, a child of ours with the recording library: breakpoints
 * instead of links, shared memory instead of maps. One of the two struct probes_place. */
#include "capture/probes/probes_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/user.h"
#include "capture/probes/probes_internal.h"
#include "inspect/elf.h"
#include "inspect/proc.h"
#include "inspect/site.h"

#define INSN_MAX 15 /* bytes of the longest instruction, x86-64 */

/* ---- breakpoints ---- */

/* The functions below make our only writes into any process. They need the right to write to
 * /proc/PID/mem, which a parent has. */

/* Opens the child's memory with the rights of the command's user, on this thread and for this call
 * only. So we cannot write to a set-user-ID program or another user's. Returns a descriptor or
 * -errno. */
static int open_as_user(const struct inside_memory *memory)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct own_caps[2], no_effective[2];
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)memory->pid);
	if (!memory->other) {
		fd = open(path, O_RDWR | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	if (syscall(SYS_capget, &h, own_caps))
		return -errno;
	memcpy(no_effective, own_caps, sizeof(no_effective));
	no_effective[0].effective = no_effective[1].effective = 0;
	setfsgid(memory->gid);
	setfsuid(memory->uid);
	fd = (uid_t)setfsuid(memory->uid) != memory->uid ||
			     (gid_t)setfsgid(memory->gid) != memory->gid ||
			     syscall(SYS_capset, &h, no_effective)
		     ? -EPERM
		     : open(path, O_RDWR | O_CLOEXEC);
	fd = fd == -1 ? -errno : fd;
	syscall(SYS_capset, &h, own_caps);
	setfsuid(geteuid());
	setfsgid(getegid());
	syscall(SYS_capset, &h, own_caps); /* changing the user changes the capabilities */
	return fd;
}

/* True if map maps size bytes at addr as code that only debuggers can write to. */
static bool is_code(const struct map *map, uint64_t addr, size_t size)
{
	return map && map->x && !map->w && size <= map->end - addr;
}

/* True if this is the address of _dl_debug_state(), which the dynamic linker calls for
 * debuggers. */
static bool is_linker_hook(const struct proc *proc, const struct map *map, uint64_t addr)
{
	struct elf *elf = is_code(map, addr, 1) ? elf__open_map(proc, map) : NULL;
	struct elf_sym sym;
	uint64_t at;
	bool matches;

	matches = elf && !elf__dynsym(elf, "_dl_debug_state", &sym) &&
		  !elf__vaddr_to_offset(elf, sym.value, &at) &&
		  at == map->offset + (addr - map->start);
	elf__free(elf);
	return matches;
}

static bool is_library(const struct map *map)
{
	const char *base = map ? strrchr(map->path, '/') : NULL;

	return base && map->x && !strcmp(base + 1, MT_INSIDE_LIBRARY);
}

/* True if these maps, read later, still have the library of the program that memory->mem is of. */
static bool is_same_program(const struct inside_memory *memory, const struct maps *maps)
{
	/* Without the library's handler, a breakpoint would kill the process. */
	return is_library(maps__find(maps, memory->returns));
}

/* Copies the addresses that the library wrote into the shared memory. Slots and linker become 0
 * unless the maps confirm them. Returns 0, or -ENOEXEC: the maps do not have the library. */
static int take_addresses(struct inside_memory *memory, const struct proc *proc,
			  const struct maps *maps)
{
	const size_t size = MT_INSIDE_SLOT * MT_INSIDE_SLOTS;
	uint64_t slots = memory->at->slots[0], near = memory->at->slots[1],
		 linker = memory->at->linker;
	const struct map *slots_map = maps__find(maps, slots);
	const struct map *near_map = maps__find(maps, near);

	memory->returns = memory->at->returns;
	if (!is_same_program(memory, maps))
		return -ENOEXEC;
	memory->slots[0] = is_library(slots_map) && is_code(slots_map, slots, size) ? slots : 0;
	memory->slots[1] = is_code(near_map, near, size) && !near_map->path[0] ? near : 0;
	memory->linker = is_linker_hook(proc, maps__find(maps, linker), linker) ? linker : 0;
	return 0;
}

/*
 * Opens the memory of the child's current program as memory->mem, with the rights of the command's
 * user, if the maps have our library. Does that once for each program: after an exec, the
 * descriptor writes nowhere. 0: it is open; -ENOEXEC: the program has no library; -EAGAIN: another
 * program began meanwhile; -errno: it cannot be written to.
 */
static int open_target(struct inside_memory *memory)
{
	uint32_t image = __atomic_load_n(&memory->at->image, __ATOMIC_SEQ_CST);
	struct proc *proc;
	struct maps maps;
	int fd, err;

	if (memory->mem >= 0 && memory->mem_image == image)
		return 0;
	/* image: the library in the child counts the programs that loaded it; 0: none so far. Open
	 * before reading the maps: if the program changed in between, they do not have the library,
	 * and take_addresses() fails. */
	fd = image ? open_as_user(memory) : -ENOEXEC;
	if (fd < 0)
		return fd;
	proc = proc__open(memory->pid);
	err = proc ? proc__maps(proc, &maps) : -errno;
	if (err)
		goto out;
	err = take_addresses(memory, proc, &maps);
	maps__free(&maps);
	if (err)
		goto out;
	if (__atomic_load_n(&memory->at->image, __ATOMIC_SEQ_CST) != image) {
		err = -EAGAIN;
		goto out;
	}
	if (memory->mem >= 0)
		close(memory->mem);
	memory->mem = fd;
	memory->mem_image = image;
	/* The old sites were another program's. */
	memset(memory->site, 0, MT_INSIDE_SITES * sizeof(*memory->site));
	fd = -1;
out:
	proc__free(proc);
	if (fd >= 0)
		close(fd);
	return err;
}

static int write_at(int fd, uint64_t addr, const void *buf, size_t len)
{
	ssize_t n = pwrite(fd, buf, len, (off_t)addr);

	if (n < 0)
		return -errno;
	return n == (ssize_t)len ? 0 : -EFAULT;
}

static int read_at(int fd, uint64_t addr, void *buf, size_t len)
{
	ssize_t n = pread(fd, buf, len, (off_t)addr);

	if (n < 0)
		return -errno;
	return n == (ssize_t)len ? 0 : -EFAULT;
}

/* True if a breakpoint, ours or another's, replaces this instruction. */
static bool is_breakpoint(const uint8_t *code)
{
	uint32_t word = 0;

	memcpy(&word, code, BREAKPOINT_SIZE);
	return (word & BREAKPOINT_MASK) == BREAKPOINT;
}

/* The site of an address, or a free one for it. NULL: half of the table is used, which is the
 * limit. *used: number of sites in use. */
static struct mt_inside_site *find_site(const struct inside_memory *memory, uint64_t addr,
					size_t *used)
{
	struct mt_inside_site *found = NULL;
	uint32_t i, from = mt_inside_hash(addr);

	*used = 0;
	for (i = 0; i < MT_INSIDE_SITES; i++)
		*used += memory->site[i].addr != 0;
	for (i = 0; i < MT_INSIDE_SITES && !found; i++) {
		struct mt_inside_site *site = &memory->site[(from + i) % MT_INSIDE_SITES];

		if (!site->addr || site->addr == addr)
			found = site;
	}
	return found && (found->addr || *used < MT_INSIDE_SITES / 2) ? found : NULL;
}

/* The child's copy of a site. */
static struct mt_inside_site *copy_of(const struct inside_memory *memory,
				      const struct mt_inside_site *site)
{
	return &memory->at->site[site - memory->site];
}

/* Sets entry i of a site, in our table and in the child's copy. Writes the cookie first: the
 * program makes the entry valid. */
static void set_program(const struct inside_memory *memory, struct mt_inside_site *site, size_t i,
			uint64_t cookie, uint32_t program)
{
	struct mt_inside_at *at = &copy_of(memory, site)->at[i];

	site->at[i] = (struct mt_inside_at){ .cookie = cookie, .program = program };
	at->cookie = cookie;
	__atomic_store_n(&at->program, program, __ATOMIC_RELEASE);
}

/* Fills the site for the instruction at addr, so that the child can emulate it or run a copy of it,
 * in the slot with number `used`. Errors as add_site(). */
static int make_site(struct inside_memory *memory, struct mt_inside_site *site, uint64_t addr,
		     uint8_t lower, size_t used)
{
	struct mt_inside_site made = { .addr = addr, .lower = lower },
			      *theirs = copy_of(memory, site);
	uint8_t code[INSN_MAX] = { 0 }, copy[MT_INSIDE_SLOT];
	size_t size = sizeof(code), i;
	uint64_t slot = 0;
	int err;

	/* Read less if the mapping ends before `size` bytes. */
	while ((err = read_at(memory->mem, addr, code, size)) && size > 1)
		size--;
	if (err)
		return err;
	if (is_breakpoint(code))
		return -EBUSY;
	err = -ERANGE;
	/* Try the slots in the library, then those near the program. */
	for (i = 0; i < 2 && err == -ERANGE; i++) {
		slot = memory->slots[i] + used * MT_INSIDE_SLOT;
		if (memory->slots[i])
			err = INSIDE_PLAN(code, size, addr, slot, &made, copy);
	}
	if (!err && made.way == MT_INSIDE_SLOT_RUN)
		err = used >= MT_INSIDE_SLOTS ? -ENOSPC
					      : write_at(memory->mem, slot, copy, sizeof(copy));
	if (err)
		return err;
	*site = made;
	made.addr = 0;
	*theirs = made;
	__atomic_store_n(&theirs->addr, addr, __ATOMIC_RELEASE);
	return 0;
}

/* Adds a program at exactly this address, and the breakpoint. lower: as in struct mt_inside_site.
 * Errors as add_site(). */
static int add_at(struct inside_memory *memory, uint64_t addr, uint8_t lower,
		  enum mt_inside_program program, uint64_t cookie)
{
	const uint32_t breakpoint = BREAKPOINT;
	struct mt_inside_site *site;
	size_t used, free_place;
	int err = 0;

	site = find_site(memory, addr, &used);
	if (!site)
		return -ENOSPC;
	if (!site->addr)
		err = make_site(memory, site, addr, lower, used);
	if (err || site->lower != lower)
		return err ?: -EBUSY;
	for (free_place = 0; free_place < MT_INSIDE_AT_SITE && site->at[free_place].program;
	     free_place++)
		;
	if (free_place == MT_INSIDE_AT_SITE)
		return -ENOSPC;
	set_program(memory, site, free_place, cookie, program);
	err = write_at(memory->mem, addr, &breakpoint, BREAKPOINT_SIZE);
	if (err)
		set_program(memory, site, free_place, cookie, 0);
	return err;
}

/*
 * Adds a program at an address of the child, next to programs that are there. With a second place,
 * the breakpoint is there if possible: the kernel's probes use the first place, and take the hits
 * of a breakpoint in the same place. 0; -EBUSY: the place has a breakpoint of others, such as the
 * kernel's probes of all processes; -ENOTSUP: the instruction cannot be emulated; -ENOSPC: the
 * table is full; -ERANGE: the instruction refers to memory too far from its copy; -ENOENT: no such
 * address, or no memory is open; -errno of reading or writing.
 */
static int add_site(struct inside_memory *memory, uint64_t addr, struct site_second second,
		    enum mt_inside_program program, uint64_t cookie)
{
	if (!addr || memory->mem < 0)
		return -ENOENT;
	if (second.after &&
	    !add_at(memory, addr + (uint64_t)second.after, second.lower, program, cookie))
		return 0;
	return add_at(memory, addr, 0, program, cookie);
}

/* Removes a program from a site (program 0: all but the linker's). After the last one, removes the
 * breakpoint. */
static void remove_program(struct inside_memory *memory, struct mt_inside_site *site,
			   enum mt_inside_program program, uint64_t cookie)
{
	bool removed = false, others_left = false;
	size_t i;

	for (i = 0; i < MT_INSIDE_AT_SITE; i++) {
		const struct mt_inside_at *at = &site->at[i];
		bool matches = program ? at->program == program && at->cookie == cookie
				       : at->program != MT_INSIDE_LINKER;

		if (!at->program)
			continue;
		if (matches)
			set_program(memory, site, i, at->cookie, 0);
		removed = removed || matches;
		others_left = others_left || !matches;
	}
	/* Keep the site: a thread may have hit the breakpoint already. */
	if (removed && !others_left)
		write_at(memory->mem, site->addr, &site->original, BREAKPOINT_SIZE);
}

/* Removes a program that add_site() added with the same arguments. */
static void remove_site(struct inside_memory *memory, uint64_t addr, struct site_second second,
			enum mt_inside_program program, uint64_t cookie)
{
	const uint64_t places[] = { addr, addr + (uint64_t)second.after };
	size_t used, i;

	for (i = 0; i < (second.after ? 2 : 1); i++) {
		struct mt_inside_site *site = find_site(memory, places[i], &used);

		if (site && site->addr)
			remove_program(memory, site, program, cookie);
	}
}

/* True if a site has a program, but the original instruction is there in place of the
 * breakpoint. */
static bool lost_breakpoint(const struct inside_memory *memory, const struct mt_inside_site *site)
{
	uint8_t now[BREAKPOINT_SIZE];
	bool has_program = false;
	size_t i;

	for (i = 0; i < MT_INSIDE_AT_SITE && site->addr && !has_program; i++)
		has_program = site->at[i].program != 0;
	/* Other code at the site means that the library was unloaded, which is no loss. */
	return has_program && !read_at(memory->mem, site->addr, now, sizeof(now)) &&
	       !memcmp(now, &site->original, sizeof(now));
}

/* Sets breakpoints again that others have removed, such as the kernel when its probe in the same
 * place ended. Returns how many. The hits since the last call are not recorded. */
static size_t renew_sites(struct inside_memory *memory)
{
	const uint32_t breakpoint = BREAKPOINT;
	size_t i, renewed = 0;

	for (i = 0; i < MT_INSIDE_SITES && memory->mem >= 0; i++) {
		if (lost_breakpoint(memory, &memory->site[i]))
			renewed += !write_at(memory->mem, memory->site[i].addr, &breakpoint,
					     BREAKPOINT_SIZE);
	}
	return renewed;
}

/* Removes all programs but the one in the dynamic linker. The process may have ended. */
static void clear_sites(struct inside_memory *memory)
{
	for (size_t i = 0; i < MT_INSIDE_SITES; i++) {
		if (memory->site[i].addr)
			remove_program(memory, &memory->site[i], 0, 0);
	}
}

/* Adds n to the 16-bit word at addr: a USDT's semaphore. 0 or -errno. */
static int add_to_word(struct inside_memory *memory, uint64_t addr, int n)
{
	uint16_t word;
	int err = read_at(memory->mem, addr, &word, sizeof(word));

	word = (uint16_t)(word + n);
	return err ?: write_at(memory->mem, addr, &word, sizeof(word));
}

/* ---- the shared memory ---- */

#define RING_DEFAULT (16u << 20) /* bytes; the default of the BPF programs, too */
#define FD_FIRST                                                                                   \
	200 /* least number of our descriptor in the child: programs may use small numbers by      \
	       themselves, as shells do */

/* A thread that makes m->wake, an eventfd, readable when the child wakes the futex at->wake. A
 * futex cannot be polled, and the child could close a descriptor of its own and open another file
 * under its number. */
struct inside_waker {
	pthread_t thread;
	struct inside_memory *memory;
	bool over; /* the thread is to end */
};

/* Thread: writes to the eventfd each time that at->wake changes, until end_waker(). */
static void *wait_for_wakes(void *arg)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };
	struct inside_waker *waker = arg;
	const uint64_t one = 1;
	uint32_t seen = 0, now;

	syscall(SYS_capset, &h, none); /* the thread needs no capability */
	while (!__atomic_load_n(&waker->over, __ATOMIC_SEQ_CST)) {
		now = __atomic_load_n(&waker->memory->at->wake, __ATOMIC_SEQ_CST);
		if (now == seen) {
			syscall(SYS_futex, &waker->memory->at->wake, FUTEX_WAIT, now, NULL, NULL,
				0);
			continue;
		}
		seen = now;
		while (write(waker->memory->wake, &one, sizeof(one)) < 0 && errno == EINTR)
			;
	}
	return NULL;
}

/* Starts the thread that wakes us. It takes no signals. */
static int start_waker(struct inside_memory *memory)
{
	struct inside_waker *waker = calloc(1, sizeof(*waker));
	sigset_t all, before;
	int err;

	if (!waker)
		return -ENOMEM;
	waker->memory = memory;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&waker->thread, NULL, wait_for_wakes, waker);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		free(waker);
		return -err;
	}
	memory->waker = waker;
	return 0;
}

/* Ends the thread that wakes us, if it runs. */
static void end_waker(struct inside_memory *memory)
{
	if (!memory->waker)
		return;
	__atomic_store_n(&memory->waker->over, true, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&memory->at->wake, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &memory->at->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	pthread_join(memory->waker->thread, NULL);
	free(memory->waker);
	memory->waker = NULL;
}

/* Makes the shared memory and the eventfd. 0 or -errno; the caller frees what there is. */
static int open_memory(struct inside_memory *memory)
{
	int fd = memfd_create("memtrace-inside", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	memory->fd = fcntl(fd, F_DUPFD, FD_FIRST);
	if (memory->fd < 0)
		memory->fd = fcntl(fd, F_DUPFD, 10);
	close(fd);
	if (memory->fd < 0 || ftruncate(memory->fd, (off_t)(MT_INSIDE_RING + 2 * MT_INSIDE_PAGE +
							    memory->ring_bytes)))
		return -errno;
	/* Forbid changes of the size: reading beyond the end of a file that the child made shorter
	 * would kill us. */
	if (fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	memory->at = mmap(NULL, MT_INSIDE_RING, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
	if (memory->at == MAP_FAILED) {
		memory->at = NULL;
		return -errno;
	}
	memory->variables = (uint8_t *)memory->at + MT_INSIDE_VARIABLES;
	memory->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return memory->wake < 0 ? -errno : 0;
}

struct inside_memory *inside_memory__new(size_t ring_bytes, const struct user *user)
{
	struct inside_memory *memory = calloc(1, sizeof(*memory));
	int err;

	if (!memory)
		return NULL;
	memory->fd = memory->wake = memory->mem = -1;
	memory->other = user && user->uid != geteuid();
	if (memory->other) {
		memory->uid = user->uid;
		memory->gid = user->gid;
	}
	memory->ring_bytes = ring_bytes ? ring_bytes : RING_DEFAULT;
	memory->site = calloc(MT_INSIDE_SITES, sizeof(*memory->site));
	err = memory->site ? open_memory(memory) : -ENOMEM;
	if (!err) {
		memory->at->magic = MT_INSIDE_MAGIC;
		memory->at->ring_bytes = memory->ring_bytes;
		memory->at->recorder = (uint32_t)getpid();
		memory->at->reads = 1;
		err = start_waker(memory);
	}
	if (!err)
		return memory;
	inside_memory__free(memory);
	errno = -err;
	return NULL;
}

void inside_memory__free(struct inside_memory *memory)
{
	if (!memory)
		return;
	if (memory->at) {
		inside_memory__close(memory);
		end_waker(memory);
		munmap(memory->at, MT_INSIDE_RING);
	}
	if (memory->fd >= 0)
		close(memory->fd);
	if (memory->wake >= 0)
		close(memory->wake);
	if (memory->mem >= 0)
		close(memory->mem);
	free(memory->site);
	free(memory);
}

void inside_memory__bind(struct inside_memory *memory, pid_t pid)
{
	memory->pid = pid;
	__atomic_store_n(&memory->at->pid, (uint32_t)pid, __ATOMIC_SEQ_CST);
}

void inside_memory__meet(struct inside_memory *memory)
{
	uint32_t image = __atomic_load_n(&memory->at->image, __ATOMIC_SEQ_CST);
	int err;

	if (image == memory->image)
		return; /* the program has been let run */
	/* While the process waits, it cannot exec: so memory->mem is the memory of the program that
	 * waits. */
	err = open_target(memory);
	if (__atomic_load_n(&memory->at->waits, __ATOMIC_SEQ_CST) != MT_INSIDE_STARTS)
		return;
	memory->image = image;
	err = err
		      ?: add_site(memory, memory->linker, (struct site_second){ 0 },
				  MT_INSIDE_LINKER, 0);
	if (err)
		log_debug("the dynamic linker's place for debuggers cannot be used: %s",
			  strerror(-err));
	inside_memory__let_go(memory);
}

bool inside_memory__arrived(const struct inside_memory *memory)
{
	return __atomic_load_n(&memory->at->waits, __ATOMIC_SEQ_CST) == MT_INSIDE_ARRIVED;
}

void inside_memory__let_go(struct inside_memory *memory)
{
	__atomic_add_fetch(&memory->at->go, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &memory->at->go, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void inside_memory__close(struct inside_memory *memory)
{
	__atomic_store_n(&memory->at->reads, 0, __ATOMIC_SEQ_CST);
	inside_memory__let_go(memory);
	__atomic_add_fetch(&memory->at->taken, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &memory->at->taken, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#define SEMAPHORES_MAX (MT_ASKED_SITES + PROBES_SITES_MAX)

struct inside_probes {
	struct probes probes; /* first */
	struct inside_memory *memory;
	bool at[HOOK_NR];		    /* the hook is attached */
	uint64_t semaphore[SEMAPHORES_MAX]; /* addresses of the semaphores that we raised */
	size_t n_semaphores;
	uint32_t semaphores_of; /* m->mem_image of the program that has these semaphores */
};

/* The struct that probes begins. */
static struct inside_probes *inside(const struct probes *probes)
{
	return (struct inside_probes *)probes;
}

/* ---- loading ---- */

/* Opens the memory of process pid, which must be our child, and reads its maps. 0: the maps have
 * our library; the caller frees them. -errno: the maps are not set. */
static int open_process(struct inside_memory *memory, pid_t pid, struct maps *maps)
{
	struct proc *proc;
	int err = pid == memory->pid ? open_target(memory) : -EINVAL;

	if (err)
		return err;
	proc = proc__open(pid);
	err = proc ? proc__maps(proc, maps) : -errno;
	proc__free(proc);
	if (err || is_same_program(memory, maps))
		return err;
	maps__free(maps);
	return -ENOEXEC;
}

/* True if size bytes at offset `at` are within the variables. */
static bool is_inside(const struct mt_inside_variables *variables, uint32_t at, size_t size)
{
	return at <= variables->size && size <= variables->size - at;
}

/* True if the library gives the place of each variable. No variable is in the first page
 * (tools/inprocess/first.c), and a field that the library does not know is 0. */
static bool all_places_given(const struct mt_inside_variables *variables)
{
	const uint32_t *at = (const void *)variables;
	size_t i;

	_Static_assert(offsetof(struct mt_inside_variables, size) == 0 &&
			       sizeof(*variables) % sizeof(*at) == 0,
		       "the size, then one offset a variable");
	for (i = 1; i < sizeof(*variables) / sizeof(*at); i++) {
		if (at[i] < MT_INSIDE_PAGE)
			return false;
	}
	return true;
}

/* True if all variables that we use are within their memory, and aligned. The child may have
 * written anything. */
static bool all_places_valid(const struct mt_inside_variables *variables)
{
	return variables->size <= MT_INSIDE_VARIABLES_MAX &&
	       is_inside(variables, variables->py, sizeof(struct mt_py_layout)) &&
	       is_inside(variables, variables->modules, 1) &&
	       is_inside(variables, variables->bench_empty, 1) &&
	       is_inside(variables, variables->bench_verify, 1) &&
	       is_inside(variables, variables->stopped, 1) &&
	       is_inside(variables, variables->woken, 8) &&
	       is_inside(variables, variables->notices, 8) &&
	       is_inside(variables, variables->code_epoch, 8) &&
	       is_inside(variables, variables->module_code, MT_MAX_MODULE_CODES * 8) &&
	       is_inside(variables, variables->seen_code, MT_SEEN_SLOTS) &&
	       is_inside(variables, variables->asked_args,
			 MT_ASKED_SITES * sizeof(struct mt_usdt_args)) &&
	       is_inside(variables, variables->node_layout, sizeof(struct mt_node_layout)) &&
	       !((variables->py | variables->woken | variables->notices | variables->code_epoch |
		  variables->module_code | variables->node_layout | variables->asked_args) %
		 8);
}

/* Begins as after a load into the kernel: sets the programs' variables from opts, all others to 0,
 * and empties all maps. 0, or -EBADMSG: the library is of another version. */
static int begin_capture(struct inside_probes *loaded, const struct probes_opts *opts)
{
	const struct mt_inside_variables offsets = loaded->memory->at->variables;
	uint8_t *variables = loaded->memory->variables;
	struct probes *probes = &loaded->probes;
	struct mt_inside *at = loaded->memory->at;

	if (!all_places_given(&offsets) || !all_places_valid(&offsets))
		return -EBADMSG;
	memset(variables, 0, offsets.size);
	memset(at->counters, 0, sizeof(at->counters));
	memset(at->sent_stacks, 0, sizeof(at->sent_stacks));
	memset(&at->roots, 0, sizeof(at->roots));
	memset(&at->types, 0, sizeof(at->types));
	memcpy(variables + offsets.py, &opts->py, sizeof(opts->py));
	variables[offsets.modules] = opts->modules;
	variables[offsets.bench_empty] = opts->empty;
	variables[offsets.bench_verify] = opts->verify;
	probes->vars.stopped = variables + offsets.stopped;
	probes->vars.notices = (uint64_t *)(variables + offsets.notices);
	probes->vars.seen_code = variables + offsets.seen_code;
	probes->vars.code_epoch = (uint64_t *)(variables + offsets.code_epoch);
	probes->vars.module_code = (uint64_t *)(variables + offsets.module_code);
	probes->vars.asked_args = (struct mt_usdt_args *)(variables + offsets.asked_args);
	probes->vars.node_layout = (struct mt_node_layout *)(variables + offsets.node_layout);
	__atomic_add_fetch(&at->loads, 1, __ATOMIC_SEQ_CST);
	return 0;
}

static const struct probes_place in_process;

/* 0 if the program that runs now has the library and the library is ready. Otherwise -errno, and
 * *why, static text for the user. */
static int check_library(struct inside_memory *memory, const char **why)
{
	uint32_t problem = __atomic_load_n(&memory->at->problem, __ATOMIC_SEQ_CST);
	struct maps maps;
	int err;

	*why = "cannot record the command from inside: the recording library could not start in it";
	if (problem)
		return problem < 4096 ? -(int)problem : -EBADMSG;
	err = open_process(memory, memory->pid, &maps);
	if (!err) {
		maps__free(&maps);
		return 0;
	}
	*why = err == -ENOEXEC ? "cannot record the command from inside: it did not load the "
				 "recording library (is it static, set-user-ID, unable to read the "
				 "library, or does a wrapper drop LD_PRELOAD?)"
			       : "cannot record the command from inside: the system does not allow "
				 "writing to a child's memory";
	return err;
}

struct probes *probes_inside__load(const struct probes_opts *opts, const char **why)
{
	struct inside_probes *loaded;
	int err;

	err = check_library(opts->capture.inside, why);
	if (err) {
		errno = -err;
		return NULL;
	}
	*why = "out of memory";
	loaded = calloc(1, sizeof(*loaded));
	if (!loaded)
		return NULL;
	loaded->memory = opts->capture.inside;
	loaded->probes.in = &in_process;
	loaded->probes.users = 1;
	loaded->probes.pidfd = -1;
	loaded->probes.multi = true; /* as if the kernel had uprobe.multi links */
	loaded->probes.py = opts->py;
	loaded->probes.sleepable = opts->sleepable;
	loaded->probes.wake = loaded->memory->wake;
	loaded->probes.ring = bpf_ring__new_in_file(loaded->memory->fd, MT_INSIDE_RING,
						    MT_INSIDE_PAGE, loaded->memory->ring_bytes);
	err = loaded->probes.ring ? begin_capture(loaded, opts) : -errno;
	if (!err) {
		bpf_ring__skip(loaded->probes.ring);
		return &loaded->probes;
	}
	if (err == -EBADMSG)
		*why = "the recording library in the command is from another version of "
		       "memtrace-bpf";
	bpf_ring__free(loaded->probes.ring);
	free(loaded);
	errno = -err;
	return NULL;
}

static void free_all(struct probes *probes)
{
	bpf_ring__free(probes->ring);
	free(probes->files);
	free(probes);
}

/* ---- attaching ---- */

/* True if a map is of this file and has this offset of it. */
static bool maps_offset(const struct map *map, const struct file_id *file, uint64_t offset)
{
	return map->inode == file->inode && map->dev_major == file->dev_major &&
	       map->dev_minor == file->dev_minor && offset >= map->offset &&
	       offset - map->offset < map->end - map->start;
}

/* Adds a program at each address where the file's code is mapped. 0; -ENOENT: it is not mapped; or
 * -errno, with some added. */
static int add_everywhere(struct inside_probes *ip, const struct maps *maps,
			  const struct file_id *file, const struct probe_site *at,
			  enum mt_inside_program program)
{
	int err = -ENOENT;
	size_t i;

	for (i = 0; i < maps->n; i++) {
		const struct map *map = &maps->v[i];

		if (!map->x || !maps_offset(map, file, at->offset))
			continue;
		err = add_site(ip->memory, map->start + (at->offset - map->offset), at->second,
			       program, at->cookie);
		if (err)
			return err;
	}
	return err;
}

/* Removes what add_everywhere() added. */
static void remove_everywhere(struct inside_probes *ip, const struct maps *maps,
			      const struct file_id *file, const struct probe_site *at,
			      enum mt_inside_program program)
{
	size_t i;

	for (i = 0; i < maps->n; i++) {
		const struct map *map = &maps->v[i];

		if (map->x && maps_offset(map, file, at->offset))
			remove_site(ip->memory, map->start + (at->offset - map->offset), at->second,
				    program, at->cookie);
	}
}

/* Attaches a hook's program by a breakpoint, in all files of the process that have the hook. 0 or
 * -errno. */
static int attach(struct probes *probes, pid_t pid, const struct hook *hook)
{
#define PROGRAM(id, program, twin, record, off, name) [HOOK_##id] = MT_INSIDE_##id,
	static const enum mt_inside_program programs[HOOK_NR] = { MT_HOOKS(PROGRAM) };
#undef PROGRAM
	const struct file_id file = { hook->inode, hook->dev_major, hook->dev_minor };
	const struct probe_site at = { .offset = hook->offset,
				       .cookie = hook->id,
				       .second = hook->site.second };
	struct maps maps;
	int err = open_process(inside(probes)->memory, pid, &maps);

	if (err)
		return err;
	err = add_everywhere(inside(probes), &maps, &file, &at, programs[hook->id]);
	maps__free(&maps);
	inside(probes)->at[hook->id] = !err;
	return err;
}

static bool attached(const struct probes *probes, __attribute__((unused)) pid_t pid,
		     enum hook_id id)
{
	return inside(probes)->at[id];
}

/* Raises a USDT's semaphore, at this offset of its file, where the file is mapped as writable
 * memory. 0 or -errno. */
static int raise_semaphore(struct inside_probes *ip, const struct maps *maps,
			   const struct file_id *file, uint64_t offset)
{
	size_t i;
	int err;

	for (i = 0; i < maps->n; i++) {
		const struct map *map = &maps->v[i];
		uint64_t addr = map->start + (offset - map->offset);

		if (!map->w || !maps_offset(map, file, offset))
			continue;
		err = ip->n_semaphores < SEMAPHORES_MAX ? add_to_word(ip->memory, addr, 1)
							: -ENOSPC;
		if (!err) {
			ip->semaphore[ip->n_semaphores++] = addr;
			ip->semaphores_of = ip->memory->mem_image;
		}
		return err;
	}
	return -ENOENT;
}

/* Attaches a program to all sites in all mappings of the file, or to none. 0 or -errno. */
static int attach_calls(struct probes *probes, pid_t pid, enum call_probe which,
			const struct call_file *in_file, const struct probe_site *sites, size_t n)
{
	static const enum mt_inside_program programs[] = {
		[CALL_RETURN] = MT_INSIDE_CALL_RETURN,	  [CALL_ENTER] = MT_INSIDE_CALL_ENTER,
		[CALL_SET_DEVICE] = MT_INSIDE_SET_DEVICE, [CALL_ASKED] = MT_INSIDE_ASKED,
		[CALL_USDT_SCOPE] = MT_INSIDE_USDT_SCOPE,
	};
	enum mt_inside_program program = programs[which];
	const struct file_id file = { in_file->inode, in_file->dev_major, in_file->dev_minor };
	struct maps maps;
	size_t i;
	int err = open_process(inside(probes)->memory, pid, &maps);

	if (err)
		return err;
	for (i = 0; i < n && !err; i++) {
		err = add_everywhere(inside(probes), &maps, &file, &sites[i], program);
		if (!err && sites[i].ref_ctr)
			err = raise_semaphore(inside(probes), &maps, &file, sites[i].ref_ctr);
	}
	/* After an error, undo all: also the last site, of which some mappings may be done. */
	while (err && i--)
		remove_everywhere(inside(probes), &maps, &file, &sites[i], program);
	maps__free(&maps);
	return err;
}

static size_t renew(struct probes *probes)
{
	return renew_sites(inside(probes)->memory);
}

/* Removes all breakpoints, and lowers the semaphores that were raised. */
static void detach(struct probes *probes, __attribute__((unused)) pid_t pid)
{
	struct inside_probes *ip = inside(probes);

	clear_sites(ip->memory);
	while (ip->n_semaphores && ip->semaphores_of == ip->memory->mem_image)
		add_to_word(ip->memory, ip->semaphore[--ip->n_semaphores], -1);
	ip->n_semaphores = 0;
	memset(ip->at, 0, sizeof(ip->at));
}

/* Does nothing: programs inside the process bring pages in when they read its memory. */
static int go_sleepable(struct probes *probes, pid_t pid, const struct hook *hooks)
{
	(void)pid;
	(void)hooks;
	probes->sleepable = true;
	return 0;
}

/* ---- reading ---- */

/* Reads the eventfd, so that it is not readable until the next stack. */
static void forget_wake(struct probes *probes)
{
	uint64_t n;

	while (read(probes->wake, &n, sizeof(n)) < 0 && errno == EINTR)
		;
}

/* Wakes the child's threads that wait at a full ring. */
static void consumed(struct probes *probes)
{
	struct mt_inside *at = inside(probes)->memory->at;

	__atomic_add_fetch(&at->taken, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&at->waiting, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &at->taken, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* -ENOENT: only process number 0 records from inside. */
static int read_counters(const struct probes *probes, uint32_t number, uint64_t counters[MT_CNT_NR])
{
	size_t i;

	if (number)
		return -ENOENT;
	for (i = 0; i < MT_CNT_NR; i++)
		counters[i] = __atomic_load_n(&inside(probes)->memory->at->counters[i],
					      __ATOMIC_RELAXED);
	return 0;
}

/* Does nothing for other numbers, which have no counters here: see read_counters(). */
static void zero_counters(struct probes *probes, uint32_t number)
{
	if (number == 0)
		memset(inside(probes)->memory->at->counters, 0,
		       sizeof(inside(probes)->memory->at->counters));
}

/* ---- tables ---- */

/* Sets the value of a key (0: removes it) in a table that the child reads at the same time without
 * waiting: an entry is one word. max: keys that may have a value. 0, -EINVAL: no such key is
 * possible, or -E2BIG. */
static int set_key(struct mt_inside_table *table, uint64_t key, uint8_t value, size_t max)
{
	uint32_t start = mt_inside_hash(key), i;
	__u64 *free_one = NULL, entry;
	size_t n_keys = 0;

	if (MT_INSIDE_KEY(key) != key)
		return -EINVAL;
	for (i = 0; i < MT_INSIDE_KEYS; i++)
		n_keys += MT_INSIDE_VALUE(table->entry[i]) != 0;
	for (i = 0; i < MT_INSIDE_KEYS; i++) {
		__u64 *at = &table->entry[(start + i) % MT_INSIDE_KEYS];

		entry = *at;
		if (entry && MT_INSIDE_KEY(entry) == key) {
			__atomic_store_n(at, MT_INSIDE_ENTRY(key, value), __ATOMIC_RELAXED);
			return 0;
		}
		if (!MT_INSIDE_VALUE(entry) && !free_one)
			free_one = at;
		if (!entry)
			break;
	}
	if (!value)
		return 0;
	if (!free_one || n_keys >= max)
		return -E2BIG;
	__atomic_store_n(free_one, MT_INSIDE_ENTRY(key, value), __ATOMIC_RELAXED);
	return 0;
}

#define ROOTS_MAX 4096 /* as in the BPF programs */

static int add_root(struct probes *probes, uint64_t key)
{
	return set_key(&inside(probes)->memory->at->roots, key, 1, ROOTS_MAX);
}

/* Removes all roots. */
static void clear_roots(struct probes *probes, uint32_t number)
{
	struct mt_inside_table *table = &inside(probes)->memory->at->roots;
	size_t i;

	for (i = 0; i < MT_INSIDE_KEYS && !number; i++)
		__atomic_store_n(&table->entry[i], 0, __ATOMIC_RELAXED);
}

static int set_module_type(struct probes *probes, uint64_t key, enum mt_module_type is)
{
	return set_key(&inside(probes)->memory->at->types, key, is, MT_MODULE_TYPES);
}

static const struct probes_place in_process = {
	.free = free_all,
	.attach = attach,
	.attached = attached,
	.attach_calls = attach_calls,
	.detach = detach,
	.renew = renew,
	.go_sleepable = go_sleepable,
	.forget_wake = forget_wake,
	.consumed = consumed,
	.counters = read_counters,
	.zero_counters = zero_counters,
	.add_root = add_root,
	.clear_roots = clear_roots,
	.set_module_type = set_module_type,
};
