/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Whether resident memory is in use, or free inside an allocator that keeps it; and what to do. */
#include "model/words.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "model/growth_summary.h"

#define LEAST_BYTES (UINT64_C(1) << 20) /* less free memory is never the verdict */
#define LEAST_PERCENT 10		/* of RSS, likewise */
#define NAMED_PERCENT 1			/* smallest part that the sentence names, of RSS */
#define HIGH_PERCENT 5			/* most memory that is not known with HOST_SURE_HIGH */
#define MEDIUM_PERCENT 25		/* likewise, HOST_SURE_MEDIUM */

/* Allocators that keep free memory, and their part of RSS. */
static const struct {
	unsigned part;
	const char *free_text; /* after the bytes that are free: "1 MiB free inside malloc" */
} keepers[HOST_KEEPER_NR] = {
	[HOST_KEEPER_MALLOC] = { HOST_MALLOC, "free inside malloc" },
	[HOST_KEEPER_PYTHON] = { HOST_PYTHON, "free inside Python's arenas" },
	[HOST_KEEPER_PINNED] = { HOST_PINNED, "cached by PyTorch as pinned memory" },
};

/* Allocators in place of glibc's malloc. */
static const struct {
	const char *name, *remedy;
} others[] = {
	[HOST_JEMALLOC -
	 HOST_JEMALLOC] = { "jemalloc",
			    "MALLOC_CONF=background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:"
			    "0 in the "
			    "environment (jemalloc then returns free pages by itself)" },
	[HOST_MIMALLOC - HOST_JEMALLOC] = { "mimalloc", "MIMALLOC_PURGE_DELAY=0 in the environment "
							"(mimalloc then returns free pages at "
							"once)" },
	[HOST_TCMALLOC -
		HOST_JEMALLOC] = { "tcmalloc",
				   "MallocExtension::ReleaseFreeMemory() at quiet moments, or "
				   "TCMALLOC_RELEASE_RATE=10 in the environment" },
};

static const struct {
	const char *name, *answer;
} kinds[] = {
	[HOST_VERDICT_IN_USE] = { "in_use", "in use" },
	[HOST_VERDICT_KEPT] = { "kept", "kept by malloc" },
	[HOST_VERDICT_FRAGMENTED] = { "fragmented", "fragmented" },
	[HOST_VERDICT_PYTHON] = { "python_arenas", "kept by Python" },
	[HOST_VERDICT_PINNED] = { "pinned_cached", "kept by PyTorch" },
	[HOST_VERDICT_UNKNOWN] = { "unknown", "not known" },
};

static const char *const sure_names[] = {
	[HOST_SURE_LOW] = "low", [HOST_SURE_MEDIUM] = "medium", [HOST_SURE_HIGH] = "high"
};

/* ---- figures ---- */

/* Returns the bytes that an allocator has free; 0: none, or not known. */
static uint64_t free_in(const struct host_sheet *s, enum host_keeper k)
{
	const struct host_figure *figure = &s->part[keepers[k].part];
	uint64_t rss = s->part[HOST_TOTAL].bytes, all = figure->bytes < rss ? figure->bytes : rss;

	if (!figure->known || !figure->has_second)
		return 0;
	return figure->second < all ? figure->second : all;
}

/* Returns the resident bytes that no allocator has free. */
static uint64_t in_use(const struct host_sheet *s)
{
	uint64_t rss = s->part[HOST_TOTAL].bytes, all_free = 0;

	for (enum host_keeper k = 0; k < HOST_KEEPER_NR; k++)
		all_free += free_in(s, k);
	return rss > all_free ? rss - all_free : 0;
}

/* True if two readings know the free memory of the same allocators. */
static bool tells_the_same(const struct host_sheet *a, const struct host_sheet *b)
{
	for (enum host_keeper k = 0; k < HOST_KEEPER_NR; k++)
		if (a->part[keepers[k].part].has_second != b->part[keepers[k].part].has_second)
			return false;
	return true;
}

