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
	const struct mt_hdr *header = rec;

	if (!f->at[header->member].fn && f->unknown)
		f->unknown(f->unknown_ctx);
	if (header->type == MT_REC_CODE_GONE)
		return deal_to_all(f, rec, len);
	return f->at[header->member].fn
		       ? f->at[header->member].fn(f->at[header->member].ctx, rec, len)
		       : 0;
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
	const struct mt_hdr *header = data;
	struct probes *probes = ctx;

	if (!len)
		return 0;
	probes->records[header->member][header->type % RECORD_TYPES]++;
	probes->ends += header->type == MT_REC_CODE_GONE;
	return probes->group_id ? demux__deal(&probes->feeds, data, len)
				: probes->fn(probes->ctx, data, len);
}

void probes__feed(struct probes *probes, uint32_t number, probes_fn fn, void *ctx)
{
	demux__set(&probes->feeds, number, fn, ctx);
}

void probes__on_unknown(struct probes *probes, void (*fn)(void *ctx), void *ctx)
{
	probes->feeds.unknown = fn;
	probes->feeds.unknown_ctx = ctx;
}

/* Removes these programs from the list of sets that others may share. */
static void unlist(struct probes *probes)
{
	size_t i;

	for (i = 0; probes->sets && i < probes->sets->n; i++) {
		if (probes->sets->set[i] == probes)
			probes->sets->set[i--] = probes->sets->set[--probes->sets->n];
	}
}

