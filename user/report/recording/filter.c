/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/filter.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "model/words.h"
#include "record/dict.h"

#define MOST_VALUES 256 /* most values of all terms */
#define LISTED 8	/* most values that a message lists */

enum key {
	KEY_ANY,
	KEY_LINE,
	KEY_FUNC,
	KEY_MODULE,
	KEY_CLASS,
	KEY_CATEGORY,
	KEY_PHASE,
	KEY_THREAD,
	KEY_NAME,
	KEY_SOURCE,
	KEY_SIZE,
	KEY_SCOPE,
	KEY_NR,
};

static const struct {
	const char *word;
	enum key key;
} keys[] = {
	{ "text", KEY_ANY },
	{ "line", KEY_LINE },
	{ "func", KEY_FUNC },
	{ "module", KEY_MODULE },
	{ "class", KEY_CLASS },
	{ "category", KEY_CATEGORY },
	{ "phase", KEY_PHASE },
	{ "thread", KEY_THREAD },
	{ "name", KEY_NAME },
	{ "source", KEY_SOURCE },
	{ "size", KEY_SIZE },
	{ "scope", KEY_SCOPE },
	/* other words for them */
	{ "role", KEY_CATEGORY },
	{ "block", KEY_SIZE },
	{ "function", KEY_FUNC },
	{ "file", KEY_LINE },
};

struct value {
	char *text;		   /* text in the filter's copy of the expression */
	uint32_t line;		   /* line number for KEY_LINE; 0: any */
	char op[3];		   /* comparison for KEY_SIZE, such as ">=" */
	uint64_t bytes;		   /* size for KEY_SIZE */
	struct scope_cache *scope; /* for KEY_SCOPE; owned */
};

struct term {
	enum key key;
	bool negated;
	size_t first, n; /* range of values; any one must match */
};

struct filter {
	char *copy; /* copy of the expression; values point into it */
	struct term *terms;
	struct value *values;
	size_t nterms, nvalues;
	char *why;
	size_t why_size;
};

/* Writes the cleaned reason of an error to f->why. Returns -EINVAL. */
static __attribute__((format(printf, 2, 3))) int complain(struct filter *f, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text__clean(f->why, f->why_size, text, strlen(text));
	return -EINVAL;
}

/* ---- parsing ---- */

/* Splits ">=1.5G" into comparison and bytes; without a comparison it is "=". Returns 0 or -EINVAL.
 */
static int parse_size(struct filter *f, struct value *v)
{
	size_t op_len = strspn(v->text, "<>=");
	const char *number = v->text + op_len;

	if (op_len > 2 || (op_len == 2 && v->text[1] != '='))
		return complain(
			f, "size:%s: give a comparison (> >= < <= =) and a size, such as block:>1M",
			v->text);
	memcpy(v->op, v->text, op_len);
	if (!op_len)
		strcpy(v->op, "=");
	if (text__parse_size(number, &v->bytes))
		return complain(f, "size:%s: '%s' is not a size; try 64K or 1.5G", v->text, number);
	return 0;
}

/* Splits "model.py:36" into text and line number. Leaves a text without a number as it is. */
static void parse_line(struct value *v)
{
	char *colon = strrchr(v->text, ':'), *end;
	unsigned long number;

	if (!colon || colon[1] < '0' || colon[1] > '9')
		return;
	number = strtoul(colon + 1, &end, 10);
	if (*end || !number || number > UINT32_MAX)
		return;
	v->line = (uint32_t)number;
	*colon = '\0';
}

/* Checks that a value is one of n names. key: for the message. shown(i): name i as people see it.
 * parse: NULL, or replaces the value by the name that it returns for a synonym (NULL: none).
 * Returns 0 or -EINVAL. */
static int parse_choice(struct filter *f, struct value *v, const char *key,
			const char *(*shown)(int), int n, const char *(*parse)(const char *))
{
	const char *name = parse ? parse(v->text) : NULL;
	char choices[320] = "";
	size_t len = 0;

	if (name) {
		v->text = (char *)(uintptr_t)name; /* only read */
		return 0;
	}
	for (int i = 0; i < n; i++) {
		const char *quote = strchr(shown(i), ' ') ? "\"" : "";

		if (!strcmp(v->text, shown(i)))
			return 0;
		len += snprintf(choices + len, sizeof(choices) - len, "%s%s%s%s", i ? ", " : "",
				quote, shown(i), quote);
	}
	return complain(f, "%s:%s is none of %s", key, v->text, choices);
}

static const char *role_at(int i)
{
	return words__role(category__name(i));
}

static const char *phase_at(int i)
{
	return words__phase(i);
}

#define SOURCES 6