/* Returns the part of the allocator that replaces glibc's malloc, if it has most of the free
 * memory. HOST_TOTAL: none. */
static unsigned other_malloc(const struct host_sheet *s)
{
	for (unsigned k = HOST_JEMALLOC; k <= HOST_TCMALLOC; k++)
		if (s->part[k].known && s->part[k].has_second && s->part[k].second &&
		    s->part[k].second >= free_in(s, HOST_KEEPER_MALLOC) / 2)
			return k;
	return HOST_TOTAL;
}

/* True for at least this percentage of RSS, and not 0. */
static bool is_worth(uint64_t bytes, uint64_t rss, unsigned percent)
{
	return bytes && bytes >= rss / 100 * percent;
}

/* Returns the keeper with the most free memory, if that is worth a verdict. HOST_KEEPER_NR: none. */
static enum host_keeper main_keeper(const struct host_sheet *s)
{
	enum host_keeper most = HOST_KEEPER_MALLOC;

	for (enum host_keeper k = 0; k < HOST_KEEPER_NR; k++)
		if (free_in(s, k) > free_in(s, most))
			most = k;
	if (free_in(s, most) < LEAST_BYTES ||
	    !is_worth(free_in(s, most), s->part[HOST_TOTAL].bytes, LEAST_PERCENT))
		return HOST_KEEPER_NR;
	return most;
}

/* Returns the bytes whose use no table tells. */
static uint64_t not_told(const struct host_sheet *s)
{
	uint64_t bytes = s->part[HOST_UNKNOWN].bytes;

	for (enum host_keeper k = 0; k < HOST_KEEPER_NR; k++)
		if (s->part[keepers[k].part].known && !s->part[keepers[k].part].has_second)
			bytes += s->part[keepers[k].part].bytes;
	return bytes;
}

/* Returns the part with the most memory in use, and *bytes, that memory. */
static unsigned largest_part(const struct host_sheet *s, uint64_t *bytes)
{
	unsigned largest = HOST_UNKNOWN;

	*bytes = 0;
	for (unsigned i = HOST_TOTAL + 1; i < HOST_PARTS_END; i++) {
		uint64_t used = s->part[i].bytes;

		for (enum host_keeper k = 0; k < HOST_KEEPER_NR; k++)
			if (keepers[k].part == i)
				used -= free_in(s, k);
		if (used <= *bytes)
			continue;
		*bytes = used;
		largest = i;
	}
	return largest;
}

/* Returns HOST_VERDICT_KEPT if malloc's free memory is mostly that of whole pages, which it could
 * return, or if that is not known; HOST_VERDICT_FRAGMENTED if it is that of holes between blocks in
 * use. */
static enum host_verdict_kind kind_of_malloc(const struct host_sheet *s)
{
	unsigned other = other_malloc(s);
	uint64_t pages, all; /* free bytes: in whole pages, and all */

	if (other != HOST_TOTAL) {
		pages = s->part[other].bytes;
		all = s->part[other].second;
	} else if (s->part[HOST_MALLOC_TRIM].known) {
		pages = s->part[HOST_MALLOC_TRIM].bytes;
		pages += s->part[HOST_MALLOC_ENDS].second; /* malloc_trim() leaves these */
		all = free_in(s, HOST_KEEPER_MALLOC);
	} else {
		return HOST_VERDICT_KEPT;
	}
	return pages >= all / 2 ? HOST_VERDICT_KEPT : HOST_VERDICT_FRAGMENTED;
}

