/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/probes/inside_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
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
#include "inspect/elf.h"
#include "inspect/proc.h"
#include "inspect/site.h"

#define INSN_MAX 15

/* Opens the memory with the rights of the command's user, on this thread and for this call only.
 * Then we cannot write to a set-user-ID program or another user's. */
static int open_as_user(const struct inside_memory *m)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct had[2], less[2];
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)m->pid);
	if (!m->other) {
		fd = open(path, O_RDWR | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	if (syscall(SYS_capget, &h, had))
		return -errno;
	memcpy(less, had, sizeof(less));
	less[0].effective = less[1].effective = 0;
	setfsgid(m->gid);
	setfsuid(m->uid);
	fd = (uid_t)setfsuid(m->uid) != m->uid || (gid_t)setfsgid(m->gid) != m->gid ||
			     syscall(SYS_capset, &h, less)
		     ? -EPERM
		     : open(path, O_RDWR | O_CLOEXEC);
	fd = fd == -1 ? -errno : fd;
	syscall(SYS_capset, &h, had);
	setfsuid(geteuid());
	setfsgid(getegid());
	syscall(SYS_capset, &h, had); /* changing the user changes the capabilities */
	return fd;
}

/* True if a whole slot is in executable memory that only debuggers write to. */
static bool is_code(const struct map *m, uint64_t addr, size_t size)
{
	return m && m->x && !m->w && size <= m->end - addr;
}

/* True if the dynamic linker calls debuggers at this address. */
static bool is_linkers(const struct proc *proc, const struct map *m, uint64_t addr)
{
	struct elf *e = is_code(m, addr, 1) ? elf__open_map(proc, m) : NULL;
	struct elf_sym sym;
	uint64_t at;
	bool is;

	is = e && !elf__dynsym(e, "_dl_debug_state", &sym) &&
	     !elf__vaddr_to_offset(e, sym.value, &at) && at == m->offset + (addr - m->start);
	elf__free(e);
	return is;
}

static bool is_library(const struct map *m)
{
	const char *base = m ? strrchr(m->path, '/') : NULL;

	return base && m->x && !strcmp(base + 1, MT_INSIDE_LIBRARY);
}

bool inside_memory__same_program(const struct inside_memory *m, const struct maps *maps)
{
	/* Without the library's handler, a breakpoint would kill the process. */
	return is_library(maps__find(maps, m->returns));
}

/* Takes the places that the library gives, as far as the maps agree. */
static int take_places(struct inside_memory *m, const struct proc *proc, const struct maps *maps)
{
	const size_t size = MT_INSIDE_SLOT * MT_INSIDE_SLOTS;
	uint64_t slots = m->at->slots[0], near = m->at->slots[1], linker = m->at->linker;
	const struct map *a = maps__find(maps, slots);
	const struct map *b = maps__find(maps, near);

	m->returns = m->at->returns;
	if (!inside_memory__same_program(m, maps))
		return -ENOEXEC;
	m->slots[0] = is_library(a) && is_code(a, slots, size) ? slots : 0;
	m->slots[1] = is_code(b, near, size) && !b->path[0] ? near : 0;
	m->linker = is_linkers(proc, maps__find(maps, linker), linker) ? linker : 0;
	return 0;
}

int inside_memory__open_target(struct inside_memory *m)
{
	uint32_t image = __atomic_load_n(&m->at->image, __ATOMIC_SEQ_CST);
	struct proc *proc;
	struct maps maps;
	int fd, err;

	if (m->mem >= 0 && m->mem_image == image)
		return 0;
	/* Open before reading the maps: if the program changed in between, they do not have our
	 * library. */
	fd = image ? open_as_user(m) : -ENOEXEC;
	if (fd < 0)
		return fd;
	proc = proc__open(m->pid);
	err = proc ? proc__maps(proc, &maps) : -errno;
	if (err)
		goto out;
	err = take_places(m, proc, &maps);
	maps__free(&maps);
	if (err)
		goto out;
	if (__atomic_load_n(&m->at->image, __ATOMIC_SEQ_CST) != image) {
		err = -EAGAIN;
		goto out;
	}
	if (m->mem >= 0)
		close(m->mem);
	m->mem = fd;
	m->mem_image = image;
	memset(m->site, 0, MT_INSIDE_SITES * sizeof(*m->site)); /* these were another program's */
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

/* The site of an address, or a free one for it. NULL: the table is full. *used: sites in use. */
static struct mt_inside_site *find_site(const struct inside_memory *m, uint64_t addr, size_t *used)
{
	struct mt_inside_site *found = NULL;
	uint32_t i, from = mt_inside_hash(addr);

	*used = 0;
	for (i = 0; i < MT_INSIDE_SITES; i++)
		*used += m->site[i].addr != 0;
	for (i = 0; i < MT_INSIDE_SITES && !found; i++) {
		struct mt_inside_site *s = &m->site[(from + i) % MT_INSIDE_SITES];

		if (!s->addr || s->addr == addr)
			found = s;
	}
	return found && (found->addr || *used < MT_INSIDE_SITES / 2) ? found : NULL;
}

/* The child's copy of a site. */
static struct mt_inside_site *copy_of(const struct inside_memory *m, const struct mt_inside_site *s)
{
	return &m->at->site[s - m->site];
}

/* Writes the cookie first: program makes the entry valid. */
static void set_program(const struct inside_memory *m, struct mt_inside_site *s, size_t i,
			uint64_t cookie, uint32_t program)
{
	struct mt_inside_at *at = &copy_of(m, s)->at[i];

	s->at[i] = (struct mt_inside_at){ .cookie = cookie, .program = program };
	at->cookie = cookie;
	__atomic_store_n(&at->program, program, __ATOMIC_RELEASE);
}

static int make_site(struct inside_memory *m, struct mt_inside_site *s, uint64_t addr,
		     uint8_t lower, size_t used)
{
	struct mt_inside_site made = { .addr = addr, .lower = lower }, *theirs = copy_of(m, s);
	uint8_t code[INSN_MAX] = { 0 }, copy[MT_INSIDE_SLOT];
	size_t n = sizeof(code), i;
	uint64_t slot = 0;
	int err;

	/* The mapping may end before n bytes. */
	while ((err = read_at(m->mem, addr, code, n)) && n > 1)
		n--;
	if (err)
		return err;
	if (is_breakpoint(code))
		return -EBUSY;
	err = -ERANGE;
	for (i = 0; i < 2 && err == -ERANGE; i++) {
		slot = m->slots[i] + used * MT_INSIDE_SLOT;
		if (m->slots[i])
			err = INSIDE_PLAN(code, n, addr, slot, &made, copy);
	}
	if (!err && made.way == MT_INSIDE_SLOT_RUN)
		err = used >= MT_INSIDE_SLOTS ? -ENOSPC
					      : write_at(m->mem, slot, copy, sizeof(copy));
	if (err)
		return err;
	*s = made;
	made.addr = 0;
	*theirs = made;
	__atomic_store_n(&theirs->addr, addr, __ATOMIC_RELEASE);
	return 0;
}

/* Adds a program at this very address. lower: as in struct mt_inside_site. */
static int add_at(struct inside_memory *m, uint64_t addr, uint8_t lower,
		  enum mt_inside_program program, uint64_t cookie)
{
	const uint32_t breakpoint = BREAKPOINT;
	struct mt_inside_site *s;
	size_t used, i;
	int err = 0;

	s = find_site(m, addr, &used);
	if (!s)
		return -ENOSPC;
	if (!s->addr)
		err = make_site(m, s, addr, lower, used);
	if (err || s->lower != lower)
		return err ?: -EBUSY;
	for (i = 0; i < MT_INSIDE_AT_SITE && s->at[i].program; i++)
		;
	if (i == MT_INSIDE_AT_SITE)
		return -ENOSPC;
	set_program(m, s, i, cookie, program);
	err = write_at(m->mem, addr, &breakpoint, BREAKPOINT_SIZE);
	if (err)
		set_program(m, s, i, cookie, 0);
	return err;
}

int inside_memory__add_site(struct inside_memory *m, uint64_t addr, struct site_second second,
			    enum mt_inside_program program, uint64_t cookie)
{
	if (!addr || m->mem < 0)
		return -ENOENT;
	if (second.after && !add_at(m, addr + second.after, second.lower, program, cookie))
		return 0;
	return add_at(m, addr, 0, program, cookie);
}

/* Removes a program of a site (0: all but the linker's), and the breakpoint after the last one. */
static void take_out(struct inside_memory *m, struct mt_inside_site *s,
		     enum mt_inside_program program, uint64_t cookie)
{
	bool had = false, has = false;
	size_t i;

	for (i = 0; i < MT_INSIDE_AT_SITE; i++) {
		const struct mt_inside_at *at = &s->at[i];
		bool is = program ? at->program == program && at->cookie == cookie
				  : at->program != MT_INSIDE_LINKER;

		if (!at->program)
			continue;
		if (is)
			set_program(m, s, i, at->cookie, 0);
		had = had || is;
		has = has || !is;
	}
	/* Keep the site: a thread may have hit the breakpoint already. */
	if (had && !has)
		write_at(m->mem, s->addr, &s->original, BREAKPOINT_SIZE);
}

void inside_memory__remove_site(struct inside_memory *m, uint64_t addr, struct site_second second,
				enum mt_inside_program program, uint64_t cookie)
{
	const uint64_t places[] = { addr, addr + second.after };
	size_t used, i;

	for (i = 0; i < (second.after ? 2 : 1); i++) {
		struct mt_inside_site *s = find_site(m, places[i], &used);

		if (s && s->addr)
			take_out(m, s, program, cookie);
	}
}

/* True if the site has a program and no breakpoint any more. */
static bool is_removed(const struct inside_memory *m, const struct mt_inside_site *s)
{
	uint8_t now[BREAKPOINT_SIZE];
	bool has = false;
	size_t i;

	for (i = 0; i < MT_INSIDE_AT_SITE && s->addr && !has; i++)
		has = s->at[i].program != 0;
	/* Other code than before: the library was unloaded. */
	return has && !read_at(m->mem, s->addr, now, sizeof(now)) &&
	       !memcmp(now, &s->original, sizeof(now));
}

size_t inside_memory__renew_sites(struct inside_memory *m)
{
	const uint32_t breakpoint = BREAKPOINT;
	size_t i, n = 0;

	for (i = 0; i < MT_INSIDE_SITES && m->mem >= 0; i++) {
		if (is_removed(m, &m->site[i]))
			n += !write_at(m->mem, m->site[i].addr, &breakpoint, BREAKPOINT_SIZE);
	}
	return n;
}

void inside_memory__clear_sites(struct inside_memory *m)
{
	for (size_t i = 0; i < MT_INSIDE_SITES; i++) {
		if (m->site[i].addr)
			take_out(m, &m->site[i], 0, 0);
	}
}

int inside_memory__add_to_word(struct inside_memory *m, uint64_t addr, int n)
{
	uint16_t word;
	int err = read_at(m->mem, addr, &word, sizeof(word));

	word = (uint16_t)(word + n);
	return err ?: write_at(m->mem, addr, &word, sizeof(word));
}

#define RING_DEFAULT (16u << 20) /* bytes; the BPF programs' default, too */
#define FD_FIRST 200 /* a descriptor that programs do not use by number, as shells use small ones */

/* Turns a futex into a readable descriptor. A futex cannot be polled, and the child could close a
 * descriptor of its own and open another file under its number. */
struct inside_waker {
	pthread_t thread;
	struct inside_memory *m;
	bool over;
};

static void *wait_for_wakes(void *arg)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };
	struct inside_waker *w = arg;
	const uint64_t one = 1;
	uint32_t seen = 0, now;

	syscall(SYS_capset, &h, none); /* the thread needs no capability */
	while (!__atomic_load_n(&w->over, __ATOMIC_SEQ_CST)) {
		now = __atomic_load_n(&w->m->at->wake, __ATOMIC_SEQ_CST);
		if (now == seen) {
			syscall(SYS_futex, &w->m->at->wake, FUTEX_WAIT, now, NULL, NULL, 0);
			continue;
		}
		seen = now;
		while (write(w->m->wake, &one, sizeof(one)) < 0 && errno == EINTR)
			;
	}
	return NULL;
}

