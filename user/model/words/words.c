/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/words.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "memtrace.h"
#include "record/files.h"

#define ELLIPSIS "..."

/* Copies the character at *p to one and moves *p past it. Returns its width in columns. */
static size_t char_width(char **p, char one[8])
{
	size_t len = 0;

	do
		one[len++] = *(*p)++;
	while ((**p & 0xc0) == 0x80 && len < 7);
	one[len] = '\0';
	return text__width(one);
}

char *words__cut(char *s, size_t columns)
{
	size_t keep = columns > 3 ? columns - 3 : 0, width = 0;
	char *kept_end = s, *end = s, one[8];

	if (text__width(s) <= columns)
		return s;
	while (*end) {
		width += char_width(&end, one);
		if (width > keep)
			break;
		kept_end = end;
	}
	/* The replaced text is at least as wide as "...", and the result fits the buffer. */
	memcpy(kept_end, ELLIPSIS, columns < 3 ? columns : 3);
	kept_end[columns < 3 ? columns : 3] = '\0';
	return s;
}

char *words__cut_front(char *s, size_t columns)
{
	size_t width = text__width(s);
	char *p = s, one[8];

	if (width <= columns || columns <= 3)
		return words__cut(s, columns);
	while (*p && width > columns - 3)
		width -= char_width(&p, one);
	memmove(s + 3, p, strlen(p) + 1);
	memcpy(s, ELLIPSIS, 3);
	return s;
}

/* Cuts the middle: keeps a third of the columns at the front, and as much of the end as fits. */
char *words__cut_middle(char *s, size_t columns)
{
	size_t width = 0, next_width;
	char *p = s, *next = s, one[8];

	if (text__width(s) <= columns || columns < 12)
		return words__cut(s, columns);
	while (next_width = char_width(&next, one), width + next_width <= columns / 3) {
		width += next_width;
		p = next;
	}
	words__cut_front(p, columns - width);
	return s;
}

/* Returns the path without the target's folder or that of installed packages; the whole path if it
 * is in neither. */
static const char *path_start(const char *path, const char *cwd)
{
	static const char *const dirs[] = { "/site-packages/", "/dist-packages/" };
	size_t len = cwd ? strlen(cwd) : 0;
	const char *p;

	if (len && !strncmp(path, cwd, len) && (path[len] == '/' || cwd[len - 1] == '/'))
		return path + len + (path[len] == '/');
	for (size_t i = 0; i < 2; i++) {
		p = strstr(path, dirs[i]);
		if (p)
			return p + strlen(dirs[i]);
	}
	return path;
}

/* Returns the last n parts of a path. */
static const char *path_tail(const char *path, unsigned n)
{
	const char *p = path + strlen(path);

	while (p > path)
		if (*--p == '/' && !--n)
			return p == path ? path : p + 1;
	return path;
}

/* Formats a location with the last n parts of the path; 0: all. Returns its width. */
static size_t format_location(char *buf, const char *path, unsigned n, const char *line,
			      const char *func)
{
	const char *tail = n ? path_tail(path, n) : path;

	snprintf(buf, REPORT_TEXT, "%s%s%s (%s)", tail == path ? "" : ".../", tail, line, func);
	return text__width(buf);
}

const char *words__window(const struct model *m, const struct facts *f, char *buf, size_t size)
{
	char time[24];
	uint64_t from;

	*buf = '\0';
	if (model__window(m, &from))
		snprintf(buf, size, "%s from %s on", facts__get(f, "segment") ? "part" : "window",
			 text__time(time, sizeof(time), from));
	return buf;
}

void words__put_window(struct json *j, const struct model *m)
{
	uint64_t from;

	if (model__window(m, &from))
		json__seconds(j, "window_start", from, /*decimals=*/9);
}

const char *words__see_all(void)
{
	return geteuid() ? "with sudo" : "on the host";
}

const char *words__before(bool history)
{
	return history ? "before the history" : "before attach";
}

