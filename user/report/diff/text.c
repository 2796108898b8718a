/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Prints the comparison as text. */
#include <ctype.h>
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

/* True if the user or a recording named functions for scopes. */
static bool names_functions(const struct diff *d)
{
	bool found;

	return model__scope_function(d->side[MATCH_OLD].a->model, 0, &found) ||
	       model__scope_function(d->side[MATCH_NEW].a->model, 0, &found);
}

static const struct column columns[COL_NR] = {
	[COL_CHANGE] = { "Change", true, 0 },  [COL_OLD] = { "Old", true, 0 },
	[COL_NEW] = { "New", true, 0 },	       [COL_STATUS] = { "How", false, 3 },
	[COL_CATEGORY] = { "Role", false, 1 }, [COL_PHASE] = { "Phase", false, 4 },
	[COL_MODULE] = { "Module", false, 2 },
};

static const char *const titles[BY_NR] = {
	[BY_LINE] = "Location", [BY_STACK] = "Location",
	[BY_MODULE] = "Module", [BY_LAYER] = "Module, with all inside",
	[BY_PHASE] = "Phase",	[BY_THREAD] = "Thread",
	[BY_CATEGORY] = "Role", [BY_SCOPE] = "Scope",
};

struct printer {
	FILE *out;
	struct diff *d;
	struct report_frames *frames[MATCH_SIDES]; /* for --by stack */
	struct grid *table;
	bool short_names; /* print functions without their class */
	/* width: of the output; top: most rows, 0: all; room: columns of the table's last column */
	size_t width, top, room;
	bool colour;
	char text[REPORT_TEXT + 64], more[REPORT_TEXT];
};

/* Writes the difference, such as "+2.00 GiB", "-512 B" or "0 B". */
static char *say_change(char *buf, size_t size, uint64_t from, uint64_t to)
{
	uint64_t by = from > to ? from - to : to - from;
	const char *sign = "";
	char bytes[24];

	if (from != to)
		sign = to > from ? "+" : "-";
	snprintf(buf, size, "%s%s", sign, text__bytes(bytes, sizeof(bytes), by));
	return buf;
}

/* Returns the escape sequence for a row; NULL: none. */
static const char *colour_of(const struct printer *p, const struct diff_row *r)
{
	if (!p->colour || r->status == DIFF_SAME)
		return NULL;
	return r->status == DIFF_GREW || r->status == DIFF_NEW ? RED : BLUE;
}

/* Returns a row with a module pattern that covers both sides. count: number of modules, such as "4"
 * or "4 -> 1"; "" if both sides have the same single module. */
static struct row both_modules(struct printer *p, const struct diff_row *dr, char *count,
			       size_t size)
{
	const struct row *old_row = dr->row[MATCH_OLD], *new_row = dr->row[MATCH_NEW];
	struct row covering = *diff__shown(dr);

	*count = '\0';
	if (!old_row || !new_row || !old_row->modules || !new_row->modules) {
		covering = old_row && old_row->modules ? *old_row : covering;
		if (covering.modules > 1)
			snprintf(count, size, "%u", covering.modules);
		return covering;
	}
	if (old_row->modules != new_row->modules)
		snprintf(count, size, "%u -> %u", old_row->modules, new_row->modules);
	else if (old_row->modules > 1 || strcmp(old_row->module, new_row->module) != 0)
		snprintf(count, size, "%u", old_row->modules > 1 ? old_row->modules : 2);
	if (strcmp(old_row->module, new_row->module) != 0) {
		snprintf(p->more, sizeof(p->more) - 2, "%s", old_row->module);
		pattern__cover(p->more, new_row->module);
		covering.module = p->more;
	}
	return covering;
}

/* Writes the row's modules to p->text: "blocks.*.mlp (4)". */
static char *say_module(struct printer *p, const struct diff_row *dr)
{
	char count[32], suffix[40];
	struct row r = both_modules(p, dr, count, sizeof(count));

	if (*count && !strcmp(r.module, "*")) {
		snprintf(p->text, sizeof(p->text), "(%s modules)", count);
		return p->text;
	}
	words__module(p->text, &r);
	if (!*p->text)
		strcpy(p->text, "(no module)");
	if (*count) {
		snprintf(suffix, sizeof(suffix), " (%s)", count);
		words__cut_front(p->text, MODULE_MAX - strlen(suffix));
		return strcat(p->text, suffix);
	}
	return words__cut_front(p->text, MODULE_MAX);
}

