/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/phases.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/map64.h"
#include "capture/decode/decoder.h"
#include "capture/decode/queue.h"
#include "capture/decode/probed_scopes.h"
#include "capture/target.h"
#include "inspect/proc.h"
#include "record/dict.h"
#include "record/stream.h"

/* ---- one area of shared memory ---- */

#define PAGE_MAGIC "MTPHASE"
#define PAGE_VERSION 1
#define PAGE_ROOM_MIN 64
#define PAGE_ROOM_MAX (1u << 16)
#define RECORD sizeof(struct phase_record)
/* The program may be writing that many records at a time, which are not read then. */
#define MARGIN 16
#define CHUNK 32	   /* records of one read */
#define GAPS 4		   /* gaps that one call passes */
#define LATE 1000000000ULL /* ns after which a record that was begun is given up */

struct page_head {
	char magic[8];
	uint32_t version, record_size, room, pid;
	char unused[104];
};
_Static_assert(sizeof(struct page_head) == RECORD, "the head has the size of a record");

static bool is_whole(const struct phase_page *page, const struct phase_record *r, uint64_t slot)
{
	return r->number && r->number == r->again && r->number % page->n == slot;
}

/* Reads records of consecutive slots. Those that change meanwhile get number 0. False: the memory
 * is not readable. */
static bool read_slots(const struct phase_page *page, uint64_t slot, struct phase_record *ret,
		       size_t n)
{
	struct phase_record again[CHUNK];
	uint64_t at = (1 + slot) * RECORD;

	if (io__pread(page->fd, ret, n * RECORD, at) != (ssize_t)(n * RECORD) ||
	    io__pread(page->fd, again, n * RECORD, at) != (ssize_t)(n * RECORD))
		return false;
	for (size_t i = 0; i < n; i++)
		if (again[i].number != ret[i].number)
			ret[i].number = 0;
	return true;
}

static size_t chunk_at(const struct phase_page *page, uint64_t slot)
{
	return page->n - slot < CHUNK ? page->n - slot : CHUNK;
}

/* Sets *ret to the number of the oldest record that may be read, less 1. False: the memory is not
 * readable. */
static bool find_oldest(const struct phase_page *page, uint64_t *ret)
{
	struct phase_record chunk[CHUNK];
	uint64_t newest = 0;

	for (uint64_t slot = 0; slot < page->n; slot += chunk_at(page, slot)) {
		size_t n = chunk_at(page, slot);

		if (!read_slots(page, slot, chunk, n))
			return false;
		for (size_t i = 0; i < n; i++)
			if (is_whole(page, &chunk[i], slot + i) && chunk[i].number > newest)
				newest = chunk[i].number;
	}
	*ret = newest > page->n - MARGIN ? newest - (page->n - MARGIN) : 0;
	return true;
}

int phase_page__open(struct phase_page *page, int fd)
{
	struct page_head head;

	*page = (struct phase_page){ .fd = fd };
	if (io__pread(fd, &head, sizeof(head), 0) != sizeof(head) ||
	    memcmp(head.magic, PAGE_MAGIC, sizeof(head.magic)) != 0 ||
	    head.version != PAGE_VERSION || head.record_size != RECORD ||
	    head.room < PAGE_ROOM_MIN || head.room > PAGE_ROOM_MAX)
		goto bad;
	page->n = head.room;
	page->pid = head.pid;
	if (find_oldest(page, &page->next))
		return 0;
bad:
	close(fd);
	page->fd = -1;
	return -EINVAL;
}

/* Goes on after records that were overwritten, or that never came. */
static void skip_to(struct phase_page *page, uint64_t next)
{
	page->lost += next - page->next;
	if (page->lost > STREAM_MOST)
		page->lost = STREAM_MOST;
	page->next = next;
	page->stuck = 0;
}

/* Handles a record that is not the next one. after: those that follow it in the memory. True: go
 * on reading; false: the next record is not there yet. */
