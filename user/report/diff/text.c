/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Prints the comparison as text. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/grid.h"
#include "base/text.h"
#include "model/words.h"
#include "record/detail.h"
#include "record/dict.h"
#include "record/stream.h"
#include "report/diff.h"
#include "report/recording/stacks.h"

#define WHERE_WANTED 30
#define MOVED_WANTED 10 /* additional columns for a moved line */
#define MODULE_MAX 28

#define RED "\033[31m"
#define BLUE "\033[34m"

enum { COL_CHANGE, COL_OLD, COL_NEW, COL_STATUS, COL_CATEGORY, COL_PHASE, COL_MODULE, COL_NR };

static const struct column columns[COL_NR] = {
	[COL_CHANGE] = { "Change", true, 0 },  [COL_OLD] = { "Old", true, 0 },
	[COL_NEW] = { "New", true, 0 },	       [COL_STATUS] = { "How", false, 3 },
	[COL_CATEGORY] = { "Role", false, 1 }, [COL_PHASE] = { "Phase", false, 4 },
	[COL_MODULE] = { "Module", false, 2 },
};

struct printer {
	FILE *out;
	struct diff *d;
	struct report_frames *frames[MATCH_SIDES]; /* for --by stack */
	struct grid *table;
	bool short_names; /* functions without their class */
	size_t width, top, room;
	bool colour;
	char text[REPORT_TEXT + 64], more[REPORT_TEXT];
};

static const struct row *shown(const struct diff_row *r)
{
	return r->new ? r->new : r->old;
}

static enum match_side side_of(const struct diff_row *r)
{
	return r->new ? MATCH_NEW : MATCH_OLD;
}

static const char *colour_of(const struct printer *p, const struct diff_row *r)
{
	if (!p->colour || r->status == DIFF_SAME)
		return NULL;
	return r->status == DIFF_GREW || r->status == DIFF_NEW ? RED : BLUE;
}

/* Finds the common pattern of both sides' modules and their number: "4", "4 -> 1", or "" for one
 * equal module. */
static struct row both_modules(struct printer *p, const struct diff_row *dr, char *count,
			       size_t size)
{
	const struct row *a = dr->old, *b = dr->new;
	struct row r = *shown(dr);

	*count = '\0';
	if (!a || !b || !a->modules || !b->modules) {
		r = a && a->modules ? *a : r;
		if (r.modules > 1)
			snprintf(count, size, "%u", r.modules);
		return r;
	}
	if (a->modules != b->modules)
		snprintf(count, size, "%u -> %u", a->modules, b->modules);
	else if (a->modules > 1 || strcmp(a->module, b->module) != 0)
		snprintf(count, size, "%u", a->modules > 1 ? a->modules : 2);
	if (strcmp(a->module, b->module) != 0) {
		snprintf(p->more, sizeof(p->more) - 2, "%s", a->module);
		pattern__cover(p->more, b->module);
		r.module = p->more;
	}
	return r;
}

/* Formats "blocks.*.mlp (4)". */
static char *module(struct printer *p, const struct diff_row *dr)
{
	char count[32], words[40];
	struct row r = both_modules(p, dr, count, sizeof(count));

	if (*count && !strcmp(r.module, "*")) {
		snprintf(p->text, sizeof(p->text), "(%s modules)", count);
		return p->text;
	}
	words__module(p->text, &r);
	if (!*p->text)
		strcpy(p->text, "(no module)");
	if (*count) {
		snprintf(words, sizeof(words), " (%s)", count);
		words__cut_front(p->text, MODULE_MAX - strlen(words));
		return strcat(p->text, words);
	}
	return words__cut_front(p->text, MODULE_MAX);
}

static void module_words(struct printer *p, const struct row *r)
{
	char cls[REPORT_TEXT / 2];
	size_t len;

	words__module(p->text, r);
	len = strlen(p->text);
	if (!len) {
		strcpy(p->text, "(no module)");
	} else if (*r->module && *r->module_class) {
		text__clean(cls, sizeof(cls), r->module_class, strlen(r->module_class));
		snprintf(p->text + len, sizeof(p->text) - len, " (%s)", cls);
	}
}

