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

#define RECORDER_TIMEOUT 10 /* s, to wait for a recorder that does not answer */

struct mt_inside *shared;
volatile __u32 *recorded;

/* Room for copies of instructions, and the trampoline that functions return to. */
__asm__(".pushsection .text\n"
	".balign 4096\n"
	"mt_inside_slots:\n"
	".fill 16384, 1, 0xcc\n"
	".globl mt_inside_returns\n"
	".hidden mt_inside_returns\n"
	"mt_inside_returns:\n"
	"int3\n"
	"int3\n"
	".popsection\n");
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

/* ---- registers ---- */

/* Register numbers as in instructions. */
static const __u8 by_number[16] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
				    REG_RSI, REG_RDI, REG_R8,  REG_R9,	REG_R10, REG_R11,
				    REG_R12, REG_R13, REG_R14, REG_R15 };

static void to_regs(struct pt_regs *r, const greg_t *g, __u64 ip)
{
	*r = (struct pt_regs){
		.r15 = g[REG_R15],
		.r14 = g[REG_R14],
		.r13 = g[REG_R13],
		.r12 = g[REG_R12],
		.bp = g[REG_RBP],
		.bx = g[REG_RBX],
		.r11 = g[REG_R11],
		.r10 = g[REG_R10],
		.r9 = g[REG_R9],
		.r8 = g[REG_R8],
		.ax = g[REG_RAX],
		.cx = g[REG_RCX],
		.dx = g[REG_RDX],
		.si = g[REG_RSI],
		.di = g[REG_RDI],
		.orig_ax = -1UL,
		.ip = ip,
		.flags = g[REG_EFL],
		.sp = g[REG_RSP],
	};
}

static void push(greg_t *g, __u64 value)
{
	g[REG_RSP] -= 8;
	*(__u64 *)g[REG_RSP] = value;
}

/* True if jcc's condition holds. The low bit of a condition negates it. */
static bool condition_holds(unsigned int condition, __u64 flags)
{
	bool c = flags & 1, p = flags & 4, z = flags & 0x40, s = flags & 0x80, o = flags & 0x800,
	     is;

	switch (condition >> 1) {
	case 0:
		is = o;
		break;
	case 1:
		is = c;
		break;
	case 2:
		is = z;
		break;
	case 3:
		is = c || z;
		break;
	case 4:
		is = s;
		break;
	case 5:
		is = p;
		break;
	case 6:
		is = s != o;
		break;
	default:
		is = z || s != o;
		break;
	}
	return is != (condition & 1);
}

void breakpoints__emulate(const struct mt_inside_site *s, long long *g)
{
	__u64 next = s->addr + s->length;

	switch (s->way) {
	case MT_INSIDE_PUSH:
		push(g, g[by_number[s->operand & 15]]);
		break;
	case MT_INSIDE_JUMP:
	case MT_INSIDE_SLOT_RUN:
		next = s->target;
		break;
	case MT_INSIDE_BRANCH:
		next = condition_holds(s->operand, g[REG_EFL]) ? s->target : next;
		break;
	case MT_INSIDE_CALL:
		push(g, next);
		next = s->target;
		break;
	case MT_INSIDE_RET:
		next = *(__u64 *)g[REG_RSP];
		g[REG_RSP] += 8;
		break;
	default:
		break;
	}
	g[REG_RIP] = (greg_t)next;
}

/* ---- returns ---- */

/* Replaces the return address by the trampoline. Drops calls that were left without a return. */
static void redirect_return(struct thread *t, const struct mt_inside_site *s, __u64 sp)
{
	__u64 *ret = (__u64 *)sp;

	while (t->depth && t->at[t->depth - 1].sp < sp)
		t->depth--;
	/* A tail call from one such function to another: both return once. */
	if (t->depth && t->at[t->depth - 1].sp == sp && *ret != breakpoints__returns())
		t->depth--;
	if (t->depth == RETURNS_MAX)
		return;
	t->at[t->depth++] = (struct returning){ sp, *ret, s };
	*ret = breakpoints__returns();
}

static void run_returns(const struct mt_inside_site *s, struct pt_regs *regs)
{
	size_t i;

	for (i = 0; i < MT_INSIDE_AT_SITE; i++) {
		if (__atomic_load_n(&s->at[i].program, __ATOMIC_ACQUIRE) == MT_INSIDE_CALL_RETURN)
			programs__run(MT_INSIDE_CALL_RETURN, s->at[i].cookie, regs);
	}
}

static bool has_returned(greg_t *g)
{
	struct thread *t = programs__thread();
	__u64 sp = (__u64)g[REG_RSP] - 8;
	struct pt_regs regs;

	while (t && t->depth && t->at[t->depth - 1].sp < sp)
		t->depth--;
	if (!t || !t->depth || t->at[t->depth - 1].sp != sp)
		return false;
	do {
		const struct returning *r = &t->at[--t->depth];

		g[REG_RIP] = (greg_t)r->ret;
		to_regs(&regs, g, r->ret);
		if (*recorded)
			run_returns(r->site, &regs);
	} while ((__u64)g[REG_RIP] == breakpoints__returns() && t->depth &&
		 t->at[t->depth - 1].sp == sp);
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

static void run_all(const struct mt_inside_site *s, const greg_t *g)
{
	struct thread *t = programs__thread();
	struct pt_regs regs;
	bool returns = false;
	size_t i;

	if (!t)
		return;
	to_regs(&regs, g, s->addr);
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
		redirect_return(t, s, (__u64)g[REG_RSP]);
}

void breakpoints__trap(int number, void *info, void *context)
{
	const siginfo_t *si = info;
	ucontext_t *uc = context;
	greg_t *g = uc->uc_mcontext.gregs;
	const struct mt_inside_site *s;
	__u64 at = (__u64)g[REG_RIP] - 1;
	int err = errno;

	if (si->si_code > 0 && at == breakpoints__returns() && has_returned(g)) {
		;
	} else if (si->si_code > 0 && (s = find(at))) {
		if (*recorded)
			run_all(s, g);
		breakpoints__emulate(s, g);
	} else {
		signals__theirs(number, info, context);
	}
	errno = err;
}