/* Writes "blocks.0.mlp (MLP)" to p->text. */
static void say_module_and_class(struct printer *p, const struct row *r)
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

/* Writes the text of the last column to p->text: a row's location and its former line. */
static char *say_where(struct printer *p, const struct diff_row *dr, size_t room)
{
	const struct row *row = diff__shown(dr);
	const char *cwd = facts__get(p->d->side[diff__shown_side(dr)].a->facts, "cwd");
	char was[40] = "";

	switch (row->before_attach ? BY_LINE : p->d->opts.by) {
	case BY_MODULE:
	case BY_LAYER:
		say_module_and_class(p, row);
		return words__cut_front(p->text, room);
	case BY_PHASE:
		return strcpy(p->text, words__phase(row->phase));
	case BY_CATEGORY:
		return strcpy(p->text, words__role(row->category));
	case BY_SCOPE:
		return words__cut_front(words__scope(p->text, row), room);
	case BY_THREAD:
		*p->text = '\0';
		if (row->thread)
			text__clean(p->text, sizeof(p->text), row->thread, strlen(row->thread));
		return words__cut_front(p->text, room);
	default:
		break;
	}
	if (dr->moved)
		snprintf(was, sizeof(was), ", moved from :%u", dr->row[MATCH_OLD]->line);
	room = room > strlen(was) ? room - strlen(was) : 8;
	if (p->short_names)
		words__location_short(p->text, row, cwd, room);
	else
		words__location(p->text, row, cwd, room);
	return strcat(p->text, was);
}

/* Returns the role, from the old side if the new side's is unknown. */
static const char *role_of(const struct diff_row *dr)
{
	const struct row *old_row = dr->row[MATCH_OLD], *new_row = dr->row[MATCH_NEW];
	const char *name = diff__shown(dr)->category;

	if (old_row && new_row && name && !strcmp(name, category__name(CATEGORY_UNKNOWN)) &&
	    old_row->category)
		name = old_row->category;
	return words__role(name);
}

/* Adds a row to the table. */
static void add_row(struct printer *p, struct grid *t, const struct diff_row *dr)
{
	const struct row *r = diff__shown(dr);
	char change[24], bytes[MATCH_SIDES][24] = { "-", "-" }, name[REPORT_TEXT];
	const char *cells[COL_NR] = {
		[COL_CHANGE] = say_change(change, sizeof(change), diff__bytes(dr, MATCH_OLD),
					  diff__bytes(dr, MATCH_NEW)),
		[COL_OLD] = bytes[MATCH_OLD],
		[COL_NEW] = bytes[MATCH_NEW],
		[COL_STATUS] = diff__status(dr->status),
		[COL_CATEGORY] = role_of(dr),
		[COL_PHASE] = r->before_attach ? words__before(r->history) : words__phase(r->phase),
		[COL_MODULE] = strcpy(name, say_module(p, dr)),
	};

	for (int side = 0; side < MATCH_SIDES; side++)
		if (dr->row[side])
			text__bytes(bytes[side], sizeof(bytes[side]), dr->row[side]->bytes);
	grid__row(t);
	for (size_t i = 0; i < COL_NR; i++)
		grid__put(t, i, cells[i], i ? NULL : colour_of(p, dr));
}

/* Makes an empty table with the columns that --by has. NULL: memory is short. */
static struct grid *make_table(const struct printer *p)
{
	struct grid *t = grid__new(columns, COL_NR);
	bool by_place = p->d->opts.by == BY_LINE || p->d->opts.by == BY_STACK;

	if (!t)
		return NULL;
	if (p->d->opts.by != BY_LINE || p->d->opts.any_category)
		grid__show(t, COL_CATEGORY, false);
	if (!by_place || p->d->opts.any_phase)
		grid__show(t, COL_PHASE, false);
	if (!by_place)
		grid__show(t, COL_MODULE, false);
	return t;
}