static const char *source_at(int i)
{
	static const char *const names[SOURCES] = { "frame",  "autograd", "census",
						    "native", "untraced", "hidden" };

	return names[i];
}

/* Adds a value of a term with this key. Returns 0 or -EINVAL. */
static int parse_value(struct filter *f, enum key key, char *text)
{
	struct value *value = &f->values[f->nvalues];

	if (f->nvalues == MOST_VALUES)
		return complain(f, "more than %d values", MOST_VALUES);
	f->nvalues++;
	*value = (struct value){ .text = text };
	switch (key) {
	case KEY_SIZE:
		return parse_size(f, value);
	case KEY_CATEGORY:
		return parse_choice(f, value, "role", role_at, CATEGORY_NR, words__parse_role);
	case KEY_PHASE:
		return parse_choice(f, value, "phase", phase_at, PHASE_NR, words__parse_phase);
	case KEY_SOURCE:
		return parse_choice(f, value, "source", source_at, SOURCES, NULL);
	case KEY_SCOPE:
		if (!facts__is_scope(text))
			return complain(f, "scope:%s is no name of a scope", text);
		value->scope = calloc(1, sizeof(*value->scope));
		return value->scope ? 0 : complain(f, "out of memory");
	case KEY_LINE:
		parse_line(value);
		break;
	default:
		break;
	}
	return 0;
}

/* Takes the value at *p, up to "|" or a space, removes its quotes in place, and advances *p. *more:
 * true if another value follows. Returns 0 or -EINVAL. */
static int take_value(struct filter *f, char **p, char **ret, bool *more)
{
	char *in = *p, *out = *p;
	bool quoted = *in == '"';

	*ret = out;
	if (quoted) {
		for (in++; *in && *in != '"'; in++)
			*out++ = *in;
		if (*in++ != '"')
			return complain(f, "missing closing quote");
		if (*in && *in != '|' && *in != ' ')
			return complain(f, "after a quote: '%s'", in);
	} else {
		for (; *in && *in != '|' && *in != ' '; in++)
			*out++ = *in;
		if (out == *ret)
			return complain(f, "a term without a value; for an empty value write \"\"");
	}
	*more = *in == '|';
	*p = *in ? in + 1 : in;
	*out = '\0';
	return 0;
}

/* Takes the key before a colon and advances *p. Text that cannot be a field, as in model.py:36, is
 * left: it is part of a value for KEY_ANY. Returns 0 or -EINVAL. */
static int take_key(struct filter *f, char **p, enum key *ret)
{
	size_t len = strspn(*p, "abcdefghijklmnopqrstuvwxyz_");

	*ret = KEY_ANY;
	if (!len || (*p)[len] != ':')
		return 0;
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		if (strlen(keys[i].word) == len && !strncmp(keys[i].word, *p, len)) {
			*ret = keys[i].key;
			*p += len + 1;
			return 0;
		}
	return complain(f,
			"unknown field '%.*s'; use line, func, module, class, role, phase, thread, "
			"name, source, block, scope, text",
			(int)len, *p);
}

/* Takes a term with its values and advances *p. Returns 0 or -EINVAL. */
static int take_term(struct filter *f, char **p)
{
	struct term *term = &f->terms[f->nterms];
	bool more = true;
	char *text;
	int err;

	if (f->nterms == MOST_VALUES)
		return complain(f, "more than %d terms", MOST_VALUES);
	*term = (struct term){ .negated = **p == '-' || **p == '!', .first = f->nvalues };
	*p += term->negated;
	err = take_key(f, p, &term->key);
	while (!err && more) {
		err = take_value(f, p, &text, &more);
		if (!err)
			err = parse_value(f, term->key, text);
	}
	term->n = f->nvalues - term->first;
	f->nterms++;
	return err;
}

static int parse_terms(struct filter *f)
{
	char *p = f->copy + strspn(f->copy, " ");
	int err = 0;

	if (!*p)
		return complain(f, "nothing in it");
	while (!err && *p) {
		err = take_term(f, &p);
		p += strspn(p, " ");
	}
	return err;
}

struct filter *filter__parse(const char *expr, char *why, size_t size)
{
	struct filter *f = calloc(1, sizeof(*f));

	snprintf(why, size, "out of memory");
	if (!f)
		return NULL;
	f->why = why;
	f->why_size = size;
	f->copy = strdup(expr);
	f->terms = calloc(MOST_VALUES, sizeof(*f->terms));
	f->values = calloc(MOST_VALUES, sizeof(*f->values));
	if (f->copy && f->terms && f->values && !parse_terms(f))
		return f;
	filter__free(f);
	return NULL;
}

void filter__free(struct filter *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->nvalues && f->values; i++) {
		if (f->values[i].scope)
			free(f->values[i].scope->locs);
		free(f->values[i].scope);
	}
	free(f->copy);
	free(f->terms);
	free(f->values);
	free(f);
}

