/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Breakpoints that the recorder writes into this process. A table in shared memory has each
 * breakpoint's address, the programs to run there, and how to emulate the replaced instruction.
 */
#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "vmlinux.h"
#include "breakpoints.h"
#include "library.h"
#include "machine.h"

#define RECORDER_TIMEOUT 10 /* s, to wait for a recorder that does not answer */

struct mt_inside *shared;
volatile __u32 *recorded;

bool process__shares_memory(void)
{
	return getpid() != (pid_t)shared->pid;
}

#ifdef __aarch64__
#define BREAKPOINTS(n) ".fill " #n " / 4, 4, 0xd4200000\n" /* brk #0 */
#else
#define BREAKPOINTS(n) ".fill " #n ", 1, 0xcc\n" /* int3 */
#endif

/* Room for copies of instructions, and the trampoline that functions return to. */
__asm__(".pushsection .text\n"
	".balign 4096\n"
	"mt_inside_slots:\n" BREAKPOINTS(16384) ".globl mt_inside_returns\n"
						".hidden mt_inside_returns\n"
						"mt_inside_returns:\n" BREAKPOINTS(
							8) ".popsection\n");
extern const char mt_inside_slots[] __attribute__((visibility("hidden")));
extern const char mt_inside_returns[] __attribute__((visibility("hidden")));
_Static_assert(MT_INSIDE_SLOT *MT_INSIDE_SLOTS == 16384, "room for the slots");

__u64 breakpoints__slots(void)
{
	return (uintptr_t)mt_inside_slots;
}

#define BELOW (64ULL << 20) /* below the program: its heap is above it */
#define ABOVE (1536ULL << 20)