static size_t count_changed(const struct diff *d)
{
	return d->n - d->sums[DIFF_SAME].rows;
}

/* Returns how many rows the table has. Unchanged rows come last and are not printed. */
static size_t rows_shown(const struct printer *p)
{
	return p->top && p->top < count_changed(p->d) ? p->top : count_changed(p->d);
}

/* Prints the number and the change of the changed rows from index n on. */
static void print_rest(struct printer *p, size_t n)
{
	size_t left = count_changed(p->d) - n;
	uint64_t more = 0, less = 0;
	char grown[24] = "", shrunk[24] = "", count[48];

	if (!left)
		return;
	if (p->d->overlap) {
		fprintf(p->out, "+ %s more rows\n", text__count(count, sizeof(count), left));
		return;
	}
	for (size_t i = n; i < count_changed(p->d); i++) {
		const struct diff_row *r = &p->d->rows[i];
		uint64_t from = diff__bytes(r, MATCH_OLD);
		uint64_t to = diff__bytes(r, MATCH_NEW);

		if (to > from)
			more += to - from;
		else
			less += from - to;
	}
	if (more)
		say_change(grown, sizeof(grown), 0, more);
	if (less)
		say_change(shrunk, sizeof(shrunk), less, 0);
	fprintf(p->out, "+ %s: %s%s%s\n", text__counted(count, sizeof(count), left, "more row"),
		grown, more && less ? ", " : "", shrunk);
}

static bool any_moved(const struct printer *p)
{
	for (size_t i = 0; i < rows_shown(p); i++)
		if (p->d->rows[i].moved)
			return true;
	return false;
}

/* Builds the table with the columns that fit. Returns 0 or -ENOMEM. */
static int build_table(struct printer *p)
{
	size_t n = rows_shown(p);

	grid__free(p->table);
	p->table = make_table(p);
	if (!p->table)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		add_row(p, p->table, &p->d->rows[i]);
	p->room = grid__fit(p->table, p->width, WHERE_WANTED + (any_moved(p) ? MOVED_WANTED : 0),
			    COL_NR);
	return grid__error(p->table);
}

/* Builds the table. Merges rows that differ only in a category or phase whose column does not fit.
 * Returns 0 or -errno. */
static int prepare_table(struct printer *p)
{
	struct diff_opts o = p->d->opts;
	int err = build_table(p);

	if (err || o.by != BY_LINE)
		return err;
	o.any_category |= !grid__shown(p->table, COL_CATEGORY);
	o.any_phase |= !grid__shown(p->table, COL_PHASE);
	if (o.any_category == p->d->opts.any_category && o.any_phase == p->d->opts.any_phase)
		return 0;
	err = diff__again(p->d, &o);
	return err ? err : build_table(p);
}

static void print_table(struct printer *p)
{
	size_t n = rows_shown(p);

	if (!n)
		return;
	/* Functions have their class in all rows, or in none. */
	p->short_names = false;
	for (size_t i = 0; i < n && !p->short_names; i++)
		p->short_names = text__width(say_where(p, &p->d->rows[i], /*room=*/SIZE_MAX)) >
				 p->room;
	fputc('\n', p->out);
	grid__print_titles(p->table, p->out, p->colour, titles[p->d->opts.by]);
	for (size_t i = 0; i < n; i++) {
		grid__print(p->table, p->out, i, say_where(p, &p->d->rows[i], p->room));
		if (p->d->opts.by == BY_STACK)
			report_frames__print(p->frames[diff__shown_side(&p->d->rows[i])], p->out,
					     diff__shown(&p->d->rows[i]));
	}
	print_rest(p, n);
	p->short_names = false;
}

