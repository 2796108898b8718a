/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Implements the part of probes.h that does not depend on where the programs run (see struct
 * probes_place). */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "capture/probes/probes_internal.h"
#include "capture/probes/proc_group.h"

/* Passes a record to all feeds. 0, or an error of a feed; -ENOMEM if any feed returned it. */
static int deal_to_all(struct demux *f, const void *rec, size_t len)
{
	int err = 0, ret;
	size_t i;

	for (i = 0; i < MT_MEMBERS; i++) {
		ret = f->at[i].fn ? f->at[i].fn(f->at[i].ctx, rec, len) : 0;
		if (ret && err != -ENOMEM)
			err = ret;
	}
	return err;
}

int demux__deal(struct demux *f, const void *rec, size_t len)
{
	const struct mt_hdr *h = rec;

	if (!f->at[h->member].fn && f->unknown)
		f->unknown(f->unknown_ctx);
	if (h->type == MT_REC_CODE_GONE)
		return deal_to_all(f, rec, len);
	return f->at[h->member].fn ? f->at[h->member].fn(f->at[h->member].ctx, rec, len) : 0;
}

void demux__set(struct demux *f, uint32_t number, feed_fn fn, void *ctx)
{
	number &= MT_MEMBERS - 1;
	f->at[number].fn = fn;
	f->at[number].ctx = ctx;
}

#define CALL_FILES_MAX 4096

/* Counts a record of the ring and passes it on. */
static int take_record(void *ctx, const void *data, size_t len)
{
	const struct mt_hdr *h = data;
	struct probes *p = ctx;

	if (!len)
		return 0;
	p->records[h->member][h->type % RECORD_TYPES]++;
	p->ends += h->type == MT_REC_CODE_GONE;
	return p->group_id ? demux__deal(&p->feeds, data, len) : p->fn(p->ctx, data, len);
}

void probes__feed(struct probes *p, uint32_t number, probes_fn fn, void *ctx)
{
	demux__set(&p->feeds, number, fn, ctx);
}

void probes__on_unknown(struct probes *p, void (*fn)(void *ctx), void *ctx)
{
	p->feeds.unknown = fn;
	p->feeds.unknown_ctx = ctx;
}

/* Removes these programs from the list of sets that others may share. */
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

struct probes *probes__share(const struct probes_sets *sets, const struct mt_py_layout *py,
			     const struct hook *hooks)
{
	size_t i;

	for (i = 0; i < sets->n; i++) {
		if (!memcmp(&sets->set[i]->py, py, sizeof(*py)) &&
		    !probes__misfit(sets->set[i], hooks))
			return probes__share_set(sets->set[i]);
	}
	return NULL;
}

uint32_t probes__group(const struct probes *p)
{
	return p->group_id;
}

bool probes__everywhere(const struct probes *p)
{
	return p->group_id || p->filter;
}

void probes__from_environment(struct probes_opts *opts)
{
	char words[64], *rest = words, *word;

	snprintf(words, sizeof(words), "%s", getenv("MEMTRACE_BENCH") ?: "");
	while ((word = strsep(&rest, ","))) {
		opts->empty |= !strcmp(word, "empty");
		opts->verify |= !strcmp(word, "verify");
		opts->sleepable |= !strcmp(word, "sleepable");
		opts->filter |= !strcmp(word, "filter");
		opts->seen |= !strcmp(word, "seen");
		opts->atomic |= !strcmp(word, "atomic");
		opts->perf |= !strcmp(word, "perf");
		opts->returns |= !strcmp(word, "returns");
		opts->old |= !strcmp(word, "old");
		opts->host_raw |= !strcmp(word, "sys-exit");
	}
}

void probes__stop(struct probes *p)
{
	__atomic_store_n(p->vars.stopped, 1, __ATOMIC_SEQ_CST);
}

void probes__set_process(struct probes *p, int pidfd)
{
	p->pidfd = pidfd;
}

