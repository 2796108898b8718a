/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Prints a dump as text and as JSON. All texts come from the target. */
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/grid.h"
#include "base/json.h"
#include "base/text.h"
#include "inspect/pytensor.h"
#include "report/dump/process_tree.h"
#include "model/words.h"
#include "report/dump.h"

static const char *const titles[] = {
	[DUMP_BY_HOLDER] = "Held by",
	[DUMP_BY_TENSOR] = "Name",
	[DUMP_BY_MODULE] = "Module",
	[DUMP_BY_CATEGORY] = "Role",
};
static const char unheld[] = WORDS_UNHELD;

#define MODELS_LISTED 100 /* most kinds of models in JSON */
#define MODELS_SHOWN 8	  /* most kinds of models in the text, of those that exist several times */

enum { COL_SIZE, COL_PERCENT, COL_COUNT, COL_ROLE, COL_NR };

struct table {
	FILE *out;
	const struct dump *d;
	const struct dump_opts *o;
	unsigned width;
	struct grid *grid;
	char text[REPORT_TEXT], more[REPORT_TEXT];
};

/* Joins a name and the shape of its tensors, "[256, 16] float32", in at most room columns. detail:
 * the shape; NULL: none. */
static const char *with_detail(struct table *t, const char *name, const char *detail, size_t room)
{
	size_t len = detail ? text__width(detail) + 2 : 0, least;

	text__clean(t->text, sizeof(t->text), name, strlen(name));
	least = text__width(t->text) < 40 ? text__width(t->text) : 40;
	if (room < len + least)
		len = 0; /* the name is more important */
	words__cut_middle(t->text, room - len);
	if (len)
		snprintf(t->text + strlen(t->text), sizeof(t->text) - strlen(t->text), "  %s",
			 detail);
	return t->text;
}

/* Returns the text of a row's last column. */
static const char *say_row(struct table *t, const struct dump_row *r, size_t room)
{
	const struct census_about *about = r->tensor ? r->tensor->about : NULL;
	const struct dump_device *dev = &t->d->devices[r->device];
	char detail[256], during[96] = "";
	struct row row;

	if (!about) {
		if (dev->unheld_new_blocks)
			snprintf(during, sizeof(during), ", %s allocated during the reading",
				 text__count(detail, 32, dev->unheld_new_blocks));
		snprintf(t->text, sizeof(t->text), "%s (%s%s)", unheld,
			 text__counted(detail, 48, r->count, "block"), during);
		return words__cut(t->text, room);
	}
	switch (t->o->by) {
	case DUMP_BY_HOLDER:
		return with_detail(t, *r->holder->name ? r->holder->name : "(no name found)",
				   r->holder->detail, room);
	case DUMP_BY_TENSOR:
		return with_detail(t, *about->name ? about->name : "(no name found)",
				   dump__shape(detail, sizeof(detail), about), room);
	case DUMP_BY_MODULE:
		row = (struct row){ .module = about->module, .module_class = about->cls };
		return words__where(t->text, &row, BY_MODULE, /*cwd=*/NULL, room);
	default:
		return words__role(census_kind__name(r->kind));
	}
}

/* Adds a row to the grid. all: bytes that are 100 %. */
static void put_cells(struct table *t, const struct dump_row *r, uint64_t all)
{
	bool role = r->tensor && (t->o->by == DUMP_BY_HOLDER || t->o->by == DUMP_BY_TENSOR);
	char text[32];

	grid__row(t->grid);
	grid__put(t->grid, COL_SIZE, text__bytes(text, sizeof(text), r->bytes), NULL);
	grid__put(t->grid, COL_PERCENT, text__percent(text, r->bytes, all), NULL);
	grid__put(t->grid, COL_COUNT, text__count(text, sizeof(text), r->count), NULL);
	if (role)
		grid__put(t->grid, COL_ROLE, words__role(census_kind__name(r->kind)), NULL);
}