/* Prints the rows with this status that --top leaves out of the table. */
static void print_list(struct printer *p, enum diff_status status, const char *words)
{
	uint64_t rows_left = p->d->sums[status].rows, bytes_left = p->d->sums[status].bytes,
		 printed = 0;
	char bytes[24], count[48];

	for (size_t i = 0; i < rows_shown(p); i++) {
		const struct diff_row *r = &p->d->rows[i];

		if (r->status != status)
			continue;
		rows_left--;
		bytes_left -= diff__bytes(r, MATCH_OLD) + diff__bytes(r, MATCH_NEW);
	}
	if (!rows_left)
		return;
	fprintf(p->out, "\n%s: %s, %s\n", words,
		text__counted(count, sizeof(count), rows_left, "more row"),
		text__bytes(bytes, sizeof(bytes), bytes_left));
	for (size_t i = rows_shown(p); i < p->d->n && (!p->top || printed < p->top); i++) {
		const struct diff_row *r = &p->d->rows[i];
		const char *colour = colour_of(p, r);

		if (r->status != status)
			continue;
		printed++;
		say_change(bytes, sizeof(bytes), diff__bytes(r, MATCH_OLD),
			   diff__bytes(r, MATCH_NEW));
		if (colour)
			fprintf(p->out, "%s%11s\033[0m", colour, bytes);
		else
			fprintf(p->out, "%11s", bytes);
		fprintf(p->out, "  %s\n", say_where(p, r, p->width - 13));
	}
	if (printed < rows_left)
		fprintf(p->out, "             + %s more\n",
			text__count(count, sizeof(count), rows_left - printed));
}

/* Returns "Peak", "At the end" or "At 1.20 s". */
static const char *say_moment(const struct model_opts *at, char *buf, size_t size)
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

/* Prints a recording: command, versions, length, losses and peak. */
static void print_recording(struct printer *p, enum match_side side)
{
	const struct diff_side *diff_side = &p->d->side[side];
	const struct facts *facts = diff_side->a->facts;
	char bytes[24], time[24], count[32], word[64], step[40], window[48], detail[DETAIL_TEXT];
	uint64_t lost = words__lost(diff_side->a->model, facts);
	const char *torch = facts__get(facts, "torch");

	text__clean(p->text, sizeof(p->text), diff_side->a->name, strlen(diff_side->a->name));
	fprintf(p->out, "%s  %s: ", side == MATCH_OLD ? "old" : "new",
		words__cut_front(p->text, p->width / 3));
	report_text__command(p->text, sizeof(p->text), facts, p->width > 72 ? p->width - 40 : 32);
	fprintf(p->out, "%s\n     ", p->text);
	if (torch)
		fprintf(p->out, "torch %s%s", text__clean(word, sizeof(word), torch, strlen(torch)),
			text__dot());
	text__time(time, sizeof(time), model__length(diff_side->a->model, diff_side->a->duration));
	words__window(diff_side->a->model, facts, window, sizeof(window));
	fprintf(p->out, "%s%s%s%s%s, ", time, *window ? text__dot() : "", window, text__dot(),
		text__counted(count, sizeof(count), model__events(diff_side->a->model), "event"));
	text__count(count, sizeof(count), lost);
	fprintf(p->out, lost && p->colour ? RED "%s lost\033[0m" : "%s lost", count);
	if (!diff_side->a->complete)
		fprintf(p->out, "%snot complete", text__dot());
	fputc('\n', p->out);
	if (*detail__sentence(detail, sizeof(detail), facts))
		text__paragraph(p->out, p->width, "     Detail  ", "     ", "%s", detail);
	fprintf(p->out, "     %s  peak %s%s at %s (", diff_side->device.name,
		words__about(diff_side->device.peak_is),
		text__bytes(bytes, sizeof(bytes), diff_side->device.peak_allocated),
		text__time(time, sizeof(time), diff_side->device.peak_time));
	if (model__steps(diff_side->a->model))
		fprintf(p->out, "%s, ", text__step(step, diff_side->device.peak_step));
	fprintf(p->out, "%s)\n", words__phase(diff_side->device.peak_phase));
}

/* Prints a note if the recordings are of two programs. */
static void print_programs(struct printer *p)
{
	char name[MATCH_SIDES][64];

	for (int k = 0; k < MATCH_SIDES; k++)
		words__program(name[k], sizeof(name[k]), p->d->side[k].a->facts);
	if (*name[MATCH_OLD] && *name[MATCH_NEW] && strcmp(name[MATCH_OLD], name[MATCH_NEW]) != 0)
		fprintf(p->out,
			"These are two programs: %s and %s. Only lines of the same file and "
			"function are matched.\n",
			name[MATCH_OLD], name[MATCH_NEW]);
}

