/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The programs in the process itself, a child of ours with the library for it: breakpoints instead
 * of links, shared memory instead of maps. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "capture/probes/inside_memory.h"
#include "capture/probes/probes_internal.h"
#include "inspect/proc.h"

struct inside_probes {
	struct probes p; /* first */
	struct inside_memory *m;
	bool at[HOOK_NR];
	uint64_t semaphore[MT_ASKED_SITES]; /* semaphores that we raised */
	size_t n_semaphores;
	uint32_t semaphores_of; /* mem_image of the program that they are in */
};

static struct inside_probes *inside(const struct probes *p)
{
	return (struct inside_probes *)p;
}

/* ---- loading ---- */

/* Opens the process's memory and reads its maps, which have our library. 0 or -errno. */
static int open_process(struct inside_memory *m, pid_t pid, struct maps *maps)
{
	struct proc *proc;
	int err = pid == m->pid ? inside_memory__open_target(m) : -EINVAL;

	if (err)
		return err;
	proc = proc__open(pid);
	err = proc ? proc__maps(proc, maps) : -errno;
	proc__free(proc);
	if (err || inside_memory__same_program(m, maps))
		return err;
	maps__free(maps);
	return -ENOEXEC;
}

static bool fits(const struct mt_inside_variables *v, uint32_t at, size_t size)
{
	return at <= v->size && size <= v->size - at;
}

/* True if the library gives the place of each variable. No variable is in the first page
 * (tools/inprocess/first.c), and a field that the library does not know is 0. */
static bool all_said(const struct mt_inside_variables *v)
{
	const uint32_t *at = (const void *)v;
	size_t i;

	_Static_assert(offsetof(struct mt_inside_variables, size) == 0 &&
			       sizeof(*v) % sizeof(*at) == 0,
		       "the size, then one offset a variable");
	for (i = 1; i < sizeof(*v) / sizeof(*at); i++) {
		if (at[i] < MT_INSIDE_PAGE)
			return false;
	}
	return true;
}

static bool all_fit(const struct mt_inside_variables *v)
{
	return v->size <= MT_INSIDE_VARIABLES_MAX && fits(v, v->py, sizeof(struct mt_py_layout)) &&
	       fits(v, v->modules, 1) && fits(v, v->bench_empty, 1) &&
	       fits(v, v->bench_verify, 1) && fits(v, v->stopped, 1) && fits(v, v->woken, 8) &&
	       fits(v, v->notices, 8) && fits(v, v->code_epoch, 8) &&
	       fits(v, v->module_code, MT_MAX_MODULE_CODES * 8) &&
	       fits(v, v->seen_code, MT_SEEN_SLOTS) &&
	       fits(v, v->asked_args, MT_ASKED_SITES * sizeof(struct mt_usdt_args)) &&
	       fits(v, v->node_layout, sizeof(struct mt_node_layout)) &&
	       !((v->py | v->woken | v->notices | v->code_epoch | v->module_code | v->node_layout |
		  v->asked_args) %
		 8);
}

/* Sets the given variables, all others to 0, and empties all maps, as after loading into the
 * kernel. */
static int begin(struct inside_probes *ip, const struct probes_opts *opts)
{
	const struct mt_inside_variables v = ip->m->at->variables;
	uint8_t *to = ip->m->variables;
	struct probes *p = &ip->p;
	struct mt_inside *at = ip->m->at;

	if (!all_said(&v) || !all_fit(&v))
		return -EBADMSG;
	memset(to, 0, v.size);
	memset(at->counters, 0, sizeof(at->counters));
	memset(at->sent_stacks, 0, sizeof(at->sent_stacks));
	memset(&at->roots, 0, sizeof(at->roots));
	memset(&at->types, 0, sizeof(at->types));
	memcpy(to + v.py, &opts->py, sizeof(opts->py));
	to[v.modules] = opts->modules;
	to[v.bench_empty] = opts->empty;
	to[v.bench_verify] = opts->verify;
	p->vars.stopped = to + v.stopped;
	p->vars.notices = (uint64_t *)(to + v.notices);
	p->vars.seen_code = to + v.seen_code;
	p->vars.code_epoch = (uint64_t *)(to + v.code_epoch);
	p->vars.module_code = (uint64_t *)(to + v.module_code);
	p->vars.asked_args = (struct mt_usdt_args *)(to + v.asked_args);
	p->vars.node_layout = (struct mt_node_layout *)(to + v.node_layout);
	__atomic_add_fetch(&at->loads, 1, __ATOMIC_SEQ_CST);
	return 0;
}

static const struct probes_place in_process;

/* 0 if the program that runs now has the library and the library is ready; otherwise -errno, and
 * why. */
