/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/rows/state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "base/text.h"

/* True if the view shows rows of memory. */
static bool has_table(const struct live_state *s)
{
	return s->view != VIEW_FINDINGS && s->view != VIEW_SEGMENTS && s->view != VIEW_PROCESSES;
}

/* Frees the segments of the last refresh. */
static void drop_segments(struct live_state *s)
{
	if (s->has_segments)
		model__free_segments(&s->segments);
	s->has_segments = false;
}

void live_state__release(struct live_state *s)
{
	drop_segments(s);
	live_detail__release(&s->detailed);
	for (size_t i = 0; i < s->nprocs; i++)
		live_proc__free(s->procs[i]);
	free(s->procs);
	filter__free(s->select.filter);
	map64__free(s->folded);
	s->folded = NULL;
	s->select.filter = NULL;
	s->procs = NULL;
	s->nprocs = s->procs_room = 0;
}

int live_state__add(struct live_state *s, struct live_proc *p)
{
	int err = array__grow(&s->procs, &s->procs_room, s->nprocs + 1, sizeof(*s->procs));

	if (!err)
		s->procs[s->nprocs++] = p;
	return err;
}

/* The first ended process that is not the chosen one is the oldest. */
struct live_proc *live_state__remove_ended(struct live_state *s, size_t most)
{
	struct live_proc *old = NULL;
	size_t ended = 0, at = 0;

	for (size_t i = 0; i < s->nprocs; i++) {
		ended += s->procs[i]->ended;
		if (s->procs[i]->ended && i != s->chosen && !old) {
			old = s->procs[i];
			at = i;
		}
	}
	if (ended <= most || !old)
		return NULL;
	memmove(&s->procs[at], &s->procs[at + 1], (s->nprocs - at - 1) * sizeof(*s->procs));
	s->nprocs--;
	s->chosen -= s->chosen > at;
	s->selected -= s->view == VIEW_PROCESSES && s->selected > at;
	return old;
}

struct live_proc *live_state__proc(const struct live_state *s)
{
	return s->chosen < s->nprocs ? s->procs[s->chosen] : NULL;
}

/* The device that the user chose, if the process has it; otherwise its main device. */
int live_state__device(const struct live_state *s, struct model_device *d)
{
	const struct live_proc *p = live_state__proc(s);
	struct model_device found;
	int device = -1;

	if (!p)
		return -1;
	for (size_t i = 0; s->device_chosen && device < 0 && i < model__devices(p->model); i++) {
		model__device(p->model, i, &found);
		if (device__same(found.device, s->device))
			device = (int)i;
	}
	if (device < 0)
		device = model__main_device(p->model);
	if (device >= 0 && d)
		model__device(p->model, device, d);
	return device;
}

enum live_by live_state__by(const struct live_state *s)
{
	switch (s->view) {
	case VIEW_MODULES:
		return LIVE_MODULE;
	case VIEW_CATEGORIES:
		return LIVE_CATEGORY;
	case VIEW_TREE:
		return LIVE_LAYER;
	default:
		return s->by_function ? LIVE_FUNCTION : LIVE_LINE;
	}
}

bool live_state__offers(const struct live_state *s, enum live_view v)
{
	struct model_device d;

	if (v == VIEW_PROCESSES)
		return s->nprocs > 1;
	return v != VIEW_SEGMENTS || live_state__device(s, &d) < 0 || !device__on_host(d.device);
}

struct live_rows *live_state__table(const struct live_state *s)
{
	struct live_proc *p = live_state__proc(s);

	return p ? &p->rows[live_state__by(s)] : NULL;
}

/* Reads the segments of a device. Keeps an error other than -ENOMEM, which it returns, in
 * s->segments_err. */
static int refresh_segments(struct live_state *s, const struct live_proc *p, int device)
{
	struct model_segments fresh;
	int err = model__segments(p->model, device, ROWS_NOW, s->which_line, &fresh);

	drop_segments(s);
	s->segments_err = err;
	if (!err) {
		s->segments = fresh;
		s->has_segments = true;
	}
	return err == -ENOMEM ? err : 0;
}

/* Reads the details of the selected row. Returns 0 or -ENOMEM. */
static int refresh_detail(struct live_state *s, const struct live_proc *p, int device)
{
	const struct live_row *row = live_state__row(s);
	struct live_detail fresh;
	int err;

	/* If the selected row is gone, its last details stay on the screen. */
	if (!row || row->key != s->selected_key)
		return 0;
	err = live_detail__take(live_state__table(s), row, p->model, (size_t)device, p->dict,
				p->now, &fresh);
	if (err)
		return err == -ENOMEM ? err : 0;
	live_detail__release(&s->detailed);
	s->detailed = fresh;
	return 0;
}

/* Unless the user chose a process, selects one with tensors: a launcher has PyTorch, but no
 * tensors. */
static void select_process_with_memory(struct live_state *s)
{
	for (size_t i = 0; i < s->nprocs && !s->proc_chosen && live_state__device(s, NULL) < 0; i++)
		if (model__main_device(s->procs[i]->model) >= 0)
			s->chosen = i;
}

