/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/cost/hit_cost.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/subprocess.h"
#include "inspect/site.h"

#define CALLS 65 /* measured times; the median counts */
#define CACHE_LINE 64
#define HIT_MAX 1000000000 /* ns; a larger cost of a hit is impossible */
#define IN_LOOP 16	   /* calls between two looks at the clock, for the cost in a loop */
#define CHILD_WAIT 10000   /* ms that the child process has */

/*
 * Functions that return their argument, and the places in them to probe. A function has the
 * instructions `before` before the place, and `at` from there on.
 */
#define FUNCTION(name, before, at)                                                                 \
	".p2align 6\n.globl " name "\n.hidden " name "\n.type " name ",%function\n" name           \
	":\n" before ".globl " name "_at\n.hidden " name "_at\n" name "_at:\n" at "\n.size " name  \
	", .-" name "\n"
#ifdef __aarch64__
#define FUNCTIONS                                                                                  \
	FUNCTION("cost_push", "", "b 1f\n1: ret")                                                  \
	FUNCTION("cost_return", "", "b 1f\n1: ret")                                                \
	FUNCTION("cost_nop", "", "nop\nret")                                                       \
	FUNCTION("cost_stepped", "", "mov x1, x0\nret")
#else
#define RETURN "mov %rdi, %rax\nret"
#define NOP5 ".byte 0x0f, 0x1f, 0x44, 0, 0\n"
#define NOP10 ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n"
/* Keeps the argument below the stack pointer while it passes the place. */
#define PUT_BELOW "mov %rdi, -8(%rsp)\nmov %rdi, -16(%rsp)\n"
#define GET_BELOW "mov -8(%rsp), %rax\nand -16(%rsp), %rax\nret"
#define FUNCTIONS                                                                                  \
	FUNCTION("cost_push", "", "push %rbp\npop %rbp\n" RETURN)                                  \
	FUNCTION("cost_return", "", "push %rbp\npop %rbp\n" RETURN)                                \
	FUNCTION("cost_nop", "", "nop\n" RETURN)                                                   \
	FUNCTION("cost_stepped", "", RETURN)                                                       \
	FUNCTION("cost_nop5", "", NOP5 RETURN)                                                     \
	FUNCTION("cost_nop10", "", NOP10 RETURN)                                                   \
	FUNCTION("cost_usdt", "cmpw $0, cost_semaphore(%rip)\nje 1f\n", "nop\n1: " RETURN)         \
	FUNCTION("cost_below5", PUT_BELOW, NOP5 GET_BELOW)                                         \
	FUNCTION("cost_below10", PUT_BELOW, NOP10 GET_BELOW)                                       \
	".pushsection .probes, \"aw\", \"progbits\"\n.globl cost_semaphore\n"                      \
	".hidden cost_semaphore\ncost_semaphore: .2byte 0\n.popsection\n"
#endif
__asm__(".text\n" FUNCTIONS);

typedef uintptr_t (*function)(uintptr_t argument);

uintptr_t cost_push(uintptr_t), cost_return(uintptr_t), cost_nop(uintptr_t),
	cost_stepped(uintptr_t);
extern const uint8_t cost_push_at[], cost_return_at[], cost_nop_at[], cost_stepped_at[];
#ifdef __x86_64__
uintptr_t cost_nop5(uintptr_t), cost_nop10(uintptr_t), cost_usdt(uintptr_t);
uintptr_t cost_below5(uintptr_t), cost_below10(uintptr_t);
extern const uint8_t cost_nop5_at[], cost_nop10_at[], cost_usdt_at[];
extern const uint8_t cost_below5_at[], cost_below10_at[];
extern const uint16_t cost_semaphore;
#endif

/* A function to call, and what to probe in it. */
struct subject {
	function call; /* NULL: this machine has no such instruction */
	const uint8_t *at;
	bool returns;
	const uint16_t *semaphore; /* NULL: none */
	/* A function whose data is below the stack pointer at such an instruction; NULL: none. */
	function below;
	const uint8_t *below_at;
};