void probes__begin_detach(struct probes *p)
{
	if (p->in->begin_detach)
		p->in->begin_detach(p);
}

void probes__detach(struct probes *p)
{
	p->in->detach(p, 0);
}

bool probes__calls_each(const struct probes *p, const struct call_file *file)
{
	return p->calls_each || (file && probes__everywhere(p) && elf__is_memory(file->elf));
}

void probes__leave(struct probes *p, pid_t pid)
{
	if (p->group_id)
		p->in->detach(p, pid);
}

void probes__free(struct probes *p)
{
	if (!p || (p->users && --p->users))
		return;
	unlist(p);
	probes__detach(p);
	p->in->free(p);
}

bool probes__have_multi(const struct probes *p)
{
	return p->multi;
}

size_t probes__renew(struct probes *p)
{
	return p->in->renew ? p->in->renew(p) : 0;
}

bool probes__empty(const struct probes *p)
{
	return p->empty;
}

uint64_t probes__records(const struct probes *p, uint32_t number, unsigned int type)
{
	return p->records[number % MT_MEMBERS][type % RECORD_TYPES];
}

bool probes__sleepable(const struct probes *p)
{
	return p->sleepable;
}

bool probes__old(const struct probes *p)
{
	return p->old;
}

int probes__attach(struct probes *p, pid_t pid, const struct hook *h)
{
	if (probes__attached(p, pid, h->id))
		return -EEXIST;
	if (probes__everywhere(p) && !h->fixed) {
		log_debug("%s: a probe for PID %d alone", hook__name(h->id), (int)pid);
		return p->in->attach_own ? p->in->attach_own(p, pid, h) : -EXDEV;
	}
	p->at_place[h->id] = place__of(h);
	return p->in->attach(p, pid, h);
}

int probes__attach_host(struct probes *p, const char **way)
{
	return p->in->attach_host ? p->in->attach_host(p, way) : -EOPNOTSUPP;
}

bool probes__attached(const struct probes *p, pid_t pid, enum hook_id id)
{
	return p->in->attached(p, pid, id);
}

/* True if a process with this hook can share the programs: they are attached at the same place, or
 * at none. */
static bool fits_hook(const struct probes *p, const struct hook *h)
{
	struct place here = place__of(h);

	if (!h->found)
		return true;
	if (p->in->attached(p, 0, h->id))
		return place__same(&here, &p->at_place[h->id]);
	/* Links for all processes and links for single ones cannot be told apart by attached(). */
	return !h->fixed || !p->in->attached(p, PROBES_ONE, h->id);
}

const struct hook *probes__misfit(const struct probes *p, const struct hook *hooks)
{
	int i;

	for (i = 0; i < HOOK_NR; i++) {
		if (!fits_hook(p, &hooks[i]))
			return &hooks[i];
	}
	return NULL;
}

bool probes__new_file(struct probes *p, const struct call_file *file)
{
	const struct file_id id = { file->inode, file->dev_major, file->dev_minor };
	size_t i;

	if (!p->group_id || probes__calls_each(p, file))
		return true;
	for (i = 0; i < p->n_files; i++) {
		if (file_id__same(&p->files[i], &id))
			return false;
	}
	if (p->n_files == CALL_FILES_MAX)
		return false;
	p->files[p->n_files++] = id;
	return true;
}

int probes__attach_calls(struct probes *p, pid_t pid, enum call_probe which,
			 const struct call_file *file, const struct probe_site *sites, size_t n)
{
	if (!n)
		return 0;
	return p->in->attach_calls(p, pid, which, file, sites, n);
}

void probes__prepare_sleepable(struct probes *p)
{
	if (p->in->prepare_sleepable)
		p->in->prepare_sleepable(p);
}

int probes__go_sleepable(struct probes *p, pid_t pid, const struct hook *hooks)
{
	/* The new links are made with this process's files, also those that serve all processes. */
	for (int i = 0; i < HOOK_NR && probes__everywhere(p); i++) {
		const struct hook *h = &hooks[i];

		if (h->found && p->in->attached(p, 0, h->id) && !(h->fixed && fits_hook(p, h)))
			return -EOPNOTSUPP;
	}
	return p->in->go_sleepable(p, pid, hooks);
}

