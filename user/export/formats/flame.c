/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Compares two recordings as a flame graph, with the page of export/formats/flamegraph.c. Each
 * stack has an old and a new size, and is drawn with the larger one. So a stack that only the old
 * recording has appears, too.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "base/map64.h"
#include "export/formats/flametree.h"
#include "export/formats/frames.h"
#include "model/words.h"
#include "record/detail.h"
#include "record/stream.h"
#include "report/diff.h"

/* A frame of the old recording, of the new one, or of both. */
struct merged_frame {
	struct frame shown; /* the frame in the new recording, or in the old one if the new one
			       lacks it */
	uint32_t was;	    /* line in the old recording if that is another line, otherwise 0 */
};

struct flame {
	struct diff *d;
	struct json *j;
	struct frames *frames[MATCH_SIDES];
	struct map64 *by_key; /* identity of a frame -> index in all */
	/* frame_no[side][i]: the frame in `all` that is frame i of frames[side], as its index + 1;
	 * 0: none yet. */
	uint32_t *frame_no[MATCH_SIDES];
	size_t room_ids[MATCH_SIDES];
	struct merged_frame *all;
	size_t n, room;
	struct flametree *tree;
	uint32_t *path; /* frames of the present row, as indexes in all */
	size_t room_path;
	uint32_t smaller;  /* node of the tree for stacks that do not fit the tree */
	uint64_t left_out; /* number of these stacks */
};

static const struct frame *frame_at(const void *ctx, uint32_t i)
{
	return &((const struct flame *)ctx)->all[i].shown;
}

/* Returns a key that is equal for the same frame in both recordings: for matched lines by their
 * number, for other frames by name, file, line and kind. */
static uint64_t key_of(const struct flame *f, enum match_side side, const struct frame *frame)
{
	uint32_t number = frame->file ? match__number(f->d->match, side, frame->file, frame->name,
						      frame->line)
				      : 0;

	if (number)
		return match__hash(f->d->match, "line", number);
	return match__hash(f->d->match, frame->name,
			   match__hash(f->d->match, frame->file, frame->line) + frame->kind);
}

/* Sets *ret to the index in all of a frame of one side, which it adds if the other side lacks it.
 * Returns 0 or -ENOMEM. */
static int add_frame(struct flame *f, enum match_side side, const struct frame *frame,
		     uint32_t *ret)
{
	uint64_t key = key_of(f, side, frame), found;
	int err;

	if (map64__get(f->by_key, key, &found)) {
		struct merged_frame *b = &f->all[found];

		if (side == MATCH_NEW) { /* so far, the frame of the old recording */
			b->was = b->shown.line != frame->line ? b->shown.line : 0;
			b->shown = *frame;
		}
		*ret = (uint32_t)found;
		return 0;
	}
	err = array__grow(&f->all, &f->room, f->n + 1, sizeof(*f->all))
		      ?: map64__set(f->by_key, key, f->n);
	if (err)
		return err;
	f->all[f->n] = (struct merged_frame){ .shown = *frame };
	*ret = (uint32_t)f->n++;
	return 0;
}

/* Sets *ret to the index in all of frame i of one side, and caches it. Returns 0 or -ENOMEM. */
static int map_frame(struct flame *f, enum match_side side, uint32_t i, uint32_t *ret)
{
	int err = array__grow_zero(&f->frame_no[side], &f->room_ids[side], (size_t)i + 1,
				   sizeof(*f->frame_no[side]));

	if (err)
		return err;
	if (!f->frame_no[side][i]) {
		err = add_frame(f, side, frames__at(f->frames[side], i), ret);
		f->frame_no[side][i] = err ? 0 : *ret + 1;
		return err;
	}
	*ret = f->frame_no[side][i] - 1;
	return 0;
}

/* Sets f->path to the frames of a row, and *n to their number. Returns 0 or -ENOMEM. */
static int path_of(struct flame *f, enum match_side side, const struct row *row, uint32_t *n)
{
	const uint32_t *frames;
	int err = frames__of_row(f->frames[side], row, &frames, n)
			  ?: array__grow(&f->path, &f->room_path, *n, sizeof(*f->path));

	for (uint32_t i = 0; i < *n && !err; i++)
		err = map_frame(f, side, frames[i], &f->path[i]);
	return err;
}

/* Finds the node of a row in the tree. For a row of both recordings it looks up both paths, so that
 * each frame gets its old line, and takes the node of the new path. A row that does not fit the
 * tree gets f->smaller. Returns 0 or -ENOMEM. */
static int node_of_row(struct flame *f, const struct diff_row *r, uint32_t *ret)
{
	uint32_t n = 0;
	int err;

	for (int k = 0; k < MATCH_SIDES; k++) /* the new one last, so that its path stays */
		if (r->row[k] && path_of(f, k, r->row[k], &n))
			return -ENOMEM;
	err = flametree__find(f->tree, f->path, n, ret);
	if (err != -ENOENT)
		return err;
	f->left_out++;
	*ret = f->smaller;
	return 0;
}