static int why_not(struct inside_memory *m, const char **why)
{
	uint32_t problem = __atomic_load_n(&m->at->problem, __ATOMIC_SEQ_CST);
	struct maps maps;
	int err;

	*why = "cannot record the command from inside: the recording library could not start in it";
	if (problem)
		return problem < 4096 ? -(int)problem : -EBADMSG;
	err = open_process(m, m->pid, &maps);
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
	struct inside_probes *ip;
	int err;

	err = why_not(opts->capture.inside, why);
	if (err) {
		errno = -err;
		return NULL;
	}
	*why = "out of memory";
	ip = calloc(1, sizeof(*ip));
	if (!ip)
		return NULL;
	ip->m = opts->capture.inside;
	ip->p.in = &in_process;
	ip->p.users = 1;
	ip->p.pidfd = -1;
	ip->p.multi = true; /* as if the kernel had all that is needed */
	ip->p.py = opts->py;
	ip->p.sleepable = opts->sleepable;
	ip->p.wake = ip->m->wake;
	ip->p.ring = bpf_ring__new_in_file(ip->m->fd, MT_INSIDE_RING, MT_INSIDE_PAGE,
					   ip->m->ring_bytes);
	err = ip->p.ring ? begin(ip, opts) : -errno;
	if (!err) {
		bpf_ring__skip(ip->p.ring);
		return &ip->p;
	}
	if (err == -EBADMSG)
		*why = "the recording library in the command is from another version of "
		       "memtrace-bpf";
	bpf_ring__free(ip->p.ring);
	free(ip);
	errno = -err;
	return NULL;
}

static void free_all(struct probes *p)
{
	bpf_ring__free(p->ring);
	free(p->files);
	free(p);
}

/* ---- attaching ---- */

static bool holds(const struct map *m, const struct file_id *file, uint64_t offset)
{
	return m->inode == file->inode && m->dev_major == file->dev_major &&
	       m->dev_minor == file->dev_minor && offset >= m->offset &&
	       offset - m->offset < m->end - m->start;
}

/* Adds a program wherever the file's code is mapped. 0 or -errno, with some added. */
static int add_everywhere(struct inside_probes *ip, const struct maps *maps,
			  const struct file_id *file, const struct probe_site *at,
			  enum mt_inside_program program)
{
	int err = -ENOENT;
	size_t i;

	for (i = 0; i < maps->n; i++) {
		const struct map *m = &maps->v[i];

		if (!m->x || !holds(m, file, at->offset))
			continue;
		err = inside_memory__add_site(ip->m, m->start + (at->offset - m->offset),
					      at->second, program, at->cookie);
		if (err)
			return err;
	}
	return err;
}

static void remove_everywhere(struct inside_probes *ip, const struct maps *maps,
			      const struct file_id *file, const struct probe_site *at,
			      enum mt_inside_program program)
{
	size_t i;

	for (i = 0; i < maps->n; i++) {
		const struct map *m = &maps->v[i];

		if (m->x && holds(m, file, at->offset))
			inside_memory__remove_site(ip->m, m->start + (at->offset - m->offset),
						   at->second, program, at->cookie);
	}
}

static int attach(struct probes *p, pid_t pid, const struct hook *h)
{
#define PROGRAM(id, program, twin, record, off, name) [HOOK_##id] = MT_INSIDE_##id,
	static const enum mt_inside_program programs[HOOK_NR] = { MT_HOOKS(PROGRAM) };
#undef PROGRAM
	const struct file_id file = { h->inode, h->dev_major, h->dev_minor };
	const struct probe_site at = { .offset = h->offset,
				       .cookie = h->id,
				       .second = h->site.second };
	struct maps maps;
	int err = open_process(inside(p)->m, pid, &maps);

	if (err)
		return err;
	err = add_everywhere(inside(p), &maps, &file, &at, programs[h->id]);
	maps__free(&maps);
	inside(p)->at[h->id] = !err;
	return err;
}

static bool attached(const struct probes *p, __attribute__((unused)) pid_t pid, enum hook_id id)
{
	return inside(p)->at[id];
}

/* Raises a USDT's semaphore, which is in writable memory. */
static int raise_semaphore(struct inside_probes *ip, const struct maps *maps,
			   const struct file_id *file, uint64_t offset)
{
	size_t i;
	int err;

	for (i = 0; i < maps->n; i++) {
		const struct map *m = &maps->v[i];
		uint64_t addr = m->start + (offset - m->offset);

		if (!m->w || !holds(m, file, offset))
			continue;
		err = ip->n_semaphores < MT_ASKED_SITES ? inside_memory__add_to_word(ip->m, addr, 1)
							: -ENOSPC;
		if (!err) {
			ip->semaphore[ip->n_semaphores++] = addr;
			ip->semaphores_of = ip->m->mem_image;
		}
		return err;
	}
	return -ENOENT;
}