struct probes *probes__share_set(struct probes *probes)
{
	probes->users++;
	return probes;
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

uint32_t probes__group(const struct probes *probes)
{
	return probes->group_id;
}

bool probes__everywhere(const struct probes *probes)
{
	return probes->group_id || probes->filter;
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

void probes__stop(struct probes *probes)
{
	__atomic_store_n(probes->vars.stopped, 1, __ATOMIC_SEQ_CST);
}

void probes__set_process(struct probes *probes, int pidfd)
{
	probes->pidfd = pidfd;
}

void probes__begin_detach(struct probes *probes)
{
	if (probes->in->begin_detach)
		probes->in->begin_detach(probes);
}

void probes__detach(struct probes *probes)
{
	probes->in->detach(probes, 0);
}

bool probes__calls_each(const struct probes *probes, const struct call_file *file)
{
	return probes->calls_each ||
	       (file && probes__everywhere(probes) && elf__is_memory(file->elf));
}

void probes__leave(struct probes *probes, pid_t pid)
{
	if (probes->group_id)
		probes->in->detach(probes, pid);
}

void probes__free(struct probes *probes)
{
	if (!probes || (probes->users && --probes->users))
		return;
	unlist(probes);
	probes__detach(probes);
	probes->in->free(probes);
}

bool probes__have_multi(const struct probes *probes)
{
	return probes->multi;
}

size_t probes__renew(struct probes *probes)
{
	return probes->in->renew ? probes->in->renew(probes) : 0;
}

bool probes__empty(const struct probes *probes)
{
	return probes->empty;
}

uint64_t probes__records(const struct probes *probes, uint32_t number, unsigned int type)
{
	return probes->records[number % MT_MEMBERS][type % RECORD_TYPES];
}

bool probes__sleepable(const struct probes *probes)
{
	return probes->sleepable;
}

bool probes__old(const struct probes *probes)
{
	return probes->old;
}

int probes__attach(struct probes *probes, pid_t pid, const struct hook *hook)
{
	if (probes__attached(probes, pid, hook->id))
		return -EEXIST;
	if (probes__everywhere(probes) && !hook->fixed) {
		log_debug("%s: a probe for PID %d alone", hook__name(hook->id), (int)pid);
		return probes->in->attach_own ? probes->in->attach_own(probes, pid, hook) : -EXDEV;
	}
	probes->at_place[hook->id] = place__of(hook);
	return probes->in->attach(probes, pid, hook);
}

int probes__attach_host(struct probes *probes, const char **way)
{
	return probes->in->attach_host ? probes->in->attach_host(probes, way) : -EOPNOTSUPP;
}

bool probes__attached(const struct probes *probes, pid_t pid, enum hook_id id)
{
	return probes->in->attached(probes, pid, id);
}

/* True if a process with this hook can share the programs: they are attached at the same place, or
 * at none. */
static bool fits_hook(const struct probes *probes, const struct hook *hook)
{
	struct place here = place__of(hook);

	if (!hook->found)
		return true;
	if (probes->in->attached(probes, 0, hook->id))
		return place__same(&here, &probes->at_place[hook->id]);
	/* Links for all processes and links for single ones cannot be told apart by attached(). */
	return !hook->fixed || !probes->in->attached(probes, PROBES_ONE, hook->id);
}

const struct hook *probes__misfit(const struct probes *probes, const struct hook *hooks)
{
	int i;

	for (i = 0; i < HOOK_NR; i++) {
		if (!fits_hook(probes, &hooks[i]))
			return &hooks[i];
	}
	return NULL;
}

bool probes__new_file(struct probes *probes, const struct call_file *file, bool scopes)
{
	const struct file_id id = { file->inode, file->dev_major, file->dev_minor };
	size_t i;

	if (!probes->group_id || probes__calls_each(probes, file))
		return true;
	for (i = 0; i < probes->n_files; i++) {
		if (probes->files[i].scopes == scopes && file_id__same(&probes->files[i].id, &id))
			return false;
	}
	if (probes->n_files == CALL_FILES_MAX)
		return false;
	probes->files[probes->n_files++] = (struct attached_file){ id, scopes };
	return true;
}

int probes__attach_calls(struct probes *probes, pid_t pid, enum call_probe which,
			 const struct call_file *file, const struct probe_site *sites, size_t n)
{
	if (!n)
		return 0;
	return probes->in->attach_calls(probes, pid, which, file, sites, n);
}

void probes__prepare_sleepable(struct probes *probes)
{
	if (probes->in->prepare_sleepable)
		probes->in->prepare_sleepable(probes);
}

int probes__go_sleepable(struct probes *probes, pid_t pid, const struct hook *hooks)
{
	/* The new links are made with this process's files, also those that serve all processes. */
	for (int i = 0; i < HOOK_NR && probes__everywhere(probes); i++) {
		const struct hook *hook = &hooks[i];

		if (hook->found && probes->in->attached(probes, 0, hook->id) &&
		    !(hook->fixed && fits_hook(probes, hook)))
			return -EOPNOTSUPP;
	}
	return probes->in->go_sleepable(probes, pid, hooks);
}

/* The bit of enum mt_off that switches the hook's work off; 0: none does. */
static uint32_t off_bit(enum hook_id id)
{
#define OFF(id, program, twin, record, off, name) [HOOK_##id] = off,
	static const uint32_t bits[HOOK_NR] = { MT_HOOKS(OFF) };
#undef OFF

	return bits[id];
}

bool probes__is_off(const struct probes *probes, enum hook_id id)
{
	return probes__detail(probes).off & off_bit(id);
}

struct cost_detail probes__detail(const struct probes *probes)
{
	return probes->vars.detail ? (struct cost_detail){ probes->vars.detail->off,
							   probes->vars.detail->sample_below }
				   : (struct cost_detail){ 0 };
}

const struct mt_timed *probes__timed(const struct probes *probes)
{
	return probes->vars.timed;
}

/* Makes the programs leave out what `off` says (bits of enum mt_off). Removes the hooks that only
 * serve that, and attaches those that are needed again. */
static void set_off(struct probes *probes, uint32_t off, pid_t pid, const struct hook *hooks)
{
	uint32_t old_off = probes->vars.detail->off;

	__atomic_store_n(&probes->vars.detail->off, off, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&probes->vars.detail->generation, 1, __ATOMIC_SEQ_CST);
	/* Keep the order of the hooks: nodes are made before they run, so that hook is attached
	 * first. */
	for (int i = 0; i < HOOK_NR; i++) {
		uint32_t bit = off_bit(i);

		if (!(old_off & bit) && off & bit && probes__attached(probes, pid, i))
			probes->in->detach_hook(probes, i);
		else if (old_off & bit && !(off & bit) && hooks[i].found &&
			 i != HOOK_MODULE_BOUND && /* is attached when a stack shows the need */
			 !probes__attached(probes, pid, i))
			probes__attach(probes, pid, &hooks[i]);
	}
}

void probes__forget_calls(struct probes *probes)
{
	if (probes->vars.detail)
		__atomic_fetch_add(&probes->vars.detail->generation, 1, __ATOMIC_SEQ_CST);
}

/* Applies the highest level of all processes, with modules if any process keeps them. */
void probes__want_level(struct probes *probes, uint32_t number, unsigned int level,
			bool keep_modules, pid_t pid, const struct hook *hooks)
{
	struct cost_detail detail;
	unsigned int highest = 0;
	bool keep = false;

	if (!probes->vars.detail)
		return;
	probes->level[number % MT_MEMBERS] = level;
	probes->keep_modules[number % MT_MEMBERS] = keep_modules;
	for (size_t i = 0; i < MT_MEMBERS; i++) {
		highest = probes->level[i] > highest ? probes->level[i] : highest;
		keep |= probes->keep_modules[i];
	}
	detail = cost_control__detail(highest);
	if (keep)
		detail.off &= ~(uint32_t)MT_OFF_MODULES;
	if (detail.off != probes->vars.detail->off)
		set_off(probes, detail.off, pid, hooks);
	__atomic_store_n(&probes->vars.detail->sample_below, detail.below, __ATOMIC_SEQ_CST);
}

void probes__set_asked(struct probes *probes, const struct mt_usdt_args *args, size_t n)
{
	if (n > MT_ASKED_SITES)
		n = MT_ASKED_SITES;
	memcpy(probes->vars.asked_args, args, n * sizeof(*args));
}

bool probes__has_sessions(const struct probes *probes)
{
	return probes->sessions;
}

void probes__sample_malloc(struct probes *probes, uint64_t every)
{
	__atomic_store_n(probes->vars.malloc_every, every, __ATOMIC_SEQ_CST);
}

void probes__add_malloc_code(struct probes *probes, uint64_t begin, uint64_t end)
{
	for (size_t i = 0; i < MT_MALLOC_RANGES; i++) {
		if (probes->vars.malloc_own[i][1])
			continue;
		__atomic_store_n(&probes->vars.malloc_own[i][0], begin, __ATOMIC_SEQ_CST);
		__atomic_store_n(&probes->vars.malloc_own[i][1], end, __ATOMIC_SEQ_CST);
		return;
	}
}

void probes__detach_malloc(struct probes *probes)
{
	probes->in->detach_malloc(probes);
}

void probes__copy_stacks(struct probes *probes, uint32_t most)
{
	if (probes->vars.native_most)
		__atomic_store_n(probes->vars.native_most, most, __ATOMIC_SEQ_CST);
}

void probes__copy_stacks_from(struct probes *probes, uint64_t bytes)
{
	if (probes->vars.native_from)
		__atomic_store_n(probes->vars.native_from, bytes, __ATOMIC_SEQ_CST);
}

void probes__copy_no_stacks_of(struct probes *probes, uint64_t begin, uint64_t end)
{
	if (!probes->vars.native_own || probes->group_id)
		return;
	/* While the end is 0, no program sees a begin and an end of different ranges. */
	__atomic_store_n(&probes->vars.native_own[1], 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&probes->vars.native_own[0], begin, __ATOMIC_SEQ_CST);
	__atomic_store_n(&probes->vars.native_own[1], end, __ATOMIC_SEQ_CST);
}

void probes__set_node_layout(struct probes *probes, uint32_t number,
			     const struct mt_node_layout *layout)
{
	struct mt_node_layout *l = probes->group_id
					   ? &proc_group__member(probes->group, number)->node
					   : probes->vars.node_layout;

	/* Write the places of the words before .extra, which makes programs read them. */
	__atomic_store_n(&l->extra, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->sequence, layout->sequence, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->object, layout->object, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->object_type, layout->object_type, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->object_vptr, layout->object_vptr, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->extra, layout->extra, __ATOMIC_SEQ_CST);
}

uint64_t probes__both_until(const struct probes *probes)
{
	return probes->both_until;
}

int probes__wake_fd(const struct probes *probes)
{
	return probes->wake;
}

int probes__consume(struct probes *probes, probes_fn fn, void *ctx)
{
	int ret;

	/* Do this before the drain, so that later stacks wake us again. */
	probes->in->forget_wake(probes);
	probes->fn = fn;
	probes->ctx = ctx;
	ret = bpf_ring__consume(probes->ring, take_record, probes);
	if (probes->in->consumed)
		probes->in->consumed(probes);
	return ret;
}

uint64_t probes__written(const struct probes *probes)
{
	return bpf_ring__written(probes->ring);
}

uint64_t probes__taken(const struct probes *probes)
{
	return bpf_ring__taken(probes->ring);
}

int probes__counters(const struct probes *probes, uint32_t number, uint64_t counters[MT_CNT_NR])
{
	return probes->in->counters(probes, number, counters);
}

struct probes_skipped probes__skipped(const struct probes *probes)
{
	struct probes_skipped ret = { 0 };

	if (probes->in->skipped)
		probes->in->skipped(probes, &ret);
	return ret;
}

uint64_t probes__ends(const struct probes *probes)
{
	return probes->ends;
}

uint64_t probes__notices(const struct probes *probes)
{
	return __atomic_load_n(probes->vars.notices, __ATOMIC_SEQ_CST);
}

size_t probes__take_absent(struct probes *probes, uint32_t number, uint64_t addrs[MT_ABSENT])
{
	size_t i, n_taken = 0;

	for (i = 0; probes->vars.absent && i < MT_ABSENT; i++) {
		uint64_t key = __atomic_load_n(&probes->vars.absent[i], __ATOMIC_SEQ_CST);

		if (!key || key >> 48 != number)
			continue;
		/* Clears the entry, unless a later walk has put another key there. */
		__atomic_compare_exchange_n(&probes->vars.absent[i], &key, 0, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		addrs[n_taken++] = key & ~(UINT64_C(0xffff) << 48);
	}
	return n_taken;
}

/* Reads the counters of all numbers, but only if a notice came since the last time. */
int probes__lost_ends(struct probes *probes, uint64_t *ret)
{
	uint64_t counters[MT_CNT_NR], sum = probes->lost_ends, notices = probes__notices(probes);
	uint32_t i, numbers = probes->group_id ? MT_MEMBERS : 1;
	int err;

	if (probes->ends_known && notices == probes->ends_notices) {
		*ret = probes->ends_sum;
		return 0;
	}
	for (i = 0; i < numbers; i++) {
		err = probes__counters(probes, i, counters);
		if (err)
			return err;
		sum += counters[MT_CNT_RING_LOST + MT_REC_CODE_GONE];
	}
	probes->ends_known = true;
	probes->ends_notices = notices;
	probes->ends_sum = *ret = sum;
	return 0;
}

void probes__reset_counters(struct probes *probes, uint32_t number)
{
	uint64_t counters[MT_CNT_NR];
	bool sent_stacks;

	if (probes__counters(probes, number, counters))
		return;
	sent_stacks = probes->records[number % MT_MEMBERS][MT_REC_STACK] > 0;
	memset(probes->records[number % MT_MEMBERS], 0, sizeof(probes->records[0]));
	probes->lost_ends += counters[MT_CNT_RING_LOST + MT_REC_CODE_GONE];
	probes->in->zero_counters(probes, number);
	/* The programs must send the stacks of the next process with this number, even if they are
	 * equal. */
	if (sent_stacks)
		probes__bump_epoch(probes);
}

void probes__bump_epoch(struct probes *probes)
{
	__atomic_fetch_add(probes->vars.code_epoch, 1, __ATOMIC_SEQ_CST);
	probes->bumps++;
}

void probes__forget_seen(struct probes *probes)
{
	/* Raise the epoch twice: stacks of the epoch between may have code objects whose marks are
	 * gone, and get no names. */
	__atomic_fetch_add(probes->vars.code_epoch, 1, __ATOMIC_SEQ_CST);
	memset(probes->vars.seen_code, 0, MT_SEEN_SLOTS);
	__atomic_fetch_add(probes->vars.code_epoch, 1, __ATOMIC_SEQ_CST);
	probes->lost_ends += PROBES_FORGOTTEN_ENDS;
	probes->ends_known = false;
	probes->forgotten++;
}

uint64_t probes__times_forgotten(const struct probes *probes)
{
	return probes->forgotten;
}

uint64_t probes__bumps(const struct probes *probes)
{
	return probes->bumps;
}

uint64_t probes__epoch(const struct probes *probes)
{
	return __atomic_load_n(probes->vars.code_epoch, __ATOMIC_SEQ_CST);
}

void probes__set_module_codes(struct probes *probes, uint32_t process_number, const uint64_t *codes,
			      size_t n)
{
	uint64_t *slots = probes->vars.module_code;
	size_t i;

	if (probes->group_id) /* each process of a group has its own */
		slots = (uint64_t *)proc_group__member(probes->group, process_number)->module_code;
	for (i = 0; i < MT_MAX_MODULE_CODES; i++)
		slots[i] = i < n ? codes[i] : 0;
	probes__bump_epoch(probes);
}

/* A key for an address of a process, as own_key() of the BPF programs makes it. */
static uint64_t own_key(uint32_t process_number, uint64_t addr)
{
	return addr | (uint64_t)process_number << 48;
}

int probes__add_root(struct probes *probes, uint32_t process_number, uint64_t self)
{
	return probes->in->add_root(probes, own_key(process_number, self));
}

/* Forgets the root modules of a process, whose calls the programs report. */
void probes__clear_roots(struct probes *probes, uint32_t process_number)
{
	probes->in->clear_roots(probes, process_number);
}

/* Sets a class in the programs' map, and in the array known_types, a cache of the map that programs
 * read first. */
int probes__set_module_type(struct probes *probes, uint32_t process_number, uint64_t type,
			    enum mt_module_type is)
{
	uint64_t key = own_key(process_number, type), *known = probes->vars.known_types;
	int err = probes->in->set_module_type(probes, key, is);

	if (!known)
		return err;
	known += MT_KNOWN_PLACE(key);
	if (!err && is && MT_KNOWN_KEY(key) == key)
		__atomic_store_n(known, MT_KNOWN_TYPE(key, is), __ATOMIC_RELAXED);
	else if (MT_KNOWN_KEY(*known) == key)
		__atomic_store_n(known, 0, __ATOMIC_RELAXED);
	return err;
}
