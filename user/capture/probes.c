/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/probes.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "capture/attach.h"
#include "capture/feeds.h"
#include "capture/kin.h"
#include "capture/ring.h"
#include "lib/log.h"
#include "memtrace.skel.h"

/*
 * uprobe.multi links (kernel 6.6) are younger than the headers of Debian 12: the values are the
 * kernel's, include/uapi/linux/bpf.h.
 */
#define LINK_CREATE 28
#define TRACE_UPROBE_MULTI 48
#define UPROBE_MULTI_RETURN 1

#define DETACH_THREADS 64
#define CALL_SITES_MAX 128 /* in one file */

struct link_create_uprobe_multi {
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t cnt, uflags, pid, pad;
};
_Static_assert(sizeof(struct link_create_uprobe_multi) == 64, "layout of BPF_LINK_CREATE");

#define RECORD_TYPES 32 /* more than there are */
#define CALL_FILES_MAX 4096

struct attachment {
	int fd;		       /* of a multi link, -1: none */
	struct bpf_link *link; /* of a perf uprobe */
};

struct file_id {
	uint64_t inode;
	uint32_t dev_major, dev_minor;
};

struct place {
	struct file_id file;
	uint64_t offset;
};

struct probes {
	struct memtrace_bpf *skel;
	struct ring *ring;
	int pidfd; /* of the target, the caller's; -1: not told */
	int wake; /* epoll: becomes readable when a program wakes us */
	bool multi, sleepable;
	struct attachment at[HOOK_NR][2]; /* [.][1]: the sleepable twin */
	struct attachment *calls;
	size_t n_calls, cap_calls;
	probes_fn fn;
	void *ctx;
	struct mt_py_layout py;
	uint64_t bumps, ends, both_until;
	/* With a group: */
	struct kin *kin;
	uint32_t group;
	unsigned int users;
	struct probes_sets *sets;
	struct place at_place[HOOK_NR];
	struct file_id *files; /* whose calls are attached to */
	size_t n_files;
	struct feeds feeds;
	uint64_t lost_ends; /* of numbers that others have by now */
	uint64_t records[MT_MEMBERS][RECORD_TYPES]; /* by process and type */
};

__attribute__((format(printf, 2, 0)))
static int print_libbpf(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	char line[1024];
	size_t n;

	/* Its debug lines are more than a thousand an attach; what the verifier says of a refusal comes as a warning. */
	if (level == LIBBPF_DEBUG)
		return 0;
	vsnprintf(line, sizeof(line), fmt, ap);
	n = strlen(line);
	if (n && line[n - 1] == '\n')
		line[n - 1] = '\0';
	log_debug("%s", line);
	return 0;
}

static long link_create(struct link_create_uprobe_multi *attr)
{
	long fd;

	attr->attach_type = TRACE_UPROBE_MULTI;
	fd = syscall(__NR_bpf, LINK_CREATE, attr, sizeof(*attr));
	return fd < 0 ? -errno : fd;
}

static long link_create_multi(int prog_fd, const char *path, uint64_t offset, uint64_t cookie, pid_t pid)
{
	struct link_create_uprobe_multi attr = {
		.prog_fd = prog_fd,
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)&offset,
		.cookies = (uintptr_t)&cookie,
		.cnt = 1,
		.pid = pid,
	};

	return link_create(&attr);
}

/*
 * A program loaded for uprobe.multi cannot be attached through perf, so the question comes before
 * loading: a link with no program but the right type fails with EBADF where the type is known and
 * with EINVAL where it is not... but the order of the kernel's checks differs; so a real, empty program.
 */
bool probes__kernel_has_multi(void)
{
	static int known = -1;
	const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = TRACE_UPROBE_MULTI);
	long err;
	int fd;

	if (known >= 0)
		return known;
	fd = bpf_prog_load(BPF_PROG_TYPE_KPROBE, "memtrace_ask", "GPL", insns, 2, &opts);
	if (fd < 0)
		return false;
	/* "/" is not a regular file: EBADF from a kernel that looks at the path, EINVAL from one that does not. */
	err = link_create_multi(fd, "/", 0, 0, 0);
	if (err >= 0)
		close(err);
	close(fd);
	known = err == -EBADF;
	return known;
}