/* Prints the moments of both sides, and how the device's memory changed. */
static void print_change(struct printer *p)
{
	const struct model_device *old_device = &p->d->side[MATCH_OLD].device;
	const struct model_device *new_device = &p->d->side[MATCH_NEW].device;
	uint64_t from = old_device->mark_allocated, to = new_device->mark_allocated;
	char at[MATCH_SIDES][64], bytes[MATCH_SIDES][24], sign[24], percent[24];
	const char *first = say_moment(&p->d->opts.at[MATCH_OLD], at[0], sizeof(at[0]));
	const char *second = say_moment(&p->d->opts.at[MATCH_NEW], at[1], sizeof(at[1]));

	fprintf(p->out, "\n%s", first);
	if (strcmp(first, second) != 0)
		/* within a sentence: "At the end" becomes "at the end" */
		fprintf(p->out, ", then %c%s", tolower((unsigned char)second[0]), second + 1);
	fprintf(p->out, ": %s%s -> %s%s, %s", words__about(old_device->mark_is),
		text__bytes(bytes[0], sizeof(bytes[0]), from), words__about(new_device->mark_is),
		text__bytes(bytes[1], sizeof(bytes[1]), to),
		say_change(sign, sizeof(sign), from, to));
	if (*diff__percent(percent, sizeof(percent), from, to))
		fprintf(p->out, " (%s)", percent);
	fputc('\n', p->out);
}

/* Prints "12 grew +2.00 GiB, 3 new +512.00 MiB" in lines of the width. */
static void print_sums(struct printer *p)
{
	char words[96], sign[24], count[32];
	size_t column = 0;
	int len;

	for (int status = 0; status < DIFF_NR; status++) {
		const struct diff_sum *sum = &p->d->sums[status];

		if (!sum->rows)
			continue;
		len = snprintf(words, sizeof(words), "%s %s",
			       text__count(count, sizeof(count), sum->rows), diff__status(status));
		if (status == DIFF_GREW || status == DIFF_NEW)
			say_change(sign, sizeof(sign), 0, sum->bytes);
		else
			say_change(sign, sizeof(sign), sum->bytes, 0);
		if (status != DIFF_SAME && !p->d->overlap)
			len += snprintf(words + len, sizeof(words) - (size_t)len, " %s", sign);
		if (column && column + 2 + (size_t)len > p->width) {
			fputs(",\n  ", p->out);
			column = 2;
		} else if (column) {
			fputs(", ", p->out);
			column += 2;
		}
		fputs(words, p->out);
		column += (size_t)len;
	}
	fputs(column ? "\n" : "No rows.\n", p->out);
}

/* Prints the pairs of folders whose files were matched, such as "/a/v1" and "/a/v2" for
 * /a/v1/net/model.py and /a/v2/net/model.py. */
static void print_renamed(struct printer *p)
{
	const struct match_files *files;
	size_t n = match__renamed(p->d->match, &files), printed = 0;

	for (size_t i = 0; i < n; i++) {
		const char *old_path = files[i].path[MATCH_OLD],
			   *new_path = files[i].path[MATCH_NEW];
		const char *old_end = strchr(old_path, '\0');
		const char *new_end = strchr(new_path, '\0');
		const char *common = old_end; /* the end that both paths share, whole names only */
		int old_len, new_len;	      /* of the folders */

		for (; old_end > old_path && new_end > new_path && old_end[-1] == new_end[-1];
		     old_end--, new_end--)
			if (old_end[-1] == '/')
				common = old_end - 1;
		old_len = (int)(common - old_path);
		new_len = (int)(strlen(new_path) - strlen(common));
		if (i && old_len && !strncmp(files[i - 1].path[MATCH_OLD], old_path, old_len) &&
		    !strncmp(files[i - 1].path[MATCH_NEW], new_path, new_len))
			continue; /* the same two folders as before */
		if (printed++ == 3)
			break;
		if (!old_len || !new_len) {
			old_len = (int)strlen(old_path);
			new_len = (int)strlen(new_path);
		}
		text__clean(p->text, sizeof(p->text), old_path, old_len);
		text__clean(p->more, sizeof(p->more), new_path, new_len);
		fprintf(p->out, "Files in %s are matched with those in %s.\n", p->text, p->more);
	}
}