/* Prints the rows [0, n) of a device. Returns 0 or -ENOMEM. */
static int print_rows(struct table *t, const struct dump_device *dev, const struct dump_row *rows,
		      size_t n)
{
	static const struct column columns[COL_NR] = {
		[COL_SIZE] = { .title = "Size", .right = true, .least = 10 },
		[COL_PERCENT] = { .title = "%", .right = true, .least = 3 },
		[COL_COUNT] = { .title = "Tensors", .right = true, .goes = 2 },
		[COL_ROLE] = { .title = "Role", .goes = 1 },
	};
	size_t shown = t->o->top && t->o->top < n ? t->o->top : n, room;
	struct dump_row rest = { 0 };
	char count[48];
	int err;

	t->grid = grid__new(columns, COL_NR);
	if (!t->grid)
		return -ENOMEM;
	grid__show(t->grid, COL_COUNT, t->o->by != DUMP_BY_TENSOR);
	grid__show(t->grid, COL_ROLE, t->o->by == DUMP_BY_HOLDER || t->o->by == DUMP_BY_TENSOR);
	for (size_t i = 0; i < shown; i++) {
		put_cells(t, &rows[i], dev->allocated);
		if (!rows[i].tensor) /* its count is that of blocks, which say_row() prints */
			grid__put(t->grid, COL_COUNT, "-", NULL);
	}
	for (size_t i = shown; i < n; i++) {
		rest.bytes += rows[i].bytes;
		rest.count += rows[i].tensor ? rows[i].count : 0;
	}
	if (shown < n)
		put_cells(t, &rest, dev->allocated);
	err = grid__error(t->grid);
	if (err)
		goto out;
	room = grid__fit(t->grid, t->width, /*wanted=*/24, COL_NR);
	grid__print_titles(t->grid, t->out, text__colour(t->out), titles[t->o->by]);
	for (size_t i = 0; i < shown; i++)
		grid__print(t->grid, t->out, i, say_row(t, &rows[i], room));
	if (shown < n) {
		snprintf(t->text, sizeof(t->text), "+ %s (--top 0 shows all)",
			 text__counted(count, sizeof(count), n - shown, "more row"));
		grid__print(t->grid, t->out, shown, words__cut(t->text, room));
	}
out:
	grid__free(t->grid);
	return err;
}

/* Prints the sums of a device, and the tensors that are left out. */
static void print_device(FILE *out, const struct dump_device *dev)
{
	char allocated[24], reserved[24], count[48];

	text__bytes(allocated, sizeof(allocated), dev->allocated);
	if (!dev->known) {
		fprintf(out, "%s  %s in %s of tensors\n", dev->name, allocated,
			text__counted(count, sizeof(count), dev->blocks, "storage"));
		return;
	}
	fprintf(out, "%s  %s allocated in %s, %s reserved%s\n", dev->name, allocated,
		text__counted(count, sizeof(count), dev->blocks, "block"),
		text__bytes(reserved, sizeof(reserved), dev->reserved),
		dev->consistent ? "" : " (changed during the reading)");
	if (dev->moved)
		fprintf(out, "%s  %s came or went during the reading and %s left out\n", dev->name,
			text__counted(count, sizeof(count), dev->moved, "tensor"),
			dev->moved == 1 ? "is" : "are");
	if (dev->elsewhere)
		fprintf(out,
			"%s  %s in memory that PyTorch's allocator did not take, such as "
			"pinned host memory, %s left out\n",
			dev->name, text__counted(count, sizeof(count), dev->elsewhere, "tensor"),
			dev->elsewhere == 1 ? "is" : "are");
}

/* Prints the sums by role on one line, or on more if the width needs it. */
static void print_kinds(FILE *out, const struct dump_device *dev, size_t columns)
{
	size_t column = 0, len;
	char bytes[24], part[96];

	for (unsigned int kind = 0; kind <= CENSUS_KINDS; kind++) {
		uint64_t kind_bytes = kind < CENSUS_KINDS ? dev->bytes[kind] : dev->unheld;

		if (!kind_bytes)
			continue;
		snprintf(part, sizeof(part), "%s %s",
			 kind < CENSUS_KINDS ? words__role(census_kind__name(kind)) : unheld,
			 text__bytes(bytes, sizeof(bytes), kind_bytes));
		len = text__width(part);
		if (column && column + 3 + len > columns) {
			fputc('\n', out);
			column = 0;
		}
		fprintf(out, "%s%s", column ? text__dot() : "  ", part);
		column += len + (column ? 3 : 2);
	}
	if (column)
		fputc('\n', out);
}

/* Explains memory that no Python object holds, and views that keep larger blocks, if either is a
 * notable part of the device's memory. */