/* Formats the last column: the row's location and its former line. */
static char *where(struct printer *p, const struct diff_row *dr, size_t columns_)
{
	const struct diff_side *s = &p->d->side[side_of(dr)];
	const struct row *r = shown(dr);
	char was[40] = "";

	switch (r->before_attach ? BY_LINE : p->d->opts.by) {
	case BY_MODULE:
	case BY_LAYER:
		module_words(p, r);
		return words__cut_front(p->text, columns_);
	case BY_PHASE:
		return strcpy(p->text, words__phase(r->phase));
	case BY_CATEGORY:
		return strcpy(p->text, words__role(r->category));
	case BY_THREAD:
		*p->text = '\0';
		if (r->thread)
			text__clean(p->text, sizeof(p->text), r->thread, strlen(r->thread));
		return words__cut_front(p->text, columns_);
	default:
		break;
	}
	if (dr->moved)
		snprintf(was, sizeof(was), ", moved from :%u", dr->old->line);
	columns_ = columns_ > strlen(was) ? columns_ - strlen(was) : 8;
	if (p->short_names)
		words__location_short(p->text, r, facts__get(s->a->facts, "cwd"), columns_);
	else
		words__location(p->text, r, facts__get(s->a->facts, "cwd"), columns_);
	return strcat(p->text, was);
}

/* Returns the category, from the other side if one side's is unknown. */
static const char *category(const struct diff_row *dr)
{
	const char *unknown = category__name(CATEGORY_UNKNOWN), *name = shown(dr)->category;

	if (dr->old && dr->new &&name && !strcmp(name, unknown) && dr->old->category)
		name = dr->old->category;
	return words__role(name);
}

static void add_row(struct printer *p, struct grid *t, const struct diff_row *dr)
{
	const struct row *r = shown(dr);
	char old[24], new[24], sign[24], name[REPORT_TEXT];
	const char *cells[COL_NR] = {
		[COL_CHANGE] = diff__signed(sign, sizeof(sign), diff__old(dr), diff__new_bytes(dr)),
		[COL_OLD] = dr->old ? text__bytes(old, sizeof(old), diff__old(dr)) : "-",
		[COL_NEW] = dr->new ? text__bytes(new, sizeof(new), diff__new_bytes(dr)) : "-",
		[COL_STATUS] = diff__status(dr->status),
		[COL_CATEGORY] = category(dr),
		[COL_PHASE] = r->before_attach ? "before attach" : words__phase(r->phase),
		[COL_MODULE] = strcpy(name, module(p, dr)),
	};

	grid__row(t);
	for (size_t i = 0; i < COL_NR; i++)
		grid__put(t, i, cells[i], i ? NULL : colour_of(p, dr));
}

static const char *title(enum group by)
{
	static const char *const titles[BY_NR] = {
		[BY_LINE] = "Location", [BY_STACK] = "Location",
		[BY_MODULE] = "Module", [BY_LAYER] = "Module, with all inside",
		[BY_PHASE] = "Phase",	[BY_THREAD] = "Thread",
		[BY_CATEGORY] = "Role",
	};

	return titles[by];
}

static struct grid *new_columns(const struct printer *p)
{
	struct grid *t = grid__new(columns, COL_NR);
	bool line = p->d->opts.by == BY_LINE || p->d->opts.by == BY_STACK;

	if (!t)
		return NULL;
	if (p->d->opts.by != BY_LINE || p->d->opts.any_category)
		grid__show(t, COL_CATEGORY, false);
	if (!line || p->d->opts.any_phase)
		grid__show(t, COL_PHASE, false);
	if (!line)
		grid__show(t, COL_MODULE, false);
	return t;
}

static size_t changed(const struct diff *d)
{
	return d->n - d->sums[DIFF_SAME].rows;
}

/* Counts the rows to print. Unchanged rows come last and are only counted. */
static size_t rows_shown(const struct printer *p)
{
	return p->top && p->top < changed(p->d) ? p->top : changed(p->d);
}

static void print_rest(struct printer *p, size_t n)
{
	uint64_t more = 0, less = 0;
	char a[24], b[24], count[32];

	for (size_t i = n; i < changed(p->d); i++) {
		uint64_t old = diff__old(&p->d->rows[i]), new = diff__new_bytes(&p->d->rows[i]);

		more += new > old ? new - old : 0;
		less += old > new ? old - new : 0;
	}
	if (n < changed(p->d) && p->d->overlap)
		fprintf(p->out, "+ %s more rows\n",
			text__count(count, sizeof(count), changed(p->d) - n));
	else if (n < changed(p->d))
		fprintf(p->out, "+ %s more row%s: %s%s%s\n",
			text__count(count, sizeof(count), changed(p->d) - n),
			changed(p->d) - n == 1 ? "" : "s",
			more ? diff__signed(a, sizeof(a), 0, more) : "", more && less ? ", " : "",
			less ? diff__signed(b, sizeof(b), less, 0) : "");
}