const char *words__steps_from(const struct facts *f)
{
	const char *from = facts__get(f, "steps_from");

	if (!from)
		return "";
	if (!strcmp(from, "period"))
		return "steps by the trace's own period (sure)";
	if (!strcmp(from, "likely period"))
		return "steps by the trace's own period (likely)";
	return strcmp(from, "unknown") != 0 ? "" : "steps not known";
}

const char *words__roles_from(const struct facts *f)
{
	const char *from = facts__get(f, "roles_from");

	if (from && !strcmp(from, "objects"))
		return "roles by the program's objects, frames and lifetimes";
	return "roles by frames and lifetimes";
}

/* Writes the location of memory that has no Python line. Returns false if it has one. */
static bool write_without_line(char *buf, const struct row *r)
{
	if (r->before_attach && r->name)
		text__clean(buf, REPORT_TEXT, r->name, strlen(r->name));
	else if (r->before_attach)
		strcpy(buf, words__before(r->history));
	else if (r->file)
		return false;
	else if (!strcmp(r->source, "native"))
		strcpy(buf, "native (no Python thread)");
	else if (!strcmp(r->source, "hidden"))
		strcpy(buf, "(hidden)");
	else if (r->node_class && strcmp(r->node_class, "unknown node") != 0)
		strcpy(buf, "no line of forward");
	else
		strcpy(buf, r->phase == PHASE_BACKWARD ? "untraced (autograd thread)" : "untraced");
	return true;
}

/* Writes a location in a cell of a notebook: "cell 7, line 2 (train)". Returns false if the file is
 * no cell. */
static bool write_in_cell(char *buf, const struct row *r)
{
	char func[REPORT_TEXT / 2 - 32];
	size_t len;
	const char *cell = files__cell(r->file, &len);

	if (!cell)
		return false;
	text__clean(func, sizeof(func), r->func, strlen(r->func));
	snprintf(buf, REPORT_TEXT, "cell %.*s, line %u (%s)", (int)len, cell, r->line, func);
	return true;
}

/* Writes the longest form of a location that fits. short_name: "forward", and not "Net.forward". */
static char *write_location(char *buf, const struct row *r, const char *cwd, size_t columns,
			    bool short_name)
{
	char path[REPORT_TEXT / 2 - 32], func[REPORT_TEXT / 2 - 32], line[16] = "";
	const char *start, *dot, *name;
	unsigned n;

	if (write_without_line(buf, r))
		return words__cut_middle(buf, columns);
	if (write_in_cell(buf, r))
		return words__cut(buf, columns);
	start = path_start(r->file, cwd);
	text__clean(path, sizeof(path), start, strlen(start));
	text__clean(func, sizeof(func), r->func, strlen(r->func));
	/* Of a C++ function without a line, the parameters are longer than its name. */
	if (!r->line && *func != '(')
		func[strcspn(func, "(")] = '\0';
	if (r->line)
		snprintf(line, sizeof(line), ":%u", r->line);
	dot = strrchr(func, '.');
	name = dot && dot[1] ? dot + 1 : func;
	/* A path that path_start() shortened is shown in full, another one by its last 3 parts. */
	n = start == r->file ? 3 : 0;
	/* Shorten the function's qualified name first, then the path. */
	if (!short_name && format_location(buf, path, n, line, func) <= columns)
		return buf;
	if (format_location(buf, path, n, line, name) <= columns)
		return buf;
	for (n = 3; n; n--)
		if (format_location(buf, path, n, line, name) <= columns)
			return buf;
	if (format_location(buf, path_tail(path, 1), 0, line, name) <= columns)
		return buf;
	if (!r->line && *name && strlen(name) <= columns)
		return strcpy(buf, name);
	/* The line number is the last thing to be cut. */
	snprintf(buf, REPORT_TEXT, "%s%s", path_tail(path, 1), line);
	return words__cut_front(buf, columns);
}

char *words__location(char *buf, const struct row *r, const char *cwd, size_t columns)
{
	return write_location(buf, r, cwd, columns, /*short_name=*/false);
}

char *words__location_short(char *buf, const struct row *r, const char *cwd, size_t columns)
{
	return write_location(buf, r, cwd, columns, /*short_name=*/true);
}

