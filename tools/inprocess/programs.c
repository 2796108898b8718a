/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * bpf/memtrace.bpf.c compiled into this library, with the kernel's helpers as functions of the
 * process. Per-CPU maps have one copy here, or one per thread if a program writes them in several
 * steps.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "library.h"
#include "machine.h"

__u64 host_trampoline;

/* Variables shared with the recorder: shared memory is mapped over their section. */
#define SHARED __attribute__((section("mt_shared")))
extern volatile struct mt_py_layout py SHARED;
extern volatile __u8 modules SHARED, bench_verify SHARED, bench_empty SHARED;
extern __u8 stopped SHARED;
extern __u64 woken SHARED, notices SHARED, code_epoch SHARED;
extern __u64 module_code[MT_MAX_MODULE_CODES] SHARED;
extern __u8 seen_code[MT_SEEN_SLOTS] SHARED;
extern struct mt_usdt_args asked_args[MT_ASKED_SITES] SHARED;
extern struct mt_node_layout node_layout SHARED;
/* No other data is in these pages: first.c and last.c are linked first and last. */
extern char mt_shared_first[], mt_shared_last[];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wattributes"
#pragma GCC diagnostic ignored "-Wredundant-decls"
/* Not constant here: the recorder writes these variables while the library is loaded. */
#define const
#include "../../bpf/memtrace.bpf.c"
#undef const
#pragma GCC diagnostic pop

/* State of a thread, allocated at its first breakpoint. A new thread reuses the block of a thread
 * that has ended. */
struct block {
	struct thread thread; /* first: the part declared in library.h */
	struct block *next;
	__u32 loads; /* value of shared->loads for the fields below */
	bool has_slot, has_call;
	__u8 value; /* result of the last lookup */
	__u64 cookie;
	struct pt_regs *regs;
	struct task_struct task;
	struct thread_slot slot;
	struct call_slot call;
	struct scratch scratch;
};

static struct block *blocks;
static __thread struct block *self __attribute__((tls_model("initial-exec")));

