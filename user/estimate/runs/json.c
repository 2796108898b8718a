/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The answer as JSON: docs/reference/estimate.md. */
#include "estimate/estimate.h"

#include <errno.h>
#include <sys/wait.h>

#include "base/json.h"
#include "base/text.h"
#include "report/doc.h"

#define ESTIMATE_FORMAT 1 /* grows when a key is removed or changes its meaning */

static void put_device(struct json *j, const struct estimate *e)
{
	const struct estimate_args *a = e->args;
	const struct dryrun_args *d = &a->run.dryrun;
	const struct device_figure *context = e->full ? &e->context : &a->context;
	char sm[32] = "8.0";

	json__open_object(j, "on");
	json__string(j, "kind", a->kind ? a->kind->option : NULL);
	json__string(j, "name", d->name);
	json__uint(j, "devices", d->devices ? d->devices : 1);
	json__uint(j, "vram", a->vram);
	if (d->sm_major)
		snprintf(sm, sizeof(sm), "%d.%d", d->sm_major, d->sm_minor);
	json__string(j, "compute_capability", sm);
	json__uint(j, "context", a->context.bytes);
	json__string(j, "context_source", figure_source__name(context->source));
	json__string(j, "context_from", context->from);
	json__string(j, "alloc_conf", d->alloc_conf);
	json__uint(j, "cudnn_workspace",
		   d->cudnn_workspace_given ? d->cudnn_workspace : DRYRUN_CUDNN_WORKSPACE_DEFAULT);
	json__close_object(j);
}

static void put_rank(struct json *j, const struct estimate *e)
{
	struct device_figure nccl;

	if (!e->of_ranks)
		return;
	json__open_object(j, "rank");
	json__uint(j, "rank", e->rank);
	json__uint(j, "world_size", e->world_size);
	json__uint(j, "local_world_size", e->local_world_size);
	json__string(j, "waited_for", e->missing_key);
	if (e->world_size > 1 && device_kind__nccl(e->args->kind, e->local_world_size, &nccl))
		json__uint(j, "nccl_communicator", nccl.bytes);
	json__close_object(j);
}

static const char *const ends[] = {
	[RUN_ENDED] = "ended",
	[RUN_REPEATED] = "repeated",
	[RUN_STEPS] = "steps",
	[RUN_GROWS] = "grows",
	[RUN_OOM] = "oom",
	[RUN_TIME] = "max-time",
	[RUN_HOST_MEMORY] = "max-host-memory",
	[RUN_INTERRUPTED] = "interrupted",
};

/* Adds a run: how it ended, steps and times. vram: bytes of its device. */
static void put_run(struct json *j, const char *key, const struct estimate_run *r, uint64_t vram)
{
	json__open_object(j, key);
	json__uint(j, "vram", vram);
	json__string(j, "end", ends[r->end]);
	if (r->end == RUN_ENDED && WIFEXITED(r->wait_status))
		json__int(j, "exit_status", WEXITSTATUS(r->wait_status));
	else if (r->end == RUN_ENDED)
		json__int(j, "signal", WTERMSIG(r->wait_status));
	json__bool(j, "at_end", r->at_end);
	json__uint(j, "steps", r->steps);
	if (r->end == RUN_REPEATED) {
		json__open_object(j, "equal");
		json__uint(j, "first", r->repeat.first);
		json__uint(j, "last", r->repeat.last);
		json__uint(j, "cycle", r->repeat.cycle);
		json__uint(j, "spread", r->repeat.spread);
		json__close_object(j);
	}
	json__uint(j, "refused", r->ooms);
	json__seconds(j, "time", r->time, /*decimals=*/3);
	json__uint(j, "host_memory", r->host_memory);
	json__close_object(j);
}

/* Adds a device with its parts. Returns 0 or -ENOMEM. */
static int put_parts(struct json *j, const struct estimate *e, size_t device)
{
	struct estimate_parts p;
	struct model_device d;
	int err = estimate_parts(e->full->model, device, e->args->context.bytes, &p);

	if (err)
		return err;
	model__device(e->full->model, device, &d);
	json__open_object(j, NULL);
	json__string(j, "device", d.name);
	json__open_object(j, "parts");
	for (int i = 0; i < PART_NR; i++)
		json__uint(j, part_words[i].name, p.bytes[i]);
	json__close_object(j);
	json__uint(j, "peak_allocated", p.allocated);
	json__uint_or_null(j, "peak_reserved", p.reserved_known, p.reserved);
	json__uint(j, "needs", p.needs);
	json__int(j, "left", estimate_parts__left(estimate__room(e, device), &p));
	json__string(j, "peak_is", figure__name(d.peak_is));
	json__uint(j, "peak_step", d.peak_step + 1); /* from 1: for older readers */
	json__uint(j, "peak_step_number", d.peak_step + 1);
	json__string(j, "peak_phase", phase__name(d.peak_phase));
	err = growth_summary__device_json(j, e->full->model, e->full->facts, device,
					  e->full->duration);
	json__close_object(j);
	return err;
}

