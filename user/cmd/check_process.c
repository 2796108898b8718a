/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit.h"
#include "base/text.h"
#include "cmd/check_lines.h"
#include "inspect/census.h"
#include "inspect/cuda.h"
#include "inspect/elf.h"
#include "inspect/proc.h"
#include "model/words.h"

static void check_threads(struct check_lines *l, struct target *t)
{
	struct pythread *threads = NULL;
	struct pyframe frames[MT_MAX_FRAMES];
	size_t n_threads = 0, i;
	int with_frames = 0;
	char text[512];

	if (t->has_slot && t->slot.kind == PYSLOT_EITHER)
		snprintf(text, sizeof(text), "thread pointer %+" PRId64 " or %+" PRId64,
			 t->slot.off1, t->slot.off2);
	else if (t->has_slot)
		snprintf(text, sizeof(text), "thread pointer %+" PRId64 "%s", t->slot.off1,
			 t->slot.kind == PYSLOT_INDIRECT ? ", one link" : "");
	if (l->details || !t->has_slot)
		check_lines__add(l, t->has_slot, "thread state", t->has_slot ? text : t->python_why,
				 0);
	if (python__threads(t->python, &threads, &n_threads) == 0) {
		for (i = 0; i < n_threads; i++)
			with_frames += python__stack(t->python, &threads[i], frames,
						     MT_MAX_FRAMES) > 0;
		free(threads);
	}
	snprintf(text, sizeof(text), "%zu, %d of them with frames now", n_threads, with_frames);
	if (l->details || !n_threads)
		check_lines__add(l, n_threads > 0, "Python threads", text, 0);
}

static void check_python(struct check_lines *l, struct target *t)
{
	char version[32], text[512];

	if (!t->python) {
		check_lines__add(l, false, "Python", t->python_why, 0);
		return;
	}
	snprintf(text, sizeof(text), "%s in %s",
		 python__version_text(t->python, version, sizeof(version)),
		 python__file(t->python));
	check_lines__add(l, true, "Python", text, 0);
	check_threads(l, t);
}

static void check_modules(struct check_lines *l, struct target *t)
{
	bool modules = t->python && !target__look_into_torch(t);

	if (t->python)
		check_lines__add(l, modules, "nn.Module",
				 modules ? "names of modules and steps are recorded"
					 : "torch.nn is not imported yet: no names of modules, no "
					   "steps",
				 0);
}

/* Writes a probe's file, offset, instruction, the way that the kernel runs it, and the offset in
 * its function. */
static void explain_site(char *buf, size_t size, const char *file, uint64_t offset,
			 const struct site *s, const char *what)
{
	const char *how = s->cls == SITE_STEPPED ? "single-stepped" : "emulated";

	snprintf(buf, size, "%s+%#" PRIx64 ": %s (%s), %s+%u", file, offset, s->text, how, what,
		 s->offset);
}

static void check_hook(struct check_lines *l, const struct hook *h, int id)
{
	char text[1024];

	if (h->found && l->explain)
		explain_site(text, sizeof(text), h->file, h->offset, &h->site, h->symbol);
	else if (h->found)
		snprintf(text, sizeof(text), "%s",
			 h->site.cls == SITE_STEPPED
				 ? "single-stepped: about 9 us a hit on a virtual machine"
				 : "emulated by the kernel: about 0.5 us a hit");
	else
		snprintf(text, sizeof(text), "%s", h->why_not ? h->why_not : "not found");
	check_lines__add(l, h->found, hook__name(id), text, h->required ? EXIT_UNUSABLE : 0);
}

/* One line for all probes, and a line for each that is missing. */
static void check_hooks(struct check_lines *l, const struct target *t)
{
	int found = 0, slow = 0;
	char text[256];

	for (int i = 0; i < HOOK_NR; i++) {
		const struct hook *h = &t->hooks[i];

		found += h->found;
		slow += h->found && h->site.cls == SITE_STEPPED;
		if (!h->found || l->details || l->explain)
			check_hook(l, h, i);
	}
	snprintf(text, sizeof(text), "%d of %d can be placed%s", found, HOOK_NR,
		 slow ? "; some must be single-stepped, which is slower" : "");
	check_lines__add(l, found > 0, "probes", text, 0);
}

