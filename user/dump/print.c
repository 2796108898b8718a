/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Prints a dump as text and as JSON. All texts come from the target. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "dump/dump.h"
#include "lib/json.h"
#include "lib/text.h"
#include "torch/pytensor.h"

#define NAME_TEXT 512

static const char *const titles[] = {
	[DUMP_BY_TENSOR] = "Category         Name, shape, type",
	[DUMP_BY_MODULE] = "Module",
	[DUMP_BY_CATEGORY] = "Category",
};
static const char unheld[] = "held by no tensor";

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* Writes "[1024, 4096] float32". */
static const char *shape(char *buf, size_t size, const struct census_tensor *t)
{
	char dtype[16];
	size_t at = 0;

	at += snprintf(buf, size, "[");
	for (size_t i = 0; i < t->ndim && at < size; i++) {
		if (i == CENSUS_DIMS) {
			at += snprintf(buf + at, size - at, ", ..");
			break;
		}
		at += snprintf(buf + at, size - at, "%s%" PRId64, i ? ", " : "", t->shape[i]);
	}
	if (at < size)
		snprintf(buf + at, size - at, "] %s",
			 pytensor__dtype(t->dtype, dtype, sizeof(dtype)));
	return buf;
}

/* Writes a module for people: its name, the class of a root, or "" for none. */
static void module_text(char *buf, size_t size, const struct census_tensor *t)
{
	const char *name = *t->module ? t->module : t->cls;

	text__clean(buf, size, name, strlen(name));
}

static void row_text(FILE *out, const struct dump_row *r, enum dump_by by)
{
	char bytes[24], count[32], name[NAME_TEXT], what[256];
	const struct census_tensor *t = r->tensor;
	const char *category = t ? census_kind__name(r->kind) : "";

	fprintf(out, "%10s  %7s  ", text__bytes(bytes, sizeof(bytes), r->bytes),
		text__count(count, sizeof(count), r->count));
	if (by == DUMP_BY_TENSOR)
		fprintf(out, "%-15s  ", category);
	if (!t) {
		fprintf(out, "%s\n", unheld);
	} else if (by == DUMP_BY_CATEGORY) {
		fprintf(out, "%s\n", category);
	} else if (by == DUMP_BY_MODULE) {
		module_text(name, sizeof(name), t);
		text__clean(what, sizeof(what), t->cls, strlen(t->cls));
		fprintf(out, *t->module ? "%s (%s)\n" : "%s\n", *name ? name : "of no module",
			what);
	} else {
		text__clean(name, sizeof(name), t->name, strlen(t->name));
		fprintf(out, "%s  %s\n", *name ? name : "(no name)", shape(what, sizeof(what), t));
	}
}

static void device_text(FILE *out, const struct dump_device *dev)
{
	char a[24], b[24], n[32];

	text__bytes(a, sizeof(a), dev->allocated);
	text__count(n, sizeof(n), dev->blocks);
	if (!dev->known) {
		fprintf(out, "%s  %s in %s storage%s that tensors hold\n", dev->name, a, n,
			plural(dev->blocks));
		return;
	}
	fprintf(out, "%s  %s allocated in %s block%s, %s reserved%s\n", dev->name, a, n,
		plural(dev->blocks), text__bytes(b, sizeof(b), dev->reserved),
		dev->consistent ? "" : " (changing while it was read)");
	if (dev->moved) {
		text__count(n, sizeof(n), dev->moved);
		fprintf(out, "%s  %s tensor%s came or went while this was read, and %s not told\n",
			dev->name, n, plural(dev->moved), dev->moved == 1 ? "is" : "are");
	}
}