/* Returns the kind of verdict on the free memory of a keeper; HOST_KEEPER_NR: on memory in use. */
static enum host_verdict_kind kind_of(const struct host_sheet *s, enum host_keeper k)
{
	switch (k) {
	case HOST_KEEPER_MALLOC:
		return kind_of_malloc(s);
	case HOST_KEEPER_PYTHON:
		return HOST_VERDICT_PYTHON;
	case HOST_KEEPER_PINNED:
		return HOST_VERDICT_PINNED;
	default:
		/* Half of the memory could be free as well. */
		if (not_told(s) > s->part[HOST_TOTAL].bytes / 2)
			return HOST_VERDICT_UNKNOWN;
		return HOST_VERDICT_IN_USE;
	}
}

/* ---- the sentence ---- */

/* Appends to the sentence as snprintf() does. */
__attribute__((format(printf, 2, 3))) static void say(struct host_verdict *v, const char *fmt, ...)
{
	size_t at = strlen(v->sentence);
	va_list args;

	va_start(args, fmt);
	vsnprintf(v->sentence + at, sizeof(v->sentence) - at, fmt, args);
	va_end(args);
}

/* Says in brackets how much of malloc's free memory can be returned. */
static void say_returned(const struct host_sheet *s, struct host_verdict *v)
{
	uint64_t ends = s->part[HOST_MALLOC_ENDS].second; /* of arenas other than the main one */
	char bytes[24], at_ends[24];
	unsigned other = other_malloc(s);

	if (other)
		say(v, " (%s%s: %s in whole pages)",
		    v->kind == HOST_VERDICT_FRAGMENTED ? "most between live blocks; " : "",
		    others[other - HOST_JEMALLOC].name,
		    text__bytes(bytes, sizeof(bytes), s->part[other].bytes));
	if (other || !s->part[HOST_MALLOC_TRIM].known)
		return;
	say(v, " (%smalloc_trim would return %s",
	    v->kind == HOST_VERDICT_FRAGMENTED ? "most between live blocks; " : "",
	    text__bytes(bytes, sizeof(bytes), s->part[HOST_MALLOC_TRIM].bytes));
	if (is_worth(ends, v->resident, LEAST_PERCENT))
		say(v, ", and leave %s at the ends of threads' arenas",
		    text__bytes(at_ends, sizeof(at_ends), ends));
	say(v, ")");
}

/* Says how much RSS grew between the readings, and how much of that is in use. */
static void say_change(const struct host_history *h, struct host_verdict *v)
{
	uint64_t first = h->first->part[HOST_TOTAL].bytes, last = h->last->part[HOST_TOTAL].bytes;
	char bytes[24], grew_in_use[24], time[24];
	uint64_t before, used;

	if (!h->time || !tells_the_same(h->first, h->last))
		return;
	v->grew_known = true;
	v->grew = last > first ? last - first : 0;
	before = in_use(h->first);
	used = in_use(h->last);
	v->grew_in_use = used > before ? used - before : 0;
	if (v->grew_in_use > v->grew)
		v->grew_in_use = v->grew;
	if (v->grew < LEAST_BYTES || !is_worth(v->grew, last, NAMED_PERCENT))
		return;
	say(v, "; it grew by %s in %s", text__bytes(bytes, sizeof(bytes), v->grew),
	    text__time(time, sizeof(time), h->time));
	if (v->kind != HOST_VERDICT_UNKNOWN)
		say(v, ", of it %s in use",
		    text__bytes(grew_in_use, sizeof(grew_in_use), v->grew_in_use));
}

/* Says which line grows, if one does, unless what grows is mostly free. */
static void say_growth(const struct host_history *h, struct host_verdict *v)
{
	const struct growth_summary *g = h->growth;
	char text[GROWTH_SUMMARY_TEXT];

	if (!g || g->verdict != GROWTH_VERDICT_GROWS || g->part != GROWTH_OF_LINE ||
	    (v->grew_known && v->grew_in_use < v->grew / 2))
		return;
	v->grows = true;
	say(v, "; live memory grows: %s", growth_summary__say(g, text));
}

