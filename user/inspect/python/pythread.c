/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The interpreter's threads: their list, the path to each thread's state, and their frames. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "inspect/arch.h"
#include "inspect/python/pyinternal.h"

#define MAX_INTERPS 64
#define MAX_THREADS 65536
#define MAX_VOTERS 256 /* threads that are searched for the place of their state */
#define LIST_TRIES 5   /* attempts, since the process changes the lists */
#define WALKS 50       /* attempts while the process runs; the second one nearly always succeeds */

#define BLOCK_KEYS 32
#define PAIR 16
#define GLIBC_KEYS (BLOCK_KEYS * BLOCK_KEYS)
#define MUSL_KEYS 128
/* For machines whose thread pointer is after struct pthread: */
#define GLIBC_PTHREAD_MIN (ARCH_GLIBC_BLOCKS + 8 * BLOCK_KEYS)
#define GLIBC_PTHREAD_MAX 8192 /* 1856 bytes in glibc 2.36 */
#define TLS_HEADER 16	       /* bytes between the thread pointer and the first block */
#define TLS_MODULES 8	       /* entries of the table that are looked at */
#define TLS_BLOCKS (1u << 20)  /* the blocks that follow the thread pointer end before */
#define ASK_THREADS 4	       /* threads whose pointer_distance() must agree */
#define TLS_WORDS 512	       /* words of a thread's storage that are searched for its state */
#define TLS_READ 8	       /* words in one read */

#define NR_KEYS (GLIBC_KEYS + MUSL_KEYS) /* indexes of musl's keys follow glibc's */

/* True if thread_id is the address of glibc's struct pthread, checked by its key blocks. */
static bool is_glibc(const struct python *py, uint64_t pthread)
{
	uint64_t block;

	return pthread && !(pthread & 7) &&
	       !proc__read_u64(py->proc, pthread + ARCH_GLIBC_BLOCKS, &block) &&
	       block == pthread + ARCH_GLIBC_BLOCK1;
}

struct threads {
	struct pythread *v;
	size_t n, cap;
};

static int add_thread(struct threads *list, const struct pythread *thread)
{
	if (list->n == MAX_THREADS)
		return -E2BIG;
	if (array__grow(&list->v, &list->cap, list->n + 1, sizeof(*list->v)))
		return -ENOMEM;
	list->v[list->n++] = *thread;
	return 0;
}

/* Reads a thread state of this interpreter; *next: address of the next one. -EAGAIN: it belongs to
 * another interpreter. */
static int read_thread(const struct python *py, uint64_t tstate, uint64_t interp,
		       struct pythread *ret, uint64_t *next)
{
	const struct pylayout *layout = &py->layout;
	uint64_t owner, native = 0;
	uint32_t tid = 0;
	int err;

	err = proc__read_u64(py->proc, tstate + layout->ts_interp, &owner)
		      ?: proc__read_u64(py->proc, tstate + layout->ts_next, next);
	if (err)
		return err;
	err = proc__read_u64(py->proc, tstate + layout->ts_thread_id, &ret->thread_id);
	if (!err && layout->ts_native_id != PYLAYOUT_NONE)
		err = proc__read_u64(py->proc, tstate + layout->ts_native_id, &native);
	if (err)
		return err;
	if (owner != interp)
		return -EAGAIN; /* freed and reused meanwhile */
	if (layout->ts_native_id == PYLAYOUT_NONE && is_glibc(py, ret->thread_id) &&
	    !proc__read_u32(py->proc, ret->thread_id + ARCH_GLIBC_TID, &tid))
		native = tid;
	ret->tstate = tstate;
	ret->tid = native <= INT32_MAX ? (uint32_t)native : 0;
	return 0;
}

/* Adds the threads of all interpreters to the list. 0, -E2BIG, -ENOMEM, -EAGAIN: the lists change,
 * or the error of a read. */