/* Prints the sums by category, before the single rows. */
static void kinds_text(FILE *out, const struct dump_device *dev)
{
	const char *sep = "      ";
	bool any = false;
	char bytes[24];

	for (unsigned int k = 0; k < CENSUS_KINDS; k++) {
		if (!dev->bytes[k])
			continue;
		fprintf(out, "%s%s %s", sep, census_kind__name(k),
			text__bytes(bytes, sizeof(bytes), dev->bytes[k]));
		sep = text__dot();
		any = true;
	}
	if (dev->unheld) {
		fprintf(out, "%s%s %s", sep, unheld,
			text__bytes(bytes, sizeof(bytes), dev->unheld));
		any = true;
	}
	if (any)
		fputc('\n', out);
}

static void header_text(FILE *out, const struct dump *d, const struct dump_opts *o)
{
	char n[3][32], took[24], comm[64], torch[64];
	const struct census_state *s = &d->census;

	text__clean(comm, sizeof(comm), o->comm, strlen(o->comm));
	text__clean(torch, sizeof(torch), o->torch->version, strlen(o->torch->version));
	fprintf(out,
		"%s (pid %d)%s%s%s%s: %s module%s, %s optimizer%s, %s Python object%s, read in "
		"%s\n",
		comm, o->pid, torch[0] ? ", torch " : "", torch, o->python[0] ? ", Python " : "",
		o->python, text__count(n[0], sizeof(n[0]), s->modules), plural(s->modules),
		text__count(n[1], sizeof(n[1]), s->optimizers), plural(s->optimizers),
		text__count(n[2], sizeof(n[2]), s->objects), plural(s->objects),
		text__time(took, sizeof(took), s->end - s->begin));
	if (s->torn)
		fprintf(out, "%s tensor%s changed all the while and %s not told\n",
			text__count(n[0], sizeof(n[0]), s->torn), plural(s->torn),
			s->torn == 1 ? "is" : "are");
	if (s->unreadable)
		fprintf(out, "%s tensor%s could not be read\n",
			text__count(n[0], sizeof(n[0]), s->unreadable), plural(s->unreadable));
	if (s->torn_lists)
		fprintf(out, "Some of Python's objects changed all the while: what they hold may "
			     "be missing\n");
	if (d->alloc_why[0])
		fprintf(out,
			"CUDA's allocator could not be read (%s): sizes are those of tensors\n",
			d->alloc_why);
}

void dump__text(FILE *out, const struct dump *d, const struct dump_row *rows, size_t n,
		const struct dump_opts *o)
{
	char bytes[24], count[32];

	header_text(out, d, o);
	for (size_t i = 0; i < d->ndevices; i++) {
		uint64_t left = 0, left_bytes = 0;
		size_t shown = 0;

		fprintf(out, "\n");
		device_text(out, &d->devices[i]);
		if (o->by != DUMP_BY_CATEGORY)
			kinds_text(out, &d->devices[i]);
		fprintf(out, "%10s  %7s  %s\n", "Mem", "Count", titles[o->by]);
		for (size_t k = 0; k < n; k++) {
			if (rows[k].device != i)
				continue;
			if (shown++ < o->top || !o->top) {
				row_text(out, &rows[k], o->by);
			} else {
				left += rows[k].count;
				left_bytes += rows[k].bytes;
			}
		}
		if (left)
			fprintf(out, "%10s  %7s  ... in %zu more row%s; --top shows more\n",
				text__bytes(bytes, sizeof(bytes), left_bytes),
				text__count(count, sizeof(count), left), shown - o->top,
				plural(shown - o->top));
	}
}

/* ---- JSON ---- */

static void device_json(struct json *j, const struct dump_device *dev)
{
	json__open_object(j, NULL);
	json__string(j, "device", dev->name);
	json__uint(j, "allocated", dev->allocated);
	json__uint_or_null(j, "reserved", dev->known, dev->reserved);
	json__uint(j, "blocks", dev->blocks);
	json__string(j, "source", dev->known ? "allocator" : "tensors");
	json__bool(j, "consistent", dev->known ? dev->consistent : true);
	json__open_object(j, "categories");
	for (size_t k = 0; k < CENSUS_KINDS; k++) {
		json__open_object(j, census_kind__name(k));
		json__uint(j, "bytes", dev->bytes[k]);
		json__uint(j, "count", dev->count[k]);
		json__close_object(j);
	}
	json__close_object(j);
	json__uint(j, "unheld", dev->unheld);
	json__uint(j, "unheld_blocks", dev->unheld_blocks);
	json__uint(j, "moved", dev->moved);
	json__close_object(j);
}