static bool pass_gap(struct phase_page *page, uint64_t now, const struct phase_record *r,
		     size_t after)
{
	uint64_t slot = (page->next + 1) % page->n, oldest;

	/* A later record is in this place: the program was a round ahead of us. */
	if (is_whole(page, r, slot) && r->number > page->next + 1) {
		if (!find_oldest(page, &oldest) || oldest <= page->next)
			return false;
		skip_to(page, oldest);
		return true;
	}
	/* The next one lacks, although a later one is there: a thread is writing it, or never will.
	 */
	for (size_t i = 1; i <= after; i++) {
		if (!is_whole(page, &r[i], slot + i) || r[i].number != page->next + 1 + i)
			continue;
		page->stuck = page->stuck ?: now;
		if (now - page->stuck < LATE)
			return false;
		skip_to(page, page->next + i); /* its thread was ended while it wrote */
		return true;
	}
	return false;
}

int phase_page__read(struct phase_page *page, uint64_t now, struct phase_record *ret, int most)
{
	struct phase_record chunk[CHUNK];
	int n = 0, gaps = 0;

	/* A program that writes anything must not keep us here: each look takes a record, or is one
	 * of a few at gaps. */
	while (n < most && gaps < GAPS) {
		uint64_t slot = (page->next + 1) % page->n;
		size_t there = chunk_at(page, slot), i;

		if (!read_slots(page, slot, chunk, there))
			return -EINVAL;
		for (i = 0; i < there && n < most; i++) {
			if (!is_whole(page, &chunk[i], slot + i) ||
			    chunk[i].number != page->next + 1)
				break;
			ret[n++] = chunk[i];
			page->next++;
			page->stuck = 0;
		}
		gaps += i < there; /* the next record is late, or was overwritten */
		if (i < there && n < most && !pass_gap(page, now, &chunk[i], there - i - 1))
			break;
	}
	return n;
}

/* ---- the areas of a process ---- */

#define PAGES 4 /* areas of a process: the Python module's, and those of C libraries */
#define FIRST_FD 1000
#define PENDING_MAX (1u << 15)
#define THREADS_EVERY 100000000ULL /* ns between two looks at the namespace's thread IDs */
#define LOOK_EVERY 100000000ULL	   /* ns between two looks, while there is something to look at */
#define CURSORS 64

struct pending {
	struct phase_record r;
	uint64_t scope;	 /* number of the scope's first record */
	uint64_t around; /* number of the scope around one that begins; 0: none */
	uint64_t time;	 /* kernel's clock, ns */
	uint32_t tid;	 /* as we see it; 0: not known */
	uint32_t order;
	uint32_t same; /* index of the next one of the same thread; UINT32_MAX: none */
	uint8_t page;
	bool done;
	bool recorded; /* the thread has a record in the queue */
	size_t after;  /* place in the queue after which it comes */
};

struct phases {
	struct decoder *decoder;
	struct phase_page pages[PAGES];
	uint64_t inodes[PAGES];
	size_t n_pages;
	int first_fd;
	uint32_t pid;	     /* of the process, as it sees itself; 0: not known yet */
	int64_t clock_ahead; /* its CLOCK_MONOTONIC minus the kernel's, ns */
	bool same_pids;	     /* thread IDs are the same for it and for us */
	struct map64 *tids;  /* thread ID as it sees it -> as we see it */
	uint64_t tids_read;  /* when tids was read, ns */
	struct pending *pending;
	uint32_t n_pending;
	size_t cap_pending;
	uint32_t first;	    /* those before are done */
	uint64_t next_look; /* when to look for areas again */
	uint64_t drained;   /* time of phases__before_drain(), kernel's clock, ns */
	uint64_t decoded;   /* time of the last record of the ring */
	uint64_t until;	    /* time of phases__stop(); UINT64_MAX: not yet */
	uint64_t records, bad;
	bool begun; /* the scopes that are open at the start were emitted */
	bool warned;
};

