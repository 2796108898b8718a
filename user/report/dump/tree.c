/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/dump_tree.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/grid.h"
#include "base/json.h"
#include "base/text.h"
#include "model/process_tree.h"
#include "model/words.h"

/* A device in all processes. */
struct sum {
	char name[16];
	uint64_t allocated, reserved;
	unsigned processes, known; /* known: whose allocator was read */
};

struct sums {
	struct sum *v;
	size_t n, cap;
};

static struct sum *sum_of(struct sums *s, const char *name)
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

static int add_up(const struct dump_process *v, size_t n, struct sums *ret)
{
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < v[i].dump.ndevices; k++) {
			const struct dump_device *dev = &v[i].dump.devices[k];
			struct sum *s = sum_of(ret, dev->name);

			if (!s)
				return -ENOMEM;
			s->allocated += dev->allocated;
			s->reserved += dev->known ? dev->reserved : 0;
			s->known += dev->known;
			s->processes++;
		}
	}
	return 0;
}

/* ---- text ---- */

enum { COL_PID, COL_PARENT, COL_DEVICE, COL_ALLOCATED, COL_RESERVED, COL_NR };

static void put_row(struct grid *g, const struct dump_process *p, const char *device,
		    uint64_t allocated, const uint64_t *reserved)
{
	char text[32];

	grid__row(g);
	if (p) {
		snprintf(text, sizeof(text), "%d", (int)p->pid);
		grid__put(g, COL_PID, text, NULL);
	} else {
		grid__put(g, COL_PID, "all", NULL);
	}
	if (p && p->parent) {
		snprintf(text, sizeof(text), "%d", (int)p->parent);
		grid__put(g, COL_PARENT, text, NULL);
	}
	grid__put(g, COL_DEVICE, device, NULL);
	if (*device)
		grid__put(g, COL_ALLOCATED, text__bytes(text, sizeof(text), allocated), NULL);
	if (reserved)
		grid__put(g, COL_RESERVED, text__bytes(text, sizeof(text), *reserved), NULL);
}

static void put_rows(struct grid *g, const struct dump_process *v, size_t n, const struct sums *s)
{
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < v[i].dump.ndevices; k++) {
			const struct dump_device *dev = &v[i].dump.devices[k];

			put_row(g, &v[i], dev->name, dev->allocated,
				dev->known ? &dev->reserved : NULL);
		}
		if (!v[i].dump.ndevices)
			put_row(g, &v[i], "", 0, NULL);
	}
	for (size_t i = 0; i < s->n; i++)
		put_row(g, NULL, s->v[i].name, s->v[i].allocated,
			s->v[i].known ? &s->v[i].reserved : NULL);
}

/* The process's name for people, such as "EngineCore". */
static char *process_name(char buf[PROCESS_NAME], const struct dump_process *p)
{
	struct process_id id = { .pid = (uint64_t)p->pid };

	dump__command(id.title, sizeof(id.title), &p->o);
	return process_id__name(&id, p->name, buf);
}

/* The last column of a process's row. */
static char *process_text(char buf[REPORT_TEXT], const struct dump_process *p)
{
	char name[PROCESS_NAME];

	snprintf(buf, REPORT_TEXT, "%s%s%s", process_name(name, p), *p->why ? text__dot() : "",
		 p->why);
	return buf;
}

static int table_text(FILE *out, const struct dump_process *v, size_t n, const struct sums *s)
{
	static const struct column columns[COL_NR] = {
		[COL_PID] = { .title = "PID", .right = true, .least = 7 },
		[COL_PARENT] = { .title = "Parent", .right = true, .least = 7, .goes = 1 },
		[COL_DEVICE] = { .title = "Device" },
		[COL_ALLOCATED] = { .title = "Allocated", .right = true, .least = 10 },
		[COL_RESERVED] = { .title = "Reserved", .right = true, .least = 10, .goes = 2 },
	};
	struct grid *g = grid__new(columns, COL_NR);
	size_t row = 0, room;
	char text[REPORT_TEXT];
	int err;

	if (!g)
		return -ENOMEM;
	put_rows(g, v, n, s);
	err = grid__error(g);
	if (!err) {
		room = grid__fit(g, text__columns(out), 24, 2);
		grid__print_titles(g, out, text__colour(out), "Process");
		for (size_t i = 0; i < n; i++) {
			size_t rows = v[i].dump.ndevices ? v[i].dump.ndevices : 1;

			words__cut(process_text(text, &v[i]), room);
			for (size_t k = 0; k < rows; k++)
				grid__print(g, out, row++, text);
		}
		for (size_t i = 0; i < s->n; i++) {
			snprintf(text, sizeof(text), "%u process%s", s->v[i].processes,
				 s->v[i].processes == 1 ? "" : "es");
			grid__print(g, out, row++, text);
		}
	}
	grid__free(g);
	return err;
}

int dump_tree__text(FILE *out, struct dump_process *v, size_t n)
{
	struct sums sums = { 0 };
	char name[PROCESS_NAME];
	struct dump_row *rows;
	struct dump_opts o;
	size_t n_rows;
	int err = add_up(v, n, &sums);

	if (!err)
		err = table_text(out, v, n, &sums);
	for (size_t i = 0; i < n && !err; i++) {
		if (*v[i].why)
			continue;
		err = dump__group(&v[i].dump, v[i].o.by, &rows, &n_rows);
		if (err)
			break;
		o = v[i].o;
		o.command = process_name(name, &v[i]);
		fprintf(out, "\n");
		err = dump__text(out, &v[i].dump, rows, n_rows, &o);
		free(rows);
	}
	free(sums.v);
	return err;
}

/* ---- JSON ---- */

static int process_json(struct json *j, struct dump_process *p)
{
	char name[PROCESS_NAME];
	struct dump_row *rows;
	size_t n;
	int err;

	json__open_object(j, NULL);
	json__int(j, "pid", p->pid);
	if (p->parent)
		json__int(j, "parent", p->parent);
	else
		json__null(j, "parent");
	json__string(j, "comm", p->o.comm);
	json__string(j, "name", process_name(name, p));
	json__string(j, "why", *p->why ? p->why : NULL);
	if (*p->why) {
		json__null(j, "dump");
	} else {
		err = dump__group(&p->dump, p->o.by, &rows, &n);
		if (err)
			return err;
		dump__put(j, "dump", &p->dump, rows, n, &p->o);
		free(rows);
	}
	json__close_object(j);
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
		const struct sum *s = &sums.v[i];

		json__open_object(j, NULL);
		json__string(j, "device", s->name);
		json__uint(j, "allocated", s->allocated);
		json__uint_or_null(j, "reserved", s->known, s->reserved);
		json__uint(j, "processes", s->processes);
		json__close_object(j);
	}
	json__close_array(j);
	json__open_array(j, "processes");
	for (size_t i = 0; i < n && !err; i++)
		err = process_json(j, &v[i]);
	json__close_array(j);
	json__close_object(j);
out:
	json__free(j);
	free(sums.v);
	return err;
}
