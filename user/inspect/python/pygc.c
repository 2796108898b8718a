/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A tracked object has PyGC_Head {next, prev} before it; the low bits of both are flags. The lists
 * are circular. Their heads are in the interpreter's state (3.9 on) or the runtime's (3.8):
 *
 *   struct { PyGC_Head head; int threshold, count; } generations[3];
 *   PyGC_Head *generation0;  // always &generations[0].head: the search looks for it
 *   struct { PyGC_Head head; ... } permanent_generation;
 *
 * Until 3.13, {PyObject *, int, int enabled, debug} come before the generations.
 *
 * Debian 13's Python 3.13 aligns PyGC_Head to 4 bytes instead of 8 (_PyObject_MIN_ALIGNMENT). So 4
 * bytes of padding may follow the generations.
 *
 * From 3.14.5 on the permanent generation follows the generations, and the pointer follows both,
 * after statistics. 3.14.0 to 3.14.4 collect in increments: {young, old[2], permanent} follow each
 * other as those four do, and no word points to them. An increment takes objects out of all lists
 * and puts the survivors into one of the old ones; both old lists change roles. Statistics (72
 * bytes) follow, then a flag that is set while an increment runs.
 */
#include "inspect/python/pygc.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "inspect/proc.h"
#include "inspect/process/memcache.h"
#include "inspect/python/pyinternal.h"

#define HEAD_SIZE 16
#define GENERATION 24
#define GENERATIONS (3 * GENERATION) /* bytes */
#define HEAD_ALIGN 4u
#define FOUR_LISTS (4 * GENERATION)
#define POINTER_MAX 512u /* bytes from the first list to the pointer; 200 in 3.14, 3.15 */
#define COLLECTING_AT (FOUR_LISTS + 72)
#define SEARCH_MAX (512u << 10) /* bytes searched; 3.13's interpreter state has about 100 KiB */
#define STEP 4096u		/* bytes searched with one read */
#define LOOKS 8			/* attempts to confirm one list head */
#define SEARCHES 8		/* attempts at least, since the collector may be running */
#define PAUSE 5000000		/* ns between two attempts */
#define FLAGS 3ull
#define MAX_OBJECTS (256u << 20)
#define MAX_REPAIRS 10000u
#define CLOCK_EVERY 16384u

struct link {
	uint64_t next, prev;
};

struct object {
	struct link link;
	uint64_t refs, type;
};

/* True if p can be the address of a PyGC_Head. */
static bool is_link(uint64_t p)
{
	return p && p % HEAD_ALIGN == 0 && p < 1ull << 56;
}

/* 0 if the neighbours of a list head point back to it: both, or at least one unless `both`.
 * Otherwise -ENOENT, or the error of a read. The program changes the lists, so each neighbour may
 * confirm the head in another attempt. If none does in the first attempt, this is hardly a head:
 * giving up keeps the search short, and callers search again. */
static int check_head(const struct proc *proc, uint64_t head, bool both)
{
	bool next_knows = false, prev_knows = false;
	uint64_t back;
	struct link link;
	int err;

	for (int i = 0; i < LOOKS && !(next_knows && prev_knows); i++) {
		err = proc__read(proc, head, &link, sizeof(link));
		if (err)
			return err;
		link.next &= ~FLAGS;
		link.prev &= ~FLAGS;
		if (!is_link(link.next) || !is_link(link.prev))
			return -ENOENT;
		err = proc__read_u64(proc, link.next + 8, &back);
		next_knows |= !err && (back & ~FLAGS) == head;
		if (err != -ESRCH && err != -EPERM)
			err = proc__read_u64(proc, link.prev, &back);
		prev_knows |= !err && (back & ~FLAGS) == head;
		if (err == -ESRCH || err == -EPERM)
			return err;
		if (!next_knows && !prev_knows)
			return -ENOENT;
	}
	return both && !(next_knows && prev_knows) ? -ENOENT : 0;
}

/* Sets *ret if three generations from `first` on and the permanent generation are lists. The
 * youngest list changes so often that one neighbour has to do. collecting: see struct pygc. 0,
 * -ENOENT or the error of a read. */
static int check_lists(const struct proc *proc, uint64_t first, uint64_t permanent,
		       uint64_t collecting, struct pygc *ret)
{
	struct pygc gc = { .collecting = collecting };
	int err = 0;

	for (size_t i = 0; !err && i < PYGC_LISTS; i++) {
		gc.head[i] = i < 3 ? first + i * GENERATION : permanent;
		err = check_head(proc, gc.head[i], i > 0);
	}
	if (!err)
		*ret = gc;
	return err;
}