static struct bpf_program *program(const struct probes *p, enum hook_id id, bool sleepable)
{
	switch (id) {
	case HOOK_REPORT:
		return sleepable ? p->skel->progs.report_s : p->skel->progs.report;
	case HOOK_OOM:
		return sleepable ? p->skel->progs.oom_s : p->skel->progs.oom;
	case HOOK_CPU_NEW:
		return sleepable ? p->skel->progs.cpu_new_s : p->skel->progs.cpu_new;
	case HOOK_EDGE:
		return sleepable ? p->skel->progs.edge_s : p->skel->progs.edge;
	case HOOK_SCOPE_END:
		return sleepable ? p->skel->progs.scope_end_s : p->skel->progs.scope_end;
	/* These read no memory of the target: one program does. */
	case HOOK_CPU_DELETE:
		return sleepable ? NULL : p->skel->progs.cpu_delete;
	case HOOK_CODE_GONE:
		return sleepable ? NULL : p->skel->progs.code_gone;
	case HOOK_MODULE_CALL:
		return sleepable ? NULL : p->skel->progs.module_call;
	case HOOK_EVALUATE:
		return sleepable ? NULL : p->skel->progs.evaluate;
	case HOOK_NR:
		break;
	}
	return NULL;
}

static int on_record(void *ctx, const void *data, size_t len)
{
	const struct mt_hdr *h = data;
	struct probes *p = ctx;

	if (!len)
		return 0;
	p->records[h->member][h->type % RECORD_TYPES]++;
	p->ends += h->type == MT_REC_CODE_GONE;
	return p->group ? feeds__deal(&p->feeds, data, len) : p->fn(p->ctx, data, len);
}

void probes__feed(struct probes *p, uint32_t number, probes_fn fn, void *ctx)
{
	feeds__set(&p->feeds, number, fn, ctx);
}

void probes__on_unknown(struct probes *p, void (*fn)(void *ctx), void *ctx)
{
	p->feeds.unknown = fn;
	p->feeds.unknown_ctx = ctx;
}

static const char *load_why(int err)
{
	static char text[160];

	if (err == -EPERM || err == -EACCES) {
		snprintf(text, sizeof(text), "loading BPF programs is not permitted: %s needed; run it with sudo",
			 *caps__missing() ? caps__missing() : "CAP_BPF and CAP_PERFMON");
		return text;
	}
	if (err == -ENOENT || err == -ESRCH)
		return "the kernel shows no BTF (/sys/kernel/btf/vmlinux): it must be built with CONFIG_DEBUG_INFO_BTF";
	return "the kernel refused the BPF programs; -v shows what it says";
}

/*
 * The ring itself can be read from whenever there is a record in it, which is nearly always: what is waited for is the
 * waking, and that is an edge.
 */
static int open_wake(struct probes *p)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };

	p->wake = epoll_create1(EPOLL_CLOEXEC);
	if (p->wake < 0 || epoll_ctl(p->wake, EPOLL_CTL_ADD, bpf_map__fd(p->skel->maps.ring), &ev))
		return -errno;
	return 0;
}

/* Maps that are the family's, or as small as can be where there is none. */
static int set_family(struct probes *p, const struct probes_opts *opts)
{
	int err;

	p->users = 1;
	if (!opts->kin) {
		bpf_map__set_max_entries(p->skel->maps.family, 1);
		return bpf_map__set_max_entries(p->skel->maps.members, 1);
	}
	p->kin = opts->kin;
	p->group = kin__new_group(opts->kin);
	p->skel->rodata->group = p->group;
	p->files = calloc(CALL_FILES_MAX, sizeof(*p->files));
	err = p->files ? bpf_map__reuse_fd(p->skel->maps.family, kin__family_fd(p->kin)) : -ENOMEM;
	if (!err)
		err = bpf_map__reuse_fd(p->skel->maps.members, kin__members_fd(p->kin));
	if (!err)
		err = bpf_map__set_max_entries(p->skel->maps.counters, MT_MEMBERS);
	if (opts->sets && opts->sets->n < PROBES_SETS) {
		p->sets = opts->sets;
		p->sets->set[p->sets->n++] = p;
	}
	return err;
}

static void unlist(struct probes *p)
{
	size_t i;

	for (i = 0; p->sets && i < p->sets->n; i++) {
		if (p->sets->set[i] == p)
			p->sets->set[i--] = p->sets->set[--p->sets->n];
	}
}