static int list_threads(const struct python *py, struct threads *list)
{
	const struct pylayout *layout = &py->layout;
	uint64_t interp, tstate, next;
	struct pythread thread;
	int err;

	err = proc__read_u64(py->proc, py->runtime + layout->rt_interp_head, &interp);
	for (size_t i = 0; !err && interp; i++) {
		if (i == MAX_INTERPS)
			return -E2BIG;
		err = proc__read_u64(py->proc, interp + layout->is_threads, &tstate);
		while (!err && tstate) {
			err = read_thread(py, tstate, interp, &thread, &next)
				      ?: add_thread(list, &thread);
			tstate = next;
		}
		err = err ?: proc__read_u64(py->proc, interp + layout->is_next, &interp);
	}
	return err;
}

int python__threads(const struct python *py, struct pythread **ret, size_t *n)
{
	struct threads list;
	int err = -EAGAIN;

	for (int i = 0; i < LIST_TRIES; i++) {
		list = (struct threads){ 0 };
		err = list_threads(py, &list);
		if (!err) {
			*ret = list.v;
			*n = list.n;
			return 0;
		}
		free(list.v);
		if (err == -ENOMEM || err == -ESRCH || err == -EPERM)
			break;
	}
	return err;
}

bool python__ended(const struct python *py)
{
	uint64_t interp;
	int err = proc__read_u64(py->proc, py->runtime + py->layout.rt_interp_head, &interp);

	/* Py_Finalize() empties the list of interpreters. */
	return err == -ESRCH || !proc__alive(py->proc) || (!err && !interp);
}

/*
 * Threads vote on the place of their thread state: each votes for every thread-specific key whose
 * value is its state. From 3.15 on the places are words of thread-local storage instead of keys.
 * key: votes by place; threads: number of voters.
 */
struct votes {
	uint32_t key[NR_KEYS];
	uint32_t threads;
};

/* Votes for the keys of a block of pairs {seq, value} whose value is tstate. */
static void vote_block(const struct python *py, uint64_t block, uint64_t tstate, uint32_t *keys)
{
	uint8_t pairs[BLOCK_KEYS * PAIR];

	if (proc__read(py->proc, block, pairs, sizeof(pairs)))
		return;
	for (size_t i = 0; i < BLOCK_KEYS; i++)
		keys[i] += proc__word(pairs + i * PAIR + 8) == tstate;
}

/* Votes of a thread of glibc: its first block of pairs is in struct pthread, the others elsewhere. */
static void vote_glibc(const struct python *py, const struct pythread *thread, struct votes *votes)
{
	uint64_t blocks[BLOCK_KEYS];

	vote_block(py, thread->thread_id + ARCH_GLIBC_BLOCK1, thread->tstate, votes->key);
	if (proc__read(py->proc, thread->thread_id + ARCH_GLIBC_BLOCKS, blocks, sizeof(blocks)))
		return;
	for (size_t i = 1; i < BLOCK_KEYS; i++) {
		if (blocks[i])
			vote_block(py, blocks[i], thread->tstate, votes->key + i * BLOCK_KEYS);
	}
}

/* True if the address is of musl's struct pthread, which begins with its own address. */
static bool is_musl(const struct python *py, uint64_t pthread)
{
	uint64_t self, tsd;

	return pthread && !proc__read_u64(py->proc, pthread, &self) && self == pthread &&
	       !proc__read_u64(py->proc, pthread + ARCH_MUSL_TSD, &tsd) && tsd;
}

/* Votes for each pthread key whose value is the thread state. */
static void vote_musl(const struct python *py, const struct pythread *thread, struct votes *votes)
{
	uint64_t tsd, values[MUSL_KEYS];

	if (proc__read_u64(py->proc, thread->thread_id + ARCH_MUSL_TSD, &tsd) ||
	    proc__read(py->proc, tsd, values, sizeof(values)))
		return;
	for (size_t i = 0; i < MUSL_KEYS; i++)
		votes->key[GLIBC_KEYS + i] += values[i] == thread->tstate;
}

/*
 * Whether tp can be glibc's thread pointer. dtv: the word at tp; if it is, the address of the
 * thread's table of TLS blocks, after the entry with its capacity. The table must have a block that
 * follows tp.
 */