static const struct subject subjects[HIT_SITES] = {
	[HIT_PUSH] = { cost_push, cost_push_at },
	[HIT_NOP] = { cost_nop, cost_nop_at },
	[HIT_STEPPED] = { cost_stepped, cost_stepped_at },
	[HIT_RETURN] = { cost_return, cost_return_at, .returns = true },
#ifdef __x86_64__
	[HIT_NOP5] = { cost_nop5, cost_nop5_at, .below = cost_below5, .below_at = cost_below5_at },
	[HIT_NOP10] = { cost_nop10, cost_nop10_at, .below = cost_below10,
			.below_at = cost_below10_at },
	[HIT_USDT] = { cost_usdt, cost_usdt_at, .semaphore = &cost_semaphore },
#endif
};

/* Search for the offset in its file of an address. */
struct search {
	uintptr_t addr;
	uint64_t offset; /* the result */
};

/* Called by dl_iterate_phdr() for each file. Returns 1, which ends that, if a segment of the file
 * has the address. */
static int find_offset(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct search *search = ctx;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type != PT_LOAD || search->addr < start ||
		    search->addr - start >= segment->p_filesz)
			continue;
		search->offset = search->addr - start + segment->p_offset;
		return 1;
	}
	return 0;
}

/* Offset of an address in our executable file. 0: none. */
static uint64_t file_offset(const void *addr)
{
	struct search search = { .addr = (uintptr_t)addr };

	return dl_iterate_phdr(find_offset, &search) ? search.offset : 0;
}

/* Probes an instruction of ours. Returns a descriptor or -errno. */
static int probe_at(hit_cost_probe probe, const uint8_t *at, bool returns,
		    const uint16_t *semaphore)
{
	struct hit_place place = { .offset = file_offset(at), .returns = returns };

	if (semaphore)
		place.ref_ctr = file_offset(semaphore);
	return place.offset && (!semaphore || place.ref_ctr) ? probe(&place) : -ENOENT;
}

static uint64_t median(uint64_t took[CALLS])
{
	qsort(took, CALLS, sizeof(took[0]), array__compare_u64);
	return took[CALLS / 2];
}

static uint32_t added(uint64_t with, uint64_t without)
{
	uint64_t ns = with > without ? with - without : 0;

	return ns < HIT_MAX ? (uint32_t)ns : HIT_MAX;
}

/* ---- at a pace ---- */

/* Median time of a call, ns. caches: memory that is written between two calls. */
static uint64_t time_at_pace(function call, volatile char *caches, enum hit_pace pace)
{
	uint64_t took[CALLS];

	for (size_t i = 0; i < CALLS; i++) {
		for (size_t at = 0; at < pace; at += CACHE_LINE)
			caches[at]++;
		took[i] = clock__monotonic();
		call(i);
		took[i] = clock__monotonic() - took[i];
	}
	return median(took);
}

/* Sets *ret to the time that a probe adds to a call, ns. 0 or -errno. */
static int measure_at_pace(hit_cost_probe probe, enum hit_site site, volatile char *caches,
			   enum hit_pace pace, uint32_t *ret)
{
	const struct subject *subject = &subjects[site];
	uint64_t without = time_at_pace(subject->call, caches, pace);
	int fd = probe_at(probe, subject->at, false, NULL);

	if (fd < 0)
		return fd;
	*ret = added(time_at_pace(subject->call, caches, pace), without);
	close(fd);
	return 0;
}

int hit_cost__measure(hit_cost_probe probe, enum hit_pace pace, struct hit_cost *ret)
{
	char *caches = malloc(pace);
	int err;

	if (!caches)
		return -ENOMEM;
	memset(caches, 1, pace);
	err = measure_at_pace(probe, HIT_PUSH, caches, pace, &ret->emulated);
	err = err ?: measure_at_pace(probe, HIT_STEPPED, caches, pace, &ret->stepped);
	free(caches);
	return err;
}

/* ---- all kinds, in a loop ---- */

const char *hit_site__name(enum hit_site site)
{
	static const char *const names[HIT_SITES] = {
		[HIT_PUSH] = "emulated",     [HIT_NOP] = "nop",		[HIT_NOP5] = "5-byte nop",
		[HIT_NOP10] = "10-byte nop", [HIT_STEPPED] = "stepped", [HIT_RETURN] = "return",
		[HIT_USDT] = "USDT",
	};

	return names[site];
}

bool hit_site__is_safe(const struct hit_site_cost *cost)
{
	return !cost->err && !(cost->call && (cost->fork_dies || cost->overwrites));
}

/* Median time of a call in a loop, ns. The first time does not count: the kernel replaces nops at
 * the first hits. */