/* ---- scopes ---- */

enum { SCOPE_CHANGE, SCOPE_OLD, SCOPE_NEW, SCOPE_KEPT, SCOPE_TIME, SCOPE_RUNS, SCOPE_NR };

/* Writes "4", or "4 -> 5". old_text and new_text: "" if not known. */
static char *say_both(char *buf, size_t size, const char *old_text, const char *new_text)
{
	const char *from = *old_text ? old_text : "-";
	const char *to = *new_text ? new_text : "-";

	if (strcmp(from, to) != 0)
		snprintf(buf, size, "%s -> %s", from, to);
	else
		snprintf(buf, size, "%s", from);
	return buf;
}

/* Adds the row of a scope: peaks of both sides, and medians of what its runs keep and take. */
static void add_scope(struct grid *t, const struct scope_entry *e)
{
	const struct scope_cell old_cell = scope_entry__cell(e, MATCH_OLD);
	const struct scope_cell new_cell = scope_entry__cell(e, MATCH_NEW);
	bool known[] = { old_cell.runs && old_cell.level_known,
			 new_cell.runs && new_cell.level_known };
	char text[80], old_text[32] = "", new_text[32] = "";

	grid__row(t);
	if (known[MATCH_OLD])
		grid__put(t, SCOPE_OLD, text__bytes(text, 24, old_cell.peak), NULL);
	if (known[MATCH_NEW])
		grid__put(t, SCOPE_NEW, text__bytes(text, 24, new_cell.peak), NULL);
	if (known[MATCH_OLD] && known[MATCH_NEW])
		grid__put(t, SCOPE_CHANGE,
			  say_change(text, sizeof(text), old_cell.peak, new_cell.peak), NULL);
	if (old_cell.kept_known)
		text__bytes(old_text, 24, old_cell.kept);
	if (new_cell.kept_known)
		text__bytes(new_text, 24, new_cell.kept);
	grid__put(t, SCOPE_KEPT, say_both(text, sizeof(text), old_text, new_text), NULL);
	*old_text = *new_text = '\0';
	if (old_cell.runs)
		text__time(old_text, 24, old_cell.median_time);
	if (new_cell.runs)
		text__time(new_text, 24, new_cell.median_time);
	grid__put(t, SCOPE_TIME, say_both(text, sizeof(text), old_text, new_text), NULL);
	text__count(old_text, sizeof(old_text), old_cell.runs);
	text__count(new_text, sizeof(new_text), new_cell.runs);
	grid__put(t, SCOPE_RUNS, say_both(text, sizeof(text), old_text, new_text), NULL);
}

/* Prints the peaks of scopes in both recordings, if rows are by scope, or functions were named.
 * Returns 0 or -ENOMEM. */
static int print_scopes(struct printer *p)
{
	static const struct column scope_columns[SCOPE_NR] = {
		[SCOPE_CHANGE] = { "Peak change", true, 0, 11 },
		[SCOPE_OLD] = { "Old", true, 0, 10 },
		[SCOPE_NEW] = { "New", true, 0, 10 },
		[SCOPE_KEPT] = { "Kept", true, 2, 10 },
		[SCOPE_TIME] = { "Time of one", true, 1 },
		[SCOPE_RUNS] = { "Runs", true, 3, 4 },
	};
	const struct scope_set *set = &p->d->scopes;
	size_t n = p->top && p->top < set->n ? p->top : set->n, room;
	struct grid *t;
	int err;

	if (!set->n || (p->d->opts.by != BY_SCOPE && !names_functions(p->d)))
		return 0;
	t = grid__new(scope_columns, SCOPE_NR);
	if (!t)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		add_scope(t, &set->all[i]);
	err = grid__error(t);
	if (!err) {
		room = grid__fit(t, p->width, WHERE_WANTED, SCOPE_NR);
		fputc('\n', p->out);
		grid__print_titles(t, p->out, p->colour, "Scope");
	}
	for (size_t i = 0; i < n && !err; i++) {
		text__clean(p->text, REPORT_TEXT, set->all[i].name, strlen(set->all[i].name));
		grid__print(t, p->out, i, words__cut_front(p->text, room));
	}
	if (!err && n < set->n)
		fprintf(p->out, "+ %s\n",
			text__counted(p->text, sizeof(p->text), set->n - n, "more scope"));
	grid__free(t);
	return err;
}