/* Says how much is resident and in use. If most is, also which part has most of it. */
static void say_use(const struct host_sheet *s, struct host_verdict *v)
{
	char resident[24], used[24], bytes[24];
	uint64_t most;
	unsigned part = largest_part(s, &most);

	text__bytes(resident, sizeof(resident), v->resident);
	text__bytes(used, sizeof(used), v->in_use);
	if (v->kind == HOST_VERDICT_IN_USE)
		say(v, "%s: %s of %s resident, %s of it %s (%s)", kinds[v->kind].answer, used,
		    resident, most > v->in_use / 2 ? "most" : "the largest part",
		    host_words__part(part), text__bytes(bytes, sizeof(bytes), most));
	else if (v->kind == HOST_VERDICT_UNKNOWN)
		say(v, "%s: %s resident, of it %s whose use is not known", kinds[v->kind].answer,
		    resident, text__bytes(bytes, sizeof(bytes), v->unknown));
	else
		say(v, "%s: %s resident, %s in use", kinds[v->kind].answer, resident, used);
}

/* Writes the sentence: memory in use, free memory by allocator, and growth. h NULL: one reading
 * only. */
static void say_all(const struct host_sheet *s, const struct host_history *h,
		    struct host_verdict *v)
{
	char bytes[24];

	say_use(s, v);
	for (enum host_keeper k = 0; k < HOST_KEEPER_NR; k++) {
		if (!is_worth(free_in(s, k), v->resident, NAMED_PERCENT))
			continue;
		say(v, ", %s %s", text__bytes(bytes, sizeof(bytes), free_in(s, k)),
		    keepers[k].free_text);
		if (k == HOST_KEEPER_MALLOC)
			say_returned(s, v);
	}
	if (s->part[HOST_MALLOC_ARENAS].known && !other_malloc(s) &&
	    (v->kind == HOST_VERDICT_KEPT || v->kind == HOST_VERDICT_FRAGMENTED))
		say(v, ", arenas: %llu", (unsigned long long)s->part[HOST_MALLOC_ARENAS].second);
	if (h) {
		say_change(h, v);
		say_growth(h, v);
	}
}

/* ---- what to do ---- */

/* Adds a remedy if it returns enough, or if its bytes are not known. */
static void add(struct host_verdict *v, const char *name, const char *text, bool known,
		uint64_t returns, bool exact)
{
	if (v->n == HOST_REMEDIES || (known && !is_worth(returns, v->resident, NAMED_PERCENT)))
		return;
	v->remedies[v->n++] = (struct host_remedy){ name, text, returns, known, exact };
}

/* Adds what to do about free memory inside malloc. */
static void add_of_malloc(const struct host_sheet *s, struct host_verdict *v)
{
	const struct host_figure *part = s->part;
	unsigned other = other_malloc(s);

	if (other) {
		add(v, others[other - HOST_JEMALLOC].name, others[other - HOST_JEMALLOC].remedy,
		    /*known=*/true, part[other].bytes, /*exact=*/false);
	} else if (part[HOST_MALLOC_TRIM].known) {
		add(v, "malloc_trim",
		    "call malloc_trim(0) at quiet moments (Python: "
		    "ctypes.CDLL(None).malloc_trim(0))",
		    /*known=*/true, part[HOST_MALLOC_TRIM].bytes, /*exact=*/true);
		add(v, "MALLOC_ARENA_MAX",
		    "MALLOC_ARENA_MAX=2 in the environment (threads then wait for each other)",
		    /*known=*/true, part[HOST_MALLOC_ARENAS].bytes, /*exact=*/false);
		add(v, "MALLOC_TRIM_THRESHOLD_",
		    "MALLOC_TRIM_THRESHOLD_=131072 in the environment (free() then returns the "
		    "ends of arenas)",
		    /*known=*/true, part[HOST_MALLOC_ENDS].bytes, /*exact=*/false);
	}
	if (v->kind == HOST_VERDICT_FRAGMENTED)
		add(v, "holes",
		    "allocate what lasts before what comes and goes: holes stay as long as their "
		    "neighbours",
		    /*known=*/false, 0, /*exact=*/false);
	if (!other)
		add(v, "jemalloc",
		    "jemalloc instead of malloc (LD_PRELOAD=libjemalloc.so.2), which returns "
		    "unused "
		    "pages after 10 s",
		    /*known=*/true, free_in(s, HOST_KEEPER_MALLOC), /*exact=*/false);
}