static uint64_t time_in_loop(function call)
{
	uint64_t took[CALLS];

	for (size_t i = 0; i < IN_LOOP; i++)
		call(i);
	for (size_t i = 0; i < CALLS; i++) {
		took[i] = clock__monotonic();
		for (size_t k = 0; k < IN_LOOP; k++)
			call(k);
		took[i] = (clock__monotonic() - took[i]) / IN_LOOP;
	}
	return median(took);
}

/* A handler keeps the kernel from logging a crash. */
static void on_fault(int signal)
{
	(void)signal;
	_exit(1);
}

/* True if a forked child that calls the function ends otherwise than it should. */
static bool dies_forked(function call)
{
	struct sigaction action = { .sa_handler = on_fault };
	int status;
	pid_t pid;

	pid = fork();
	if (!pid) {
		sigaction(SIGSEGV, &action, NULL);
		sigaction(SIGILL, &action, NULL);
		sigaction(SIGTRAP, &action, NULL);
		for (size_t i = 0; i < IN_LOOP; i++)
			if (call(i) != i)
				_exit(1);
		_exit(0);
	}
	return pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
	       WEXITSTATUS(status);
}

/* True if data below the stack pointer is lost at such an instruction. */
static bool overwrites(hit_cost_probe probe, const struct subject *subject)
{
	int fd = probe_at(probe, subject->below_at, false, NULL);
	bool lost = fd < 0;

	for (uintptr_t i = 1; i < CALLS && !lost; i++)
		lost = subject->below(i) != i;
	if (fd >= 0)
		close(fd);
	return lost;
}

/* A kind to measure in a child process. */
struct trial {
	hit_cost_probe probe;
	enum hit_site site;
	struct hit_site_cost *cost; /* shared with the child */
};

/* Runs in the child: measures one kind, and says so by a byte to standard output. The kernel takes
 * its time to remove the probe when the child ends. */
static int measure_site(void *ctx)
{
	const struct trial *trial = ctx;
	const struct subject *subject = &subjects[trial->site];
	const volatile uint8_t *code = subject->at;
	struct hit_site_cost cost = { 0 };
	uint8_t before = *code;
	uint64_t without = time_in_loop(subject->call);
	int fd = probe_at(trial->probe, subject->at, subject->returns, subject->semaphore);

	if (fd < 0) {
		cost.err = fd;
	} else {
		cost.ns = added(time_in_loop(subject->call), without);
		cost.call = *code != before && *code != (uint8_t)BREAKPOINT;
	}
	if (cost.call) {
		cost.fork_dies = dies_forked(subject->call);
		cost.overwrites = !subject->below || overwrites(trial->probe, subject);
	}
	*trial->cost = cost;
	return write(STDOUT_FILENO, "", 1) != 1;
}

/* Starts a child that measures a kind, and waits until it has done so, or has ended. */
static int try_site(struct trial *trial, struct subprocess *child)
{
	struct subprocess_opts opts = { .main = measure_site, .ctx = trial };
	struct pollfd told = { .events = POLLIN };
	int ends[2], err;

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	opts.out = ends[1];
	err = subprocess__start(&opts, child);
	close(ends[1]);
	told.fd = ends[0];
	if (!err)
		poll(&told, 1, CHILD_WAIT);
	close(ends[0]);
	return err;
}

int hit_cost__sites(hit_cost_probe probe, struct hit_site_cost ret[HIT_SITES])
{
	size_t size = HIT_SITES * sizeof(*ret);
	struct hit_site_cost *shared = mmap(NULL, size, PROT_READ | PROT_WRITE,
					    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct subprocess children[HIT_SITES] = { 0 };
	int status;

	if (shared == MAP_FAILED)
		return -errno;
	for (int i = 0; i < HIT_SITES; i++) {
		struct trial trial = { probe, i, &shared[i] };

		shared[i].err = subjects[i].call ? -ECHILD : -ENOTSUP;
		if (subjects[i].call)
			try_site(&trial, &children[i]);
	}
	for (int i = 0; i < HIT_SITES; i++)
		if (children[i].pid && !subprocess__wait(&children[i], CHILD_WAIT, &status))
			subprocess__kill(&children[i]);
	memcpy(ret, shared, size);
	munmap(shared, size);
	return 0;
}
