/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/native/answer.h"

/* Offset of the text; 0: not a valid answer. */
static size_t find_text(const struct wire_frames *a, size_t len, size_t modules)
{
	size_t at = offsetof(struct wire_frames, v);

	if (len < at || a->h.n > NATIVE_FRAMES_MAX || !a->text || a->text > WIRE_TEXT_MAX)
		return 0;
	at += a->h.n * sizeof(a->v[0]);
	if (len != at + a->text || ((const char *)a)[len - 1])
		return 0;
	for (uint32_t i = 0; i < a->h.n; i++) {
		const struct wire_frame *f = &a->v[i];

		if (f->function >= a->text || f->file >= a->text || f->build_id >= a->text ||
		    (f->module != WIRE_NO_MODULE && f->module >= modules))
			return 0;
	}
	return at;
}

bool answer__read(const struct wire_frames *a, size_t len, const struct answer_modules *m,
		  struct native_frames *ret)
{
	size_t at = find_text(a, len, m->n);
	const char *text = (const char *)a + at;

	if (!at)
		return false;
	ret->n = a->h.n;
	ret->whole = a->whole != 0;
	for (size_t i = 0; i < ret->n; i++) {
		const struct wire_frame *f = &a->v[i];

		ret->v[i] = (struct native_frame){
			.module = f->module == WIRE_NO_MODULE ? "" : m->path(m->ctx, f->module),
			.build_id = text + f->build_id,
			.at = f->at,
			.function = text + f->function,
			.offset = f->offset,
			.file = text + f->file,
			.line = f->line,
			.inlined = f->inlined != 0,
		};
	}
	return true;
}