char *words__place(char *buf, const char *file, uint32_t line, const char *cwd)
{
	char path[REPORT_TEXT / 2];
	const char *start = path_start(file, cwd);

	text__clean(path, sizeof(path), start, strlen(start));
	snprintf(buf, REPORT_TEXT, "%s:%" PRIu32, path, line);
	return buf;
}

char *words__frame(char *buf, const struct dict *d, struct dict_frame f)
{
	struct dict_loc loc = dict__get_loc(d, f.loc);

	if (!f.loc)
		strcpy(buf, "?");
	else if (loc.line)
		snprintf(buf, REPORT_TEXT, "%s (%s:%u)", dict__str(d, loc.func),
			 dict__str(d, loc.file), loc.line);
	else
		snprintf(buf, REPORT_TEXT, "%s (%s)", dict__str(d, loc.func),
			 dict__str(d, loc.file));
	return buf;
}

char *words__module(char *buf, const struct row *r)
{
	char cls[REPORT_TEXT / 2];

	text__clean(buf, REPORT_TEXT, r->module, strlen(r->module));
	if (*buf || !*r->module_class)
		return buf;
	text__clean(cls, sizeof(cls), r->module_class, strlen(r->module_class));
	snprintf(buf, REPORT_TEXT, "%s (model)", cls);
	return buf;
}

const char *words__where_title(enum group by)
{
	switch (by) {
	case BY_MODULE:
		return "Module";
	case BY_LAYER:
		return "Module, with all inside";
	case BY_PHASE:
		return "Phase";
	case BY_THREAD:
		return "Thread";
	case BY_CATEGORY:
		return "Role";
	case BY_SCOPE:
		return "Scope";
	default:
		return "Location";
	}
}

char *words__thread(char *buf, const struct row *r)
{
	char name[REPORT_TEXT / 2];

	if (!r->thread)
		return strcpy(buf, "");
	text__clean(name, sizeof(name), r->thread, strlen(r->thread));
	snprintf(buf, REPORT_TEXT, r->tid ? "%s (%u)" : "%s", name, r->tid);
	return buf;
}

char *words__scope(char *buf, const struct row *r)
{
	if (!r->scope)
		return strcpy(buf, "outside of scopes");
	return text__clean(buf, REPORT_TEXT, r->scope, strlen(r->scope));
}

/* Formats "blocks.0.attn (Attention)". */
static void module_and_class(char *buf, const struct row *r)
{
	char cls[REPORT_TEXT / 2];
	size_t len;

	if (!*r->module && !*r->module_class) {
		strcpy(buf, "(no module)");
		return;
	}
	words__module(buf, r);
	if (!*r->module || !*r->module_class)
		return;
	len = strlen(buf);
	text__clean(cls, sizeof(cls), r->module_class, strlen(r->module_class));
	snprintf(buf + len, REPORT_TEXT - len, " (%s)", cls);
}

char *words__where(char *buf, const struct row *r, enum group by, const char *cwd, size_t columns)
{
	if (by == BY_LINE || by == BY_STACK)
		return words__location(buf, r, cwd, columns);
	if (r->before_attach)
		return words__cut(strcpy(buf, words__before(r->history)), columns);
	if (by == BY_PHASE)
		strcpy(buf, words__phase(r->phase));
	else if (by == BY_CATEGORY)
		strcpy(buf, words__role(r->category));
	else if (by == BY_THREAD)
		words__thread(buf, r);
	else if (by == BY_SCOPE)
		words__scope(buf, r);
	else
		module_and_class(buf, r);
	return words__cut_front(buf, columns);
}

const char *words__role(const char *category)
{
	if (!category)
		return "(several)";
	if (!strcmp(category, "optimizer_state"))
		return "optimizer state";
	if (!strcmp(category, "kv_cache"))
		return "KV cache";
	if (!strcmp(category, "ddp_bucket"))
		return "DDP bucket";
	if (!strcmp(category, "private_pool"))
		return "private pool";
	return strcmp(category, "unknown") != 0 ? category : "no role found";
}

