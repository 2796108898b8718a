/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Phases that a program names: the memory that the C header writes, and their place among the
 * records of the ring. */
#include "unit/cmocka.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../tools/inprocess/memtrace_phase.h"
#include "base/clock.h"
#include "capture/decode/decoder.h"
#include "capture/decode/phases.h"
#include "capture/decode/queue.h"
#include "capture/probes/session_opts.h"
#include "capture/target.h"
#include "inspect/proc.h"
#include "record/dict.h"

#define ROOM MEMTRACE_PHASE_ROOM
#define SECOND UINT64_C(1000000000)

static void one(const char *name)
{
	struct memtrace_phase p = memtrace_phase_begin(name);

	memtrace_phase_end(&p);
}

/* ---- the memory ---- */

static struct phase_page open_own(void)
{
	struct phase_page page;
	int fd;

	one("made"); /* now there is an area */
	fd = fcntl(memtrace_phase_fd_, F_DUPFD_CLOEXEC, 3);
	assert_true(fd >= 0);
	assert_int_equal(phase_page__open(&page, fd), 0);
	assert_int_equal(page.pid, getpid());
	return page;
}

static void skip_all(struct phase_page *page)
{
	struct phase_record r[ROOM];

	while (phase_page__read(page, 0, r, ROOM))
		;
	page->lost = 0;
}

static void test_read(void **state)
{
	struct phase_page page = open_own();
	struct phase_record r[8];
	struct memtrace_phase a, b;
	char name[100];

	skip_all(&page);
	a = memtrace_phase_begin("rollout");
	b = memtrace_phase_begin("generate");
	memtrace_phase_end(&b);
	memtrace_phase_end(&a);
	memtrace_phase_end(&a); /* again: nothing */
	assert_int_equal(phase_page__read(&page, 0, r, 8), 4);
	assert_true(r[0].what == SCOPE_BEGIN && !strcmp(r[0].name, "rollout"));
	assert_true(!r[0].other);
	assert_int_equal(r[0].tid, gettid());
	assert_true(r[1].what == SCOPE_BEGIN && r[1].other == r[0].number);
	assert_true(r[2].what == SCOPE_END && r[2].other == r[1].number);
	assert_true(r[3].what == SCOPE_END && r[3].other == r[0].number);
	assert_true(r[0].time <= r[1].time && r[1].time <= r[2].time && r[2].time <= r[3].time);
	assert_int_equal(phase_page__read(&page, 0, r, 8), 0);
	/* 79 bytes and a character of two */
	memset(name, 'x', 79);
	strcpy(name + 79, "\xc3\xa9");
	one(name);
	assert_int_equal(phase_page__read(&page, 0, r, 8), 2);
	assert_int_equal(strlen(r[0].name), 79);
	assert_int_equal(page.lost, 0);
	close(page.fd);
}

/* What was overwritten is counted. The oldest records, which may be written now, are left alone. */
static void test_overrun(void **state)
{
	struct phase_page page = open_own();
	struct phase_record r[2 * ROOM];
	int n;

	skip_all(&page);
	for (int i = 0; i < ROOM; i++)
		one("fast"); /* 2 * ROOM records */
	n = phase_page__read(&page, 0, r, 2 * ROOM);
	assert_in_range(n, ROOM - 32, ROOM - 16);
	assert_int_equal(n + page.lost, 2 * ROOM);
	for (int i = 1; i < n; i++)
		assert_int_equal(r[i].number, r[i - 1].number + 1);
	close(page.fd);
}

/* A thread that is ended while it writes holds the others up for a second. */
static void test_gap(void **state)
{
	struct phase_page page = open_own();
	struct phase_record r[8];

	skip_all(&page);
	__atomic_add_fetch(&memtrace_phase_state_->numbers, 1, __ATOMIC_RELAXED);
	one("later");
	assert_int_equal(phase_page__read(&page, 5 * SECOND, r, 8), 0);
	assert_int_equal(phase_page__read(&page, 5 * SECOND + 1, r, 8), 0);
	assert_int_equal(phase_page__read(&page, 6 * SECOND, r, 8), 2);
	assert_int_equal(page.lost, 1);
	close(page.fd);
}

