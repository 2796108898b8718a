/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "inspect/gpu_holders.h"

/* ---- what is unusual about a row ---- */

static void add_reason(struct gpu_holder *h, unsigned rank, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void add_reason(struct gpu_holder *h, unsigned rank, const char *fmt, ...)
{
	size_t len = strlen(h->reason);
	va_list ap;

	if (len && len + 3 < sizeof(h->reason))
		len += (size_t)sprintf(h->reason + len, ", ");
	va_start(ap, fmt);
	vsnprintf(h->reason + len, sizeof(h->reason) - len, fmt, ap);
	va_end(ap);
	h->rank += rank;
}

/* True if the driver lists a process that has no GPU open, where GPUs have device nodes. The driver
 * may list a process that has ended, and another one may have its PID now. */
static bool may_be_another(const struct gpu_holder *h, const struct holder_processes *all)
{
	const struct holder_process *p = h->process;

	return all->has_nodes && h->kinds && p->nodes_known && !p->nodes && p->state != 'Z' &&
	       p->state != 'X';
}

/* Says why a process may be left over. The ranks make each reason weigh more than all later ones. */
static void judge(struct gpu_holder *h, const struct holder_processes *all, uint64_t idle)
{
	const struct holder_process *p = h->process;
	char time[24];

	if (p->state == 'X')
		add_reason(h, 64, "the driver lists it, but no process has this PID");
	if (p->state == 'Z' && p->threads_left)
		add_reason(h, 32, "its main thread has ended, and others have not");
	else if (p->state == 'Z')
		add_reason(h, /*rank=*/32, "it has ended, and its parent %d has not collected it",
			   (int)p->parent);
	if (p->parent_gone)
		add_reason(h, 8, "parent gone");
	h->left_over = (h->rank || p->container_gone) && !may_be_another(h, all);
	if (h->idle_known && h->idle >= idle)
		add_reason(h, /*rank=*/2,
			   h->idle_by_driver ? "idle for %s" : "no thread has run for %s",
			   text__time(time, sizeof(time), h->idle));
	if (p->container_gone)
		add_reason(h, 16, "its container no longer exists");
	if (p->state == 'T' || p->state == 't')
		add_reason(h, 4, "it is stopped");
	if (p->state == 'D')
		add_reason(h, 1, "it waits in the kernel (uninterruptible)");
	if (may_be_another(h, all))
		add_reason(h, 1,
			   "it has no GPU open: the driver may mean an earlier process with this "
			   "PID");
}

/* Sets the commands that would end a process which is probably left over. A zombie without threads
 * has ended: only its parent can collect it. A stopped process would not see a signal that it may
 * handle. */
static void set_command(struct gpu_holder *h)
{
	const struct holder_process *p = h->process;

	h->end_all = "";
	if (!h->left_over || p->state == 'X')
		return;
	h->end_all = p->end_all;
	if (p->state == 'T' || p->state == 't' || p->threads_left)
		snprintf(h->command, sizeof(h->command), "sudo kill -KILL %d", (int)p->pid);
	else if (p->state != 'Z')
		snprintf(h->command, sizeof(h->command), "sudo kill %d", (int)p->pid);
	else if (p->parent > 1)
		snprintf(h->command, sizeof(h->command), "sudo kill -CHLD %d", (int)p->parent);
}

/* ---- figures of a row ---- */

static void set_torch(struct gpu_holder *h, const struct gpu_table_input *in)
{
	for (size_t i = 0; i < in->n_torch; i++) {
		if (in->torch[i].pid != h->process->pid || in->torch[i].gpu != in->gpu)
			continue;
		h->torch_known = true;
		h->allocated = in->torch[i].allocated;
		h->reserved = in->torch[i].reserved;
	}
}

static void set_why(struct gpu_holder *h, const struct gpu_table_input *in)
{
	const char *why = "the driver does not tell the figure of this process";

	if (h->bytes_known)
		return;
	if (!in->answer)
		why = *in->no_answer ? in->no_answer : "the driver has not answered";
	else if (!(in->answer->known >> in->gpu & 1))
		why = "the driver does not list the processes of this device";
	else if (in->processes->own_namespace)
		why = "memtrace-bpf runs in a PID namespace of its own, and the driver has the "
		      "host's PIDs";
	else if (!h->kinds)
		why = "it has the device open, and the driver lists no memory of it";
	else if (in->mig)
		why = "the driver does not tell the figure in multi-instance mode (MIG)";
	else if (!(in->answer->has_memory >> in->gpu & 1))
		why = "the GPU uses the host's memory, and the driver has no figure";
	snprintf(h->why, sizeof(h->why), "%s", why);
}

static void complete_row(struct gpu_holder *h, const struct gpu_table_input *in)
{
	set_torch(h, in);
	set_why(h, in);
	judge(h, in->processes, in->idle);
	set_command(h);
}

/* ---- joining ---- */

static void put_row(struct gpu_table *t, const struct gpu_table_input *in,
		    const struct holder_process *p, const struct gpus_process *g)
{
	struct gpu_holder *h = &t->v[t->n++];

	*h = (struct gpu_holder){ .process = p, .slice = GPUS_NO_SLICE };
	h->idle_known = p->asleep_known;
	h->idle = p->asleep;
	h->open = in->minor >= 0 && in->minor < 64 && p->nodes >> in->minor & 1;
	if (g) {
		h->kinds = g->kinds;
		h->slice = g->slice;
		h->bytes_known = g->used != UINT64_MAX;
		h->bytes = h->bytes_known ? g->used : 0;
		h->idle_by_driver = g->worked && g->worked <= in->monotonic;
	}
	if (h->idle_by_driver) {
		h->idle_known = true;
		h->idle = in->monotonic - g->worked;
	}
	t->listed += h->bytes;
	complete_row(h, in);
}

/* The process of an entry of NVML; NULL: this host does not show it. */
static const struct holder_process *process_of(const struct gpu_table_input *in,
					       const struct gpus_process *g)
{
	if (in->processes->own_namespace)
		return NULL;
	return holder_processes__find(in->processes, (pid_t)g->pid);
}

static void join_answer(struct gpu_table *t, const struct gpu_table_input *in)
{
	const struct gpus_answer *a = in->answer;

	for (uint32_t i = 0; a && i < a->n; i++) {
		const struct gpus_process *g = &a->process[i];
		const struct holder_process *p;

		if (g->gpu != in->gpu)
			continue;
		p = process_of(in, g);
		if (p) {
			put_row(t, in, p, g);
			continue;
		}
		t->n_hidden++;
		t->hidden += g->used == UINT64_MAX ? 0 : g->used;
	}
}

static bool has_row(const struct gpu_table *t, const struct holder_process *p)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->v[i].process == p)
			return true;
	return false;
}