struct probes *probes__share_set(struct probes *p)
{
	p->users++;
	return p;
}

struct probes *probes__share(const struct probes_sets *sets, const struct mt_py_layout *py)
{
	size_t i;

	for (i = 0; i < sets->n; i++) {
		if (!memcmp(&sets->set[i]->py, py, sizeof(*py)))
			return probes__share_set(sets->set[i]);
	}
	return NULL;
}

uint32_t probes__group(const struct probes *p)
{
	return p->group;
}

bool probes__shared(const struct probes *p)
{
	return p->users > 1;
}

struct probes *probes__load(const struct probes_opts *opts, const char **why)
{
	struct probes *p = calloc(1, sizeof(*p));
	struct bpf_program *prog;
	int err, i;

	if (!p)
		return NULL;
	for (i = 0; i < HOOK_NR; i++)
		p->at[i][0].fd = p->at[i][1].fd = -1;
	p->wake = p->pidfd = -1;
	libbpf_set_print(print_libbpf);
	libbpf_set_strict_mode(LIBBPF_STRICT_ALL);
	p->multi = probes__kernel_has_multi();
	p->skel = memtrace_bpf__open();
	if (!p->skel) {
		err = -errno;
		goto fail;
	}
	bpf_object__for_each_program(prog, p->skel->obj) {
		if (p->multi)
			bpf_program__set_expected_attach_type(prog, TRACE_UPROBE_MULTI);
		bpf_program__set_autoattach(prog, false);
	}
	err = set_family(p, opts);
	if (err)
		goto fail;
	if (opts->ring_bytes)
		bpf_map__set_max_entries(p->skel->maps.ring, opts->ring_bytes);
	p->py = opts->py;
	memcpy((void *)&p->skel->rodata->py, &opts->py, sizeof(opts->py));
	p->skel->rodata->pid_ns = proc__pid_namespace();
	p->skel->rodata->bench_empty = opts->empty;
	p->skel->rodata->bench_verify = opts->verify;
	p->skel->rodata->modules = opts->modules;
	p->sleepable = opts->sleepable;
	err = memtrace_bpf__load(p->skel);
	if (err)
		goto fail;
	p->ring = ring__new(bpf_map__fd(p->skel->maps.ring), bpf_map__max_entries(p->skel->maps.ring));
	if (!p->ring) {
		err = -errno;
		goto fail;
	}
	err = open_wake(p);
	if (err)
		goto fail;
	return p;
fail:
	*why = load_why(err);
	probes__free(p);
	errno = -err;
	return NULL;
}

static void detach_one(struct attachment *a)
{
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
	bpf_link__destroy(a->link);
	a->link = NULL;
}

static void *detach_thread(void *arg)
{
	detach_one(arg);
	return NULL;
}

void probes__stop(struct probes *p)
{
	__atomic_store_n(&p->skel->bss->stopped, 1, __ATOMIC_SEQ_CST);
}

void probes__set_process(struct probes *p, int pidfd)
{
	p->pidfd = pidfd;
}

/* Only a number that the target still has when the probe is there was the target's when it was attached. */
static int keep(struct probes *p, struct attachment *a)
{
	struct pollfd fd = { .fd = p->pidfd, .events = POLLIN };

	if (p->pidfd < 0 || poll(&fd, 1, 0) <= 0)
		return 0;
	probes__stop(p);
	detach_one(a);
	return -ESRCH;
}

/*
 * The kernel waits some 40 ms for each link until no CPU can be in its programs any more: the waits are made to
 * overlap.
 */
void probes__detach(struct probes *p)
{
	pthread_t threads[DETACH_THREADS];
	struct attachment *a;
	size_t i, n = 0;

	for (i = 0; i < HOOK_NR * 2 + p->n_calls; i++) {
		a = i < HOOK_NR * 2 ? &p->at[0][0] + i : &p->calls[i - HOOK_NR * 2];
		if (a->fd < 0 && !a->link)
			continue;
		if (n == DETACH_THREADS || pthread_create(&threads[n], NULL, detach_thread, a))
			detach_one(a);
		else
			n++;
	}
	while (n--)
		pthread_join(threads[n], NULL);
	p->n_calls = 0;
}