static void test_fork(void **state)
{
	struct memtrace_phase before = memtrace_phase_begin("parent's");
	uint64_t numbers = memtrace_phase_state_->numbers;
	struct phase_record r[8];
	struct phase_page page;
	int status, fd;
	pid_t pid = fork();

	if (!pid) {
		memtrace_phase_end(&before);
		one("child's");
		fd = fcntl(memtrace_phase_fd_, F_DUPFD_CLOEXEC, 3);
		if (phase_page__open(&page, fd) || page.pid != (uint32_t)getpid() ||
		    phase_page__read(&page, 0, r, 8) != 2 || strcmp(r[0].name, "child's") != 0 ||
		    r[0].tid != (uint32_t)gettid() || memtrace_phase_fd_ != MEMTRACE_PHASE_FIRST_FD)
			_exit(1);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(memtrace_phase_state_->numbers,
			 numbers); /* the child wrote nothing here */
	memtrace_phase_end(&before);
}

/* ---- hostile memory ---- */

static int area_of(const void *bytes, size_t size)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), (ssize_t)size);
	return fd;
}

static void test_bad_heads(void **state)
{
	static struct memtrace_phase_area area;
	struct phase_page page;
	struct phase_record r[8];
	static const struct {
		uint32_t version, size, room;
	} bad[] = { { 2, 128, 1024 }, { 1, 64, 1024 },	      { 1, 128, 0 },
		    { 1, 128, 63 },   { 1, 128, UINT32_MAX }, { 1, 128, 65536 } };

	assert_int_equal(phase_page__open(&page, area_of(&area, sizeof(area))), -EINVAL);
	memcpy(area.magic, "MTPHASE", 8);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		area.version = bad[i].version;
		area.record_size = bad[i].size;
		area.room = bad[i].room; /* the last one is more than the file has */
		assert_int_equal(phase_page__open(&page, area_of(&area, sizeof(area))), -EINVAL);
	}
	area.room = ROOM;
	assert_int_equal(phase_page__open(&page, area_of(&area, 100)), -EINVAL);
	/* It gets shorter later. */
	assert_int_equal(phase_page__open(&page, area_of(&area, sizeof(area))), 0);
	assert_int_equal(phase_page__read(&page, 0, r, 8), 0);
	assert_int_equal(ftruncate(page.fd, 128), 0);
	assert_int_equal(phase_page__read(&page, 0, r, 8), -EINVAL);
	close(page.fd);
}

/* Numbers that jump make no endless loop, and losses have a bound. */
static void test_bad_numbers(void **state)
{
	static struct memtrace_phase_area area;
	struct phase_record r[64];
	struct phase_page page;

	memcpy(area.magic, "MTPHASE", 8);
	area.version = 1;
	area.record_size = 128;
	area.room = ROOM;
	assert_int_equal(phase_page__open(&page, area_of(&area, sizeof(area))), 0);
	for (uint64_t i = 0; i < ROOM; i++)
		area.records[i].number = area.records[i].again = UINT64_MAX - ROOM + 1 + i;
	for (int k = 0; k < 20; k++) {
		assert_int_equal(pwrite(page.fd, &area, sizeof(area), 0), sizeof(area));
		assert_in_range(phase_page__read(&page, 0, r, 64), 0, 64);
	}
	assert_true(page.lost <= STREAM_MOST);
	close(page.fd);
}

/* ---- their place among the records of the ring ---- */

struct world {
	struct sink sink; /* first */
	struct session_opts opts;
	struct target target;
	struct dict *dict;
	struct facts *facts;
	struct decoder *decoder;
	struct queue queue;
	char text[512];	 /* the records, with a space after each */
	uint32_t thread; /* thread of the last record */
};