static void tensor_json(struct json *j, const struct census_tensor *t)
{
	char dtype[16];

	json__string(j, "name", t->name);
	json__uint(j, "address", t->addr);
	json__uint(j, "size", t->size);
	json__open_array(j, "shape");
	for (size_t i = 0; i < t->ndim && i < CENSUS_DIMS; i++)
		json__int(j, NULL, t->shape[i]);
	json__close_array(j);
	json__uint(j, "ndim", t->ndim);
	json__string(j, "dtype", pytensor__dtype(t->dtype, dtype, sizeof(dtype)));
	json__uint(j, "views", t->views);
}

static void row_json(struct json *j, const struct dump *d, const struct dump_row *r,
		     enum dump_by by)
{
	json__open_object(j, NULL);
	json__string(j, "device", d->devices[r->device].name);
	json__uint(j, "bytes", r->bytes);
	json__uint(j, "count", r->count);
	json__bool(j, "held", r->tensor != NULL);
	if (by != DUMP_BY_MODULE || !r->tensor)
		json__string(j, "category", census_kind__name(r->kind));
	if (r->tensor && by != DUMP_BY_CATEGORY) {
		json__string(j, "module", r->tensor->module);
		json__string(j, "module_class", r->tensor->cls);
		json__string(j, "module_root", r->tensor->root);
	}
	if (r->tensor && by == DUMP_BY_TENSOR)
		tensor_json(j, r->tensor);
	json__close_object(j);
}

int dump__json(FILE *out, const struct dump *d, const struct dump_row *rows, size_t n,
	       const struct dump_opts *o)
{
	const struct census_state *s = &d->census;
	uint64_t shown[256] = { 0 }, left = 0, left_bytes = 0;
	struct json *j = json__new(out, true);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	json__close_object(j);
	json__open_object(j, "target");
	json__int(j, "pid", o->pid);
	json__string(j, "comm", o->comm);
	json__string(j, "python", o->python[0] ? o->python : NULL);
	json__string(j, "torch", o->torch->version[0] ? o->torch->version : NULL);
	json__close_object(j);
	json__open_object(j, "reading");
	json__seconds(j, "seconds", s->end - s->begin, 6);
	json__uint(j, "objects", s->objects);
	json__uint(j, "modules", s->modules);
	json__uint(j, "optimizers", s->optimizers);
	json__uint(j, "torn", s->torn);
	json__uint(j, "unreadable", s->unreadable);
	json__bool(j, "complete", !s->torn && !s->unreadable && !s->torn_lists);
	json__bool(j, "gradients", s->know_grad);
	json__string(j, "allocator", d->alloc_why[0] ? d->alloc_why : NULL);
	json__close_object(j);
	json__open_array(j, "devices");
	for (size_t i = 0; i < d->ndevices; i++)
		device_json(j, &d->devices[i]);
	json__close_array(j);
	json__open_array(j, "rows");
	for (size_t i = 0; i < n; i++) {
		if (shown[rows[i].device]++ < o->top || !o->top) {
			row_json(j, d, &rows[i], o->by);
		} else {
			left++;
			left_bytes += rows[i].bytes;
		}
	}
	json__close_array(j);
	json__open_object(j, "rows_left_out");
	json__uint(j, "rows", left);
	json__uint(j, "bytes", left_bytes);
	json__close_object(j);
	json__close_object(j);
	json__free(j);
	return 0;
}