void probes__free(struct probes *p)
{
	if (!p || (p->users && --p->users))
		return;
	unlist(p);
	probes__detach(p);
	if (p->wake >= 0)
		close(p->wake);
	ring__free(p->ring);
	memtrace_bpf__destroy(p->skel);
	free(p->calls);
	free(p->files);
	free(p);
}

bool probes__have_multi(const struct probes *p)
{
	return p->multi;
}

uint64_t probes__records(const struct probes *p, uint32_t number, unsigned int type)
{
	return p->records[number % MT_MEMBERS][type % RECORD_TYPES];
}

bool probes__sleepable(const struct probes *p)
{
	return p->sleepable;
}

/* With a group every process that has the file mapped gets there, and the programs look who it is. */
static pid_t multi_pid(const struct probes *p, pid_t pid)
{
	return p->group ? 0 : pid;
}

static pid_t perf_pid(const struct probes *p, pid_t pid)
{
	return p->group ? -1 : pid;
}

static struct place place_of(const struct hook *h)
{
	return (struct place){ { h->inode, h->dev_major, h->dev_minor }, h->offset };
}

static int attach_one(struct probes *p, pid_t pid, const struct hook *h, bool sleepable)
{
	struct bpf_program *prog = program(p, h->id, sleepable);
	struct attachment *a = &p->at[h->id][sleepable];
	long fd;

	p->at_place[h->id] = place_of(h);
	if (!p->multi) {
		a->link = bpf_program__attach_uprobe(prog, false, perf_pid(p, pid), h->path, h->offset);
		return a->link ? keep(p, a) : -errno;
	}
	fd = link_create_multi(bpf_program__fd(prog), h->path, h->offset, h->id, multi_pid(p, pid));
	if (fd < 0)
		return fd;
	a->fd = fd;
	return keep(p, a);
}

int probes__attach(struct probes *p, pid_t pid, const struct hook *h)
{
	bool sleepable = p->sleepable && program(p, h->id, true);

	if (probes__attached(p, h->id))
		return -EEXIST;
	return attach_one(p, pid, h, sleepable);
}

bool probes__attached(const struct probes *p, enum hook_id id)
{
	const struct attachment *a = p->at[id];

	return a[0].fd >= 0 || a[1].fd >= 0 || a[0].link || a[1].link;
}

static bool same_file(const struct file_id *a, const struct file_id *b)
{
	return a->inode == b->inode && a->dev_major == b->dev_major && a->dev_minor == b->dev_minor;
}

bool probes__fits(const struct probes *p, const struct hook *h)
{
	struct place here = place_of(h);

	return !h->found || !probes__attached(p, h->id) ||
	       (same_file(&here.file, &p->at_place[h->id].file) && here.offset == p->at_place[h->id].offset);
}

bool probes__new_file(struct probes *p, uint32_t dev_major, uint32_t dev_minor, uint64_t inode)
{
	const struct file_id id = { inode, dev_major, dev_minor };
	size_t i;

	if (!p->group)
		return true;
	for (i = 0; i < p->n_files; i++) {
		if (same_file(&p->files[i], &id))
			return false;
	}
	if (p->n_files == CALL_FILES_MAX)
		return false;
	p->files[p->n_files++] = id;
	return true;
}

static struct attachment *more_calls(struct probes *p)
{
	if (p->n_calls == p->cap_calls) {
		size_t cap = p->cap_calls ? p->cap_calls * 2 : 16;
		struct attachment *v = realloc(p->calls, cap * sizeof(*v));

		if (!v)
			return NULL;
		p->calls = v;
		p->cap_calls = cap;
	}
	p->calls[p->n_calls] = (struct attachment){ .fd = -1 };
	return &p->calls[p->n_calls++];
}

static struct bpf_program *call_program(const struct probes *p, enum call_probe which)
{
	switch (which) {
	case CALL_RETURN:
		return p->skel->progs.call_return;
	case CALL_ENTER:
		return p->skel->progs.call_enter;
	case CALL_SET_DEVICE:
		return p->skel->progs.set_device;
	case CALL_ASKED:
		return p->skel->progs.asked;
	}
	return NULL;
}