/* Last number of the line "NSpid:" in /proc/PID/status; *alone: it is the only one. 0: none. */
static uint32_t inner_pid(const char *status, bool *alone)
{
	const char *line = strstr(status, "\nNSpid:");
	unsigned long pid = 0;
	char *end;

	*alone = true;
	if (!line)
		return 0;
	line += strlen("\nNSpid:");
	for (int i = 0;; i++, line = end) {
		unsigned long next = strtoul(line, &end, 10);

		if (end == line || strchr(line, '\n') < end)
			return (uint32_t)pid;
		*alone = !i;
		pid = next;
	}
}

/* Reads how the process sees itself: its ID and its clock. Also chooses p->first_fd below its limit
 * of open files. */
static void read_identity(struct phases *p)
{
	const struct proc *proc = p->decoder->target->proc;
	char *text, *limit;
	size_t len;
	unsigned long most;

	if (proc__text(proc, "status", 64 << 10, &text, &len))
		return;
	p->pid = inner_pid(text, &p->same_pids);
	free(text);
	if (!p->decoder->opts->inside &&
	    !proc__text(proc, "timens_offsets", /*max=*/4096, &text, &len)) {
		p->clock_ahead = clock__parse_offset(text);
		free(text);
	}
	if (proc__text(proc, "limits", 64 << 10, &text, &len))
		return;
	limit = strstr(text, "Max open files");
	if (limit && sscanf(limit, "Max open files %lu", &most) == 1 && most <= FIRST_FD)
		p->first_fd = (int)(most / 2);
	free(text);
}

struct phases *phases__new(struct decoder *decoder)
{
	struct phases *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->decoder = decoder;
	p->first_fd = FIRST_FD;
	p->until = UINT64_MAX;
	p->tids = map64__new();
	if (p->tids)
		return p;
	phases__free(p);
	return NULL;
}

void phases__free(struct phases *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_pages; i++)
		if (p->pages[i].fd >= 0)
			close(p->pages[i].fd);
	map64__free(p->tids);
	free(p->pending);
	free(p);
}

static bool is_open(const struct phases *p, uint64_t inode)
{
	for (size_t i = 0; i < p->n_pages; i++)
		if (p->inodes[i] == inode)
			return true;
	return false;
}

/* Opens the area in a descriptor, unless it is known. True: there is something in the descriptor. */
static bool open_page(struct phases *p, int number)
{
	const struct proc *proc = p->decoder->target->proc;
	int fd = proc__open_memory(proc, number);
	struct phase_page page;
	struct stat st;

	if (fd < 0)
		return fd != -ENOENT;
	if (fstat(fd, &st) || is_open(p, st.st_ino)) {
		close(fd);
		return true;
	}
	if (!p->pid)
		read_identity(p);
	if (phase_page__open(&page, fd))
		return true;
	/* A forked process has its parent's area until it makes one. */
	if (p->pid && page.pid != p->pid) {
		close(page.fd);
		return true;
	}
	log_debug("PID %d: descriptor %d has its phases", (int)proc__pid(proc), number);
	p->inodes[p->n_pages] = st.st_ino;
	p->pages[p->n_pages++] = page;
	return true;
}

/* Opens the areas that the process has made, which have the first free descriptors from first_fd
 * on. While it has none, each drain looks, since that is one call that fails; later not often. */
static void open_pages(struct phases *p)
{
	int i = 0;

	if (p->drained < p->next_look)
		return;
	while (i < PAGES && p->n_pages < PAGES && open_page(p, p->first_fd + i))
		i++;
	if (i)
		p->next_look = p->drained + LOOK_EVERY;
}

/* ---- records ---- */