static bool is_glibc_pointer(const struct python *py, uint64_t tp, uint64_t dtv)
{
	uint64_t table[2 + 2 * TLS_MODULES]; /* capacity, -, generation, -, {block, to free} ... */

	if (dtv & 7 || dtv < sizeof(table) ||
	    proc__read(py->proc, dtv - 16, table, sizeof(table)) || !table[0] ||
	    table[0] > UINT16_MAX || table[2] > UINT32_MAX)
		return false;
	for (size_t i = 0; i < TLS_MODULES - 1 && i < table[0]; i++) {
		/* From tp to the block; huge for a block before tp. */
		uint64_t distance = table[4 + 2 * i] - tp;

		if (distance >= TLS_HEADER && distance < TLS_BLOCKS)
			return true;
	}
	return false;
}

/* Bytes from glibc's struct pthread to the thread pointer after it; 0: not found. The size of the
 * structure differs between versions. */
static int64_t find_glibc_pointer(const struct python *py, uint64_t pthread)
{
	uint64_t dtv;

	for (int64_t at = GLIBC_PTHREAD_MIN; at < GLIBC_PTHREAD_MAX; at += TLS_HEADER) {
		if (proc__read_u64(py->proc, pthread + (uint64_t)at, &dtv))
			return 0;
		if (is_glibc_pointer(py, pthread + (uint64_t)at, dtv))
			return at;
	}
	return 0;
}

/* Bytes from each thread's struct pthread to its thread pointer. -1: not found, or the threads
 * disagree. */
static int64_t pointer_distance(const struct python *py, const struct pythread *thread, size_t n,
				bool glibc)
{
	int64_t distance = -1, one;
	size_t asked = 0;

	if (!ARCH_POINTER_AFTER_PTHREAD)
		return 0;
	if (!glibc)
		return ARCH_MUSL_PTHREAD;
	for (size_t i = 0; i < n && asked < ASK_THREADS; i++) {
		if (!is_glibc(py, thread[i].thread_id))
			continue;
		asked++;
		one = find_glibc_pointer(py, thread[i].thread_id);
		if (!one || (distance >= 0 && distance != one))
			return -1;
		distance = one;
	}
	return distance;
}

/* Offset of word i of thread-local storage from the thread pointer. The variables of the program,
 * and of libraries loaded with it, follow the thread pointer or precede it. */
static int64_t local_offset(size_t i)
{
	return ARCH_POINTER_AFTER_PTHREAD ? TLS_HEADER + 8 * (int64_t)i : -8 * ((int64_t)i + 1);
}

/* Votes of one thread from Python 3.15 on, where a thread-local variable has the thread state: for
 * each word of the thread's storage that has it. after: from pointer_distance(). Words beyond the
 * variables may be unmapped. */
static void vote_locals(const struct python *py, const struct pythread *thread, int64_t after,
			struct votes *votes)
{
	uint64_t words[TLS_READ], tp = thread->thread_id + (uint64_t)after;

	for (size_t i = 0; i < TLS_WORDS; i += TLS_READ) {
		int64_t first = local_offset(i);
		int64_t last = local_offset(i + TLS_READ - 1);
		int64_t low = first < last ? first : last;

		if (proc__read(py->proc, tp + (uint64_t)low, words, sizeof(words)))
			return;
		for (size_t k = 0; k < TLS_READ; k++)
			votes->key[i + k] += words[(local_offset(i + k) - low) / 8] ==
					     thread->tstate;
	}
}

/* Collects the votes of the n thread states. A thread with states of several interpreters is one
 * voter. Threads that ended or have not begun have no struct pthread and do not vote. */
static void collect_votes(const struct python *py, const struct pythread *threads, size_t n,
			  struct votes *votes)
{
	bool locals = py->layout.rt_tss_key == PYLAYOUT_NONE;

	for (size_t i = 0; i < n && i < MAX_VOTERS; i++) {
		bool glibc = is_glibc(py, threads[i].thread_id);
		int64_t after = locals ? pointer_distance(py, &threads[i], 1, glibc) : 0;
		size_t k = 0;

		if (!glibc && !is_musl(py, threads[i].thread_id))
			continue;
		if (locals) {
			if (after >= 0)
				vote_locals(py, &threads[i], after, votes);
		} else if (glibc)
			vote_glibc(py, &threads[i], votes);
		else
			vote_musl(py, &threads[i], votes);
		while (k < i && threads[k].thread_id != threads[i].thread_id)
			k++;
		votes->threads += k == i;
	}
}