static uint32_t off_bit(enum hook_id id)
{
#define OFF(id, program, twin, record, off, name) [HOOK_##id] = off,
	static const uint32_t bits[HOOK_NR] = { MT_HOOKS(OFF) };
#undef OFF

	return bits[id];
}

bool probes__is_off(const struct probes *p, enum hook_id id)
{
	return probes__detail(p).off & off_bit(id);
}

struct cost_detail probes__detail(const struct probes *p)
{
	return p->vars.detail
		       ? (struct cost_detail){ p->vars.detail->off, p->vars.detail->sample_below }
		       : (struct cost_detail){ 0 };
}

const struct mt_timed *probes__timed(const struct probes *p)
{
	return p->vars.timed;
}

/* Makes the programs leave out what `off` says (bits of enum mt_off). Removes the hooks that only
 * serve that, and attaches those that are needed again. */
static void set_off(struct probes *p, uint32_t off, pid_t pid, const struct hook *hooks)
{
	uint32_t old_off = p->vars.detail->off;

	__atomic_store_n(&p->vars.detail->off, off, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&p->vars.detail->generation, 1, __ATOMIC_SEQ_CST);
	/* Keep the order of the hooks: nodes are made before they run, so that hook is attached
	 * first. */
	for (int i = 0; i < HOOK_NR; i++) {
		uint32_t bit = off_bit(i);

		if (!(old_off & bit) && off & bit && probes__attached(p, pid, i))
			p->in->detach_hook(p, i);
		else if (old_off & bit && !(off & bit) && hooks[i].found &&
			 i != HOOK_MODULE_BOUND && /* is attached when a stack shows the need */
			 !probes__attached(p, pid, i))
			probes__attach(p, pid, &hooks[i]);
	}
}

void probes__forget_calls(struct probes *p)
{
	if (p->vars.detail)
		__atomic_fetch_add(&p->vars.detail->generation, 1, __ATOMIC_SEQ_CST);
}

/* Applies the highest level of all processes, with modules if any process keeps them. */
void probes__want_level(struct probes *p, uint32_t number, unsigned int level, bool keep_modules,
			pid_t pid, const struct hook *hooks)
{
	struct cost_detail d;
	unsigned int highest = 0;
	bool keep = false;

	if (!p->vars.detail)
		return;
	p->level[number % MT_MEMBERS] = level;
	p->keep_modules[number % MT_MEMBERS] = keep_modules;
	for (size_t i = 0; i < MT_MEMBERS; i++) {
		highest = p->level[i] > highest ? p->level[i] : highest;
		keep |= p->keep_modules[i];
	}
	d = cost_control__detail(highest);
	if (keep)
		d.off &= ~(uint32_t)MT_OFF_MODULES;
	if (d.off != p->vars.detail->off)
		set_off(p, d.off, pid, hooks);
	__atomic_store_n(&p->vars.detail->sample_below, d.below, __ATOMIC_SEQ_CST);
}

void probes__set_asked(struct probes *p, const struct mt_usdt_args *args, size_t n)
{
	if (n > MT_ASKED_SITES)
		n = MT_ASKED_SITES;
	memcpy(p->vars.asked_args, args, n * sizeof(*args));
}

bool probes__has_sessions(const struct probes *p)
{
	return p->sessions;
}

void probes__sample_malloc(struct probes *p, uint64_t every)
{
	__atomic_store_n(p->vars.malloc_every, every, __ATOMIC_SEQ_CST);
}

void probes__add_malloc_code(struct probes *p, uint64_t begin, uint64_t end)
{
	for (size_t i = 0; i < MT_MALLOC_RANGES; i++) {
		if (p->vars.malloc_own[i][1])
			continue;
		__atomic_store_n(&p->vars.malloc_own[i][0], begin, __ATOMIC_SEQ_CST);
		__atomic_store_n(&p->vars.malloc_own[i][1], end, __ATOMIC_SEQ_CST);
		return;
	}
}