/* Adds all CUDA devices. Returns 0 or -ENOMEM. */
static int put_devices(struct json *j, const struct estimate *e)
{
	struct model_device d;
	int err = 0;

	json__open_array(j, "devices");
	for (size_t i = 0; i < model__devices(e->full->model) && !err; i++) {
		model__device(e->full->model, i, &d);
		if (!device__on_host(d.device))
			err = put_parts(j, e, i);
	}
	json__close_array(j);
	return err;
}

/* Adds the processes that are known to hold memory of a GPU. */
static void put_holders(struct json *j, const struct estimate_gpu *g)
{
	json__open_array(j, "holders");
	for (size_t i = 0; i < g->table->n; i++) {
		const struct gpu_holder *h = &g->table->v[i];
		const struct holder_process *p = h->process;

		if (!h->bytes || (g->slice != GPUS_NO_SLICE && h->slice != g->slice))
			continue;
		json__open_object(j, NULL);
		json__int(j, "pid", p->pid);
		json__string(j, "user", *p->user ? p->user : NULL);
		json__string(j, "command", *p->command ? p->command : NULL);
		json__string(j, "container", *p->container ? p->container : NULL);
		json__string(j, "pod", *p->pod ? p->pod : NULL);
		json__uint(j, "bytes", h->bytes);
		json__bool(j, "left_over", h->left_over);
		json__close_object(j);
	}
	json__close_array(j);
}