static int start_waker(struct inside_memory *m)
{
	struct inside_waker *w = calloc(1, sizeof(*w));
	sigset_t all, before;
	int err;

	if (!w)
		return -ENOMEM;
	w->m = m;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&w->thread, NULL, wait_for_wakes, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		free(w);
		return -err;
	}
	m->waker = w;
	return 0;
}

static void end_waker(struct inside_memory *m)
{
	if (!m->waker)
		return;
	__atomic_store_n(&m->waker->over, true, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&m->at->wake, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &m->at->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	pthread_join(m->waker->thread, NULL);
	free(m->waker);
	m->waker = NULL;
}

static int open_memory(struct inside_memory *m)
{
	int fd = memfd_create("memtrace-inside", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	m->fd = fcntl(fd, F_DUPFD, FD_FIRST);
	if (m->fd < 0)
		m->fd = fcntl(fd, F_DUPFD, 10);
	close(fd);
	if (m->fd < 0 ||
	    ftruncate(m->fd, (off_t)(MT_INSIDE_RING + 2 * MT_INSIDE_PAGE + m->ring_bytes)))
		return -errno;
	/* Reading beyond the end of a file that the child made shorter would kill us. */
	if (fcntl(m->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	m->at = mmap(NULL, MT_INSIDE_RING, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	if (m->at == MAP_FAILED) {
		m->at = NULL;
		return -errno;
	}
	m->variables = (uint8_t *)m->at + MT_INSIDE_VARIABLES;
	m->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return m->wake < 0 ? -errno : 0;
}

struct inside_memory *inside_memory__new(size_t ring_bytes, const struct user *user)
{
	struct inside_memory *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return NULL;
	m->fd = m->wake = m->mem = -1;
	m->other = user && user->uid != geteuid();
	if (m->other) {
		m->uid = user->uid;
		m->gid = user->gid;
	}
	m->ring_bytes = ring_bytes ? ring_bytes : RING_DEFAULT;
	m->site = calloc(MT_INSIDE_SITES, sizeof(*m->site));
	err = m->site ? open_memory(m) : -ENOMEM;
	if (!err) {
		m->at->magic = MT_INSIDE_MAGIC;
		m->at->ring_bytes = m->ring_bytes;
		m->at->recorder = (uint32_t)getpid();
		m->at->reads = 1;
		err = start_waker(m);
	}
	if (!err)
		return m;
	inside_memory__free(m);
	errno = -err;
	return NULL;
}

void inside_memory__free(struct inside_memory *m)
{
	if (!m)
		return;
	if (m->at) {
		inside_memory__close(m);
		end_waker(m);
		munmap(m->at, MT_INSIDE_RING);
	}
	if (m->fd >= 0)
		close(m->fd);
	if (m->wake >= 0)
		close(m->wake);
	if (m->mem >= 0)
		close(m->mem);
	free(m->site);
	free(m);
}

void inside_memory__bind(struct inside_memory *m, pid_t pid)
{
	m->pid = pid;
	__atomic_store_n(&m->at->pid, (uint32_t)pid, __ATOMIC_SEQ_CST);
}

void inside_memory__meet(struct inside_memory *m)
{
	uint32_t image = __atomic_load_n(&m->at->image, __ATOMIC_SEQ_CST);
	int err;

	if (image == m->image)
		return;
	/* While the process waits it cannot exec: m->mem is of the program that waits. */
	err = inside_memory__open_target(m);
	if (__atomic_load_n(&m->at->waits, __ATOMIC_SEQ_CST) != MT_INSIDE_STARTS)
		return;
	m->image = image;
	err = err
		      ?: inside_memory__add_site(m, m->linker, (struct site_second){ 0 },
						 MT_INSIDE_LINKER, 0);
	if (err)
		log_debug("the dynamic linker's place for debuggers cannot be used: %s",
			  strerror(-err));
	inside_memory__let_go(m);
}

bool inside_memory__arrived(const struct inside_memory *m)
{
	return __atomic_load_n(&m->at->waits, __ATOMIC_SEQ_CST) == MT_INSIDE_ARRIVED;
}

void inside_memory__let_go(struct inside_memory *m)
{
	__atomic_add_fetch(&m->at->go, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &m->at->go, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void inside_memory__close(struct inside_memory *m)
{
	__atomic_store_n(&m->at->reads, 0, __ATOMIC_SEQ_CST);
	inside_memory__let_go(m);
	__atomic_add_fetch(&m->at->taken, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &m->at->taken, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
