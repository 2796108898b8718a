/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/recording/stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/words.h"
#include "record/dict.h"
#include "record/files.h"
#include "record/stream.h"
#include "report/recording/row_set.h"

#define INDENT 2   /* columns for each level */
#define DEEPEST 20 /* most levels that are indented */

struct report_frames {
	const struct dict *d;
	const struct facts *facts;
	bool all;
	uint8_t *origin; /* [string in the dict]: 1 + enum file_origin; 0: not known yet */
	char **patterns; /* modules of merged rows */
	size_t npatterns;
	char text[REPORT_TEXT];
};

struct report_frames *report_frames__new(const struct dict *d, const struct facts *f, bool all)
{
	struct report_frames *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->d = d;
	s->facts = f;
	s->all = all;
	s->origin = calloc(dict__counts(d).strings + 1, 1);
	if (!s->origin) {
		free(s);
		return NULL;
	}
	return s;
}

void report_frames__free(struct report_frames *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->npatterns; i++)
		free(s->patterns[i]);
	free(s->patterns);
	free(s->origin);
	free(s);
}

/* True for a frame of PyTorch's own code, unless all frames are shown. */
static bool is_hidden(struct report_frames *s, struct dict_frame f)
{
	uint32_t file = dict__get_loc(s->d, f.loc).file;

	if (s->all || !f.loc)
		return false;
	if (!s->origin[file])
		s->origin[file] = 1 + files__origin(dict__str(s->d, file), s->facts);
	return s->origin[file] == 1 + FILE_TORCH;
}

/* Moves *i, frames from the innermost on, to the next frame that is shown. False: there is none. */
static bool next_shown(struct report_frames *s, struct dict_stack st, uint32_t *i)
{
	while (*i < st.n && is_hidden(s, st.frames[*i]))
		++*i;
	return *i < st.n;
}

/* Compares the shown frames and the headings of two rows: 0 if the rows look the same. */
static int cmp_shown(const void *a, const void *b, void *ctx)
{
	const struct row *x = a, *y = b;
	struct dict_stack stack_x, stack_y;
	struct report_frames *frames = ctx;
	uint32_t i = 0, k = 0;
	int order;

	if (x->before_attach != y->before_attach)
		return x->before_attach ? 1 : -1;
	order = (int)x->phase - (int)y->phase;
	if (!order)
		order = strcmp(x->source, y->source);
	if (!order && row__has_leaf(x) != row__has_leaf(y))
		order = row__has_leaf(x) ? 1 : -1;
	if (!order && row__has_leaf(x))
		order = strcmp(x->node_class, y->node_class);
	if (order || x->stack == y->stack)
		return order;
	stack_x = dict__get_stack(frames->d, x->stack);
	stack_y = dict__get_stack(frames->d, y->stack);
	for (;; i++, k++) {
		bool more = next_shown(frames, stack_x, &i);
		bool other = next_shown(frames, stack_y, &k);

		if (more != other)
			return more ? 1 : -1;
		if (!more)
			return (int)stack_x.walk - (int)stack_y.walk;
		if (stack_x.frames[i].loc != stack_y.frames[k].loc)
			return stack_x.frames[i].loc < stack_y.frames[k].loc ? -1 : 1;
		if (frames->all && stack_x.frames[i].module != stack_y.frames[k].module)
			return stack_x.frames[i].module < stack_y.frames[k].module ? -1 : 1;
	}
}

/* Makes to->module a pattern that also matches r's module. Returns false if memory is short. */
static bool cover_modules(struct report_frames *s, struct row *to, const struct row *r)
{
	char **grown, *pattern;

	if (!strcmp(to->module, r->module))
		return true;
	grown = reallocarray(s->patterns, s->npatterns + 1, sizeof(*grown));
	if (!grown)
		return false;
	s->patterns = grown;
	pattern = malloc(strlen(to->module) + 4);
	if (!pattern)
		return false;
	grown[s->npatterns++] = pattern;
	strcpy(pattern, to->module);
	pattern__cover(pattern, r->module);
	to->module = pattern;
	return true;
}

static int cmp_module(const struct row *x, const struct row *y)
{
	int c = strcmp(x->module, y->module);

	if (c)
		return c;
	c = row_set__compare(x->module_class, y->module_class);
	return c ? c : row_set__compare(x->module_root, y->module_root);
}

/* Puts rows of one module next to each other, so that the module counts once. */
static int cmp_stack_module(const void *a, const void *b, void *ctx)
{
	int c = cmp_shown(a, b, ctx);

	return c ? c : cmp_module(a, b);
}

/* Adds row r to row `to`. previous: the row before r in the order of cmp_stack_module(), unchanged.
 * Returns false if memory is short. */
static bool add_row(struct report_frames *s, struct row *to, const struct row *previous,
		    const struct row *r)
{
	if (cmp_module(previous, r))
		to->modules += r->modules;
	row__add(to, r);
	return cover_modules(s, to, r);
}

int report_frames__merge(struct report_frames *s, struct row *rows, size_t *n)
{
	struct row previous;
	size_t kept = 0;

	if (!*n)
		return 0;
	qsort_r(rows, *n, sizeof(*rows), cmp_stack_module, s);
	for (size_t i = 0; i < *n; i++) {
		struct row r = rows[i];

		if (!kept || r.before_attach || cmp_shown(&rows[kept - 1], &r, s) != 0)
			rows[kept++] = r;
		else if (!add_row(s, &rows[kept - 1], &previous, &r))
			return -ENOMEM;
		previous = r;
	}
	*n = kept;
	row__sort(rows, kept);
	return 0;
}

static void print_line(FILE *out, unsigned depth, const char *text)
{
	fprintf(out, "%*s%s\n", (int)(4 + INDENT * (depth < DEEPEST ? depth : DEEPEST)), "", text);
}

/* Prints "file:line function" of a frame; "?" if its place is not known. */
static void print_frame(struct report_frames *s, FILE *out, unsigned depth, struct dict_frame f)
{
	struct dict_loc loc = dict__get_loc(s->d, f.loc);
	struct row r = { .file = dict__str(s->d, loc.file),
			 .func = dict__str(s->d, loc.func),
			 .line = loc.line,
			 .source = "frame" };

	if (f.loc)
		words__location(s->text, &r, facts__get(s->facts, "cwd"), /*columns=*/SIZE_MAX);
	else
		strcpy(s->text, "?");
	print_line(out, depth, s->text);
}

void report_frames__print(struct report_frames *s, FILE *out, const struct row *r)
{
	struct dict_stack stack = dict__get_stack(s->d, r->stack);
	unsigned depth = 0;

	for (uint32_t i = stack.n; i-- > 0;)
		if (!is_hidden(s, stack.frames[i]))
			print_frame(s, out, depth++, stack.frames[i]);
	if (stack.walk)
		fprintf(out, "    (%s)\n", facts__walk_name(stack.walk));
	if (row__has_leaf(r)) {
		text__clean(s->text, sizeof(s->text), r->node_class, strlen(r->node_class));
		print_line(out, depth, s->text);
	}
	fputc('\n', out);
}