static void print_remarks(FILE *out, const struct dump_device *dev, size_t columns)
{
	/* Blocks that are newer than the reading may have a holder that it did not see. */
	uint64_t without_holder = dev->unheld - dev->unheld_new;
	uint64_t hidden = dev->view_bytes - dev->view_used; /* kept, but not in any view */
	char used[24], all[24];

	if (without_holder > dev->allocated / 10)
		text__paragraph(
			out, columns, "  ", "  ",
			"Tensors of C++ code hold memory without a Python object: workspaces of "
			"cuBLAS, autocast's cache of casts, operations under way.");
	if (hidden > dev->allocated / 100)
		text__paragraph(out, columns, "  ", "  ",
				"views of larger blocks: %s of %s are used; keep a .clone() of the "
				"view instead, so that its block is freed",
				text__bytes(used, sizeof(used), dev->view_used),
				text__bytes(all, sizeof(all), dev->view_bytes));
}

/* Writes the process's command line, or its name if that is unknown. Returns buf. */
static char *write_command(char *buf, size_t size, const struct dump_opts *o)
{
	if (*o->command)
		snprintf(buf, size, "%s", o->command);
	else
		text__clean(buf, size, o->comm, strlen(o->comm));
	return buf;
}

/* Prints the process, how much was read, and what is missing or may be wrong. */
static void print_header(FILE *out, const struct dump *d, const struct dump_opts *o, size_t columns)
{
	char count[3][48], took[24], command[1024], torch[64], said[1024];
	const struct census_state *census = &d->census;
	uint64_t changed = census->torn + census->ended;
	size_t models = 0;

	words__cut(write_command(command, sizeof(command), o), columns > 88 ? columns - 56 : 32);
	text__clean(torch, sizeof(torch), o->torch->version, strlen(o->torch->version));
	fprintf(out, "%s%sPID %d", command, text__dot(), o->pid);
	if (*torch)
		fprintf(out, "%storch %s", text__dot(), torch);
	if (*o->python)
		fprintf(out, "%sPython %s", text__dot(), o->python);
	fprintf(out, "\n%s, %s, %s, read in %s\n",
		text__counted(count[0], sizeof(count[0]), census->modules, "module"),
		text__counted(count[1], sizeof(count[1]), census->optimizers, "optimizer"),
		text__counted(count[2], sizeof(count[2]), census->objects, "Python object"),
		text__time(took, sizeof(took), census->end - census->begin));
	for (size_t i = 0; i < census->nmodels && models < MODELS_SHOWN; i++) {
		if (census->models[i].count < 2)
			continue;
		models++;
		text__paragraph(out, columns, "", "  ", "%s",
				census_model__say(census, &census->models[i], said, sizeof(said)));
	}
	if (changed)
		fprintf(out, "%s changed during the reading and %s left out\n",
			text__counted(count[0], sizeof(count[0]), changed, "tensor"),
			changed == 1 ? "is" : "are");
	if (census->unreadable)
		fprintf(out, "%s could not be read\n",
			text__counted(count[0], sizeof(count[0]), census->unreadable, "tensor"));
	if (census->torn_lists)
		fprintf(out, "Some Python objects changed during the reading: tensors that they "
			     "hold may be missing\n");
	if (changed || census->unreadable || census->torn_lists)
		fprintf(out, "A stopped process has a whole list: kill -STOP PID, dump, "
			     "kill -CONT PID\n");
	if (census->holders_cut)
		fprintf(out, "There are too many containers to search them all: tensors without a "
			     "holder may have one\n");
	if (d->alloc_why[0])
		fprintf(out,
			"CUDA's allocator could not be read (%s): sizes are those of the tensors\n",
			d->alloc_why);
}

int dump__text(FILE *out, const struct dump *d, const struct dump_row *rows, size_t n,
	       const struct dump_opts *o)
{
	struct table *table = calloc(1, sizeof(*table));
	size_t first = 0;
	int err = 0;

	if (!table)
		return -ENOMEM;
	*table = (struct table){ .out = out, .d = d, .o = o, .width = text__columns(out) };
	print_header(out, d, o, text__columns(out));
	for (size_t i = 0; i < d->ndevices && !err; i++) {
		size_t nrows = 0;

		fprintf(out, "\n");
		print_device(out, &d->devices[i]);
		if (o->by != DUMP_BY_CATEGORY)
			print_kinds(out, &d->devices[i], table->width);
		print_remarks(out, &d->devices[i], text__prose(table->width));
		while (first + nrows < n && rows[first + nrows].device == i)
			nrows++;
		fprintf(out, "\n");
		err = print_rows(table, &d->devices[i], &rows[first], nrows);
		first += nrows;
	}
	free(table);
	return err;
}

/* ---- JSON ---- */