/* Writes the node of each row, and its bytes in both recordings. Returns 0 or -ENOMEM. */
static int put_view(struct flame *f)
{
	uint32_t node;
	int err = frames__smaller(f->frames[MATCH_NEW], &node)
			  ?: map_frame(f, MATCH_NEW, node, &node);

	if (!err)
		err = flametree__find(f->tree, &node, 1, &f->smaller);
	json__open_object(f->j, NULL);
	json__open_array(f->j, "node");
	for (size_t i = 0; i < f->d->n && !err; i++) {
		err = node_of_row(f, &f->d->rows[i], &node);
		json__uint(f->j, NULL, err ? 0 : node);
	}
	json__close_array(f->j);
	json__open_array(f->j, "old");
	for (size_t i = 0; i < f->d->n; i++)
		json__uint(f->j, NULL, diff__bytes(&f->d->rows[i], MATCH_OLD));
	json__close_array(f->j);
	json__open_array(f->j, "new");
	for (size_t i = 0; i < f->d->n; i++)
		json__uint(f->j, NULL, diff__bytes(&f->d->rows[i], MATCH_NEW));
	json__close_array(f->j);
	json__uint(f->j, "smaller", f->left_out);
	json__close_object(f->j);
	return err;
}

/* Writes the facts of one of the two recordings. */
static void put_side(struct flame *f, enum match_side side)
{
	static const char *const facts[] = { "pid", "comm", "cmdline", "python", "torch" };
	const struct diff_side *s = &f->d->side[side];
	char detail[DETAIL_TEXT];

	json__open_object(f->j, side == MATCH_OLD ? "old" : "new");
	json__string(f->j, "name", s->a->name);
	json__string(f->j, "moment", moment_names[f->d->opts.at[side].at]);
	json__seconds(f->j, "time", s->device.mark_time, /*decimals=*/3);
	json__uint(f->j, "bytes", s->device.mark_allocated);
	json__seconds(f->j, "duration", s->a->duration, /*decimals=*/3);
	json__uint(f->j, "events", model__events(s->a->model));
	json__uint(f->j, "lost", words__lost(s->a->model, s->a->facts));
	json__string(f->j, "detail", detail__reduced(detail, sizeof(detail), s->a->facts));
	json__open_object(f->j, "facts");
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++)
		if (facts__get(s->a->facts, facts[i]))
			json__string(f->j, facts[i], facts__get(s->a->facts, facts[i]));
	json__close_object(f->j);
	json__close_object(f->j);
}

/* For flametree__put_page(): writes the data of the page. Returns 0 or -ENOMEM. */
static int put_data(void *ctx)
{
	struct flame *f = ctx;
	int err;

	json__open_object(f->j, NULL);
	json__open_object(f->j, "diff");
	put_side(f, MATCH_OLD);
	put_side(f, MATCH_NEW);
	json__bool(f->j, "adds_up", f->d->adds_up);
	json__close_object(f->j);
	json__open_array(f->j, "devices");
	json__open_object(f->j, NULL);
	json__string(f->j, "name", f->d->side[MATCH_NEW].device.name);
	json__bool(f->j, "main", true);
	json__open_array(f->j, "views");
	err = put_view(f);
	json__close_array(f->j);
	json__close_object(f->j);
	json__close_array(f->j);
	flametree__put_nodes(f->tree, f->j);
	if (!err)
		err = flametree__put_frames(f->j, f->n, frame_at, f);
	json__open_array(f->j, "was");
	for (size_t i = 0; i < f->n; i++)
		json__uint(f->j, NULL, f->all[i].was);
	json__close_array(f->j);
	json__close_object(f->j);
	return err;
}

int diff_flame__print(FILE *out, struct diff *d)
{
	struct diff_opts opts = { .at = { d->opts.at[MATCH_OLD], d->opts.at[MATCH_NEW] },
				  .by = BY_STACK };
	struct flame f = {
		.d = d, .j = json__new(out, false), .by_key = map64__new(), .tree = flametree__new()
	};
	int err = f.j && f.by_key && f.tree ? 0 : -ENOMEM;

	for (int k = 0; k < MATCH_SIDES && !err; k++) {
		f.frames[k] = frames__new(d->side[k].a->dict, d->side[k].a->facts, 0);
		err = f.frames[k] ? 0 : -ENOMEM;
	}
	if (!err)
		err = diff__again(d, &opts) ?: flametree__put_page(out, put_data, &f);
	json__free(f.j);
	for (int k = 0; k < MATCH_SIDES; k++) {
		frames__free(f.frames[k]);
		free(f.frame_no[k]);
	}
	map64__free(f.by_key);
	flametree__free(f.tree);
	free(f.all);
	free(f.path);
	return err;
}