static bool any_moved(const struct printer *p)
{
	for (size_t i = 0; i < rows_shown(p); i++)
		if (p->d->rows[i].moved)
			return true;
	return false;
}

/* Builds the table with the columns that fit. */
static int build(struct printer *p)
{
	size_t n = rows_shown(p);
	int err;

	grid__free(p->table);
	p->table = new_columns(p);
	err = p->table ? 0 : -ENOMEM;
	for (size_t i = 0; i < n && !err; i++)
		add_row(p, p->table, &p->d->rows[i]);
	if (!err)
		p->room = grid__fit(p->table, p->width,
				    WHERE_WANTED + (any_moved(p) ? MOVED_WANTED : 0), COL_NR);
	return err ? err : grid__error(p->table);
}

/* Merges rows that differ only in a category or phase whose column does not fit. */
static int prepare(struct printer *p)
{
	struct diff_opts o = p->d->opts;
	int err = build(p);

	if (err || o.by != BY_LINE)
		return err;
	o.any_category |= !grid__shown(p->table, COL_CATEGORY);
	o.any_phase |= !grid__shown(p->table, COL_PHASE);
	if (o.any_category == p->d->opts.any_category && o.any_phase == p->d->opts.any_phase)
		return 0;
	err = diff__again(p->d, &o);
	return err ? err : build(p);
}

static void print_table(struct printer *p)
{
	size_t n = rows_shown(p);

	if (!n)
		return;
	/* Functions have their class in all rows, or in none. */
	p->short_names = false;
	for (size_t i = 0; i < n && !p->short_names; i++)
		p->short_names = text__width(where(p, &p->d->rows[i], SIZE_MAX)) > p->room;
	fputc('\n', p->out);
	grid__print_titles(p->table, p->out, p->colour, title(p->d->opts.by));
	for (size_t i = 0; i < n; i++) {
		grid__print(p->table, p->out, i, where(p, &p->d->rows[i], p->room));
		if (p->d->opts.by == BY_STACK)
			report_frames__print(p->frames[side_of(&p->d->rows[i])], p->out,
					     shown(&p->d->rows[i]));
	}
	print_rest(p, n);
	p->short_names = false;
}

/* Prints the rows of only one side that the table has no room for. */
static void print_list(struct printer *p, enum diff_status status, const char *words)
{
	uint64_t rows = p->d->sums[status].rows, sum = p->d->sums[status].bytes, n = 0;
	char bytes[24], count[32];

	for (size_t i = 0; i < rows_shown(p); i++) {
		const struct diff_row *r = &p->d->rows[i];

		rows -= r->status == status;
		sum -= r->status == status ? diff__old(r) + diff__new_bytes(r) : 0;
	}
	if (!rows)
		return;
	fprintf(p->out, "\n%s: %s more row%s, %s\n", words, text__count(count, sizeof(count), rows),
		rows == 1 ? "" : "s", text__bytes(bytes, sizeof(bytes), sum));
	for (size_t i = rows_shown(p); i < p->d->n && (!p->top || n < p->top); i++) {
		const struct diff_row *r = &p->d->rows[i];
		const char *colour = colour_of(p, r);

		if (r->status != status)
			continue;
		n++;
		diff__signed(bytes, sizeof(bytes), diff__old(r), diff__new_bytes(r));
		fprintf(p->out, "%s%11s%s  %s\n", colour ? colour : "", bytes,
			colour ? "\033[0m" : "", where(p, r, p->width - 13));
	}
	if (n < rows)
		fprintf(p->out, "             + %s more\n",
			text__count(count, sizeof(count), rows - n));
}

static const char *max_mem(const struct model_opts *at, char *buf, size_t size)
{
	char time[24];

	switch (at->at) {
	case AT_PEAK:
		return "Peak";
	case AT_END:
		return "At the end";
	case AT_OOM:
		return "At the first out of memory";
	case AT_TIME:
		break;
	}
	if (!at->at_time)
		return "At the start";
	snprintf(buf, size, "At %s", text__time(time, sizeof(time), at->at_time));
	return buf;
}