static void put_device(struct json *j, const struct dump_device *dev)
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
	json__uint(j, "unheld_new", dev->unheld_new);
	json__uint(j, "unheld_new_blocks", dev->unheld_new_blocks);
	json__uint(j, "moved", dev->moved);
	json__uint(j, "elsewhere", dev->elsewhere);
	json__uint(j, "view_bytes", dev->view_bytes);
	json__uint(j, "view_used", dev->view_used);
	json__close_object(j);
}

static void put_shape(struct json *j, const struct census_about *a)
{
	char dtype[16];

	json__open_array(j, "shape");
	for (size_t i = 0; i < a->ndim && i < CENSUS_DIMS; i++)
		json__int(j, NULL, a->shape[i]);
	json__close_array(j);
	json__uint(j, "ndim", a->ndim);
	json__string(j, "dtype", pytensor__dtype(a->dtype, dtype, sizeof(dtype)));
}

static void put_tensor(struct json *j, const struct census_tensor *t)
{
	json__string(j, "name", t->about->name);
	json__uint(j, "address", t->addr);
	json__uint(j, "size", t->size);
	put_shape(j, t->about);
	json__uint(j, "views", t->views);
}

/* Writes the holder's properties. t: one of its tensors, for shape and dtype, which are written if
 * all tensors of the holder have the same. */
static void put_holder(struct json *j, const struct holder *h, const struct census_tensor *t)
{
	json__string(j, "holder", *h->name ? h->name : NULL);
	json__string(j, "module", h->module);
	json__string(j, "module_class", h->module_class);
	json__string(j, "module_root", h->module_root);
	json__uint(j, "modules", h->modules);
	json__uint_or_null(j, "size", h->size, h->size);
	if (h->detail)
		put_shape(j, t->about);
}

/* Writes a row of --by. */
static void put_dump_row(struct json *j, const struct dump *d, const struct dump_row *r,
			 enum dump_by by)
{
	json__open_object(j, NULL);
	json__string(j, "device", d->devices[r->device].name);
	json__uint(j, "bytes", r->bytes);
	json__uint(j, "count", r->count);
	json__bool(j, "held", r->tensor != NULL);
	if (by != DUMP_BY_MODULE || !r->tensor)
		json__string(j, "category", census_kind__name(r->kind));
	if (r->holder)
		put_holder(j, r->holder, r->tensor);
	else if (r->tensor && by != DUMP_BY_CATEGORY) {
		json__string(j, "module", r->tensor->about->module);
		json__string(j, "module_class", r->tensor->about->cls);
		json__string(j, "module_root", r->tensor->about->root);
	}
	if (r->tensor && by == DUMP_BY_TENSOR)
		put_tensor(j, r->tensor);
	json__close_object(j);
}

/* Writes the kinds of models in the process. */
static void put_models(struct json *j, const struct census_state *s)
{
	json__open_array(j, "models");
	for (size_t i = 0; i < s->nmodels && i < MODELS_LISTED; i++) {
		const struct census_model *model = &s->models[i];

		json__open_object(j, NULL);
		json__string(j, "class", model->cls);
		json__string(j, "held_by", *model->held_by ? model->held_by : NULL);
		json__uint(j, "count", model->count);
		json__uint(j, "bytes", model->bytes);
		json__close_object(j);
	}
	json__close_array(j);
}

