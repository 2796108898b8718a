/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/ending.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "record/stream.h"

#define SHOWN 3			/* other processes that the text names */
#define NAMED 100		/* most other processes that the facts can name */
#define OLD UINT64_C(100000000) /* ns before the end; the text says the age of older readings */

struct writer {
	char *buf;
	size_t size, len;
};

/* Appends to the text, which is cut at the end of the buffer. */
static void add_text(struct writer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_text(struct writer *w, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(w->buf + w->len, w->size - w->len, fmt, ap);
	va_end(ap);
	w->len += n < 0 ? 0 : (size_t)n;
	if (w->len >= w->size)
		w->len = w->size - 1;
}

static void add_bytes(struct writer *w, uint64_t bytes)
{
	char text[24];

	add_text(w, "%s", text__bytes(text, sizeof(text), bytes));
}

static bool has_fact(const struct facts *f, const char *key)
{
	return facts__get(f, key);
}

static bool fact_is(const struct facts *f, const char *key, const char *value)
{
	const char *actual = facts__get(f, key);

	return actual && !strcmp(actual, value);
}

/* Returns a fact that is a number; 0 if there is no such fact. */
static uint64_t number_fact(const struct facts *f, const char *key)
{
	uint64_t ret; /* facts__number() sets it to 0 on failure */

	facts__number(f, key, &ret);
	return ret;
}

/* Writes a fact to buf without control characters; "" if it is missing. */
static const char *clean_fact(const struct facts *f, const char *key, char *buf, size_t size)
{
	const char *s = facts__get(f, key) ?: "";

	return text__clean(buf, size, s, strlen(s));
}

enum ending_reason ending__reason(const struct facts *f)
{
	if (fact_is(f, "end_reason", "oom killer"))
		return ENDING_OOM;
	if (fact_is(f, "end_reason", "signal"))
		return ENDING_SIGNAL;
	if (fact_is(f, "end_reason", "exit"))
		return number_fact(f, "end_status") ? ENDING_EXIT : ENDING_GOOD;
	return ENDING_UNKNOWN;
}

bool ending__killed(const struct facts *f)
{
	enum ending_reason r = ending__reason(f);

	return r == ENDING_OOM || r == ENDING_SIGNAL;
}

/* ---- the sentence ---- */

/* Adds who sent the signal, as far as that is known. */
static void add_sender(struct writer *w, const struct facts *f)
{
	char name[128], addr[32];

	if (has_fact(f, "end_signal_addr"))
		add_text(w, ", for an access to address %s",
			 clean_fact(f, "end_signal_addr", addr, sizeof(addr)));
	else if (fact_is(f, "end_signal_from", "kernel"))
		add_text(w, ", sent by the kernel");
	else if (fact_is(f, "end_signal_from", "self"))
		add_text(w, ", sent by itself");
	else if (fact_is(f, "end_signal_from", "outside"))
		add_text(w, ", sent from outside this PID namespace");
	else if (has_fact(f, "end_signal_from"))
		add_text(w, ", sent by %s (PID %" PRIu64 ")",
			 clean_fact(f, "end_signal_from_name", name, sizeof(name)),
			 number_fact(f, "end_signal_from"));
}

/* Adds which limit the OOM killer enforced. */
static void add_limit(struct writer *w, const struct facts *f)
{
	if (has_fact(f, "oom_cgroup_limit")) {
		add_text(w, "cgroup limit ");
		add_bytes(w, number_fact(f, "oom_cgroup_limit"));
		add_text(w, ", ");
	} else if (fact_is(f, "oom_constraint", "machine")) {
		add_text(w, "the machine had no memory left, ");
	} else if (fact_is(f, "oom_constraint", "cpuset") ||
		   fact_is(f, "oom_constraint", "memory policy")) {
		add_text(w, "its NUMA nodes had no memory left, ");
	}
}

/* Adds when a figure was read, unless that was at the end. fact: has the time of the reading. */
static void add_age(struct writer *w, const struct facts *f, const char *fact)
{
	uint64_t end = number_fact(f, "end_time");
	uint64_t read = number_fact(f, fact);
	char text[24];

	if (has_fact(f, fact) && end > read + OLD)
		add_text(w, ", read %s before the end", text__time(text, sizeof(text), end - read));
}

/* Adds the memory that the process had at its end. */
static void add_memory(struct writer *w, const struct facts *f)
{
	if (!has_fact(f, "end_rss")) {
		add_text(w, "the memory of the process was not read");
		return;
	}
	add_text(w, "the process had ");
	add_bytes(w, number_fact(f, "end_rss"));
	add_text(w, " (anonymous ");
	add_bytes(w, number_fact(f, "end_rss_anon"));
	if (number_fact(f, "end_rss_shmem")) {
		add_text(w, ", shared ");
		add_bytes(w, number_fact(f, "end_rss_shmem"));
	}
	add_text(w, ")");
	if (number_fact(f, "end_swap")) {
		add_text(w, " and ");
		add_bytes(w, number_fact(f, "end_swap"));
		add_text(w, " in swap");
	}
	/* Figures from elsewhere are the kernel's, taken with the signal, so they have no age. */
	if (fact_is(f, "end_memory_from", "status"))
		add_age(w, f, "end_memory_time");
}

char *ending__text(char *buf, size_t size, const struct facts *f)
{
	struct writer w = { .buf = buf, .size = size };
	enum ending_reason reason = ending__reason(f);
	char time[24], name[32];

	*buf = '\0';
	if (reason == ENDING_UNKNOWN || reason == ENDING_GOOD)
		return buf;
	text__time(time, sizeof(time), number_fact(f, "end_time"));
	if (reason == ENDING_EXIT) {
		add_text(&w, "exited with status %" PRIu64 " at %s", number_fact(f, "end_status"),
			 time);
	} else if (reason == ENDING_OOM) {
		add_text(&w, "killed by the kernel's OOM killer at %s", time);
	} else {
		clean_fact(f, "end_signal_name", name, sizeof(name));
		if (*name)
			add_text(&w, "killed by %s at %s", name, time);
		else
			add_text(&w, "killed by signal %" PRIu64 " at %s",
				 number_fact(f, "end_signal"), time);
		add_sender(&w, f);
	}
	add_text(&w, ": ");
	if (reason == ENDING_OOM)
		add_limit(&w, f);
	add_memory(&w, f);
	return buf;
}

/* ---- the cgroup and other processes ---- */

struct other {
	uint64_t pid, bytes;
	char name[128];
};

/* Reads the fact end_process.N, "PID:BYTES:NAME". Returns false if it is missing or damaged. */
static bool read_other(const struct facts *f, unsigned int n, struct other *ret)
{
	char key[32];
	const char *s;

	snprintf(key, sizeof(key), "end_process.%u", n);
	s = facts__get(f, key);
	if (!s)
		return false;
	if (!facts__digits(&s, &ret->pid) || *s++ != ':')
		return false;
	if (!facts__digits(&s, &ret->bytes) || *s++ != ':')
		return false;
	text__clean(ret->name, sizeof(ret->name), s, strlen(s));
	return true;
}

/* Adds what the memory cgroup had of its limit; nothing without a limit. */
static void add_cgroup(struct writer *w, const struct facts *f)
{
	bool oom = has_fact(f, "oom_cgroup_usage"); /* figures of the OOM killer, which are exact */
	uint64_t limit = number_fact(f, oom ? "oom_cgroup_limit" : "cgroup_limit");
	char path[256];

	if (!has_fact(f, "cgroup_memory") || !limit)
		return;
	add_text(w, "cgroup %s: ", clean_fact(f, "cgroup_memory", path, sizeof(path)));
	add_bytes(w, number_fact(f, oom ? "oom_cgroup_usage" : "cgroup_usage"));
	add_text(w, " used of ");
	add_bytes(w, limit);
	if (!oom)
		add_age(w, f, "cgroup_time");
}

char *ending__others(char *buf, size_t size, const struct facts *f)
{
	struct writer w = { .buf = buf, .size = size };
	const char *where = fact_is(f, "end_processes_of", "cgroup") ? "in it" : "on this machine";
	uint64_t all = number_fact(f, "end_processes_all");
	struct other o;
	unsigned int n;

	*buf = '\0';
	add_cgroup(&w, f);
	for (n = 0; n < SHOWN && read_other(f, n + 1, &o); n++) {
		if (n)
			add_text(&w, ", ");
		else
			add_text(&w, "%smost memory %s: ", w.len ? "; " : "", where);
		add_text(&w, "%s (PID %" PRIu64 ") ", o.name, o.pid);
		add_bytes(&w, o.bytes);
	}
	if (n && all > n)
		add_text(&w, ", and %" PRIu64 " more", all - n);
	if (n)
		add_age(&w, f, "end_processes_time");
	return buf;
}

/* ---- JSON ---- */

static void put_number(struct json *j, const char *key, const struct facts *f, const char *fact)
{
	uint64_t n;

	if (facts__number(f, fact, &n))
		json__uint(j, key, n);
}

static void put_text(struct json *j, const char *key, const struct facts *f, const char *fact)
{
	if (has_fact(f, fact))
		json__string(j, key, facts__get(f, fact));
}

static void put_time(struct json *j, const char *key, const struct facts *f, const char *fact)
{
	uint64_t n;

	if (facts__number(f, fact, &n))
		json__seconds(j, key, n, /*decimals=*/9);
}

static void put_signal(struct json *j, const struct facts *f)
{
	int64_t code;

	if (!has_fact(f, "end_signal"))
		return;
	json__open_object(j, "signal");
	put_number(j, "number", f, "end_signal");
	put_text(j, "name", f, "end_signal_name");
	if (facts__signed(f, "end_signal_code", &code))
		json__int(j, "code", code);
	put_text(j, "address", f, "end_signal_addr");
	put_text(j, "from", f, "end_signal_from");
	put_text(j, "from_name", f, "end_signal_from_name");
	put_number(j, "from_uid", f, "end_signal_from_uid");
	json__bool(j, "core", has_fact(f, "end_core"));
	json__close_object(j);
}

static void put_memory(struct json *j, const struct facts *f)
{
	if (!has_fact(f, "end_rss"))
		return;
	json__open_object(j, "memory");
	put_text(j, "source", f, "end_memory_from");
	put_time(j, "time", f, "end_memory_time");
	put_number(j, "rss", f, "end_rss");
	put_number(j, "anon", f, "end_rss_anon");
	put_number(j, "file", f, "end_rss_file");
	put_number(j, "shmem", f, "end_rss_shmem");
	put_number(j, "swap", f, "end_swap");
	put_number(j, "virtual", f, "end_vm");
	put_number(j, "page_tables", f, "end_page_tables");
	json__close_object(j);
	if (!has_fact(f, "end_smaps_rss"))
		return;
	json__open_object(j, "smaps");
	put_time(j, "time", f, "end_smaps_time");
	put_number(j, "rss", f, "end_smaps_rss");
	put_number(j, "anon", f, "end_smaps_anon");
	put_number(j, "pss", f, "end_smaps_pss");
	put_number(j, "private", f, "end_smaps_private");
	put_number(j, "swap", f, "end_smaps_swap");
	json__close_object(j);
}

static void put_oom(struct json *j, const struct facts *f)
{
	int64_t adj;

	if (ending__reason(f) != ENDING_OOM)
		return;
	json__open_object(j, "oom");
	put_text(j, "constraint", f, "oom_constraint");
	put_text(j, "cgroup", f, "oom_cgroup");
	put_number(j, "cgroup_limit", f, "oom_cgroup_limit");
	put_number(j, "cgroup_usage", f, "oom_cgroup_usage");
	put_number(j, "cgroup_swap_limit", f, "oom_cgroup_swap_limit");
	put_number(j, "cgroup_swap_usage", f, "oom_cgroup_swap_usage");
	put_number(j, "asked", f, "oom_asked");
	put_number(j, "asked_by", f, "oom_asked_by");
	put_text(j, "asked_by_name", f, "oom_asked_by_name");
	put_number(j, "total", f, "oom_total");
	put_number(j, "badness", f, "oom_badness");
	put_number(j, "uid", f, "oom_uid");
	if (facts__signed(f, "oom_score_adj", &adj))
		json__int(j, "score_adj", adj);
	json__close_object(j);
}

static void put_cgroup(struct json *j, const struct facts *f)
{
	static const char *const figures[] = { "limit",	     "usage",	 "peak", "swap_limit",
					       "swap_usage", "anon",	 "file", "kernel",
					       "sock",	     "oom_kills" };
	char key[64];

	if (!has_fact(f, "cgroup_memory"))
		return;
	json__open_object(j, "cgroup");
	put_text(j, "path", f, "cgroup_memory");
	put_number(j, "version", f, "cgroup_version");
	put_time(j, "time", f, "cgroup_time");
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
		snprintf(key, sizeof(key), "cgroup_%s", figures[i]);
		put_number(j, figures[i], f, key);
	}
	json__close_object(j);
}