void probes__detach_malloc(struct probes *p)
{
	p->in->detach_malloc(p);
}

void probes__copy_stacks(struct probes *p, uint32_t most)
{
	if (p->vars.native_most)
		__atomic_store_n(p->vars.native_most, most, __ATOMIC_SEQ_CST);
}

void probes__copy_stacks_from(struct probes *p, uint64_t bytes)
{
	if (p->vars.native_from)
		__atomic_store_n(p->vars.native_from, bytes, __ATOMIC_SEQ_CST);
}

void probes__copy_no_stacks_of(struct probes *p, uint64_t begin, uint64_t end)
{
	if (!p->vars.native_own || p->group_id)
		return;
	/* While the end is 0, no program sees a begin and an end of different ranges. */
	__atomic_store_n(&p->vars.native_own[1], 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&p->vars.native_own[0], begin, __ATOMIC_SEQ_CST);
	__atomic_store_n(&p->vars.native_own[1], end, __ATOMIC_SEQ_CST);
}

void probes__set_node_layout(struct probes *p, uint32_t number, const struct mt_node_layout *layout)
{
	struct mt_node_layout *l = p->group_id ? &proc_group__member(p->group, number)->node
					       : p->vars.node_layout;

	/* Write the places of the words before .extra, which makes programs read them. */
	__atomic_store_n(&l->extra, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->sequence, layout->sequence, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->object, layout->object, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->object_type, layout->object_type, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->object_vptr, layout->object_vptr, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->extra, layout->extra, __ATOMIC_SEQ_CST);
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
	int ret;

	/* Do this before the drain, so that later stacks wake us again. */
	p->in->forget_wake(p);
	p->fn = fn;
	p->ctx = ctx;
	ret = bpf_ring__consume(p->ring, take_record, p);
	if (p->in->consumed)
		p->in->consumed(p);
	return ret;
}

uint64_t probes__written(const struct probes *p)
{
	return bpf_ring__written(p->ring);
}

uint64_t probes__taken(const struct probes *p)
{
	return bpf_ring__taken(p->ring);
}

int probes__counters(const struct probes *p, uint32_t number, uint64_t c[MT_CNT_NR])
{
	return p->in->counters(p, number, c);
}

struct probes_skipped probes__skipped(const struct probes *p)
{
	struct probes_skipped ret = { 0 };

	if (p->in->skipped)
		p->in->skipped(p, &ret);
	return ret;
}

uint64_t probes__ends(const struct probes *p)
{
	return p->ends;
}

uint64_t probes__notices(const struct probes *p)
{
	return __atomic_load_n(p->vars.notices, __ATOMIC_SEQ_CST);
}