int live_state__refresh(struct live_state *s)
{
	struct live_proc *p;
	struct model_device d;
	int device, err = 0;

	select_process_with_memory(s);
	p = live_state__proc(s);
	device = live_state__device(s, &d);
	if (device < 0)
		return 0;
	err = live_proc__judge(p, (size_t)device);
	if (err)
		return err;
	if (s->view == VIEW_FINDINGS) {
		err = live_proc__judge_findings(p);
	} else if (s->view == VIEW_SEGMENTS) {
		err = refresh_segments(s, p, device);
	} else if (s->view != VIEW_PROCESSES) {
		const struct live_selection a = { d.device, s->which_line, &s->select };

		live_proc__select(p, live_state__by(s), &a);
		live_state__table(s)->holders = live_proc__holders(p, d.device);
		err = live_rows__refresh(live_state__table(s), p->model, p->now);
	}
	if (err && err != -ENOENT)
		return err;
	live_state__settle(s);
	return s->detail && has_table(s) ? refresh_detail(s, p, device) : 0;
}

size_t live_state__rows(const struct live_state *s)
{
	const struct live_rows *r = live_state__table(s);

	if (s->view == VIEW_FINDINGS)
		return 0;
	if (s->view == VIEW_PROCESSES)
		return s->nprocs;
	if (s->view == VIEW_SEGMENTS)
		return s->has_segments ? s->segments.n : 0;
	return r ? r->shown : 0;
}

const struct live_row *live_state__row(const struct live_state *s)
{
	const struct live_rows *r = live_state__table(s);

	return r && has_table(s) && s->selected < r->shown ? &r->all[s->selected] : NULL;
}

/* folded has the modules that the user folded or unfolded, against the default for their depth. */
static bool is_open(void *ctx, uint64_t key, unsigned depth)
{
	const struct live_state *s = ctx;
	uint64_t ignored;

	return (depth < LIVE_OPEN) != (s->folded && map64__get(s->folded, key, &ignored));
}

void live_state__fold(struct live_state *s, uint64_t key)
{
	if (!s->folded && !(s->folded = map64__new()))
		return;
	if (!map64__del(s->folded, key, /*old=*/NULL))
		map64__set(s->folded, key, 1);
	live_state__settle(s);
}

void live_state__settle(struct live_state *s)
{
	struct live_rows *r = has_table(s) ? live_state__table(s) : NULL;
	size_t n;

	if (r && (r->by != LIVE_LAYER || live_rows__tree(r, s->sort, is_open, s)))
		live_rows__sort(r, s->sort);
	n = live_state__rows(s);
	if (r && (s->moved || s->detail)) {
		for (size_t i = 0; i < n; i++) {
			if (r->all[i].key == s->selected_key) {
				s->selected = i;
				break;
			}
		}
	}
	if (s->selected >= n)
		s->selected = n ? n - 1 : 0;
}

void live_state__choose_view(struct live_state *s, enum live_view v)
{
	s->view = v;
	s->detail = s->moved = false;
	s->selected = s->first = 0;
	if (v == VIEW_PROCESSES)
		s->selected = s->chosen;
}

void live_state__choose_proc(struct live_state *s, size_t i)
{
	if (i >= s->nprocs)
		return;
	s->chosen = i;
	s->proc_chosen = true;
	drop_segments(s);
	s->detail = s->moved = false;
	if (s->view != VIEW_PROCESSES)
		s->selected = s->first = 0;
}

void live_state__next_device(struct live_state *s)
{
	const struct live_proc *p = live_state__proc(s);
	struct model_device d;
	int device = live_state__device(s, NULL);

	if (device < 0)
		return;
	model__device(p->model, ((size_t)device + 1) % model__devices(p->model), &d);
	s->device = d.device;
	s->device_chosen = true;
	if (!live_state__offers(s, s->view))
		s->view = VIEW_LINES;
	s->detail = s->moved = false;
	s->selected = s->first = 0;
}

int live_state__set_filter(struct live_state *s, const char *expr, char *why, size_t size)
{
	struct filter *f = NULL;

	if (*expr) {
		f = filter__parse(expr, why, size);
		if (!f)
			return -EINVAL;
	}
	filter__free(s->select.filter);
	snprintf(s->filter, sizeof(s->filter), "%s", expr);
	s->select.filter = f;
	s->select.expr = f ? s->filter : NULL;
	for (size_t i = 0; i < s->nprocs; i++)
		for (int by = 0; by < LIVE_BY_NR; by++)
			live_rows__forget(&s->procs[i]->rows[by]);
	s->selected = s->first = 0;
	s->moved = false;
	return 0;
}

void live_state__say(struct live_state *s, enum log_level level, bool own, const char *fmt, ...)
{
	struct live_message *m = &s->messages[s->nmessages++ % LIVE_MESSAGES];
	char text[sizeof(m->text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	m->time = s->now;
	m->level = level;
	m->own = own;
	text__clean(m->text, sizeof(m->text), text, strlen(text));
}

const struct live_message *live_state__message(const struct live_state *s, size_t i)
{
	if (i >= s->nmessages || i >= LIVE_MESSAGES)
		return NULL;
	return &s->messages[(s->nmessages - 1 - i) % LIVE_MESSAGES];
}
