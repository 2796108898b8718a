/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Folded stacks of the marked moment: one line "root;frame;leaf BYTES" per stack. The root frame
 * is the device. Names are changed only if readers would misparse them; see put_frame(). */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "export/export.h"
#include "export/formats/frames.h"
#include "model/holders.h"

/* The part after the last slash; the whole path if that is empty. */
static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* Replaces control characters, which can end a line (U+0085 in some readers), and ';', which would
 * end a frame. */
static void replace_ends(char *s)
{
	size_t left = strlen(s), n;
	uint32_t c;

	for (; left; s += n, left -= n) {
		n = utf8__decode(s, left, &c);
		if (!n || text__acts(c)) {
			n += !n;
			memset(s, '?', n);
		} else if (c == ';') {
			*s = ':';
		}
	}
}

/* True for "name 3" and "name 3.5", with *space set to the place of the space. Readers would take
 * the number for a second count, as files that compare two profiles have. */
static bool ends_in_number(const char *s, size_t *space)
{
	size_t i = strlen(s);
	bool digits = false;

	while (i > 0 && (isdigit((unsigned char)s[i - 1]) || s[i - 1] == '.')) {
		digits |= s[i - 1] != '.';
		i--;
	}
	if (!digits || i == 0 || s[i - 1] != ' ')
		return false;
	*space = i - 1;
	return true;
}

#define COLOUR_LEN 4 /* bytes of "_[k]", by whose letter flamegraph.pl colours the frame */

/* True if a frame's name ends in "_[k]", which flamegraph.pl takes for the frame's color. */
static bool ends_in_colour(const char *s)
{
	size_t n = strlen(s);
	const char *end = n < COLOUR_LEN ? "" : s + n - COLOUR_LEN;

	return text__starts(end, "_[") && end[COLOUR_LEN - 1] == ']';
}

/* Changes names that readers would take for something else. The length stays. */
static void avoid_traps(char *s)
{
	size_t space, n = strlen(s);

	while (n > 0 && s[n - 1] == ' ')
		s[--n] = '_';
	if (ends_in_number(s, &space))
		s[space] = '_';
	/* Readers treat "-" and "--" as separators. */
	if (!strcmp(s, "-") || !strcmp(s, "--"))
		s[0] = '_';
	if (ends_in_colour(s))
		s[n - COLOUR_LEN + 1] = '(';
}

/* Writes the name of a frame, with its file and line if it has them. Returns 0 or -ENOMEM. */
static int put_frame(FILE *out, const struct frame *f)
{
	char *label;
	int n;

	if (f->file && f->line)
		n = asprintf(&label, "%s (%s:%" PRIu32 ")", f->name, base_name(f->file), f->line);
	else if (f->file)
		n = asprintf(&label, "%s (%s)", f->name, base_name(f->file));
	else
		n = asprintf(&label, "%s", f->name);
	if (n < 0)
		return -ENOMEM;
	replace_ends(label);
	avoid_traps(label);
	fputs(label, out);
	free(label);
	return 0;
}

/* Writes the line of a row; none for a row without bytes. Returns 0 or -ENOMEM. */
static int put_row(FILE *out, const char *device, struct frames *frames, const struct row *row)
{
	const uint32_t *ids;
	uint32_t n;
	int err;

	if (!row->bytes)
		return 0;
	err = frames__of_row(frames, row, &ids, &n);
	if (err)
		return err;
	fputs(device, out);
	for (uint32_t i = 0; i < n && !err; i++) {
		fputc(';', out);
		err = put_frame(out, frames__at(frames, ids[i]));
	}
	fprintf(out, " %" PRIu64 "\n", row->bytes);
	return err;
}

/* Writes a device's stacks and sets *found. If the device does not have the moment, leaves *found
 * and returns 0, too. Returns -ENOMEM on failure. */
static int put_device(struct export_ctx *c, struct frames *frames, size_t device, bool *found)
{
	const struct row_opts opts = { .by = BY_STACK, .when = ROWS_AT_MARK };
	struct model_device d;
	struct holder_rows rows;
	int err = frames__rows(c->model, device, &opts, &rows);

	if (err)
		return err == -ENOENT ? 0 : err;
	*found = true;
	model__device(c->model, device, &d);
	for (size_t i = 0; i < rows.n && !err; i++)
		err = put_row(c->out, d.name, frames, &rows.all[i]);
	holder_rows__free(&rows);
	return err;
}

/* Returns 0, -ENODATA (no devices), -ENOENT (no device has the moment) or -ENOMEM. */
static int folded_end(struct export_ctx *c, void *state)
{
	struct frames *frames = frames__new(c->dict, c->facts, FRAMES_HOLDERS);
	size_t devices = model__devices(c->model);
	bool found = false;
	int err = frames ? 0 : -ENOMEM;

	(void)state;
	for (size_t i = 0; i < devices && !err; i++)
		if (c->device < 0 || (size_t)c->device == i)
			err = put_device(c, frames, i, &found);
	frames__free(frames);
	if (!err && !found)
		err = devices ? -ENOENT : -ENODATA;
	return err;
}

const struct export_format export_folded = {
	.name = "folded",
	.suffix = ".collapsedstack.txt",
	.help = "lines of text, for flamegraph.pl, inferno and speedscope",
	.next = "flamegraph.pl, inferno and speedscope read it",
	.end = folded_end,
};