const char *words__phase(enum phase p)
{
	if (p == PHASE_OTHER)
		return "between phases";
	return p == PHASE_DATA ? "data loading" : phase__name(p);
}

static char normalize_letter(char c)
{
	return c == '-' || c == ' ' ? '_' : (char)tolower((unsigned char)c);
}

static bool is_same_word(const char *a, const char *b)
{
	for (; *a && *b; a++, b++)
		if (normalize_letter(*a) != normalize_letter(*b))
			return false;
	return *a == *b;
}

const char *words__parse_role(const char *text)
{
	for (int i = 0; i < CATEGORY_NR; i++)
		if (is_same_word(text, category__name(i)) ||
		    is_same_word(text, words__role(category__name(i))))
			return category__name(i);
	return NULL;
}

const char *words__parse_phase(const char *text)
{
	for (int i = 0; i < PHASE_NR; i++)
		if (is_same_word(text, phase__name(i)) || is_same_word(text, words__phase(i)))
			return phase__name(i);
	return NULL;
}

bool words__walk_failed(unsigned walk)
{
	return walk != MT_WALK_OK && walk != MT_WALK_TRUNCATED && walk != MT_WALK_NO_THREAD &&
	       walk != MT_WALK_NO_FRAME;
}

void words__stacks(const struct model *m, struct report_stacks *ret)
{
	*ret = (struct report_stacks){
		.full = model__walks(m, MT_WALK_OK),
		.truncated = model__walks(m, MT_WALK_TRUNCATED),
		.none = model__walks(m, MT_WALK_NO_THREAD) + model__walks(m, MT_WALK_NO_FRAME),
	};
	for (unsigned i = 0; i < MT_WALK_NR; i++) {
		ret->all += model__walks(m, i);
		if (words__walk_failed(i))
			ret->failed += model__walks(m, i);
	}
}

uint64_t words__fact_number(const struct facts *f, const char *key)
{
	uint64_t ret;

	facts__number(f, key, &ret); /* also sets ret, to 0, if there is no such number */
	return ret;
}

const char *words__models(char *buf, size_t size, const struct facts *f)
{
	const char *models = facts__get(f, "models") ?: "";

	return text__clean(buf, size, models, strlen(models));
}

uint64_t words__lost(const struct model *m, const struct facts *f)
{
	uint64_t fact = words__fact_number(f, "lost");

	return fact > model__lost(m) ? fact : model__lost(m);
}

const char *words__about(enum figure f)
{
	if (f == FIGURE_LOWER_BOUND)
		return "at least ";
	return f == FIGURE_NOT_EXACT ? "about " : "";
}

double words__fragmentation(uint64_t allocated, uint64_t reserved)
{
	return reserved > allocated ? (double)(reserved - allocated) / (double)reserved : 0;
}

unsigned words__row_properties(enum group by, unsigned split)
{
	if (split)
		return split;
	if (by == BY_LINE || by == BY_STACK)
		return 1U << BY_LINE | 1U << BY_MODULE | 1U << BY_PHASE | 1U << BY_CATEGORY |
		       1U << by;
	return 1U << by;
}

char *words__groups(char buf[64], enum group by, unsigned split)
{
	size_t len = 0;

	if (!split)
		return strcpy(buf, group_names[by]);
	buf[0] = '\0';
	for (int g = 0; g < BY_NR; g++)
		if (split & 1U << g)
			len += snprintf(buf + len, 64 - len, "%s%s", len ? "," : "",
					group_names[g]);
	return buf;
}

const char *words__device_fact(const struct facts *f, const struct model_device *d,
			       const char *what)
{
	char key[40];

	snprintf(key, sizeof(key), "device.%u.%s", d->device.index, what);
	return device__on_host(d->device) ? NULL : facts__get(f, key);
}

uint64_t words__device_total(const struct facts *f, const struct model_device *d)
{
	char key[40];

	snprintf(key, sizeof(key), "device.%u.total", d->device.index);
	return device__on_host(d->device) ? 0 : words__fact_number(f, key);
}