/* Adds the processes that have the device open without being in NVML's lists. */
static void join_open(struct gpu_table *t, const struct gpu_table_input *in)
{
	const struct holder_processes *ps = in->processes;

	if (in->minor < 0 || in->minor >= 64)
		return;
	for (size_t i = 0; i < ps->n; i++)
		if (ps->v[i].nodes >> in->minor & 1 && !has_row(t, &ps->v[i]))
			put_row(t, in, &ps->v[i], NULL);
}

static void set_memory(struct gpu_table *t, const struct gpu_table_input *in)
{
	const struct gpus_memory *m = in->answer ? &in->answer->memory[in->gpu] : NULL;

	if (!m || !(in->answer->has_memory >> in->gpu & 1))
		return;
	t->used_known = true;
	t->total = m->total;
	t->used = m->used;
	t->reserved_known = m->reserved != UINT64_MAX;
	t->reserved = t->reserved_known ? m->reserved : 0;
	t->unexplained = (int64_t)(t->used - t->reserved - t->listed - t->hidden);
}

static void set_table_why(struct gpu_table *t, const struct gpu_table_input *in)
{
	const char *why = "";

	if (!in->answer)
		why = *in->no_answer ? in->no_answer : "the driver has not answered";
	else if (!t->used_known)
		why = "the driver has no figure of the device's memory: the GPU uses the host's, "
		      "or the driver does not tell it";
	else if (!(in->answer->known >> in->gpu & 1) && in->vgpu)
		why = "the driver does not list the processes of a virtual GPU";
	else if (!(in->answer->known >> in->gpu & 1) && in->mig)
		why = "the driver does not list the processes of this device: this user may not "
		      "see its slices (multi-instance mode)";
	else if (!(in->answer->known >> in->gpu & 1))
		why = "the driver does not list the processes of this device";
	else if (in->processes->own_namespace)
		why = "memtrace-bpf runs in a PID namespace of its own, and the driver has the "
		      "host's PIDs: run it on the host, or with --pid=host";
	else if (t->n_hidden)
		why = "/proc hides processes of other users (hidepid): run it with sudo";
	snprintf(t->why, sizeof(t->why), "%s", why);
}

static int by_rank(const void *a, const void *b)
{
	const struct gpu_holder *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? 1 : -1;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	if (x->process->pid != y->process->pid)
		return x->process->pid < y->process->pid ? -1 : 1;
	return x->slice < y->slice ? -1 : x->slice > y->slice;
}

int gpu_table__join(const struct gpu_table_input *in, struct gpu_table *ret)
{
	size_t most = in->processes->n + (in->answer ? in->answer->n : 0);
	struct gpu_table t = { .gpu = in->gpu, .v = calloc(most ?: 1, sizeof(*t.v)) };

	if (!t.v)
		return -ENOMEM;
	join_answer(&t, in);
	join_open(&t, in);
	set_memory(&t, in);
	set_table_why(&t, in);
	qsort(t.v, t.n, sizeof(*t.v), by_rank);
	*ret = t;
	return 0;
}

void gpu_table__free(struct gpu_table *t)
{
	free(t->v);
	t->v = NULL;
	t->n = 0;
}