static void say(struct world *w, const char *word)
{
	size_t len = strlen(w->text);

	if (len + strlen(word) + 2 < sizeof(w->text)) /* test_lost() has more */
		snprintf(w->text + len, sizeof(w->text) - len, "%s ", word);
}

static int on_event(struct sink *sink, const struct event *e)
{
	struct world *w = (struct world *)sink;
	char word[160];

	assert_int_equal(e->kind, EVENT_SCOPE);
	assert_int_equal(e->how, SCOPE_PHASE);
	snprintf(word, sizeof(word), "%s%s:%s", e->flags & SCOPE_EARLIER ? "earlier-" : "",
		 scope_flag__name(e->flags), dict__str(w->dict, e->name));
	say(w, word);
	w->thread = e->thread;
	return 0;
}

static void begin(struct world *w)
{
	*w = (struct world){ .sink.event = on_event };
	w->dict = dict__new();
	w->facts = facts__new();
	w->target.proc = proc__open(getpid());
	assert_non_null(w->target.proc);
	w->decoder = decoder__new(&w->opts, &w->target, NULL, w->dict, w->facts);
	assert_non_null(w->decoder);
	w->decoder->next = &w->sink;
	w->decoder->start = decoder__clock(w->decoder);
}

static void end(struct world *w)
{
	decoder__free(w->decoder);
	facts__free(w->facts);
	dict__free(w->dict);
	proc__free(w->target.proc);
	free(w->queue.buf);
}

/* A record of a thread at this moment; name: one letter. */
static void put(struct world *w, uint32_t tid, char name)
{
	struct mt_rec_free rec = { .h = { .tid = tid, .time = decoder__clock(w->decoder) },
				   .addr = (unsigned char)name };

	assert_int_equal(queue__push(&w->queue, &rec, sizeof(rec)), 0);
}

static void swap(struct world *w, size_t i, size_t k)
{
	size_t each = 8 + sizeof(struct mt_rec_free);
	uint8_t keep[8 + sizeof(struct mt_rec_free)];

	memcpy(keep, w->queue.buf + i * each, each);
	memcpy(w->queue.buf + i * each, w->queue.buf + k * each, each);
	memcpy(w->queue.buf + k * each, keep, each);
}

static void drain(struct world *w, bool whole)
{
	struct phases *phases = w->decoder->phases;
	const struct mt_rec_free *rec;
	size_t pos = 0, at = 0, len;

	phases__before_drain(phases);
	assert_int_equal(phases__read(phases, &w->queue, w->queue.len), 0);
	while ((rec = queue__at(&w->queue, &pos, w->queue.len, &len))) {
		assert_int_equal(phases__before_record(phases, at, &rec->h), 0);
		say(w, (char[]){ (char)rec->addr, 0 });
		at = pos;
	}
	assert_int_equal(phases__after_drain(phases, whole), 0);
	queue__drop(&w->queue, w->queue.len);
}

#define OTHER 99999999u /* no such thread */

static void test_order(void **state)
{
	uint32_t tid = (uint32_t)gettid();
	struct memtrace_phase p;
	struct world w;

	begin(&w);
	put(&w, tid, 'a');
	p = memtrace_phase_begin("p");
	put(&w, tid, 'b');
	memtrace_phase_end(&p);
	put(&w, OTHER, 'c');
	one("q");
	drain(&w, true);
	assert_string_equal(w.text, "a begin:p b end:p c begin:q end:q ");
	assert_int_equal(dict__get_thread(w.dict, w.thread).tid, tid);
	end(&w);
}

/* The ring has the other thread's later record first: the phase still comes after all that its own
 * thread did before. */
static void test_order_of_own_thread(void **state)
{
	uint32_t tid = (uint32_t)gettid();
	struct world w;

	begin(&w);
	put(&w, tid, 'a');
	one("p");
	put(&w, OTHER, 'x');
	put(&w, tid, 'b');
	swap(&w, 0, 1);
	drain(&w, true);
	assert_string_equal(w.text, "x a begin:p end:p b ");
	end(&w);
}