/* ---- matching ---- */

/* True if a field contains a value. An empty value matches only an empty field. */
static bool has_text(const char *s, const char *value)
{
	if (!*value)
		return !s || !*s;
	return s && strcasestr(s, value);
}

/* True if a part of a dotted name, n bytes long, matches a part of the pattern. */
static bool part_is(const char *part, size_t n, const char *pattern, size_t npattern)
{
	char name[256], glob[256];

	if (n >= sizeof(name) || npattern >= sizeof(glob))
		return n == npattern && !memcmp(part, pattern, n);
	memcpy(name, part, n);
	name[n] = '\0';
	memcpy(glob, pattern, npattern);
	glob[npattern] = '\0';
	return !fnmatch(glob, name, 0);
}

/* Returns whether whole parts of the name, from its start on, match the pattern. */
static bool parts_from(const char *name, const char *pattern)
{
	for (;;) {
		size_t n = strcspn(name, ".");
		size_t npattern = strcspn(pattern, ".");

		if (!part_is(name, n, pattern, npattern))
			return false;
		if (!pattern[npattern])
			return true;
		if (!name[n])
			return false;
		name += n + 1;
		pattern += npattern + 1;
	}
}

/* True if the pattern matches whole parts anywhere in a module's name. An empty pattern matches
 * only an empty name. */
static bool module_has(const char *name, const char *pattern)
{
	if (!*pattern)
		return !*name;
	for (const char *p = name; *name; p++) {
		if (parts_from(p, pattern))
			return true;
		p = strchr(p, '.');
		if (!p)
			break;
	}
	return false;
}

/* Compares the size of the row's blocks; blocks of several sizes count with their median. */
static bool size_is(const struct row *r, const struct value *v)
{
	if (!r->median) /* size unknown */
		return false;
	/* op is "=", "<", "<=", ">" or ">=" */
	if (v->op[0] == '=')
		return r->median == v->bytes;
	if (v->op[1] == '=' && r->median == v->bytes)
		return true;
	return v->op[0] == '>' ? r->median > v->bytes : r->median < v->bytes;
}

/* Returns whether "file:line " contains value. A number at the end of value must be the whole
 * line number. */
static bool colon_has(const char *line, const char *value)
{
	size_t len = strlen(value);
	const char *p = strcasestr(line, value);

	for (; p; p = strcasestr(p + 1, value))
		if (value[len - 1] < '0' || value[len - 1] > '9' || p[len] == ' ')
			return true;
	return false;
}

/* Returns whether any text of the row contains value. */
static bool any_has(const struct row *r, const char *value)
{
	char line[DICT_MAX_STRING + 16];

	if (has_text(r->file, value) || has_text(r->func, value) || has_text(r->module, value) ||
	    has_text(r->module_class, value) || has_text(r->category, value) ||
	    has_text(r->name, value) || has_text(r->thread, value) || has_text(r->source, value) ||
	    has_text(r->node_class, value))
		return true;
	if (r->before_attach)
		return has_text(words__before(r->history), value);
	if (has_text(phase__name(r->phase), value))
		return true;
	if (!r->file || !strchr(value, ':'))
		return false;
	/* the space ends the number: model.py:36 does not match model.py:361 */
	snprintf(line, sizeof(line), "%s:%u ", r->file, r->line);
	return colon_has(line, value);
}

/* Returns the row's text in a field; NULL: none. */
static const char *text_of(enum key key, const struct row *r)
{
	switch (key) {
	case KEY_LINE:
		return r->file;
	case KEY_FUNC:
		return r->func;
	case KEY_MODULE:
		return r->module;
	case KEY_CLASS:
		return r->module_class;
	case KEY_CATEGORY:
		return r->category;
	case KEY_PHASE:
		return r->before_attach ? NULL : phase__name(r->phase);
	case KEY_THREAD:
		return r->thread;
	case KEY_NAME:
		return r->name;
	case KEY_SOURCE:
		return r->source;
	default:
		return NULL;
	}
}

/* True if a row matches one value of a term. */
static bool holds(enum key key, const struct value *v, const struct row *r)
{
	const char *text = text_of(key, r);

	switch (key) {
	case KEY_LINE:
		return (!v->line || (text && v->line == r->line)) && has_text(text, v->text);
	case KEY_MODULE:
		return module_has(text, v->text);
	case KEY_CATEGORY:
	case KEY_PHASE:
	case KEY_SOURCE:
		return text && !strcmp(text, v->text);
	case KEY_SIZE:
		return size_is(r, v);
	case KEY_SCOPE:
		return model__row_in_scope(r, v->text, v->scope);
	case KEY_ANY:
		return any_has(r, v->text);
	default:
		return has_text(text, v->text);
	}
}