void ending__json(struct json *j, const struct facts *f)
{
	static const char *const names[] = {
		[ENDING_GOOD] = "exit",
		[ENDING_EXIT] = "exit",
		[ENDING_SIGNAL] = "signal",
		[ENDING_OOM] = "oom killer",
	};
	enum ending_reason reason = ending__reason(f);
	char text[512];
	struct other o;

	if (reason == ENDING_UNKNOWN)
		return;
	json__open_object(j, "end");
	json__string(j, "reason", names[reason]);
	put_time(j, "time", f, "end_time");
	put_number(j, "status", f, "end_status");
	if (*ending__text(text, sizeof(text), f))
		json__string(j, "text", text);
	put_signal(j, f);
	put_memory(j, f);
	put_oom(j, f);
	put_cgroup(j, f);
	if (has_fact(f, "end_process.1")) {
		put_text(j, "processes_of", f, "end_processes_of");
		put_time(j, "processes_time", f, "end_processes_time");
		json__open_array(j, "processes");
		for (unsigned int n = 1; n <= NAMED && read_other(f, n, &o); n++) {
			json__open_object(j, NULL);
			json__uint(j, "pid", o.pid);
			json__uint(j, "rss", o.bytes);
			json__string(j, "name", o.name);
			json__close_object(j);
		}
		json__close_array(j);
	}
	json__close_object(j);
}