/* Reads which thread IDs the process's own namespace has for its threads. Returns 0 or -ENOMEM. */
static int read_tids(struct phases *p)
{
	char path[64], text[4096];
	pid_t pid = proc__pid(p->decoder->target->proc);
	struct dirent *entry;
	int err = 0;
	DIR *dir;

	p->tids_read = p->drained;
	map64__clear(p->tids);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && !err && (entry = readdir(dir))) {
		uint32_t inner;
		bool alone;

		snprintf(path, sizeof(path), "task/%.20s/status", entry->d_name);
		if (*entry->d_name == '.' || io__text_of_process(pid, path, text, sizeof(text)) < 0)
			continue;
		inner = inner_pid(text, &alone);
		if (inner)
			err = map64__set(p->tids, inner, strtoul(entry->d_name, NULL, 10));
	}
	if (dir)
		closedir(dir);
	return err;
}

/* Sets *ret to the thread ID as we see it; 0: not known. Returns 0 or -ENOMEM. */
static int find_tid(struct phases *p, uint32_t tid, uint32_t *ret)
{
	uint64_t known = 0;
	int err;

	if (p->same_pids) {
		*ret = tid;
		return 0;
	}
	if (!map64__get(p->tids, tid, &known) && p->drained - p->tids_read >= THREADS_EVERY) {
		err = read_tids(p);
		if (err)
			return err;
		map64__get(p->tids, tid, &known);
	}
	*ret = (uint32_t)known;
	return 0;
}

/* Adds records of an area to those that wait for their place. Returns 0 or -ENOMEM. */
static int add_records(struct phases *p, size_t page, const struct phase_record *r, int n)
{
	int err = array__grow(&p->pending, &p->cap_pending, (size_t)p->n_pending + n,
			      sizeof(*p->pending));

	for (int i = 0; i < n && !err; i++) {
		struct pending *to = &p->pending[p->n_pending];
		bool begins = r[i].what == SCOPE_BEGIN;

		if ((!begins && !r[i].other) || r[i].what < SCOPE_BEGIN ||
		    r[i].what > SCOPE_RESUME) {
			p->bad++;
			continue;
		}
		*to = (struct pending){ .r = r[i],
					.scope = begins ? r[i].number : r[i].other,
					.page = (uint8_t)page,
					.order = p->n_pending,
					.time = r[i].time - (uint64_t)p->clock_ahead };
		if (begins)
			to->around = r[i].other;
		if (to->time > p->until)
			continue;
		if (to->time > p->drained + LATE || (p->begun && to->time < p->decoder->start)) {
			p->bad++; /* would wait for its time, or comes too late */
			continue;
		}
		err = find_tid(p, r[i].tid, &to->tid);
		p->records++;
		p->n_pending++;
	}
	return err;
}

/* Reads an area. Returns 0 or -ENOMEM. */
static int read_page(struct phases *p, size_t i)
{
	struct phase_page *page = &p->pages[i];
	struct phase_record r[CHUNK];
	uint32_t all = 0;
	int n;

	while (page->fd >= 0 && all < page->n && p->n_pending < PENDING_MAX) {
		n = phase_page__read(page, p->drained, r, CHUNK);
		if (n < 0) {
			log_debug("PID %d: its phases are no longer readable",
				  (int)proc__pid(p->decoder->target->proc));
			close(page->fd);
			page->fd = -1;
		}
		if (n <= 0)
			return 0;
		all += n;
		if (add_records(p, i, r, n))
			return -ENOMEM;
	}
	return 0;
}

static uint64_t count_lost(const struct phases *p)
{
	uint64_t lost = 0;

	for (size_t i = 0; i < p->n_pages; i++)
		lost += p->pages[i].lost;
	return lost;
}

static int by_time(const void *x, const void *y)
{
	const struct pending *a = x, *b = y;

	if (a->time != b->time)
		return a->time < b->time ? -1 : 1;
	return a->order < b->order ? -1 : a->order > b->order;
}

struct cursor {
	uint32_t tid;
	uint32_t first; /* index of the thread's first pending record */
	uint32_t next;	/* index of its next one; UINT32_MAX: none */
	uint32_t last;	/* index of its last one */
	size_t end;	/* where the thread's last record in the queue ends */
};