/* If value, the word at addr, can be the pointer to the youngest generation, returns the address of
 * the permanent generation; otherwise 0. */
static uint64_t permanent_by_pointer(uint64_t addr, uint64_t value)
{
	uint64_t distance = addr - value;

	if (distance == GENERATIONS || distance == GENERATIONS + HEAD_ALIGN)
		return addr + 8;
	return distance >= FOUR_LISTS && distance <= POINTER_MAX && value % HEAD_ALIGN == 0
		       ? value + GENERATIONS
		       : 0;
}

/* True if the words at addr may be the links of four lists in a row. Both links of an empty list
 * lead to itself. */
static bool are_four_lists(uint64_t addr, const uint64_t *words)
{
	for (size_t i = 0; i < FOUR_LISTS / 8; i += GENERATION / 8) {
		uint64_t head = addr + 8 * i, next = words[i] & ~FLAGS,
			 prev = words[i + 1] & ~FLAGS;

		if (!is_link(next) || !is_link(prev) || (next == head) != (prev == head))
			return false;
	}
	return true;
}

/* Searches from base on. pointed: for a pointer to the youngest generation, which leads to the
 * lists; otherwise for the lists themselves, four in a row. 0, -ENOENT or the error of a read. */
static int search_lists(const struct proc *proc, uint64_t base, bool pointed, struct pygc *ret)
{
	uint64_t words[(STEP + FOUR_LISTS) / 8];
	int err;

	for (size_t at = 0; at < SEARCH_MAX; at += STEP) {
		err = proc__read(proc, base + at, words, pointed ? STEP : sizeof(words));
		if (err)
			return err == -EFAULT ? -ENOENT : err;
		for (size_t i = 0; i < STEP / 8; i++) {
			uint64_t addr = base + at + 8 * i,
				 permanent = permanent_by_pointer(addr, words[i]);

			if (pointed ? !permanent : !are_four_lists(addr, &words[i]))
				continue;
			err = pointed ? check_lists(proc, words[i], permanent, 0, ret)
				      : check_lists(proc, addr, addr + GENERATIONS,
						    addr + COLLECTING_AT, ret);
			if (err != -ENOENT && err != -EFAULT)
				return err;
		}
	}
	return -ENOENT;
}

int pygc__search(const struct proc *proc, uint64_t base, bool increments, struct pygc *ret)
{
	int err = search_lists(proc, base, /*pointed=*/true, ret);

	return err == -ENOENT && increments ? search_lists(proc, base, /*pointed=*/false, ret)
					    : err;
}

int pygc__find(const struct python *py, uint64_t within_ns, struct pygc *ret)
{
	static const struct timespec pause = { .tv_nsec = PAUSE };
	const struct pylayout *layout = python__layout(py);
	const struct proc *proc = python__proc(py);
	uint64_t until = clock__monotonic() + within_ns;
	uint64_t base = py->runtime;
	int err = 0;

	if (layout->minor > 8)
		err = proc__read_u64(proc, py->runtime + layout->rt_interp_main, &base);
	if (err)
		return err;
	for (int i = 0; i < SEARCHES || clock__monotonic() < until; i++) {
		if (i)
			nanosleep(&pause, NULL);
		err = is_link(base) ? pygc__search(proc, base, layout->minor >= 14, ret) : -ENOENT;
		if (err != -ENOENT)
			break;
	}
	/* {int enabled, debug} and padding up to a multiple of 8 precede the generations. From 3.14
	 * on other fields may be there. */
	if (!err && layout->minor < 14)
		ret->enabled = ret->head[0] - (ret->head[0] % 8 ? 8 : 12);
	return err == -ENOENT && python__ended(py) ? -ESRCH : err;
}

struct walk {
	struct memcache *cache;
	int (*fn)(uint64_t obj, uint64_t type, void *ctx);
	void *ctx;
	struct pygc_stats *stats;
	uint64_t deadline, since_clock;
};

/* Passes an object to fn, within the limits of number and time. at: address of its PyGC_Head. */
static int report_object(struct walk *walk, uint64_t at, const struct object *object)
{
	if (++walk->stats->objects > MAX_OBJECTS)
		return -E2BIG;
	if (++walk->since_clock >= CLOCK_EVERY) {
		walk->since_clock = 0;
		if (clock__monotonic() > walk->deadline)
			return -ETIME;
	}
	return walk->fn(at + HEAD_SIZE, object->type, walk->ctx);
}

