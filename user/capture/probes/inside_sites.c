/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/probes/inside_sites.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inspect/inside_plan.h"
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

bool inside_sites__in(const struct inside_memory *m, const struct maps *maps)
{
	/* Without the library's handler, a breakpoint would kill the process. */
	return is_library(maps__find(maps, m->returns));
}

/* Takes the places that the library gives, as far as the maps agree. */
static int take_places(struct inside_memory *m, const struct proc *proc, const struct maps *maps)
{
	const size_t size = MT_INSIDE_SLOT * MT_INSIDE_SLOTS;
	uint64_t slots = m->at->slots[0], near = m->at->slots[1], linker = m->at->linker;
	const struct map *a = maps__find(maps, slots), *b = maps__find(maps, near);

	m->returns = m->at->returns;
	if (!inside_sites__in(m, maps))
		return -ENOEXEC;
	m->slots[0] = is_library(a) && is_code(a, slots, size) ? slots : 0;
	m->slots[1] = is_code(b, near, size) && !b->path[0] ? near : 0;
	m->linker = is_linkers(proc, maps__find(maps, linker), linker) ? linker : 0;
	return 0;
}

int inside_sites__open(struct inside_memory *m)
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
	if (!err) {
		err = take_places(m, proc, &maps);
		maps__free(&maps);
	}
	proc__free(proc);
	if (!err && __atomic_load_n(&m->at->image, __ATOMIC_SEQ_CST) != image)
		err = -EAGAIN;
	if (err) {
		close(fd);
		return err;
	}
	if (m->mem >= 0)
		close(m->mem);
	m->mem = fd;
	m->mem_image = image;
	memset(m->site, 0, MT_INSIDE_SITES * sizeof(*m->site)); /* these were another program's */
	return 0;
}

static int put(int fd, uint64_t addr, const void *buf, size_t len)
{
	ssize_t n = pwrite(fd, buf, len, (off_t)addr);

	return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EFAULT;
}

static int get(int fd, uint64_t addr, void *buf, size_t len)
{
	ssize_t n = pread(fd, buf, len, (off_t)addr);

	return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EFAULT;
}

/* True if a breakpoint, ours or another's, replaces this instruction. */
static bool is_breakpoint(const uint8_t *code)
{
	uint32_t word = 0;

	memcpy(&word, code, BREAKPOINT_SIZE);
	return (word & BREAKPOINT_MASK) == BREAKPOINT;
}

/* The site of an address, or a free one for it. NULL: the table is full. *used: sites in use. */
static struct mt_inside_site *find(const struct inside_memory *m, uint64_t addr, size_t *used)
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
	while ((err = get(m->mem, addr, code, n)) && n > 1)
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
		err = used >= MT_INSIDE_SLOTS ? -ENOSPC : put(m->mem, slot, copy, sizeof(copy));
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

	s = find(m, addr, &used);
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
	err = put(m->mem, addr, &breakpoint, BREAKPOINT_SIZE);
	if (err)
		set_program(m, s, i, cookie, 0);
	return err;
}

int inside_sites__add(struct inside_memory *m, uint64_t addr, struct site_second second,
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
		put(m->mem, s->addr, &s->original, BREAKPOINT_SIZE);
}

void inside_sites__remove(struct inside_memory *m, uint64_t addr, struct site_second second,
			  enum mt_inside_program program, uint64_t cookie)
{
	const uint64_t places[] = { addr, addr + second.after };
	size_t used, i;

	for (i = 0; i < (second.after ? 2 : 1); i++) {
		struct mt_inside_site *s = find(m, places[i], &used);

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
	return has && !get(m->mem, s->addr, now, sizeof(now)) &&
	       !memcmp(now, &s->original, sizeof(now));
}

size_t inside_sites__renew(struct inside_memory *m)
{
	const uint32_t breakpoint = BREAKPOINT;
	size_t i, n = 0;

	for (i = 0; i < MT_INSIDE_SITES && m->mem >= 0; i++) {
		if (is_removed(m, &m->site[i]))
			n += !put(m->mem, m->site[i].addr, &breakpoint, BREAKPOINT_SIZE);
	}
	return n;
}

void inside_sites__clear(struct inside_memory *m)
{
	for (size_t i = 0; i < MT_INSIDE_SITES; i++) {
		if (m->site[i].addr)
			take_out(m, &m->site[i], 0, 0);
	}
}

int inside_sites__add_to(struct inside_memory *m, uint64_t addr, int n)
{
	uint16_t word;
	int err = get(m->mem, addr, &word, sizeof(word));

	word = (uint16_t)(word + n);
	return err ?: put(m->mem, addr, &word, sizeof(word));
}