bool words__other_processes(const struct facts *f, const struct model_device *d, uint64_t *ret)
{
	uint64_t total = words__device_total(f, d);

	*ret = 0;
	if (!total || !d->driver_known)
		return false;
	if (d->driver_used < total && d->driver_left < total - d->driver_used)
		*ret = total - d->driver_used - d->driver_left;
	return true;
}

const char *words__segment_kind(const struct segment *s)
{
	if (s->kind == SEGMENT_OF_SMALL)
		return "small";
	return s->kind == SEGMENT_OF_LARGE ? "large" : "unknown";
}

const char *words__private_pool(enum private_pool kind)
{
	return kind == PRIVATE_GRAPH ? "CUDA graph" : "MemPool";
}

const char *words__oom_pool(char buf[WORDS_OOM], const struct model_oom_pool *p)
{
	int len;

	if (p->rest)
		return strcpy(buf, "others");
	if (p->private >= 0)
		len = snprintf(buf, WORDS_OOM, "%s %" PRIu64, words__private_pool(p->private),
			       p->pool[0] ? p->pool[0] : p->pool[1]);
	else
		len = snprintf(buf, WORDS_OOM, "default pool");
	if (!p->stream_known)
		len += snprintf(buf + len, WORDS_OOM - (size_t)len, ", stream not known");
	else if (p->cuda_stream)
		len += snprintf(buf + len, WORDS_OOM - (size_t)len, ", stream 0x%" PRIx64,
				p->cuda_stream);
	if (p->small)
		snprintf(buf + len, WORDS_OOM - (size_t)len, ", for blocks up to 1 MiB");
	return buf;
}

#define SMALL_MOST (UINT64_C(1) << 20) /* kSmallSize of CUDACachingAllocator.cpp */

/* The pools that a request may have come to, together. */
struct oom_sum {
	uint64_t free, gaps, largest, pending;
	uint64_t private; /* free bytes of private pools, which are in no other sum */
	const struct model_oom_pool *fits; /* the largest piece, if it is large enough */
};

/* Sums up the pools; those for small blocks only if the request is small. */
static struct oom_sum sum_pools(const struct model_oom *o)
{
	struct oom_sum sum = { .free = 0 };

	for (size_t i = 0; i < o->npools; i++) {
		const struct model_oom_pool *p = &o->pools[i];

		if (p->small && o->size > SMALL_MOST)
			continue;
		if (p->largest_gap >= o->size &&
		    (!sum.fits || p->largest_gap > sum.fits->largest_gap))
			sum.fits = p;
		sum.pending += p->pending;
		if (p->private >= 0) {
			sum.private += p->free;
			continue;
		}
		sum.free += p->free;
		sum.gaps += p->gaps;
		sum.largest = p->largest_gap > sum.largest ? p->largest_gap : sum.largest;
	}
	return sum;
}

const struct model_oom_pool *words__oom_fits(const struct model_oom *o)
{
	struct oom_sum s = sum_pools(o);

	return s.fits;
}

const char *words__oom_why(char buf[WORDS_OOM], const struct model_oom *o)
{
	struct oom_sum sum = sum_pools(o);
	char bytes[24], largest[24], count[48], pool[WORDS_OOM];
	int len;

	*buf = '\0';
	if (!o->npools)
		return buf;
	if (sum.fits)
		len = snprintf(buf, WORDS_OOM, "%s are free in one piece, but only for the %.80s",
			       text__bytes(bytes, sizeof(bytes), sum.fits->largest_gap),
			       words__oom_pool(pool, sum.fits));
	else if (sum.free >= o->size)
		len = snprintf(buf, WORDS_OOM, "%s are free, but in %s: the largest has %s",
			       text__bytes(bytes, sizeof(bytes), sum.free),
			       text__counted(count, sizeof(count), sum.gaps, "piece"),
			       text__bytes(largest, sizeof(largest), sum.largest));
	else
		len = snprintf(buf, WORDS_OOM, "only %s are free",
			       text__bytes(bytes, sizeof(bytes), sum.free));
	if (sum.private && !sum.fits)
		len += snprintf(buf + len, WORDS_OOM - (size_t)len, ", %s more in private pools",
				text__bytes(bytes, sizeof(bytes), sum.private));
	if (sum.pending)
		snprintf(buf + len, WORDS_OOM - (size_t)len,
			 "; the program has freed %s that a stream still uses",
			 text__bytes(bytes, sizeof(bytes), sum.pending));
	return buf;
}