static bool matches_row(const struct filter *f, const struct row *r)
{
	for (size_t i = 0; i < f->nterms; i++) {
		const struct term *t = &f->terms[i];
		bool any_matches = false;

		for (size_t k = 0; k < t->n && !any_matches; k++)
			any_matches = holds(t->key, &f->values[t->first + k], r);
		if (any_matches == t->negated)
			return false;
	}
	return true;
}

/* Returns whether a path, or a folder of it, matches one of the n patterns. A pattern matches
 * whole names at the end. Wildcards match any text (asterisk) or one character (question mark),
 * but not a slash. */
static bool hides_path(char *const *patterns, size_t n, const char *path)
{
	for (size_t i = 0; i < n; i++)
		for (const char *p = path;; p++) {
			if (!fnmatch(patterns[i], p, FNM_PATHNAME | FNM_LEADING_DIR | FNM_NOESCAPE))
				return true;
			p = strchr(p, '/');
			if (!p)
				break;
		}
	return false;
}

static bool keep_row(void *ctx, const struct row *r)
{
	const struct report_select *s = ctx;

	return matches_row(s->filter, r);
}

static bool hide_file(void *ctx, const char *file)
{
	const struct report_select *s = ctx;

	return hides_path(s->hide, s->nhide, file);
}

int report_select__set_filter(struct report_select *s, const char *expr, char *why, size_t size)
{
	filter__free(s->filter);
	s->expr = expr;
	s->filter = filter__parse(expr, why, size);
	return s->filter ? 0 : -EINVAL;
}

int report_select__add_hide(struct report_select *s, const char *pattern)
{
	size_t len = strlen(pattern);
	char *copy;

	while (len && pattern[len - 1] == '/') /* a folder's name without the slash */
		len--;
	if (!len)
		return -EINVAL;
	copy = strndup(pattern, len);
	if (!copy || array__grow(&s->hide, &s->hide_room, s->nhide + 1, sizeof(*s->hide))) {
		free(copy);
		return -ENOMEM;
	}
	s->hide[s->nhide++] = copy;
	return 0;
}

void report_select__drop(struct report_select *s)
{
	filter__free(s->filter);
	for (size_t i = 0; i < s->nhide; i++)
		free(s->hide[i]);
	free(s->hide);
}

void report_select__apply(const struct report_select *s, struct row_opts *o)
{
	if (!s)
		return;
	o->ctx = (void *)(uintptr_t)s;
	o->keep = s->filter ? keep_row : NULL;
	o->hide = s->nhide ? hide_file : NULL;
}

char *report_select__instead(const struct report_select *s, const struct row *rows, size_t n,
			     char *buf, size_t size)
{
	static const char *const words[KEY_NR] = {
		[KEY_LINE] = "files",	  [KEY_FUNC] = "functions",	 [KEY_MODULE] = "modules",
		[KEY_CLASS] = "classes",  [KEY_CATEGORY] = "categories", [KEY_PHASE] = "phases",
		[KEY_THREAD] = "threads", [KEY_NAME] = "names",
	};
	const struct term *term = s->filter->terms;
	struct nearest near = { .word = s->filter->values[term->first].text };
	char list[1024] = "", line[1300], did_you_mean[224] = "";
	const char *listed[LISTED];
	size_t nlisted = 0, len = 0, more = 0;

	*buf = '\0';
	if (term->negated || !words[term->key])
		return buf;
	for (size_t i = 0; i < n; i++) {
		const char *value = text_of(term->key, &rows[i]);
		size_t known = 0;

		if (!value || !*value)
			continue;
		nearest__try(&near, value);
		while (known < nlisted && strcmp(listed[known], value) != 0)
			known++;
		more += known == nlisted && nlisted == LISTED;
		if (known < nlisted || nlisted == LISTED)
			continue;
		listed[nlisted++] = value;
		if (len < sizeof(list))
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s",
						nlisted > 1 ? ", " : "", value);
	}
	if (!nlisted)
		return buf;
	if (near.best)
		snprintf(did_you_mean, sizeof(did_you_mean), "did you mean %.200s? ", near.best);
	snprintf(line, sizeof(line), "%s%s here: %s%s", did_you_mean, words[term->key], list,
		 more ? " and others" : "");
	return text__clean(buf, size, line, strlen(line));
}

size_t report_select__kept(const struct row *rows, size_t n, uint64_t *bytes, uint64_t *count)
{
	size_t kept = n;

	*bytes = *count = 0;
	while (kept && rows[kept - 1].filtered) {
		kept--;
		*bytes += rows[kept].bytes;
		*count += rows[kept].count;
	}
	return kept;
}
