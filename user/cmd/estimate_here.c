/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/estimate_here.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/text.h"
#include "cmd/gpu_look.h"

#define VISIBLE "CUDA_VISIBLE_DEVICES"

/* ---- which GPUs ---- */

/* The slice that CUDA_VISIBLE_DEVICES names by its UUID, or by a unique start of it. NULL: none. */
static const struct gpus_slice *find_slice(const struct gpus_answer *a, const char *visible)
{
	size_t len = strcspn(visible, ", ");
	const struct gpus_slice *found = NULL;

	for (uint32_t i = 0; len > 4 && i < a->n_slices; i++) {
		if (strncmp(a->slice[i].uuid, visible, len) != 0)
			continue;
		if (found)
			return NULL;
		found = &a->slice[i];
	}
	return found;
}

/* Finds the GPUs that CUDA shows, in its order. Returns their number, or -1: it is not certain. By
 * default CUDA lists the fastest GPU first, so the machine's order is certain only for GPUs of one
 * model. */
static int order_gpus(const char *visible, unsigned order[NVML_DEVICES_MAX])
{
	const char *uuid[NVML_DEVICES_MAX], *by = getenv("CUDA_DEVICE_ORDER");
	unsigned n = gpus__count();
	bool sorted = true;

	for (unsigned i = 0; i < n; i++) {
		uuid[i] = gpus__get(i)->uuid;
		sorted = sorted && !strcmp(gpus__get(i)->name, gpus__get(0)->name);
	}
	sorted = sorted || (by && !strcmp(by, "PCI_BUS_ID"));
	return nvml__order(visible, uuid, n, sorted, order);
}

/* ---- one GPU ---- */

static void copy_clean(char *buf, size_t size, const char *text)
{
	text__clean(buf, size, text, strlen(text));
}

/* Logs why the free memory is not known. Returns an exit code. */
static int not_known(const char *what, const char *why)
{
	log_err("--here: the free memory of %s is not known: %s. Find it out yourself and give it, "
		"as in --vram 20G",
		what, why);
	return EXIT_UNUSABLE;
}

/* Logs that CUDA shows fewer devices than the job has. Returns an exit code. */
static int too_few(unsigned wanted, unsigned shown, const char *what)
{
	char devices[48], there[48];

	log_err("--here: the job has %s, and CUDA shows %s of this host%s",
		text__counted(devices, sizeof(devices), wanted, "device"),
		text__counted(there, sizeof(there), shown, what),
		getenv(VISIBLE) ? " (" VISIBLE ")" : "");
	return EXIT_UNUSABLE;
}

/* Sets a GPU that is not in slices. Returns 0 or an exit code, logged. */
static int set_gpu(struct estimate_gpu *g, const struct gpu_look *l, unsigned gpu)
{
	const struct gpu_table *t = &l->table[gpu];
	char what[16];

	snprintf(what, sizeof(what), "GPU %u", gpu);
	if (!t->used_known)
		return not_known(what, t->why);
	if (gpus__get(gpu)->mig)
		return not_known(what, "it is in multi-instance mode (MIG), and " VISIBLE
				       " names no slice; `nvidia-smi -L` has their UUIDs");
	*g = (struct estimate_gpu){ .gpu = gpu,
				    .slice = GPUS_NO_SLICE,
				    .total = t->total - t->reserved,
				    .free = t->total - t->used,
				    .table = t };
	copy_clean(g->name, sizeof(g->name),
		   *gpus__get(gpu)->name ? gpus__get(gpu)->name : "unknown");
	copy_clean(g->uuid, sizeof(g->uuid), gpus__get(gpu)->uuid);
	gpu_look__say_holders(t, GPUS_NO_SLICE, g->held, sizeof(g->held));
	return EXIT_OK;
}

/* Sets the only device of a process that sees a slice. n: as in estimate_here__read(). Returns 0 or
 * an exit code, logged. */
static int set_slice(struct estimate_here *here, const struct gpu_look *l,
		     const struct gpus_slice *s, unsigned n)
{
	struct estimate_gpu *g = &here->gpu[0];

	if (!s || s->gpu >= l->n || !s->total || s->used > s->total)
		return not_known("the slice of " VISIBLE,
				 "the driver has no such slice, or does not tell its memory");
	if (n > 1)
		return too_few(n, 1, "slice");
	*g = (struct estimate_gpu){ .gpu = s->gpu,
				    .slice = s->number,
				    .total = s->total,
				    .free = s->total - s->used,
				    .table = &l->table[s->gpu] };
	snprintf(g->name, sizeof(g->name), "slice %u", s->number);
	copy_clean(g->uuid, sizeof(g->uuid), s->uuid);
	gpu_look__say_holders(g->table, g->slice, g->held, sizeof(g->held));
	here->n = 1;
	return EXIT_OK;
}

/* ---- all ---- */

/* Sets the GPUs from a look. n: as in estimate_here__read(). Returns 0 or an exit code, logged. */
static int set_gpus(struct estimate_here *here, const struct gpu_look *l, unsigned n)
{
	const char *visible = getenv(VISIBLE);
	unsigned order[NVML_DEVICES_MAX], least = n ?: 1;
	int shown, status;

	if (!l->by_driver || !l->answer)
		return not_known("this host's GPUs", l->why);
	if (visible && text__starts(visible, "MIG-"))
		return set_slice(here, l, find_slice(l->answer, visible), n);
	shown = order_gpus(visible, order);
	if (shown < 0)
		return not_known("cuda:0", "CUDA may number the GPUs in another order than the "
					   "driver; set CUDA_DEVICE_ORDER=PCI_BUS_ID");
	if ((unsigned)shown < least)
		return too_few(least, (unsigned)shown, "GPU");
	here->n = n ? n : (unsigned)shown;
	for (unsigned i = 0; i < here->n; i++) {
		status = set_gpu(&here->gpu[i], l, order[i]);
		if (status)
			return status;
	}
	return EXIT_OK;
}

/* Sets the dry run's device: it has the memory of the largest GPU, and the rest is held. */
static void set_device(struct estimate_here_gpus *h, struct estimate_args *a)
{
	const struct estimate_here *here = &h->here;
	struct dryrun_args *d = &a->run.dryrun;

	for (unsigned i = 0; i < here->n; i++)
		if (here->gpu[i].total > a->vram)
			a->vram = here->gpu[i].total;
	for (unsigned i = 0; i < here->n; i++)
		h->held[i] = a->vram - here->gpu[i].free;
	a->kind = device_kind__named(gpus__get(here->gpu[0].gpu)->name);
	d->name = here->gpu[0].name;
	d->devices = here->n;
	d->held = h->held;
	a->here = here;
	/* The dry run has only these, and in this order. */
	unsetenv(VISIBLE);
}

int estimate_here__read(struct estimate_here_gpus *ret, struct estimate_args *a, unsigned n)
{
	int status, err;

	ret->look = gpu_look__new(/*torch=*/false);
	err = ret->look ? gpu_look__read(ret->look) : -ENOMEM;
	if (err) {
		log_err("--here: cannot read who holds the GPUs: %s", strerror(-err));
		return EXIT_FAILED;
	}
	ret->here.time = clock__read(CLOCK_REALTIME);
	status = set_gpus(&ret->here, ret->look, n);
	if (!status)
		set_device(ret, a);
	gpu_look__stop(ret->look);
	return status;
}

void estimate_here__free(struct estimate_here_gpus *h)
{
	gpu_look__free(h->look);
	h->look = NULL;
}