/* Adds what to do about memory in use: the part that has most of it decides. */
static void add_of_use(const struct host_sheet *s, bool has_lines, struct host_verdict *v)
{
	uint64_t bytes;
	unsigned part;

	if (v->grows) {
		add(v, "holder", "fix the line that grows, or what holds its memory",
		    /*known=*/false, 0,
		    /*exact=*/false);
		return;
	}
	if (has_lines) {
		add(v, "leaks",
		    "`memtrace-bpf leaks --device host FILE` names the lines that grow, and what "
		    "holds their memory",
		    /*known=*/false, 0, /*exact=*/false);
		return;
	}
	part = largest_part(s, &bytes);
	if (part == HOST_TENSORS)
		add(v, "dump", "`memtrace-bpf dump -p PID` names what holds the tensors",
		    /*known=*/false, 0,
		    /*exact=*/false);
	if (part == HOST_LIBRARIES || part == HOST_FILES)
		add(v, "none",
		    "nothing: the kernel takes clean pages of files back when memory is short",
		    /*known=*/false, 0, /*exact=*/false);
	add(v, "record",
	    "`memtrace-bpf record --host -p PID`, then `memtrace-bpf leaks --device host FILE`, "
	    "name the lines that grow",
	    /*known=*/false, 0, /*exact=*/false);
}

static void add_remedies(const struct host_sheet *s, enum host_keeper k, bool has_lines,
			 struct host_verdict *v)
{
	switch (k) {
	case HOST_KEEPER_MALLOC:
		add_of_malloc(s, v);
		break;
	case HOST_KEEPER_PYTHON:
		add(v, "python_arenas",
		    "run what needs many objects for a short time in a process of its own: "
		    "Python returns an arena when its last object is freed",
		    /*known=*/true, free_in(s, k), /*exact=*/false);
		break;
	case HOST_KEEPER_PINNED:
		add(v, "pinned_cached",
		    "release cached pinned memory: torch._C._host_emptyCache() after it was "
		    "needed; PyTorch 2.15 and later: pinned_max_cached_size_mb in "
		    "PYTORCH_ALLOC_CONF",
		    /*known=*/true, free_in(s, k), /*exact=*/false);
		break;
	default:
		add_of_use(s, has_lines, v);
	}
}

/* ---- the verdict ---- */

/* Makes the verdict on the free memory of a keeper; HOST_KEEPER_NR: on memory in use. */
static void judge(const struct host_sheet *s, enum host_keeper k, const struct host_history *h,
		  struct host_verdict *ret)
{
	*ret = (struct host_verdict){ .resident = s->part[HOST_TOTAL].bytes,
				      .unknown = not_told(s),
				      .kind = kind_of(s, k) };
	ret->kept = k < HOST_KEEPER_NR ? free_in(s, k) : 0;
	ret->in_use = in_use(s);
	ret->free = ret->resident - ret->in_use;
	if (!is_worth(ret->unknown, ret->resident, HIGH_PERCENT))
		ret->sure = HOST_SURE_HIGH;
	else if (!is_worth(ret->unknown, ret->resident, MEDIUM_PERCENT))
		ret->sure = HOST_SURE_MEDIUM;
	say_all(s, h, ret);
	add_remedies(s, k, h && h->has_lines, ret);
}

void host_verdict__judge(const struct host_sheet *s, const struct host_history *h,
			 struct host_verdict *ret)
{
	judge(s, main_keeper(s), h, ret);
}