/* Reads the thread-specific key from the runtime's state; UINT32_MAX: implausible. */
static uint32_t read_runtime_key(const struct python *py)
{
	uint32_t tss[2]; /* Py_tss_t: initialized flag, key */

	if (proc__read(py->proc, py->runtime + py->layout.rt_tss_key, tss, sizeof(tss)) ||
	    tss[0] != 1 || tss[1] >= GLIBC_KEYS)
		return UINT32_MAX;
	return tss[1];
}

/*
 * Selects the runtime's own key if any thread confirms it, because extension modules (pybind11)
 * keep the thread state under keys of their own. Otherwise the key with most votes. UINT32_MAX:
 * none.
 */
static uint32_t elect_key(const struct votes *votes, uint32_t key)
{
	uint32_t need = votes->threads > 1 ? 2 : 1, best = UINT32_MAX;

	if (key < GLIBC_KEYS && votes->key[key])
		return key;
	if (key < MUSL_KEYS && votes->key[GLIBC_KEYS + key])
		return GLIBC_KEYS + key;
	for (uint32_t i = 0; i < NR_KEYS; i++) {
		if (votes->key[i] >= need &&
		    (best == UINT32_MAX || votes->key[i] > votes->key[best]))
			best = i;
	}
	return best;
}

/* The place of a key's value, from the thread pointer. after: from pointer_distance(). */
static struct pyslot slot_of(uint32_t key, int64_t after)
{
	struct pyslot slot = { 0 };

	if (key < BLOCK_KEYS) {
		slot.first = ARCH_GLIBC_BLOCK1 + PAIR * (int64_t)key + 8;
	} else if (key < GLIBC_KEYS) {
		slot.kind = PYSLOT_INDIRECT;
		slot.first = ARCH_GLIBC_BLOCKS + 8 * (int64_t)(key / BLOCK_KEYS);
		slot.second = PAIR * (int64_t)(key % BLOCK_KEYS) + 8;
	} else {
		slot.kind = PYSLOT_INDIRECT;
		slot.first = ARCH_MUSL_TSD;
		slot.second = 8 * (int64_t)(key - GLIBC_KEYS);
	}
	slot.first -= after;
	return slot;
}

/* Finds the slot by votes for keys. 0, or -ENOENT with *why. */
static int find_key(const struct python *py, const struct pythread *thread, size_t n,
		    const struct votes *votes, struct pyslot *ret, const char **why)
{
	uint32_t key = elect_key(votes, read_runtime_key(py));
	int64_t after;

	if (key == UINT32_MAX)
		return python__refuse(
			why, -ENOENT,
			"no thread-specific key, of glibc's or musl's, holds the thread state of "
			"enough of the %u Python threads",
			votes->threads);
	after = pointer_distance(py, thread, n, key < GLIBC_KEYS);
	if (after < 0)
		return python__refuse(why, -ENOENT, "the threads' thread pointers were not found");
	*ret = slot_of(key, after);
	return 0;
}

/*
 * Finds the slot by votes for words of thread-local storage. The variable _Py_tss_gilstate always
 * has the thread's state, _Py_tss_tstate has it while the thread may run Python code and 0
 * otherwise. If all voters run Python code, both have the same votes: then the slot is the one that
 * is not 0.
 */
static int find_local(const struct votes *votes, struct pyslot *ret, const char **why)
{
	uint32_t most = 0, winners = 0;
	int64_t at[2] = { 0 };

	for (uint32_t i = 0; i < TLS_WORDS; i++)
		most = votes->key[i] > most ? votes->key[i] : most;
	for (uint32_t i = 0; most && i < TLS_WORDS; i++) {
		if (votes->key[i] == most && winners++ < 2)
			at[winners - 1] = local_offset(i);
	}
	if (most < (votes->threads > 1 ? 2 : 1) || winners > 2)
		return python__refuse(why, -ENOENT,
				      "%u thread-local variables hold the thread state of %u of "
				      "the %u Python threads; one or two should",
				      winners, most, votes->threads);
	*ret = (struct pyslot){ winners == 2 ? PYSLOT_EITHER : PYSLOT_DIRECT, at[0], at[1] };
	return 0;
}