static void print_recording(struct printer *p, enum match_side side)
{
	const struct diff_side *s = &p->d->side[side];
	const struct facts *f = s->a->facts;
	char bytes[24], time[24], count[32], word[64], step[40], window[48], detail[DETAIL_TEXT];
	bool steps = model__steps(s->a->model);
	uint64_t lost = words__lost(s->a->model, f);
	const char *torch = facts__get(f, "torch");

	text__clean(p->text, sizeof(p->text), s->a->name, strlen(s->a->name));
	fprintf(p->out, "%s  %s: ", side == MATCH_OLD ? "old" : "new",
		words__cut_front(p->text, p->width / 3));
	report_text__command(p->text, sizeof(p->text), f, p->width > 72 ? p->width - 40 : 32);
	fprintf(p->out, "%s\n     ", p->text);
	if (torch)
		fprintf(p->out, "torch %s%s", text__clean(word, sizeof(word), torch, strlen(torch)),
			text__dot());
	words__window(s->a->model, f, window, sizeof(window));
	fprintf(p->out, "%s%s%s%s%s, ",
		text__time(time, sizeof(time), model__length(s->a->model, s->a->duration)),
		*window ? text__dot() : "", window, text__dot(),
		text__counted(count, sizeof(count), model__events(s->a->model), "event"));
	fprintf(p->out, "%s%s lost%s%s%s\n", lost && p->colour ? RED : "",
		text__count(count, sizeof(count), lost), lost && p->colour ? "\033[0m" : "",
		s->a->complete ? "" : text__dot(), s->a->complete ? "" : "not complete");
	if (*detail__sentence(detail, sizeof(detail), f))
		text__paragraph(p->out, p->width, "     Detail  ", "     ", "%s", detail);
	fprintf(p->out, "     %s  peak %s%s at %s (%s%s%s)\n", s->device.name,
		words__about(s->device.peak_is),
		text__bytes(bytes, sizeof(bytes), s->device.peak_allocated),
		text__time(time, sizeof(time), s->device.peak_time),
		steps ? text__step(step, s->device.peak_step) : "", steps ? ", " : "",
		words__phase(s->device.peak_phase));
}

/* Says that the recordings are of two programs. */
static void print_programs(struct printer *p)
{
	char old[64], new[64];

	words__program(old, sizeof(old), p->d->side[MATCH_OLD].a->facts);
	words__program(new, sizeof(new), p->d->side[MATCH_NEW].a->facts);
	if (*old && *new &&strcmp(old, new) != 0)
		fprintf(p->out,
			"These are two programs: %s and %s. Only lines of the same file and "
			"function are matched.\n",
			old, new);
}

static void print_sums(struct printer *p)
{
	static const char *const words[DIFF_NR] = { "grew", "shrank", "new", "gone", "unchanged" };
	const struct diff_side *s = p->d->side;
	char old[24], new[24], sign[24], percent[24], a[64], b[64], count[32];
	const char *first = max_mem(&p->d->opts.at[MATCH_OLD], a, sizeof(a)),
		   *second = max_mem(&p->d->opts.at[MATCH_NEW], b, sizeof(b));
	size_t at = 0;
	int len;

	diff__percent(percent, sizeof(percent), s[0].device.mark_allocated,
		      s[1].device.mark_allocated);
	fprintf(p->out, "\n%s", first);
	if (strcmp(first, second) != 0)
		fprintf(p->out, ", then %c%s", second[0] == 'A' ? 'a' : 'p', second + 1);
	fprintf(p->out, ": %s%s -> %s%s, %s%s%s%s\n", words__about(s[0].device.mark_is),
		text__bytes(old, sizeof(old), s[0].device.mark_allocated),
		words__about(s[1].device.mark_is),
		text__bytes(new, sizeof(new), s[1].device.mark_allocated),
		diff__signed(sign, sizeof(sign), s[0].device.mark_allocated,
			     s[1].device.mark_allocated),
		*percent ? " (" : "", percent, *percent ? ")" : "");
	for (int i = 0; i < DIFF_NR; i++) {
		const struct diff_sum *sum = &p->d->sums[i];
		bool up = i == DIFF_GREW || i == DIFF_NEW, bytes = i != DIFF_SAME && !p->d->overlap;

		if (!sum->rows)
			continue;
		diff__signed(sign, sizeof(sign), up ? 0 : sum->bytes, up ? sum->bytes : 0);
		len = snprintf(a, sizeof(a), "%s %s%s%s",
			       text__count(count, sizeof(count), sum->rows), words[i],
			       bytes ? " " : "", bytes ? sign : "");
		if (at && at + 2 + (size_t)len > p->width) {
			fputs(",\n  ", p->out);
			at = 2;
		} else if (at) {
			fputs(", ", p->out);
			at += 2;
		}
		fputs(a, p->out);
		at += (size_t)len;
	}
	fputs(at ? "\n" : "No rows.\n", p->out);
}