size_t probes__take_absent(struct probes *p, uint32_t number, uint64_t addrs[MT_ABSENT])
{
	size_t i, n_taken = 0;

	for (i = 0; p->vars.absent && i < MT_ABSENT; i++) {
		uint64_t key = __atomic_load_n(&p->vars.absent[i], __ATOMIC_SEQ_CST);

		if (!key || key >> 48 != number)
			continue;
		/* Clears the entry, unless a later walk has put another key there. */
		__atomic_compare_exchange_n(&p->vars.absent[i], &key, 0, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
		addrs[n_taken++] = key & ~(UINT64_C(0xffff) << 48);
	}
	return n_taken;
}

/* Reads the counters of all numbers, but only if a notice came since the last time. */
int probes__lost_ends(struct probes *p, uint64_t *ret)
{
	uint64_t c[MT_CNT_NR], sum = p->lost_ends, notices = probes__notices(p);
	uint32_t i, numbers = p->group_id ? MT_MEMBERS : 1;
	int err;

	if (p->ends_known && notices == p->ends_notices) {
		*ret = p->ends_sum;
		return 0;
	}
	for (i = 0; i < numbers; i++) {
		err = probes__counters(p, i, c);
		if (err)
			return err;
		sum += c[MT_CNT_RING_LOST + MT_REC_CODE_GONE];
	}
	p->ends_known = true;
	p->ends_notices = notices;
	p->ends_sum = *ret = sum;
	return 0;
}

void probes__reset_counters(struct probes *p, uint32_t number)
{
	uint64_t c[MT_CNT_NR];
	bool sent_stacks;

	if (probes__counters(p, number, c))
		return;
	sent_stacks = p->records[number % MT_MEMBERS][MT_REC_STACK] > 0;
	memset(p->records[number % MT_MEMBERS], 0, sizeof(p->records[0]));
	p->lost_ends += c[MT_CNT_RING_LOST + MT_REC_CODE_GONE];
	p->in->zero_counters(p, number);
	/* The programs must send the stacks of the next process with this number, even if they are
	 * equal. */
	if (sent_stacks)
		probes__bump_epoch(p);
}

void probes__bump_epoch(struct probes *p)
{
	__atomic_fetch_add(p->vars.code_epoch, 1, __ATOMIC_SEQ_CST);
	p->bumps++;
}

void probes__forget_seen(struct probes *p)
{
	/* Raise the epoch twice: stacks of the epoch between may have code objects whose marks are
	 * gone, and get no names. */
	__atomic_fetch_add(p->vars.code_epoch, 1, __ATOMIC_SEQ_CST);
	memset(p->vars.seen_code, 0, MT_SEEN_SLOTS);
	__atomic_fetch_add(p->vars.code_epoch, 1, __ATOMIC_SEQ_CST);
	p->lost_ends += PROBES_FORGOTTEN_ENDS;
	p->ends_known = false;
	p->forgotten++;
}

uint64_t probes__times_forgotten(const struct probes *p)
{
	return p->forgotten;
}

uint64_t probes__bumps(const struct probes *p)
{
	return p->bumps;
}

uint64_t probes__epoch(const struct probes *p)
{
	return __atomic_load_n(p->vars.code_epoch, __ATOMIC_SEQ_CST);
}

void probes__set_module_codes(struct probes *p, uint32_t process_number, const uint64_t *codes,
			      size_t n)
{
	uint64_t *slots = p->group_id ? (uint64_t *)proc_group__member(p->group, process_number)
						->module_code
				      : p->vars.module_code;
	size_t i;

	for (i = 0; i < MT_MAX_MODULE_CODES; i++)
		slots[i] = i < n ? codes[i] : 0;
	probes__bump_epoch(p);
}

/* A key for an address of a process, as own_key() of the BPF programs makes it. */
static uint64_t own_key(uint32_t process_number, uint64_t addr)
{
	return addr | (uint64_t)process_number << 48;
}

int probes__add_root(struct probes *p, uint32_t process_number, uint64_t self)
{
	return p->in->add_root(p, own_key(process_number, self));
}

/* Forgets the root modules of a process, whose calls the programs report. */
void probes__clear_roots(struct probes *p, uint32_t process_number)
{
	p->in->clear_roots(p, process_number);
}

/* Sets a class in the programs' map, and in the array known_types, a cache of the map that programs
 * read first. */
int probes__set_module_type(struct probes *p, uint32_t process_number, uint64_t type,
			    enum mt_module_type is)
{
	uint64_t key = own_key(process_number, type), *known = p->vars.known_types;
	int err = p->in->set_module_type(p, key, is);

	if (!known)
		return err;
	known += MT_KNOWN_PLACE(key);
	if (!err && is && MT_KNOWN_KEY(key) == key)
		__atomic_store_n(known, MT_KNOWN_TYPE(key, is), __ATOMIC_RELAXED);
	else if (MT_KNOWN_KEY(*known) == key)
		__atomic_store_n(known, 0, __ATOMIC_RELAXED);
	return err;
}
