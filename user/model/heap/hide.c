/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The line that a stack is charged to when the caller hides files. */
#include "model/rows.h"

#include <stdlib.h>

#include "base/array.h"
#include "model/heap/attribution.h"
#include "model/heap/state.h"
#include "record/dict.h"

enum { KNOWN = 1, HIDDEN = 2 };

/* Calls the caller's hide() once for each file. */
static uint8_t hide__file(struct hide *s, uint32_t file)
{
	uint8_t flags = KNOWN;

	if (file < s->nfiles && s->files[file])
		return s->files[file];
	if (s->opts->hide(s->opts->ctx, dict__str(s->m->dict, file)))
		flags |= HIDDEN;
	/* Without memory for the cache, the next call asks again. */
	if (!array__grow_zero(&s->files, &s->nfiles, (size_t)file + 1, sizeof(*s->files)))
		s->files[file] = flags;
	return flags;
}

static uint32_t hide__visible_loc(struct hide *s, uint32_t stack, bool only_native)
{
	struct dict_stack st = dict__get_stack(s->m->dict, stack);
	struct frame_owners owners = { 0 };
	uint32_t inner = 0, user = 0;

	for (uint32_t i = st.n; i-- > 0;) { /* the innermost one comes last */
		uint32_t loc = st.frames[i].loc;
		bool is_user = attribution__is_user(s->m->words, &owners, st, i);
		uint8_t file = loc ? hide__file(s, dict__get_loc(s->m->dict, loc).file) : HIDDEN;

		if (file & HIDDEN || (dict__is_native(s->m->dict, loc) && !only_native &&
				      s->opts->which_line != FRAMES_NATIVE))
			continue;
		inner = loc;
		if (is_user)
			user = loc;
	}
	return s->opts->which_line || !user ? inner : user;
}

uint32_t hide__loc(struct hide *s, uint32_t stack)
{
	struct stack_words w = attribution__stack(s->m->words, stack);
	uint32_t i = 0;

	if (!w.has_line)
		return 0;
	if (!s->opts->hide)
		return attribution__loc(&w, s->opts->which_line);
	if (stack >= s->nlocs &&
	    array__grow_zero(&s->locs, &s->nlocs, (size_t)stack + 1, sizeof(*s->locs)))
		return hide__visible_loc(s, stack, w.only_native);
	i = s->locs[stack];
	if (!i)
		s->locs[stack] = i = hide__visible_loc(s, stack, w.only_native) + 1;
	return i - 1;
}

void hide__free(struct hide *s)
{
	free(s->files);
	free(s->locs);
}