/* Links the pending records of each of the first CURSORS threads. Returns their number. */
static size_t link_threads(struct phases *p, struct cursor cursors[CURSORS])
{
	size_t n = 0, c;

	for (uint32_t i = 0; i < p->n_pending; i++) {
		struct pending *r = &p->pending[i];

		r->after = 0;
		r->order = i;
		r->same = UINT32_MAX;
		for (c = 0; c < n && cursors[c].tid != r->tid; c++)
			;
		if (c == CURSORS || !r->tid)
			continue;
		if (c == n)
			cursors[n++] = (struct cursor){ .tid = r->tid, .first = i, .next = i };
		else
			p->pending[cursors[c].last].same = i;
		cursors[c].last = i;
	}
	return n;
}

/*
 * Finds where in the queue each pending record may come at the earliest: after the records of its
 * own thread from before it. Records of different threads may be out of order by a little, but the
 * memory at a scope's begin has all that its thread did before.
 */
static void find_places(struct phases *p, const struct queue *queue, size_t end)
{
	struct cursor cursors[CURSORS];
	const struct mt_hdr *header;
	size_t n = link_threads(p, cursors), pos = 0, len, c;

	/* One pass: each thread's cursor goes through its pending records, in order of time. Those
	 * from before a record come after the one before it. */
	while ((header = queue__at(queue, &pos, end, &len))) {
		for (c = 0; c < n && cursors[c].tid != header->tid; c++)
			;
		if (c == n)
			continue;
		while (cursors[c].next != UINT32_MAX &&
		       p->pending[cursors[c].next].time < header->time) {
			p->pending[cursors[c].next].after = cursors[c].end;
			cursors[c].next = p->pending[cursors[c].next].same;
		}
		cursors[c].end = pos;
	}
	/* The others come after their thread's last record. */
	for (c = 0; c < n; c++)
		for (uint32_t i = cursors[c].next; i != UINT32_MAX; i = p->pending[i].same)
			p->pending[i].after = cursors[c].end;
	for (c = 0; c < n; c++)
		for (uint32_t i = cursors[c].first; i != UINT32_MAX; i = p->pending[i].same)
			p->pending[i].recorded |= cursors[c].end > 0;
}

void phases__before_drain(struct phases *p)
{
	p->drained = decoder__clock(p->decoder);
}

int phases__read(struct phases *p, const struct queue *queue, size_t end)
{
	uint64_t lost;
	int err = 0;

	open_pages(p);
	for (size_t i = 0; i < p->n_pages && !err; i++)
		err = read_page(p, i);
	lost = count_lost(p);
	if (lost && !p->warned) {
		p->warned = true;
		log_warn("PID %d: %" PRIu64 " records of its phases were overwritten before "
			 "memtrace-bpf read them: it begins and ends them too fast",
			 (int)proc__pid(p->decoder->target->proc), lost);
	}
	if (err || !p->n_pending)
		return err;
	qsort(p->pending, p->n_pending, sizeof(*p->pending), by_time);
	p->first = 0;
	find_places(p, queue, end);
	return 0;
}

/* ---- events ---- */

/* The scope's number in events: areas count by themselves. */
static uint64_t event_number(const struct pending *r, uint64_t number)
{
	return number ? (uint64_t)(r->page + 1) << 56 | (number & ((UINT64_C(1) << 56) - 1)) : 0;
}

/* True if the process has or had the thread. */
static bool is_thread(const struct decoder *decoder, const struct pending *r)
{
	uint64_t unused;

	return r->tid && (r->recorded || map64__get(decoder->threads, r->tid, &unused) ||
			  !proc__thread_started(decoder->target->proc, (pid_t)r->tid, &unused));
}