struct report_below words__below(const struct model_segments *s)
{
	struct report_below below = {
		.segments_known = s->n,
		.any = s->n || s->used_known || s->nothers || s->host || s->registered ||
		       s->unknown_device,
		.nameless = (int64_t)(s->allocated - s->inside - s->outside - s->unmapped_inside),
	};

	if (s->has_totals)
		below.missing = (int64_t)(s->reserved - s->known - s->unmapped);
	if (s->used_known)
		below.not_seen = (int64_t)(s->used - s->used_below - s->used_others);
	below.adds_up = !below.missing && !below.nameless && below.not_seen >= 0;
	return below;
}

/* ---- the command line ---- */

/* Copies the strings of args. NULL: an element is no string, or memory is short. */
static char **copy_args(const json_t *args)
{
	size_t n = json_array_size(args);
	char **argv = calloc(n + 1, sizeof(*argv));

	for (size_t i = 0; argv && i < n; i++) {
		const char *arg = json_string_value(json_array_get(args, i));

		argv[i] = arg ? strdup(arg) : NULL;
		if (!argv[i]) {
			words__free_cmdline(argv);
			argv = NULL;
		}
	}
	return argv;
}

/* Cuts blanks and empty arguments at the end: a process that sets its title fills the rest of its
 * old command line with them. */
static void cut_end(char **argv, size_t n)
{
	size_t len;

	for (; n && argv[n - 1]; n--) {
		len = strlen(argv[n - 1]);
		while (len && argv[n - 1][len - 1] == ' ')
			argv[n - 1][--len] = '\0';
		if (len || n == 1)
			return;
		free(argv[n - 1]);
		argv[n - 1] = NULL;
	}
}

char **words__cmdline(const struct facts *f)
{
	const char *fact = facts__get(f, "cmdline");
	json_t *args = fact ? json_loads(fact, 0, NULL) : NULL;
	char **argv = json_array_size(args) ? copy_args(args) : NULL;

	if (argv)
		cut_end(argv, json_array_size(args));
	json_decref(args);
	return argv;
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* "python -u train.py --lr 1" gives "train.py"; "python -m pkg.train" gives "pkg.train". */
char *words__program(char *buf, size_t size, const struct facts *f)
{
	char **argv = words__cmdline(f);
	const char *name = argv ? base_of(argv[0]) : "", *module = NULL;

	for (size_t i = 1; argv && argv[i] && text__starts(name, "python"); i++) {
		if (!strcmp(argv[i], "-m"))
			module = argv[i + 1];
		if (*argv[i] == '-' && !module)
			continue;
		name = module ? module : base_of(argv[i]);
		break;
	}
	text__clean(buf, size, name, strlen(name));
	words__free_cmdline(argv);
	return buf;
}

char *words__arguments(char *buf, size_t size, const char *cmdline, size_t len)
{
	const char *end, *slash;
	size_t used = 0, n;

	/* A process title leaves blanks and zeros in the room of the old command line. */
	while (len && (!cmdline[len - 1] || cmdline[len - 1] == ' '))
		len--;
	end = cmdline + len;
	buf[0] = '\0';
	for (const char *a = cmdline; a < end && used + 2 < size; a += n + 1) {
		n = strnlen(a, (size_t)(end - a));
		slash = a == cmdline ? memrchr(a, '/', n) : NULL;
		if (used)
			buf[used++] = ' ';
		if (slash)
			text__clean(buf, size, slash + 1, n - (size_t)(slash + 1 - a));
		else
			text__clean(buf + used, size - used, a, n);
		used += strlen(buf + used);
	}
	return buf;
}

void words__free_cmdline(char **argv)
{
	for (size_t i = 0; argv && argv[i]; i++)
		free(argv[i]);
	free(argv);
}