__u64 breakpoints__near_slots(void)
{
	__u64 program = _r_debug.r_map
				? (uintptr_t)_r_debug.r_map->l_ld & ~(__u64)(MT_INSIDE_PAGE - 1)
				: 0;
	void *p, *hint = (void *)(program > 16 * BELOW ? program - BELOW : program + ABOVE);

	if (!program)
		return 0;
	/* The slots are not writable here: the recorder writes through the process's memory file,
	 * as it does to code. */
	p = mmap(hint, MT_INSIDE_SLOT * MT_INSIDE_SLOTS, PROT_READ | PROT_EXEC,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? 0 : (uintptr_t)p;
}

__u64 breakpoints__returns(void)
{
	return (uintptr_t)mt_inside_returns;
}

static const struct mt_inside_site *find(__u64 addr)
{
	__u32 i = mt_inside_hash(addr), n;

	for (n = 0; n < MT_INSIDE_SITES; n++, i++) {
		const struct mt_inside_site *s = &shared->site[i % MT_INSIDE_SITES];
		__u64 at = __atomic_load_n(&s->addr, __ATOMIC_ACQUIRE);

		if (at == addr)
			return s;
		if (!at)
			return NULL;
	}
	return NULL;
}

/* ---- returns ---- */

/* Replaces the return address by the trampoline. Drops calls that were left without a return. */
static void redirect_return(struct thread *t, const struct mt_inside_site *s, ucontext_t *uc)
{
	__u64 sp = machine__sp(uc) + s->lower, ret = machine__return_address(uc, sp);

	while (t->depth && t->at[t->depth - 1].sp < sp)
		t->depth--;
	/* A tail call from one such function to another: both return once. */
	if (t->depth && t->at[t->depth - 1].sp == sp && ret != breakpoints__returns())
		t->depth--;
	if (t->depth == RETURNS_MAX)
		return;
	t->at[t->depth++] = (struct returning){ sp, ret, s };
	machine__set_return_address(uc, sp, breakpoints__returns());
}

static void run_returns(const struct mt_inside_site *s, struct pt_regs *regs)
{
	size_t i;

	for (i = 0; i < MT_INSIDE_AT_SITE; i++) {
		if (__atomic_load_n(&s->at[i].program, __ATOMIC_ACQUIRE) == MT_INSIDE_CALL_RETURN)
			programs__run(MT_INSIDE_CALL_RETURN, s->at[i].cookie, regs);
	}
}

static bool has_returned(ucontext_t *uc)
{
	struct thread *t = programs__thread();
	__u64 sp = machine__sp_returned(uc), ret;
	struct pt_regs regs;

	while (t && t->depth && t->at[t->depth - 1].sp < sp)
		t->depth--;
	if (!t || !t->depth || t->at[t->depth - 1].sp != sp)
		return false;
	do {
		const struct returning *r = &t->at[--t->depth];

		ret = r->ret;
		machine__regs(uc, ret, machine__sp(uc), &regs);
		if (*recorded)
			run_returns(r->site, &regs);
	} while (ret == breakpoints__returns() && t->depth && t->at[t->depth - 1].sp == sp);
	machine__go_to(uc, ret);
	return true;
}

/* ---- hits ---- */

static bool is_torch(const char *path)
{
	const char *base = path ? strrchr(path, '/') : NULL;

	return base && (!strncmp(base, "/libc10.", 8) || !strncmp(base, "/libc10-", 8));
}

bool breakpoints__torch_is_here(void)
{
	const struct link_map *m;

	for (m = _r_debug.r_map; m; m = m->l_next) {
		if (is_torch(m->l_name))
			return true;
	}
	return false;
}

static time_t seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

void breakpoints__wait(enum mt_inside_wait what)
{
	const struct timespec ts = { .tv_nsec = 100000000 };
	__u32 go = __atomic_load_n(&shared->go, __ATOMIC_SEQ_CST);
	time_t until = seconds() + RECORDER_TIMEOUT;

	__atomic_store_n(&shared->waits, what, __ATOMIC_SEQ_CST);
	ring__wake();
	while (__atomic_load_n(&shared->go, __ATOMIC_SEQ_CST) == go &&
	       __atomic_load_n(&shared->waits, __ATOMIC_SEQ_CST) == what && recorder_is_there() &&
	       seconds() < until)
		syscall(SYS_futex, &shared->go, FUTEX_WAIT, go, &ts, NULL, 0);
	__atomic_store_n(&shared->waits, MT_INSIDE_RUNS, __ATOMIC_SEQ_CST);
}

/* The linker calls its breakpoint after it has mapped all libraries of a dlopen() and before it
 * relocates them. */
static void check_linker(void)
{
	static bool arrived;

	if (arrived || _r_debug.r_state != RT_CONSISTENT || !breakpoints__torch_is_here())
		return;
	arrived = true;
	breakpoints__wait(MT_INSIDE_ARRIVED);
}

static void lose_all(const struct mt_inside_site *s)
{
	size_t i;

	for (i = 0; i < MT_INSIDE_AT_SITE; i++)
		programs__count_lost(__atomic_load_n(&s->at[i].program, __ATOMIC_ACQUIRE));
}

static void run_all(const struct mt_inside_site *s, ucontext_t *uc)
{
	struct thread *t = process__shares_memory() ? NULL : programs__thread();
	struct pt_regs regs;
	bool returns = false;
	size_t i;

	if (!t) {
		lose_all(s);
		return;
	}
	machine__regs(uc, s->addr, machine__sp(uc) + s->lower, &regs);
	for (i = 0; i < MT_INSIDE_AT_SITE; i++) {
		__u32 program = __atomic_load_n(&s->at[i].program, __ATOMIC_ACQUIRE);

		if (program == MT_INSIDE_CALL_RETURN)
			returns = true;
		else if (program == MT_INSIDE_LINKER)
			check_linker();
		else if (program)
			programs__run(program, s->at[i].cookie, &regs);
	}
	/* Redirect the return last: the programs read the return address. */
	if (returns)
		redirect_return(t, s, uc);
}

void breakpoints__trap(int number, void *info, void *context)
{
	const siginfo_t *si = info;
	ucontext_t *uc = context;
	const struct mt_inside_site *s;
	__u64 at = machine__trapped_at(uc);
	int err = errno;

	if (si->si_code > 0 && at == breakpoints__returns() && has_returned(uc)) {
		;
	} else if (si->si_code > 0 && (s = find(at))) {
		if (*recorded)
			run_all(s, uc);
		machine__emulate(s, uc);
	} else if (si->si_code <= 0 || !machine__leave_slot(uc, breakpoints__slots())) {
		signals__theirs(number, info, context);
	}
	errno = err;
}