int python__slot(const struct python *py, struct pyslot *ret, const char **why)
{
	struct pythread *threads = NULL;
	const char *unused;
	struct votes *votes;
	size_t n = 0;
	int err;

	if (!why)
		why = &unused;
	votes = calloc(1, sizeof(*votes));
	if (!votes)
		return python__refuse(why, -ENOMEM, "out of memory");
	err = python__threads(py, &threads, &n);
	if (err) {
		python__refuse(why, err, "the interpreter's threads cannot be listed: %s",
			       strerror(-err));
		goto out;
	}
	collect_votes(py, threads, n, votes);
	if (!votes->threads)
		err = python__refuse(why, -ENOENT, "no Python thread has begun to run");
	else if (py->layout.rt_tss_key == PYLAYOUT_NONE)
		err = find_local(votes, ret, why);
	else
		err = find_key(py, threads, n, votes, ret, why);
out:
	free(threads);
	free(votes);
	return err;
}

/* Address of the innermost frame; 0: the thread runs no Python code. */
static int innermost_frame(const struct python *py, uint64_t tstate, uint64_t *ret)
{
	const struct pylayout *layout = &py->layout;
	uint64_t frame;
	int err;

	err = proc__read_u64(py->proc, tstate + layout->ts_frame, &frame);
	if (!err && frame && layout->cframe_current != PYLAYOUT_NONE)
		err = proc__read_u64(py->proc, frame + layout->cframe_current, &frame);
	if (err)
		return err;
	*ret = frame;
	return 0;
}

/* Sets *ret to the address of the thread's copy of the bytecode, from _PyCodeArray {size,
 * copies[]}. */
static int find_code_copy(const struct python *py, const uint8_t *frame, uint64_t code,
			  uint64_t *ret)
{
	const struct pylayout *layout = &py->layout;
	uint64_t array, n;
	int32_t number;
	int err;

	memcpy(&number, frame + layout->fr_tlbc, sizeof(number));
	err = proc__read_u64(py->proc, code + layout->co_tlbc, &array)
		      ?: proc__read_u64(py->proc, array, &n);
	if (err)
		return err;
	if (number < 0 || (uint64_t)number >= n)
		return -EBADMSG;
	return proc__read_u64(py->proc, array + 8 + 8ull * number, ret);
}

/* Sets *ret to the byte offset of a frame's instruction in the bytecode, -1: not started. False: it
 * is outside this code object. */
static bool find_instruction(const struct python *py, const uint8_t *frame, uint64_t code,
			     int32_t *ret)
{
	const struct pylayout *layout = &py->layout;
	uint64_t first = code + layout->co_code_adaptive;
	int32_t lasti;
	int64_t offset;

	if (layout->lasti_scale) {
		memcpy(&lasti, frame + layout->fr_instr, sizeof(lasti));
		offset = lasti < 0 ? -1 : (int64_t)lasti * layout->lasti_scale;
	} else {
		if (layout->fr_tlbc != PYLAYOUT_NONE && find_code_copy(py, frame, code, &first))
			return false;
		offset = (int64_t)(proc__word(frame + layout->fr_instr) - first);
		if (offset == -2) /* 3.11, 3.12: one unit before the first instruction */
			offset = -1;
	}
	if (offset < -1 || offset > INT32_MAX)
		return false;
	*ret = (int32_t)offset;
	return true;
}

struct link { /* a frame in the linked list of a thread's frames */
	uint64_t prev;
	bool shim;
	bool outermost; /* can be the thread's first frame */
	struct pyframe f;
};

/*
 * Sets ret->outermost: whether a frame without a link can be the thread's first one. A frame also
 * loses its link when its generator yields or its function returns. The first one is a shim from
 * 3.12 on; in 3.11 a frame that belongs to the thread; before, a frame object in use that is not a
 * generator's. 0, or -errno.
 */