/* If the ring was not drained to its end, phases wait for the records that are in it. */
static void test_behind(void **state)
{
	uint32_t tid = (uint32_t)gettid();
	struct world w;

	begin(&w);
	put(&w, tid, 'a');
	one("p");
	drain(&w, false);
	assert_string_equal(w.text, "a ");
	put(&w, tid, 'b');
	drain(&w, true);
	assert_string_equal(w.text, "a begin:p end:p b ");
	end(&w);
}

/* Attached in the middle: what is open is there, at the start, and nothing older. */
static void *say_one(void *unused)
{
	one("p");
	return unused;
}

/* A thread that has ended is known by its records in the ring, also by later ones. */
static void *say_and_put(void *world)
{
	one("p");
	put(world, (uint32_t)gettid(), 'a');
	return NULL;
}

static void test_ended_thread_with_records(void **state)
{
	pthread_t thread;
	struct world w;

	begin(&w);
	assert_int_equal(pthread_create(&thread, NULL, say_and_put, &w), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	drain(&w, true);
	assert_string_equal(w.text, "begin:p end:p a ");
	assert_int_not_equal(w.thread, 0);
	end(&w);
}

/* A thread that has ended, and recorded nothing else, is not known. */
static void test_ended_thread(void **state)
{
	struct world w;
	pthread_t thread;

	begin(&w);
	assert_int_equal(pthread_create(&thread, NULL, say_one, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	drain(&w, true);
	assert_string_equal(w.text, "begin:p end:p ");
	assert_int_equal(w.thread, 0);
	end(&w);
}

static void test_open_at_start(void **state)
{
	struct memtrace_phase p, q;
	struct world w;

	one("over");
	p = memtrace_phase_begin("p");
	q = memtrace_phase_begin("q");
	begin(&w);
	put(&w, (uint32_t)gettid(), 'a');
	memtrace_phase_end(&q);
	drain(&w, true);
	memtrace_phase_end(&p);
	drain(&w, true);
	assert_string_equal(w.text, "earlier-begin:p earlier-begin:q a end:q end:p ");
	end(&w);
}

/* After the stop nothing more comes. */
static void test_stop(void **state)
{
	struct world w;

	begin(&w);
	one("p");
	phases__stop(w.decoder->phases);
	one("late");
	drain(&w, true);
	assert_string_equal(w.text, "begin:p end:p ");
	end(&w);
}

/* Times of the future, and of before the start once that was read: such records would wait, or
 * would be looked through again and again. */
static void test_bad_times(void **state)
{
	struct memtrace_phase_record *r;
	struct memtrace_phase p;
	struct world w;
	uint64_t bad;

	begin(&w);
	drain(&w, true);
	for (int i = 0; i < 2; i++) {
		p = memtrace_phase_begin("p");
		r = &memtrace_phase_state_->area->records[p.scope % ROOM];
		r->time = i ? w.decoder->start - 1 : r->time + 3600 * SECOND;
	}
	drain(&w, true);
	assert_string_equal(w.text, "");
	assert_int_equal(phases__set_facts(w.decoder->phases, w.facts), 0);
	assert_true(facts__number(w.facts, "counter.phases.bad", &bad) && bad == 2);
	end(&w);
}

static void test_lost(void **state)
{
	struct world w;
	uint64_t lost;

	begin(&w);
	drain(&w, true);
	for (int i = 0; i < ROOM; i++)
		one("f");
	drain(&w, true);
	assert_int_equal(phases__set_facts(w.decoder->phases, w.facts), 0);
	assert_true(facts__number(w.facts, "counter.phases.lost", &lost));
	assert_in_range(lost, ROOM, ROOM + 64);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_overrun),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_bad_heads),
		cmocka_unit_test(test_bad_numbers),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_order_of_own_thread),
		cmocka_unit_test(test_behind),
		cmocka_unit_test(test_ended_thread_with_records),
		cmocka_unit_test(test_ended_thread),
		cmocka_unit_test(test_open_at_start),
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_bad_times),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_gap), /* the last one: its gap stays */
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