int host_verdict__of_model(const struct model *m, const struct facts *f, uint64_t duration,
			   struct host_verdict *ret)
{
	const struct model_host *readings = model__host(m);
	struct host_history history = { .first = &readings->first.sheet,
					.last = &readings->last.sheet,
					.time = readings->last.time - readings->first.time };
	int device = model__find_device(m, "host"), err = -EINVAL;
	struct growth_summary growth;

	history.has_lines = device >= 0;
	if (history.has_lines)
		err = growth_summary__of(m, f, (size_t)device,
					 duration ?: words__fact_number(f, "duration_ns"), &growth);
	if (err) {
		host_verdict__judge(&readings->at_moment.sheet, &history, ret);
		return err == -EINVAL ? 0 : err; /* -EINVAL: growth is not watched */
	}
	history.growth = &growth;
	host_verdict__judge(&readings->at_moment.sheet, &history, ret);
	growth_summary__free(&growth);
	return 0;
}

bool host_verdict__of_keeper(const struct host_sheet *s, enum host_keeper k,
			     struct host_verdict *ret)
{
	uint64_t bytes = free_in(s, k);

	if (bytes < LEAST_BYTES || !is_worth(bytes, s->part[HOST_TOTAL].bytes, NAMED_PERCENT))
		return false;
	judge(s, k, NULL, ret);
	return true;
}

/* ---- output ---- */

/* Writes a remedy with what it returns. Returns buf. */
static char *say_remedy(const struct host_remedy *r, char *buf, size_t size)
{
	char bytes[24];

	if (!r->known)
		snprintf(buf, size, "%s", r->text);
	else
		snprintf(buf, size, "%s: returns %s%s", r->text, r->exact ? "" : "up to ",
			 text__bytes(bytes, sizeof(bytes), r->returns));
	return buf;
}

char *host_verdict__remedies(const struct host_verdict *v, char *buf, size_t size)
{
	char text[HOST_VERDICT_TEXT];
	size_t at = 0;

	*buf = '\0';
	for (unsigned i = 0; i < v->n && at < size; i++)
		at += (size_t)snprintf(buf + at, size - at, "%s%s", i ? "; or " : "",
				       say_remedy(&v->remedies[i], text, sizeof(text)));
	return buf;
}

void host_verdict__text(FILE *out, const struct host_verdict *v, size_t columns)
{
	char text[HOST_VERDICT_TEXT], bytes[24];

	text__paragraph(out, columns, "", "  ", "%s", v->sentence);
	for (unsigned i = 0; i < v->n; i++)
		text__paragraph(out, columns, i ? "  or: " : "  do: ", "      ", "%s",
				say_remedy(&v->remedies[i], text, sizeof(text)));
	text__paragraph(out, columns, "  sure: ", "      ", "%s (the use of %s is not known)",
			sure_names[v->sure], text__bytes(bytes, sizeof(bytes), v->unknown));
}

void host_verdict__json(struct json *j, const struct host_verdict *v)
{
	json__open_object(j, "verdict");
	json__string(j, "kind", kinds[v->kind].name);
	json__string(j, "sentence", v->sentence);
	json__string(j, "confidence", sure_names[v->sure]);
	json__uint(j, "resident", v->resident);
	json__uint(j, "in_use", v->in_use);
	json__uint(j, "free", v->free);
	json__uint(j, "unknown", v->unknown);
	json__uint_or_null(j, "grew", v->grew_known, v->grew);
	json__uint_or_null(j, "grew_in_use", v->grew_known, v->grew_in_use);
	json__bool(j, "grows", v->grows);
	json__open_array(j, "remedies");
	for (unsigned i = 0; i < v->n; i++) {
		const struct host_remedy *r = &v->remedies[i];

		json__open_object(j, NULL);
		json__string(j, "name", r->name);
		json__string(j, "text", r->text);
		json__uint_or_null(j, "returns", r->known, r->returns);
		json__bool(j, "exact", r->exact);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}