/* Prints return probes. Only plain C functions have them, which no exception leaves. */
static void print_calls(struct check_lines *l, const struct cuda_file *f, const struct map *map)
{
	char text[1024], what[1024 + PATH_MAX];
	size_t i;

	if (f->throws) {
		snprintf(text, sizeof(text),
			 "%s: not probed: C++ exceptions may leave its functions", map->path);
		check_lines__add(l, false, "CUDA calls", text, 0);
		return;
	}
	if (f->newer[0]) {
		snprintf(text, sizeof(text),
			 "%s: %s is newer than this memtrace-bpf, and is not probed", map->path,
			 f->newer);
		check_lines__add(l, false, "CUDA calls", text, 0);
	}
	if (!l->explain) {
		snprintf(text, sizeof(text), "%zu functions%s in %s", f->n,
			 f->refused ? ", some cannot be probed," : "", map->path);
		check_lines__add(l, true, "CUDA calls", text, 0);
		return;
	}
	for (i = 0; i < f->n; i++) {
		const struct cuda_function *fn = cuda__function(f->site[i].fn);

		snprintf(text, sizeof(text),
			 fn->op == CUDA_SET_DEVICE ? "entry, %s" : "entry and return, %s",
			 fn->name);
		explain_site(what, sizeof(what), map->path, f->site[i].offset, &f->site[i].site,
			     text);
		check_lines__add(l, true, "CUDA call", what, 0);
	}
}

/* Checks each file once, at its first executable mapping. */
static void check_calls(struct check_lines *l, const struct target *t)
{
	const struct maps *m = &t->maps;
	struct cuda_file f;
	size_t i, k;

	for (i = 0; i < m->n; i++) {
		if (!m->v[i].x || !m->v[i].inode || m->v[i].path[0] != '/')
			continue;
		for (k = 0; k < i && !(m->v[k].x && m->v[k].inode == m->v[i].inode &&
				       m->v[k].dev_major == m->v[i].dev_major &&
				       m->v[k].dev_minor == m->v[i].dev_minor);
		     k++)
			;
		if (k < i || cuda__look(t->proc, m, &m->v[i], &f))
			continue;
		if (f.n || f.throws)
			print_calls(l, &f, &m->v[i]);
		elf__free(f.elf);
	}
}

/* Checks whether tensors can be named: reads all of them once, as a capture and `dump` do. */
static void check_census(struct check_lines *l, const struct target *t)
{
	const struct census_opts o = { .limit_ns = 5000000000ull };
	struct census_state s;
	const char *why = "";
	char text[256], n[32];
	struct census *c;
	int err = -ENOENT;

	if (!t->python)
		return;
	c = census__open(t->python, CENSUS_WITHIN_NS, &why);
	if (c)
		err = census__read(c, &o, &s, &why);
	if (!err) {
		snprintf(text, sizeof(text),
			 "%s storage%s, %" PRIu64 " module%s and %" PRIu64
			 " optimizer%s read in %.0f ms%s",
			 text__count(n, sizeof(n), s.ntensors), s.ntensors == 1 ? "" : "s",
			 s.modules, s.modules == 1 ? "" : "s", s.optimizers,
			 s.optimizers == 1 ? "" : "s", (double)(s.end - s.begin) / 1e6,
			 s.know_grad ? "" : "; no gradient seen yet");
		census_state__free(&s);
	} else {
		snprintf(text, sizeof(text), "%s: memory gets no names so far",
			 *why ? why : "they cannot be read");
	}
	check_lines__add(l, !err, "tensors", text, 0);
	census__free(c);
}

void check_lines__process(struct check_lines *l, struct target *t)
{
	char text[256], command[1024];
	const char *cmdline;
	size_t len;

	cmdline = proc__cmdline(t->proc, &len);
	words__arguments(command, sizeof(command), cmdline, len);
	check_lines__add(l, true, "process", *command ? command : proc__comm(t->proc), 0);
	check_python(l, t);
	if (!t->torch.found) {
		check_lines__add(l, false, "PyTorch", "not imported yet: a capture waits for it",
				 0);
		return;
	}
	check_modules(l, t);
	snprintf(text, sizeof(text), "%s%s%s",
		 t->torch.version[0] ? t->torch.version : "version unknown",
		 t->torch.cuda_runtime[0] ? ", " : "", t->torch.cuda_runtime);
	check_lines__add(l, true, "PyTorch", text, 0);
	check_census(l, t);
	check_hooks(l, t);
	check_calls(l, t);
}