static bool is_fatal(int err)
{
	return err == -ESRCH || err == -EPERM;
}

/* Reads the link of `from` and its neighbour *to again, since the cached link is outdated. -EAGAIN:
 * `from` is no longer in this list. */
static int repair_link(struct walk *walk, uint64_t from, uint64_t *to, struct object *object,
		       bool back)
{
	struct link link;
	int err;

	for (int i = 0; i < 3 && walk->stats->repairs < MAX_REPAIRS; i++) {
		walk->stats->repairs++;
		err = memcache__read_now(walk->cache, from, &link, sizeof(link));
		if (err)
			return is_fatal(err) ? err : -EAGAIN;
		*to = (back ? link.prev : link.next) & ~FLAGS;
		if (!is_link(*to))
			return -EAGAIN;
		err = memcache__read_now(walk->cache, *to, object, sizeof(*object));
		if (is_fatal(err))
			return err;
		if (!err && ((back ? object->link.next : object->link.prev) & ~FLAGS) == from)
			return 0;
	}
	return -EAGAIN;
}

/* Walks a list from its head in one direction, up to `stop` (0: to its end); *last is the last
 * object reached. -EAGAIN: the walk got lost, since links changed. Cached links are from different
 * moments and may form a circle. So the walk must not return to mark, which moves after 64, 128,
 * 256 ... steps. */
static int walk_list(struct walk *walk, uint64_t head, bool back, uint64_t stop, uint64_t *last)
{
	uint64_t from = head, to, mark = 0, steps = 0, mark_after = 64;
	struct object object;
	struct link link;
	int err;

	err = memcache__read_now(walk->cache, head, &link, sizeof(link));
	if (err)
		return is_fatal(err) ? err : -EAGAIN;
	to = (back ? link.prev : link.next) & ~FLAGS;
	for (;;) { /* from: where the walk is; to: the next object, which is read in this turn */
		*last = from;
		if (to == head)
			return 0;
		if (is_link(to)) {
			err = memcache__read(walk->cache, to, &object, sizeof(object));
			if (is_fatal(err))
				return err;
		}
		if (!is_link(to) || err ||
		    ((back ? object.link.next : object.link.prev) & ~FLAGS) != from) {
			err = repair_link(walk, from, &to, &object, back);
			if (err)
				return err;
			if (to == head)
				return 0;
		}
		if (to == stop)
			return 0;
		if (to == mark)
			return -EAGAIN;
		if (++steps == mark_after) {
			mark = to;
			steps = 0;
			mark_after *= 2;
		}
		err = report_object(walk, to, &object);
		if (err)
			return err;
		from = to;
		to = (back ? object.link.prev : object.link.next) & ~FLAGS;
	}
}

/* Sets stats->torn if an increment runs: the objects that it has taken out are in no list. When it
 * ends they are in an old one, which is walked later, so checking before each list is enough. */
static int note_increment(struct walk *walk, const struct pygc *gc)
{
	uint32_t running = 0;
	int err = 0;

	if (gc->collecting)
		err = memcache__read_now(walk->cache, gc->collecting, &running, sizeof(running));
	if (is_fatal(err))
		return err;
	walk->stats->torn |= err || running;
	return 0;
}

int pygc__walk(const struct pygc *gc, struct memcache *cache, uint64_t deadline,
	       int (*fn)(uint64_t obj, uint64_t type, void *ctx), void *ctx,
	       struct pygc_stats *stats)
{
	/* Objects move from younger to older lists, so this order misses none. Increments move them
	 * between the old lists in either direction. */
	static const uint8_t order[] = { 0, 1, 2, 3 }, increments[] = { 0, 1, 2, 1, 3 };
	struct walk walk = {
		.cache = cache, .fn = fn, .ctx = ctx, .stats = stats, .deadline = deadline
	};
	size_t n = gc->collecting ? sizeof(increments) : sizeof(order);
	uint64_t last, end;
	int err;

	memset(stats, 0, sizeof(*stats));
	for (size_t i = 0; i < n; i++) {
		uint64_t head = gc->head[gc->collecting ? increments[i] : order[i]];

		err = note_increment(&walk, gc);
		if (!err)
			err = walk_list(&walk, head, /*back=*/false, 0, &last);
		if (err == -EAGAIN)
			err = walk_list(&walk, head, /*back=*/true, last, &end);
		if (err && err != -EAGAIN)
			return err;
		/* Without -EAGAIN the backward walk reached the place where the forward walk got
		 * lost, so no object is missing. */
		stats->torn |= err == -EAGAIN;
	}
	return 0;
}