static int attach_calls(struct probes *p, pid_t pid, enum call_probe which,
			const struct call_file *of, const struct probe_site *sites, size_t n)
{
	static const enum mt_inside_program programs[] = {
		[CALL_RETURN] = MT_INSIDE_CALL_RETURN,
		[CALL_ENTER] = MT_INSIDE_CALL_ENTER,
		[CALL_SET_DEVICE] = MT_INSIDE_SET_DEVICE,
		[CALL_ASKED] = MT_INSIDE_ASKED,
	};
	enum mt_inside_program program = programs[which];
	const struct file_id file = { of->inode, of->dev_major, of->dev_minor };
	struct maps maps;
	size_t i;
	int err = open_process(inside(p)->m, pid, &maps);

	if (err)
		return err;
	for (i = 0; i < n && !err; i++) {
		err = add_everywhere(inside(p), &maps, &file, &sites[i], program);
		if (!err && sites[i].ref_ctr)
			err = raise_semaphore(inside(p), &maps, &file, sites[i].ref_ctr);
	}
	while (err && i--)
		remove_everywhere(inside(p), &maps, &file, &sites[i], program);
	maps__free(&maps);
	return err;
}

static size_t renew(struct probes *p)
{
	return inside_memory__renew_sites(inside(p)->m);
}

static void detach(struct probes *p, __attribute__((unused)) pid_t pid)
{
	struct inside_probes *ip = inside(p);

	inside_memory__clear_sites(ip->m);
	while (ip->n_semaphores && ip->semaphores_of == ip->m->mem_image)
		inside_memory__add_to_word(ip->m, ip->semaphore[--ip->n_semaphores], -1);
	ip->n_semaphores = 0;
	memset(ip->at, 0, sizeof(ip->at));
}

/* Nothing to do: a read of the process's own memory brings pages in. */
static int go_sleepable(struct probes *p, pid_t pid, const struct hook *hooks)
{
	(void)pid;
	(void)hooks;
	p->sleepable = true;
	return 0;
}

/* ---- reading ---- */

static void forget_wake(struct probes *p)
{
	uint64_t n;

	while (read(p->wake, &n, sizeof(n)) < 0 && errno == EINTR)
		;
}

static void consumed(struct probes *p)
{
	struct mt_inside *at = inside(p)->m->at;

	__atomic_add_fetch(&at->taken, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&at->waiting, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &at->taken, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int read_counters(const struct probes *p, uint32_t number, uint64_t c[MT_CNT_NR])
{
	size_t i;

	if (number)
		return -ENOENT;
	for (i = 0; i < MT_CNT_NR; i++)
		c[i] = __atomic_load_n(&inside(p)->m->at->counters[i], __ATOMIC_RELAXED);
	return 0;
}

static void zero_counters(struct probes *p, uint32_t number)
{
	if (!number)
		memset(inside(p)->m->at->counters, 0, sizeof(inside(p)->m->at->counters));
}

/* ---- tables ---- */

/* Sets a key of a table that readers use at the same time without waiting: an entry is one word.
 * max: keys with a value. */
static int set(struct mt_inside_table *t, uint64_t key, uint8_t value, size_t max)
{
	uint32_t from = mt_inside_hash(key), i;
	__u64 *free_one = NULL, e;
	size_t n = 0;

	if (MT_INSIDE_KEY(key) != key)
		return -EINVAL;
	for (i = 0; i < MT_INSIDE_KEYS; i++)
		n += MT_INSIDE_VALUE(t->entry[i]) != 0;
	for (i = 0; i < MT_INSIDE_KEYS; i++) {
		__u64 *at = &t->entry[(from + i) % MT_INSIDE_KEYS];

		e = *at;
		if (e && MT_INSIDE_KEY(e) == key) {
			__atomic_store_n(at, MT_INSIDE_ENTRY(key, value), __ATOMIC_RELAXED);
			return 0;
		}
		if (!MT_INSIDE_VALUE(e) && !free_one)
			free_one = at;
		if (!e)
			break;
	}
	if (!value)
		return 0;
	if (!free_one || n >= max)
		return -E2BIG;
	__atomic_store_n(free_one, MT_INSIDE_ENTRY(key, value), __ATOMIC_RELAXED);
	return 0;
}

#define ROOTS_MAX 4096 /* as in the BPF programs */

static int add_root(struct probes *p, uint64_t key)
{
	return set(&inside(p)->m->at->roots, key, 1, ROOTS_MAX);
}

static void clear_roots(struct probes *p, uint32_t number)
{
	struct mt_inside_table *t = &inside(p)->m->at->roots;
	size_t i;

	for (i = 0; i < MT_INSIDE_KEYS && !number; i++)
		__atomic_store_n(&t->entry[i], 0, __ATOMIC_RELAXED);
}

static int set_module_type(struct probes *p, uint64_t key, enum mt_module_type is)
{
	return set(&inside(p)->m->at->types, key, is, MT_MODULE_TYPES);
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