/* Writes a process's dump as an object. key: as in json.h. */
static void put_dump(struct json *j, const char *key, const struct dump *d,
		     const struct dump_row *rows, size_t n, const struct dump_opts *o)
{
	const struct census_state *census = &d->census;
	uint64_t shown[256] = { 0 }, left = 0, left_bytes = 0;

	json__open_object(j, key);
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
	json__seconds(j, "seconds", census->end - census->begin, /*decimals=*/6);
	json__uint(j, "objects", census->objects);
	json__uint(j, "modules", census->modules);
	json__uint(j, "optimizers", census->optimizers);
	json__uint(j, "torn", census->torn + census->ended);
	json__uint(j, "unreadable", census->unreadable);
	json__bool(j, "complete",
		   !census->torn && !census->ended && !census->unreadable && !census->torn_lists);
	json__bool(j, "holders_complete", !census->holders_cut);
	json__bool(j, "gradients", census->know_grad);
	json__string(j, "allocator", d->alloc_why[0] ? d->alloc_why : NULL);
	json__close_object(j);
	put_models(j, census);
	json__open_array(j, "devices");
	for (size_t i = 0; i < d->ndevices; i++)
		put_device(j, &d->devices[i]);
	json__close_array(j);
	json__open_array(j, "rows");
	for (size_t i = 0; i < n; i++) {
		if (shown[rows[i].device]++ < o->top || !o->top) {
			put_dump_row(j, d, &rows[i], o->by);
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
}

int dump__json(FILE *out, const struct dump *d, const struct dump_row *rows, size_t n,
	       const struct dump_opts *o)
{
	struct json *j = json__new(out, true);

	if (!j)
		return -ENOMEM;
	put_dump(j, NULL, d, rows, n, o);
	json__free(j);
	return 0;
}

/* ---- a process and its descendants ---- */

/* The sum of a device over all processes. */
struct sum {
	char name[16];
	uint64_t allocated, reserved;
	unsigned processes, known; /* number of processes; of those whose allocator was read */
};

struct sums {
	struct sum *v;
	size_t n, cap;
};

/* Finds or adds the sum of a device. NULL: memory is short. */
static struct sum *find_sum(struct sums *s, const char *name)
{
	size_t i;

	for (i = 0; i < s->n; i++)
		if (!strcmp(s->v[i].name, name))
			return &s->v[i];
	if (array__grow(&s->v, &s->cap, s->n + 1, sizeof(*s->v)))
		return NULL;
	s->v[i] = (struct sum){ 0 };
	snprintf(s->v[i].name, sizeof(s->v[i].name), "%s", name);
	return &s->v[s->n++];
}

/* Sums up the devices of all processes. Returns 0 or -ENOMEM. */
static int add_up(const struct dump_process *v, size_t n, struct sums *ret)
{
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < v[i].dump.ndevices; k++) {
			const struct dump_device *dev = &v[i].dump.devices[k];
			struct sum *sum = find_sum(ret, dev->name);

			if (!sum)
				return -ENOMEM;
			sum->allocated += dev->allocated;
			sum->reserved += dev->known ? dev->reserved : 0;
			sum->known += dev->known;
			sum->processes++;
		}
	}
	return 0;
}

/* ---- text ---- */

enum { TREE_PID, TREE_PARENT, TREE_DEVICE, TREE_ALLOCATED, TREE_RESERVED, TREE_NR };

/* Adds a row of the table. p NULL: the sum of all processes. reserved NULL: not known. */
static void put_row(struct grid *g, const struct dump_process *p, const char *device,
		    uint64_t allocated, const uint64_t *reserved)
{
	char text[32];

	grid__row(g);
	if (p) {
		snprintf(text, sizeof(text), "%d", (int)p->pid);
		grid__put(g, TREE_PID, text, NULL);
	} else {
		grid__put(g, TREE_PID, "all", NULL);
	}
	if (p && p->parent) {
		snprintf(text, sizeof(text), "%d", (int)p->parent);
		grid__put(g, TREE_PARENT, text, NULL);
	}
	grid__put(g, TREE_DEVICE, device, NULL);
	if (*device)
		grid__put(g, TREE_ALLOCATED, text__bytes(text, sizeof(text), allocated), NULL);
	if (reserved)
		grid__put(g, TREE_RESERVED, text__bytes(text, sizeof(text), *reserved), NULL);
}

/* Adds a row for each device of each process, then the sums. */
static void put_rows(struct grid *g, const struct dump_process *v, size_t n, const struct sums *s)
{
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < v[i].dump.ndevices; k++) {
			const struct dump_device *dev = &v[i].dump.devices[k];

			put_row(g, &v[i], dev->name, dev->allocated,
				dev->known ? &dev->reserved : NULL);
		}
		if (!v[i].dump.ndevices)
			put_row(g, &v[i], "", 0, /*reserved=*/NULL);
	}
	for (size_t i = 0; i < s->n; i++)
		put_row(g, NULL, s->v[i].name, s->v[i].allocated,
			s->v[i].known ? &s->v[i].reserved : NULL);
}

/* Writes the process's name to print, such as "EngineCore". Returns buf. */
static char *process_name(char buf[PROCESS_NAME], const struct dump_process *p)
{
	struct process_id id = { .pid = (uint64_t)p->pid };

	write_command(id.title, sizeof(id.title), &p->o);
	return process_id__name(&id, p->name, buf);
}

/* Writes the text of the last column: name, and why the process was not read. Returns buf. */
static char *say_process(char buf[REPORT_TEXT], const struct dump_process *p)
{
	char name[PROCESS_NAME];

	snprintf(buf, REPORT_TEXT, "%s%s%s", process_name(name, p), *p->why ? text__dot() : "",
		 p->why);
	return buf;
}