static int find_outermost(const struct python *py, const uint8_t *frame, struct link *ret)
{
	const struct pylayout *layout = &py->layout;
	const uint32_t generators = 0x20 | 0x80 | 0x100 | 0x200; /* CO_GENERATOR ... */
	uint32_t flags;
	int err;

	if (layout->fr_owner != PYLAYOUT_NONE) {
		ret->outermost = layout->shim_owner ? ret->shim : !frame[layout->fr_owner];
		return 0;
	}
	err = proc__read(py->proc, ret->f.code + layout->co_flags, &flags, sizeof(flags));
	ret->outermost = !err && proc__word(frame) && !(flags & generators);
	return err;
}

/* Reads a frame. 0, or -errno if it is not a complete frame (any more). */
static int read_frame(const struct python *py, uint64_t addr, uint64_t code_type, struct link *ret)
{
	const struct pylayout *layout = &py->layout;
	uint8_t frame[512];
	uint64_t type, local0;
	int err;

	if (layout->fr_local0 > sizeof(frame) || layout->fr_prev + 8u > layout->fr_local0 ||
	    layout->fr_code + 8u > layout->fr_local0 || layout->fr_instr + 8u > layout->fr_local0 ||
	    (layout->fr_owner != PYLAYOUT_NONE && layout->fr_owner >= layout->fr_local0) ||
	    (layout->fr_tlbc != PYLAYOUT_NONE && layout->fr_tlbc + 4u > layout->fr_local0))
		return -EBADMSG;
	err = proc__read(py->proc, addr, frame, layout->fr_local0);
	if (err)
		return err;
	ret->prev = proc__word(frame + layout->fr_prev);
	ret->shim = layout->shim_owner && frame[layout->fr_owner] >= layout->shim_owner;
	if (ret->shim)
		return find_outermost(py, frame, ret);
	ret->f.addr = addr;
	ret->f.code = proc__word(frame + layout->fr_code) & layout->tag_mask;
	err = proc__read_u64(py->proc, ret->f.code + layout->ob_type, &type);
	if (err)
		return err;
	if (type != code_type || !find_instruction(py, frame, ret->f.code, &ret->f.at))
		return -EBADMSG;
	/* a frame without locals may end at the end of its mapping */
	ret->f.local0 = proc__read_u64(py->proc, addr + layout->fr_local0, &local0)
				? 0
				: local0 & layout->tag_mask;
	return ret->prev ? 0 : find_outermost(py, frame, ret);
}

/* Walks the frames once; returns their number or -errno. *torn: the error that ended the walk
 * early; 0: the walk reached the thread's first frame, or a limit. */
static int walk_frames(const struct python *py, uint64_t tstate, struct pyframe *frames, size_t max,
		       int *torn)
{
	uint64_t code_type = python__symbol(py, "PyCode_Type"), frame;
	size_t n = 0, visits;
	struct link link;

	*torn = innermost_frame(py, tstate, &frame);
	if (*torn)
		return *torn;
	/* Some frames are shims of C code, at most one for each other frame. The limit is above
	 * what they can be, and ends circular lists. */
	for (visits = 0; frame && n < max && visits < 3 * max + 64; visits++) {
		*torn = read_frame(py, frame, code_type, &link);
		if (*torn)
			return n ? (int)n : *torn;
		if (!link.shim)
			frames[n++] = link.f;
		frame = link.prev;
		if (!frame && !link.outermost)
			*torn = -EBADMSG;
	}
	return (int)n;
}

int python__stack(const struct python *py, const struct pythread *thread, struct pyframe *frames,
		  size_t max)
{
	int n, torn;

	if (max > INT32_MAX / 4)
		max = INT32_MAX / 4;
	n = walk_frames(py, thread->tstate, frames, max, &torn);
	/* The walk ended early: frames may have returned while they were read. Walk again. */
	for (unsigned i = 1; i < WALKS && (torn == -EFAULT || torn == -EBADMSG); i++)
		n = walk_frames(py, thread->tstate, frames, max, &torn);
	return n;
}