/* Notes that memory from before attach has no line, so new or gone rows may be that memory. */
static void print_before(struct printer *p)
{
	uint64_t before[MATCH_SIDES] = { 0 };
	char bytes[24];
	bool history = false;
	bool of_old;

	for (int side = 0; side < MATCH_SIDES; side++)
		for (size_t i = 0; i < p->d->side[side].n; i++)
			if (p->d->side[side].rows[i].before_attach) {
				before[side] += p->d->side[side].rows[i].bytes;
				history |= p->d->side[side].rows[i].history;
			}
	if (!before[MATCH_OLD] == !before[MATCH_NEW])
		return;
	of_old = before[MATCH_OLD] > 0;
	fprintf(p->out, "\n%s of the %s recording were there %s and have no line.\n",
		text__bytes(bytes, sizeof(bytes), before[MATCH_OLD] + before[MATCH_NEW]),
		of_old ? "old" : "new", words__before(history));
	fprintf(p->out, "Rows that are %s may be the same memory.\n", of_old ? "new" : "gone");
}

/* Prints a warning if the changes of the rows do not add up to the change of allocated memory. */
static void print_check(struct printer *p)
{
	const struct diff_side *old_side = &p->d->side[MATCH_OLD],
			       *new_side = &p->d->side[MATCH_NEW];
	uint64_t short_of = p->d->missing < 0 ? 0 - (uint64_t)p->d->missing
					      : (uint64_t)p->d->missing;
	bool lost = words__lost(old_side->a->model, old_side->a->facts) ||
		    words__lost(new_side->a->model, new_side->a->facts);
	char sum[24], device_change[24], bytes[24];

	if (p->d->overlap) {
		fputs("\nRows of modules with all inside overlap: their changes do not add up.\n",
		      p->out);
		return;
	}
	if (p->d->adds_up)
		return;
	fprintf(p->out,
		"\nThe changes add up to %s, not to the difference in memory of %s:\n"
		"%s are in no row%s.\n",
		say_change(sum, sizeof(sum), old_side->sum, new_side->sum),
		say_change(device_change, sizeof(device_change), old_side->device.mark_allocated,
			   new_side->device.mark_allocated),
		text__bytes(bytes, sizeof(bytes), short_of),
		lost ? " because events were lost" : "");
}

int diff_text__print(FILE *out, struct diff *d, const struct diff_text_opts *o)
{
	struct printer *printer = calloc(1, sizeof(*printer));
	struct report_text_opts text = { .width = o->width, .colour = o->colour };
	int err = -ENOMEM;

	if (!printer)
		return -ENOMEM;
	printer->out = out;
	printer->d = d;
	printer->top = o->top;
	printer->colour = report_text__colour(out, &text);
	printer->width = report_text__width(out, &text);
	for (int side = 0; side < MATCH_SIDES && d->opts.by == BY_STACK; side++) {
		printer->frames[side] = report_frames__new(d->side[side].a->dict,
							   d->side[side].a->facts, /*all=*/false);
		if (!printer->frames[side])
			goto out;
	}
	err = prepare_table(printer);
	if (err)
		goto out;
	print_recording(printer, MATCH_OLD);
	print_recording(printer, MATCH_NEW);
	print_programs(printer);
	print_change(printer);
	print_sums(printer);
	print_renamed(printer);
	print_table(printer);
	print_list(printer, DIFF_NEW, "New");
	print_list(printer, DIFF_GONE, "Gone");
	err = print_scopes(printer);
	if (err)
		goto out;
	print_before(printer);
	print_check(printer);
	fputc('\n', printer->out);
	text__paragraph(printer->out, printer->width, "Peaks and step times: ", "  ",
			"memtrace-bpf compare OLD NEW");
out:
	grid__free(printer->table);
	for (int side = 0; side < MATCH_SIDES; side++)
		report_frames__free(printer->frames[side]);
	free(printer);
	return err;
}