/* Prints all processes and the sums by device. Returns 0 or -ENOMEM. */
static int print_table(FILE *out, const struct dump_process *v, size_t n, const struct sums *s)
{
	static const struct column columns[TREE_NR] = {
		[TREE_PID] = { .title = "PID", .right = true, .least = 7 },
		[TREE_PARENT] = { .title = "Parent", .right = true, .least = 7, .goes = 1 },
		[TREE_DEVICE] = { .title = "Device" },
		[TREE_ALLOCATED] = { .title = "Allocated", .right = true, .least = 10 },
		[TREE_RESERVED] = { .title = "Reserved", .right = true, .least = 10, .goes = 2 },
	};
	struct grid *grid = grid__new(columns, TREE_NR);
	size_t row = 0, room;
	char text[REPORT_TEXT];
	int err;

	if (!grid)
		return -ENOMEM;
	put_rows(grid, v, n, s);
	err = grid__error(grid);
	if (err)
		goto out;
	room = grid__fit(grid, text__columns(out), /*wanted=*/24, /*goes=*/2);
	grid__print_titles(grid, out, text__colour(out), "Process");
	for (size_t i = 0; i < n; i++) {
		size_t rows = v[i].dump.ndevices ? v[i].dump.ndevices : 1;

		words__cut(say_process(text, &v[i]), room);
		for (size_t k = 0; k < rows; k++)
			grid__print(grid, out, row++, text);
	}
	for (size_t i = 0; i < s->n; i++) {
		snprintf(text, sizeof(text), "%u process%s", s->v[i].processes,
			 s->v[i].processes == 1 ? "" : "es");
		grid__print(grid, out, row++, text);
	}
out:
	grid__free(grid);
	return err;
}

int dump_tree__text(FILE *out, struct dump_process *v, size_t n)
{
	struct sums sums = { 0 };
	char name[PROCESS_NAME];
	struct dump_row *rows;
	struct dump_opts opts;
	size_t n_rows;
	int err = add_up(v, n, &sums);

	if (!err)
		err = print_table(out, v, n, &sums);
	for (size_t i = 0; i < n && !err; i++) {
		if (*v[i].why)
			continue;
		err = dump__group(&v[i].dump, v[i].o.by, &rows, &n_rows);
		if (err)
			break;
		opts = v[i].o;
		opts.command = process_name(name, &v[i]);
		fprintf(out, "\n");
		err = dump__text(out, &v[i].dump, rows, n_rows, &opts);
		free(rows);
	}
	free(sums.v);
	return err;
}

/* ---- JSON ---- */

/* Writes a process as an object. -ENOMEM: nothing was written. */
static int put_process(struct json *j, struct dump_process *p)
{
	char name[PROCESS_NAME];
	struct dump_row *rows = NULL;
	size_t n = 0;
	int err = *p->why ? 0 : dump__group(&p->dump, p->o.by, &rows, &n);

	if (err)
		return err;
	json__open_object(j, NULL);
	json__int(j, "pid", p->pid);
	if (p->parent)
		json__int(j, "parent", p->parent);
	else
		json__null(j, "parent");
	json__string(j, "comm", p->o.comm);
	json__string(j, "name", process_name(name, p));
	json__string(j, "why", *p->why ? p->why : NULL);
	if (*p->why)
		json__null(j, "dump");
	else
		put_dump(j, "dump", &p->dump, rows, n, &p->o);
	json__close_object(j);
	free(rows);
	return 0;
}

int dump_tree__json(FILE *out, struct dump_process *v, size_t n)
{
	struct json *j = json__new(out, true);
	struct sums sums = { 0 };
	int err = j ? add_up(v, n, &sums) : -ENOMEM;

	if (err)
		goto out;
	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	json__close_object(j);
	json__open_array(j, "devices");
	for (size_t i = 0; i < sums.n; i++) {
		const struct sum *sum = &sums.v[i];

		json__open_object(j, NULL);
		json__string(j, "device", sum->name);
		json__uint(j, "allocated", sum->allocated);
		json__uint_or_null(j, "reserved", sum->known, sum->reserved);
		json__uint(j, "processes", sum->processes);
		json__close_object(j);
	}
	json__close_array(j);
	json__open_array(j, "processes");
	for (size_t i = 0; i < n && !err; i++)
		err = put_process(j, &v[i]);
	json__close_array(j);
	json__close_object(j);
out:
	json__free(j);
	free(sums.v);
	return err;
}