static int attach_calls_multi(struct probes *p, pid_t pid, enum call_probe which, const char *path,
			      const struct probe_site *sites, size_t n)
{
	uint64_t offsets[CALL_SITES_MAX], cookies[CALL_SITES_MAX], ref_ctrs[CALL_SITES_MAX];
	struct link_create_uprobe_multi attr = {
		.prog_fd = bpf_program__fd(call_program(p, which)),
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies,
		.ref_ctr_offsets = (uintptr_t)ref_ctrs,
		.cnt = n,
		.uflags = which == CALL_RETURN ? UPROBE_MULTI_RETURN : 0,
		.pid = multi_pid(p, pid),
	};
	struct attachment *a = more_calls(p);
	long fd;
	size_t i;

	if (!a)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		offsets[i] = sites[i].offset;
		cookies[i] = sites[i].cookie;
		ref_ctrs[i] = sites[i].ref_ctr;
	}
	fd = link_create(&attr);
	if (fd < 0) {
		p->n_calls--;
		return fd;
	}
	a->fd = fd;
	return keep(p, a);
}

static int attach_call_perf(struct probes *p, pid_t pid, enum call_probe which, const char *path,
			    const struct probe_site *site)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .bpf_cookie = site->cookie, .retprobe = which == CALL_RETURN,
		    .ref_ctr_offset = site->ref_ctr);
	struct attachment *a = more_calls(p);
	int err;

	if (!a)
		return -ENOMEM;
	a->link = bpf_program__attach_uprobe_opts(call_program(p, which), perf_pid(p, pid), path, site->offset, &opts);
	if (a->link)
		return keep(p, a);
	err = -errno;
	p->n_calls--;
	return err;
}

int probes__attach_calls(struct probes *p, pid_t pid, enum call_probe which, const char *path,
			 const struct probe_site *sites, size_t n)
{
	size_t before = p->n_calls, i;
	int err = 0;

	if (!n)
		return 0;
	if (n > CALL_SITES_MAX)
		return -E2BIG;
	if (p->multi)
		return attach_calls_multi(p, pid, which, path, sites, n);
	for (i = 0; i < n && !err; i++)
		err = attach_call_perf(p, pid, which, path, &sites[i]);
	while (err && p->n_calls > before)
		detach_one(&p->calls[--p->n_calls]);
	return err;
}

void probes__set_asked(struct probes *p, const struct mt_usdt_args *args, size_t n)
{
	if (n > MT_ASKED_SITES)
		n = MT_ASKED_SITES;
	memcpy(p->skel->bss->asked_args, args, n * sizeof(*args));
}

void probes__set_node_layout(struct probes *p, uint32_t number, const struct mt_node_layout *layout)
{
	struct mt_node_layout *l = p->group ? &kin__member(p->kin, number)->node : &p->skel->bss->node_layout;

	/* What says that a word is to be read comes after where it is. */
	__atomic_store_n(&l->extra, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->sequence, layout->sequence, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->object, layout->object, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->object_type, layout->object_type, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->object_vptr, layout->object_vptr, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->extra, layout->extra, __ATOMIC_SEQ_CST);
}

int probes__go_sleepable(struct probes *p, pid_t pid, const struct hook *hooks)
{
	struct timespec now;
	int i, err;

	for (i = 0; i < HOOK_NR; i++) {
		if (!program(p, i, true) || !probes__attached(p, i))
			continue;
		err = attach_one(p, pid, &hooks[i], true);
		if (err)
			goto undo;
	}
	for (i = 0; i < HOOK_NR; i++) {
		if (program(p, i, true))
			detach_one(&p->at[i][0]);
	}
	p->sleepable = true;
	clock_gettime(CLOCK_MONOTONIC, &now);
	p->both_until = now.tv_sec * 1000000000ULL + now.tv_nsec;
	return 0;
undo:
	for (i = 0; i < HOOK_NR; i++)
		detach_one(&p->at[i][1]);
	return err;
}

uint64_t probes__both_until(const struct probes *p)
{
	return p->both_until;
}

int probes__wake_fd(const struct probes *p)
{
	return p->wake;
}

int probes__consume(struct probes *p, probes_fn fn, void *ctx)
{
	struct epoll_event ev;

	/* Before the ring is read: what comes in later wakes us again. */
	epoll_wait(p->wake, &ev, 1, 0);
	p->fn = fn;
	p->ctx = ctx;
	return ring__consume(p->ring, on_record, p);
}