static bool take(struct block *b, int owner, int tid)
{
	return __atomic_compare_exchange_n(&b->thread.tid, &owner, tid, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

/* Claims the block of a thread that has ended. NULL: there is none. */
static struct block *find_free(pid_t pid, int tid)
{
	struct block *b;

	for (b = __atomic_load_n(&blocks, __ATOMIC_ACQUIRE); b; b = b->next) {
		int owner = __atomic_load_n(&b->thread.tid, __ATOMIC_RELAXED);

		/* A block with this thread's id is from an earlier thread with the same id. */
		if ((owner == tid || (syscall(SYS_tgkill, pid, owner, 0) && errno == ESRCH)) &&
		    take(b, owner, tid))
			return b;
	}
	return NULL;
}

static struct block *make(int tid)
{
	struct block *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		     *first;

	if (b == MAP_FAILED)
		return NULL;
	b->thread.tid = tid;
	first = __atomic_load_n(&blocks, __ATOMIC_RELAXED);
	do {
		b->next = first;
	} while (!__atomic_compare_exchange_n(&blocks, &first, b, false, __ATOMIC_RELEASE,
					      __ATOMIC_RELAXED));
	return b;
}

struct thread *programs__thread(void)
{
	pid_t pid;
	int tid;

	if (self)
		return &self->thread;
	pid = getpid();
	tid = (int)syscall(SYS_gettid);
	self = find_free(pid, tid) ?: make(tid);
	if (!self)
		return NULL;
	self->thread.depth = 0;
	self->loads = 0;
	self->task = (struct task_struct){ .pid = tid, .tgid = pid };
	set_thread_pointer(&self->task, machine__thread_pointer());
	return &self->thread;
}

/* Resets the programs' state of a thread when the recorder has loaded them again. */
static void renew(struct block *b)
{
	__u32 loads = __atomic_load_n(&shared->loads, __ATOMIC_ACQUIRE);

	if (b->loads == loads)
		return;
	b->loads = loads;
	b->has_slot = b->has_call = false;
	b->scratch.busy = 0;
}

void programs__run(enum mt_inside_program which, __u64 cookie, struct pt_regs *regs)
{
#define PROGRAM(id, program, twin, record, off, name) [MT_INSIDE_##id] = program,
	static int (*const program[])(struct pt_regs *) = {
		[MT_INSIDE_CALL_ENTER] = call_enter, [MT_INSIDE_CALL_RETURN] = call_return,
		[MT_INSIDE_SET_DEVICE] = set_device, [MT_INSIDE_ASKED] = asked,
		[MT_INSIDE_USDT_SCOPE] = usdt_scope, MT_HOOKS(PROGRAM)
	};
#undef PROGRAM

	if (which >= sizeof(program) / sizeof(program[0]) || !program[which])
		return;
	renew(self);
	self->cookie = cookie;
	self->regs = regs;
	program[which](regs);
}

void programs__count_lost(enum mt_inside_program which)
{
#define TYPE(id, program, twin, record, off, name) [MT_INSIDE_##id] = record,
	static const __u8 type[] = { [MT_INSIDE_CALL_RETURN] = MT_REC_CUDA_CALL,
				     [MT_INSIDE_SET_DEVICE] = MT_REC_SET_DEVICE,
				     [MT_INSIDE_ASKED] = MT_REC_REQUESTED,
				     [MT_INSIDE_USDT_SCOPE] = MT_REC_SCOPE,
				     MT_HOOKS(TYPE) };
#undef TYPE

	/* A run of a node has a record only if the running node has changed. */
	if (which >= sizeof(type) || !type[which] || which == MT_INSIDE_EVALUATE || stopped)
		return;
	if (which == MT_INSIDE_CODE_GONE)
		next_epoch(&code_epoch); /* as with each lost end of a code object */
	__atomic_add_fetch(&shared->counters[MT_CNT_HIT + type[which]], 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&shared->counters[MT_CNT_RING_LOST + type[which]], 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&notices, 1, __ATOMIC_RELAXED);
}

int programs__share(int fd, struct mt_inside_variables *v)
{
	size_t size = (size_t)(mt_shared_last - mt_shared_first);

	if ((uintptr_t)mt_shared_first % MT_INSIDE_PAGE || size % MT_INSIDE_PAGE ||
	    size > MT_INSIDE_VARIABLES_MAX)
		return -EINVAL;
	if (mmap(mt_shared_first, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		 MT_INSIDE_VARIABLES) == MAP_FAILED)
		return -errno;
#define AT(variable) (__u32)((char *)&(variable)-mt_shared_first)
	*v = (struct mt_inside_variables){
		.size = size,
		.py = AT(py),
		.modules = AT(modules),
		.bench_empty = AT(bench_empty),
		.bench_verify = AT(bench_verify),
		.stopped = AT(stopped),
		.woken = AT(woken),
		.notices = AT(notices),
		.code_epoch = AT(code_epoch),
		.module_code = AT(module_code),
		.seen_code = AT(seen_code),
		.asked_args = AT(asked_args),
		.node_layout = AT(node_layout),
	};
#undef AT
	return 0;
}

void programs__set_returns(__u64 trampoline)
{
	host_trampoline = trampoline;
}

/* ---- maps ---- */

struct host_map *host_map(void *map, unsigned type, size_t max, size_t key, size_t value)
{
	(void)type;
	(void)max;
	(void)key;
	(void)value;
	return map;
}

static void *find(const struct mt_inside_table *t, __u64 key)
{
	__u32 i = mt_inside_hash(key), n;

	for (n = 0; n < MT_INSIDE_KEYS; n++, i++) {
		__u64 e = __atomic_load_n(&t->entry[i % MT_INSIDE_KEYS], __ATOMIC_RELAXED);

		if (!e)
			return NULL;
		if (MT_INSIDE_KEY(e) != key)
			continue;
		self->value = MT_INSIDE_VALUE(e);
		return self->value ? &self->value : NULL;
	}
	return NULL;
}

void *host_lookup(struct host_map *m, const void *key)
{
	__u64 k64;
	__u32 k;

	if ((void *)m == &root_modules || (void *)m == &module_types) {
		memcpy(&k64, key, sizeof(k64));
		return find((void *)m == &root_modules ? &shared->roots : &shared->types, k64);
	}
	memcpy(&k, key, sizeof(k));
	if ((void *)m == &counters)
		return k ? NULL : shared->counters;
	if ((void *)m == &sent_stacks)
		return k < MT_SENT_SETS ? &shared->sent_stacks[k] : NULL;
	/* The slot is free: on a thread, no program interrupts another. */
	if ((void *)m == &scratch)
		return &self->scratch;
	return NULL;
}

void *host_storage(struct host_map *m, __u64 flags)
{
	bool calls_map = (void *)m == &calls, *has = calls_map ? &self->has_call : &self->has_slot;

	if (!*has) {
		if (!(flags & BPF_LOCAL_STORAGE_GET_F_CREATE))
			return NULL;
		if (calls_map)
			memset(&self->call, 0, sizeof(self->call));
		else
			memset(&self->slot, 0, sizeof(self->slot));
		*has = true;
	}
	return calls_map ? (void *)&self->call : (void *)&self->slot;
}

/* ---- memory ---- */

/* Used if process_vm_readv() is not permitted. Opens the file each time: the program may close or
 * reuse a kept descriptor. */
static long read_file(void *dst, __u32 size, const void *addr)
{
	int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	long got = fd < 0 ? -1 : pread(fd, dst, size, (off_t)(uintptr_t)addr);

	if (fd >= 0)
		close(fd);
	return got;
}

/* Reads all bytes or returns zeros, as in the kernel. Unreadable memory does not fault. */
long bpf_probe_read_user(void *dst, __u32 size, const void *addr)
{
	struct iovec to = { dst, size }, from = { (void *)(uintptr_t)addr, size };
	long got = process_vm_readv(self->task.tgid, &to, 1, &from, 1, 0);

	if (got < 0 && (errno == EPERM || errno == ENOSYS))
		got = read_file(dst, size, addr);
	if (got == (long)size)
		return 0;
	memset(dst, 0, size);
	return -EFAULT;
}

long bpf_copy_from_user(void *dst, __u32 size, const void *addr)
{
	return bpf_probe_read_user(dst, size, addr);
}

/* The programs read only their registers with this helper. */
long bpf_probe_read_kernel(void *dst, __u32 size, const void *addr)
{
	size_t at = (uintptr_t)addr - (uintptr_t)self->regs;

	if (at > sizeof(*self->regs) || size > sizeof(*self->regs) - at) {
		memset(dst, 0, size);
		return -EFAULT;
	}
	memcpy(dst, addr, size);
	return 0;
}

/* ---- the rest ---- */

long bpf_loop(__u32 n, long (*turn)(__u32, void *), void *ctx, __u64 flags)
{
	__u32 i;

	(void)flags;
	for (i = 0; i < n; i++) {
		if (turn(i, ctx))
			return i + 1;
	}
	return n;
}

struct task_struct *bpf_get_current_task_btf(void)
{
	return &self->task;
}

__u64 bpf_get_current_task(void)
{
	return (uintptr_t)&self->task;
}

__u64 bpf_get_current_pid_tgid(void)
{
	return (__u64)self->task.tgid << 32 | (__u32)self->task.pid;
}

__u64 bpf_get_attach_cookie(void *ctx)
{
	(void)ctx;
	return self->cookie;
}

/* For malloc's probes, which a process that records itself does not have. */
__u64 bpf_get_func_ip(void *ctx)
{
	(void)ctx;
	return 0;
}

__u64 bpf_ktime_get_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

__u32 bpf_get_prandom_u32(void)
{
	return (__u32)(bpf_ktime_get_ns() * 0x9e3779b97f4a7c15ULL >> 32);
}

__u32 bpf_get_smp_processor_id(void)
{
	return 0;
}

void *host_ring_reserve(__u64 size)
{
	return ring__reserve(size);
}

void bpf_ringbuf_submit(void *rec, __u64 flags)
{
	ring__commit(rec, false);
	if (flags & BPF_RB_FORCE_WAKEUP)
		ring__wake();
}

void bpf_ringbuf_discard(void *rec, __u64 flags)
{
	(void)flags;
	ring__commit(rec, true);
}

long host_ring_output(const void *data, __u64 size, __u64 flags)
{
	void *to = ring__reserve(size);

	if (!to)
		return -EAGAIN;
	memcpy(to, data, size);
	bpf_ringbuf_submit(to, flags);
	return 0;
}