/* Adds the GPUs of --here; null: not given. */
static void put_here(struct json *j, const struct estimate_here *here)
{
	char text[40];

	if (!here) {
		json__null(j, "here");
		return;
	}
	json__open_object(j, "here");
	json__string(j, "time", text__date(text, sizeof(text), here->time));
	json__open_array(j, "devices");
	for (unsigned i = 0; i < here->n; i++) {
		const struct estimate_gpu *g = &here->gpu[i];

		snprintf(text, sizeof(text), "cuda:%u", i);
		json__open_object(j, NULL);
		json__string(j, "device", text);
		json__uint(j, "gpu", g->gpu);
		json__uint_or_null(j, "slice", g->slice != GPUS_NO_SLICE, g->slice);
		json__string(j, "name", g->name);
		json__string(j, "uuid", *g->uuid ? g->uuid : NULL);
		json__uint(j, "total", g->total);
		json__uint(j, "free", g->free);
		put_holders(j, g);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

/* Adds the first request that was refused; null: none was. */
static void put_overflow(struct json *j, const struct estimate *e)
{
	const struct model *m = e->named->model;
	struct model_device d;
	struct model_oom oom;
	struct row row;

	for (size_t i = 0; i < model__devices(m); i++) {
		if (!model__oom(m, i, 0, &oom))
			continue;
		model__device(m, i, &d);
		row = (struct row){ 0 };
		model__stack_row(m, oom.stack, oom.node, oom.thread, oom.walk, &row);
		json__open_object(j, "overflow");
		json__string(j, "device", d.name);
		json__uint(j, "asked", oom.size);
		if (oom.has_totals) {
			json__uint(j, "allocated", oom.allocated);
			json__uint(j, "reserved", oom.reserved);
		}
		json__string(j, "file", row.file);
		json__uint_or_null(j, "line", row.file && row.line, row.line);
		json__string(j, "function", row.func);
		json__string(j, "module", row.module);
		json__string(j, "phase", phase__name(oom.phase));
		json__uint(j, "requests", d.ooms);
		json__close_object(j);
		return;
	}
	json__null(j, "overflow");
}

static void put_smallest(struct json *j, const struct estimate_smallest *s)
{
	if (!s->asked) {
		json__null(j, "smallest");
		return;
	}
	json__open_object(j, "smallest");
	json__uint_or_null(j, "vram", s->found, s->vram);
	json__bool(j, "less_refused", s->found && s->less_refused);
	json__uint(j, "granule", ESTIMATE_GRANULE);
	json__uint(j, "runs", s->runs);
	if (s->guess)
		json__uint(j, "replayed", s->guess);
	if (!s->found)
		json__string(j, "why", s->why);
	json__close_object(j);
}

/* Adds what the dry run did not know, or assumed. */
static void put_known(struct json *j, const struct known_list *l)
{
	static const char *const kinds[KNOWN_NR] = { [KNOWN_UNMODELLED] = "unmodelled",
						     [KNOWN_ASSUMED] = "assumed",
						     [KNOWN_DATA_DEPENDENT] = "shape",
						     [KNOWN_VALUE] = "value" };

	json__open_array(j, "unknown");
	for (size_t i = 0; i < l->n; i++) {
		const struct known *k = &l->all[i];

		json__open_object(j, NULL);
		json__string(j, "kind", kinds[k->kind]);
		json__string(j, "name", k->name);
		if (k->kind == KNOWN_ASSUMED && !k->file)
			json__uint(j, "value", k->count);
		else if (k->value)
			json__string(j, "value", k->value);
		if (k->file || k->kind == KNOWN_DATA_DEPENDENT || k->kind == KNOWN_VALUE) {
			if (k->kind != KNOWN_ASSUMED)
				json__uint(j, "count", k->count);
			json__string(j, "file", k->file);
			json__uint(j, "line", k->line);
			json__string(j, "function", k->func);
		}
		json__close_object(j);
	}
	json__close_array(j);
}

static void put_phases(struct json *j, const struct estimate *e)
{
	struct model_phase p;

	json__open_object(j, "phases");
	for (int i = 0; i < PHASE_NR; i++) {
		model__phase(e->full->model, i, &p);
		if (!p.count)
			continue;
		json__open_object(j, phase__name(i));
		json__uint(j, "peak_allocated", p.peak_allocated);
		json__uint(j, "peak_reserved", p.peak_reserved);
		json__uint(j, "count", p.count);
		json__close_object(j);
	}
	json__close_object(j);
}

static void put_verdict(struct json *j, const struct estimate *e)
{
	static const char *const verdicts[] = { [VERDICT_FITS] = "fits",
						[VERDICT_DOES_NOT_FIT] = "does_not_fit",
						[VERDICT_UNKNOWN] = "unknown" };
	char buf[256];
	const char *why;

	json__string(j, "verdict", verdicts[e->verdict]);
	json__bool(j, "lower_bound", estimate__bound(e, 0, buf, sizeof(buf)) != NULL);
	json__open_array(j, "lower_bound_why");
	for (size_t i = 0; (why = estimate__bound(e, i, buf, sizeof(buf))); i++)
		json__string(j, NULL, why);
	json__close_array(j);
}

/* Adds the tables: documents of `report`, at the peak. Returns 0 or -ENOMEM. */
static int put_reports(struct json *j, const struct estimate *e)
{
	struct report_doc doc = report_doc__of(e->full, e->device);
	int err;

	doc.at = AT_PEAK;
	doc.by = BY_LINE;
	err = report_json__document(j, "report", &doc);
	json__open_object(j, "modules");
	doc.by = BY_LAYER;
	err = err ? err : report_json__rows(j, &doc);
	json__close_object(j);
	return err;
}

int estimate_json__put(struct json *j, const struct estimate *e)
{
	int err;

	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	json__uint(j, "estimate_format", ESTIMATE_FORMAT);
	json__close_object(j);
	json__open_array(j, "command");
	for (char **a = e->args->run.command; *a; a++)
		json__string(j, NULL, *a);
	json__close_array(j);
	put_verdict(j, e);
	put_device(j, e);
	put_here(j, e->args->here);
	put_rank(j, e);
	put_run(j, "run", &e->run, e->args->vram);
	if (!e->full) {
		json__close_object(j);
		return 0;
	}
	put_run(j, "figures_of", &e->full_run, e->full_vram);
	err = put_devices(j, e);
	put_overflow(j, e);
	put_smallest(j, &e->smallest);
	put_phases(j, e);
	put_known(j, &e->known);
	advice__json(j, &e->advice);
	err = err ? err : put_reports(j, e);
	json__close_object(j);
	return err;
}

int estimate_json(FILE *out, const struct estimate *e)
{
	struct json *j = json__new(out, true);
	int err;

	if (!j)
		return -ENOMEM;
	err = estimate_json__put(j, e);
	json__free(j);
	return err;
}