int probes__counters(const struct probes *p, uint32_t number, uint64_t c[MT_CNT_NR])
{
	int cpus = libbpf_num_possible_cpus(), err, i, j;
	uint64_t *v;

	if (cpus < 0)
		return cpus;
	v = calloc(cpus, MT_CNT_NR * sizeof(*v));
	if (!v)
		return -ENOMEM;
	err = bpf_map_lookup_elem(bpf_map__fd(p->skel->maps.counters), &number, v);
	if (err) {
		err = -errno;
		goto out;
	}
	memset(c, 0, MT_CNT_NR * sizeof(*c));
	for (i = 0; i < cpus; i++) {
		for (j = 0; j < MT_CNT_NR; j++)
			c[j] += v[i * MT_CNT_NR + j];
	}
out:
	free(v);
	return err;
}

uint64_t probes__ends(const struct probes *p)
{
	return p->ends;
}

int probes__lost_ends(const struct probes *p, uint64_t *ret)
{
	uint64_t c[MT_CNT_NR], sum = p->lost_ends;
	uint32_t i, n = p->group ? MT_MEMBERS : 1;
	int err;

	for (i = 0; i < n; i++) {
		err = probes__counters(p, i, c);
		if (err)
			return err;
		sum += c[MT_CNT_RING_LOST + MT_REC_CODE_GONE];
	}
	*ret = sum;
	return 0;
}

void probes__reset_counters(struct probes *p, uint32_t number)
{
	int cpus = libbpf_num_possible_cpus();
	uint64_t c[MT_CNT_NR], *zero = cpus > 0 ? calloc(cpus, sizeof(c)) : NULL;

	if (!zero || probes__counters(p, number, c))
		goto out;
	memset(p->records[number % MT_MEMBERS], 0, sizeof(p->records[0]));
	p->lost_ends += c[MT_CNT_RING_LOST + MT_REC_CODE_GONE];
	bpf_map_update_elem(bpf_map__fd(p->skel->maps.counters), &number, zero, BPF_ANY);
out:
	free(zero);
}

void probes__bump_epoch(struct probes *p)
{
	__atomic_fetch_add(&p->skel->bss->code_epoch, 1, __ATOMIC_SEQ_CST);
	p->bumps++;
}

uint64_t probes__bumps(const struct probes *p)
{
	return p->bumps;
}

uint64_t probes__epoch(const struct probes *p)
{
	return __atomic_load_n(&p->skel->bss->code_epoch, __ATOMIC_SEQ_CST);
}

void probes__set_module_codes(struct probes *p, uint32_t number, const uint64_t *codes, size_t n)
{
	__u64 *to = p->group ? kin__member(p->kin, number)->module_code : p->skel->bss->module_code;
	size_t i;

	for (i = 0; i < MT_MAX_MODULE_CODES; i++)
		to[i] = i < n ? codes[i] : 0;
	probes__bump_epoch(p);
}

/* As own_key() of the programs. */
static uint64_t own_key(uint32_t number, uint64_t addr)
{
	return addr | (uint64_t)number << 48;
}

int probes__add_root(struct probes *p, uint32_t number, uint64_t self)
{
	uint64_t key = own_key(number, self);
	uint8_t one = 1;

	return bpf_map_update_elem(bpf_map__fd(p->skel->maps.root_modules), &key, &one, BPF_ANY) ? -errno : 0;
}

void probes__clear_roots(struct probes *p, uint32_t number)
{
	int fd = bpf_map__fd(p->skel->maps.root_modules);
	uint64_t key, next;
	bool more = bpf_map_get_next_key(fd, NULL, &next) == 0;

	/* The next one is asked for first: of one that is deleted there is none. */
	while (more) {
		key = next;
		more = bpf_map_get_next_key(fd, &key, &next) == 0;
		if (key >> 48 == number)
			bpf_map_delete_elem(fd, &key);
	}
}

int probes__set_module_type(struct probes *p, uint32_t number, uint64_t type, enum mt_module_type is)
{
	int fd = bpf_map__fd(p->skel->maps.module_types);
	uint64_t key = own_key(number, type);
	uint8_t v = is;

	if (!is)
		return bpf_map_delete_elem(fd, &key) && errno != ENOENT ? -errno : 0;
	return bpf_map_update_elem(fd, &key, &v, BPF_ANY) ? -errno : 0;
}