/* Emits the event of a scope that begins or ends. 0, -ENOMEM or a sink's error. */
static int emit(struct phases *p, const struct pending *r, uint8_t flags)
{
	char name[PHASE_NAME + 1];
	bool known = is_thread(p->decoder, r);
	const struct thread *thread = known ? decoder__thread(p->decoder, r->tid) : NULL;
	struct event e = { .kind = EVENT_SCOPE,
			   .how = SCOPE_PHASE,
			   .flags = flags,
			   .thread = thread ? thread->number : 0,
			   .time = decoder__since(p->decoder, r->time),
			   .addr = event_number(r, r->scope),
			   .size = event_number(r, r->around) };

	if (known && !thread)
		return -ENOMEM;
	snprintf(name, sizeof(name), "%.*s", PHASE_NAME, r->r.name);
	e.name = probed_scopes__name(p->decoder->probed, name);
	return e.name == UINT32_MAX ? -ENOMEM : decoder__emit(p->decoder, &e);
}

/* True if a later record is about the scope that `begin` began. */
static bool is_same(const struct pending *begin, const struct pending *r)
{
	return begin->page == r->page && begin->scope == r->scope;
}

/* Emits the scopes that are open at the start, from the records that are older. Returns 0, -ENOMEM
 * or the sink's error. */
static int emit_open_at_start(struct phases *p)
{
	uint32_t old = 0, i, k;
	bool suspended;
	int err = 0;

	while (old < p->n_pending && p->pending[old].time < p->decoder->start)
		p->pending[old++].done = true;
	for (i = 0; i < old && !err; i++) {
		if (p->pending[i].r.what != SCOPE_BEGIN)
			continue;
		suspended = false;
		for (k = i + 1; k < old; k++) {
			if (!is_same(&p->pending[i], &p->pending[k]))
				continue;
			suspended = p->pending[k].r.what == SCOPE_SUSPEND;
			if (p->pending[k].r.what == SCOPE_END)
				break;
		}
		if (k < old)
			continue;
		err = emit(p, &p->pending[i], SCOPE_BEGIN | SCOPE_EARLIER);
		if (!err && suspended)
			err = emit(p, &p->pending[i], SCOPE_SUSPEND);
	}
	p->first = old;
	return err;
}

/* Emits the next pending records from before `time` whose place is at pos of the queue, or before
 * it. Returns as emit(). */
static int emit_until(struct phases *p, uint64_t time, size_t pos)
{
	int err = 0;

	if (p->first < p->n_pending && p->pending[p->first].time < p->decoder->start)
		err = emit_open_at_start(p);
	while (p->first < p->n_pending && p->pending[p->first].done)
		p->first++;
	for (uint32_t i = p->first; i < p->n_pending && !err && p->pending[i].time < time; i++) {
		struct pending *r = &p->pending[i];

		if (r->done || r->after > pos)
			continue;
		r->done = true;
		err = emit(p, r, (uint8_t)r->r.what);
	}
	return err;
}

int phases__before_record(struct phases *p, size_t pos, const struct mt_hdr *record)
{
	p->decoded = record->time;
	return p->n_pending ? emit_until(p, record->time, pos) : 0;
}

int phases__after_drain(struct phases *p, bool whole)
{
	uint32_t kept = 0;
	int err;

	p->begun |= p->n_pages;
	if (!p->n_pending)
		return 0;
	err = emit_until(p, whole ? p->drained : p->decoded, /*pos=*/SIZE_MAX);
	for (uint32_t i = p->first; i < p->n_pending; i++)
		if (!p->pending[i].done)
			p->pending[kept++] = p->pending[i];
	p->n_pending = kept;
	p->first = 0;
	return err;
}

void phases__stop(struct phases *p)
{
	p->until = decoder__clock(p->decoder);
}

static int set_count(struct facts *facts, const char *key, uint64_t n)
{
	return n ? facts__setf(facts, key, "%" PRIu64, n) : 0;
}

int phases__set_facts(const struct phases *p, struct facts *facts)
{
	int err = set_count(facts, "counter.phases.records", p->records);

	if (err)
		return err;
	err = set_count(facts, "counter.phases.lost", count_lost(p));
	return err ? err : set_count(facts, "counter.phases.bad", p->bad);
}