/* Prints the pairs of folders whose files were matched, such as "/a/v1" and "/a/v2" for
 * /a/v1/net/model.py and /a/v2/net/model.py. */
static void print_renamed(struct printer *p)
{
	const struct match_files *f;
	size_t n = match__renamed(p->d->match, &f), shown_ = 0;

	for (size_t i = 0; i < n; i++) {
		const char *a = f[i].old + strlen(f[i].old), *b = f[i].new + strlen(f[i].new),
			   *from = a;
		int before, after;

		for (; a > f[i].old && b > f[i].new &&a[-1] == b[-1]; a--, b--)
			if (a[-1] == '/')
				from = a - 1;
		before = (int)(from - f[i].old);
		after = (int)(strlen(f[i].new) - strlen(from));
		if (i && before && !strncmp(f[i - 1].old, f[i].old, before) &&
		    !strncmp(f[i - 1].new, f[i].new, after))
			continue; /* the same two folders as before */
		if (shown_++ == 3)
			break;
		if (!before || !after) {
			before = (int)strlen(f[i].old);
			after = (int)strlen(f[i].new);
		}
		text__clean(p->text, sizeof(p->text), f[i].old, before);
		text__clean(p->more, sizeof(p->more), f[i].new, after);
		fprintf(p->out, "Files in %s are matched with those in %s.\n", p->text, p->more);
	}
}

/* Notes that memory from before attach has no line, so new or gone rows may be that memory. */
static void print_before(struct printer *p)
{
	uint64_t before[MATCH_SIDES] = { 0 };
	char bytes[24];

	for (int k = 0; k < MATCH_SIDES; k++)
		for (size_t i = 0; i < p->d->side[k].n; i++)
			before[k] += p->d->side[k].rows[i].before_attach
					     ? p->d->side[k].rows[i].bytes
					     : 0;
	if (!before[MATCH_OLD] == !before[MATCH_NEW])
		return;
	fprintf(p->out,
		"\n%s of the %s recording were there before attach and have no line.\n"
		"Rows that are %s may be the same memory.\n",
		text__bytes(bytes, sizeof(bytes), before[MATCH_OLD] + before[MATCH_NEW]),
		before[MATCH_OLD] ? "old" : "new", before[MATCH_OLD] ? "new" : "gone");
}

static void print_check(struct printer *p)
{
	const struct diff *d = p->d;
	uint64_t old = d->side[0].device.mark_allocated, new = d->side[1].device.mark_allocated;
	uint64_t short_of = d->missing < 0 ? 0 - (uint64_t)d->missing : (uint64_t)d->missing;
	char a[24], b[24], c[24];

	if (d->overlap) {
		fputs("\nRows of modules with all inside overlap: their changes do not add up.\n",
		      p->out);
		return;
	}
	if (d->adds_up)
		return;
	fprintf(p->out,
		"\nThe changes add up to %s, not to the difference in memory of %s:\n"
		"%s are in no row%s.\n",
		diff__signed(a, sizeof(a), d->side[0].sum, d->side[1].sum),
		diff__signed(b, sizeof(b), old, new), text__bytes(c, sizeof(c), short_of),
		words__lost(d->side[0].a->model, d->side[0].a->facts) ||
				words__lost(d->side[1].a->model, d->side[1].a->facts)
			? " because events were lost"
			: "");
}

int diff_text__print(FILE *out, struct diff *d, const struct diff_text_opts *o)
{
	struct printer *p = calloc(1, sizeof(*p));
	struct report_text_opts text = { .width = o->width, .colour = o->colour };
	int err = 0;

	if (!p)
		return -ENOMEM;
	*p = (struct printer){
		.out = out, .d = d, .top = o->top, .colour = report_text__colour(out, &text)
	};
	p->width = report_text__width(out, &text);
	for (int k = 0; k < MATCH_SIDES && !err && d->opts.by == BY_STACK; k++) {
		p->frames[k] = report_frames__new(d->side[k].a->dict, d->side[k].a->facts, false);
		err = p->frames[k] ? 0 : -ENOMEM;
	}
	if (!err)
		err = prepare(p);
	if (!err) {
		print_recording(p, MATCH_OLD);
		print_recording(p, MATCH_NEW);
		print_programs(p);
		print_sums(p);
		print_renamed(p);
		print_table(p);
		print_list(p, DIFF_NEW, "New");
		print_list(p, DIFF_GONE, "Gone");
		print_before(p);
		print_check(p);
	}
	grid__free(p->table);
	for (int k = 0; k < MATCH_SIDES; k++)
		report_frames__free(p->frames[k]);
	free(p);
	return err;
}
