/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A profile of OpenTelemetry (opentelemetry-proto, profiles/v1development, ProfilesData): live
 * bytes and live blocks by stack at the marked moment. ExportProfilesServiceRequest has the same
 * fields, so a server takes the file as it is. Entry 0 of each table is empty, as the format wants.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "export/export.h"
#include "export/formats/frames.h"
#include "export/formats/pb.h"
#include "model/holders.h"
#include "record/detail.h"
#include "record/dict.h"

/* Field numbers of profiles.proto, common.proto and resource.proto. */
enum { DATA_RESOURCES = 1, DATA_DICTIONARY };
enum { RESOURCES_RESOURCE = 1, RESOURCES_SCOPES };
enum { RESOURCE_ATTRIBUTES = 1 };
enum { SCOPES_SCOPE = 1, SCOPES_PROFILES };
enum { SCOPE_NAME = 1, SCOPE_VERSION };
enum { PROFILE_TYPE = 1, PROFILE_SAMPLES, PROFILE_TIME, PROFILE_DURATION, PROFILE_ATTRIBUTES = 11 };
enum { TYPE_TYPE = 1, TYPE_UNIT };
enum { SAMPLE_STACK = 1, SAMPLE_ATTRIBUTES, SAMPLE_VALUES = 4 };
enum { STACK_LOCATIONS = 1 };
enum { LOCATION_LINES = 3 };
enum { LINE_FUNCTION = 1, LINE_LINE };
enum { FUNCTION_NAME = 1, FUNCTION_SYSTEM_NAME, FUNCTION_FILE };
enum { ATTRIBUTE_KEY = 1, ATTRIBUTE_VALUE };
enum { VALUE_STRING = 1 };
enum {
	TABLE_MAPPINGS = 1,
	TABLE_LOCATIONS,
	TABLE_FUNCTIONS,
	TABLE_LINKS,
	TABLE_STRINGS,
	TABLE_ATTRIBUTES,
	TABLE_STACKS
};

enum { BYTES, BLOCKS, PROFILES }; /* what the values of a profile are */

struct otlp {
	struct frames *frames;
	/* Tables of strings, of which each entry has a number: those of the file, and for stacks
	 * and attributes their contents as text. String 0 is "". */
	struct dict *strings, *stacks, *attributes;
	struct pb tables;	     /* entries of all tables but the strings */
	struct pb samples[PROFILES]; /* the profiles */
	struct pb part, inner, list; /* messages that are being built */
	int err;		     /* first error, -errno */
};

/* Returns the number of a text in a table of strings, and sets *is_new if it is a new one. */
static uint32_t number_in(struct otlp *o, struct dict *table, const char *s, bool *is_new)
{
	uint32_t before = dict__counts(table).strings, number;

	number = dict__string(table, s, strlen(s));
	if (number == UINT32_MAX) {
		o->err = -errno;
		*is_new = false;
		return 0;
	}
	*is_new = dict__counts(table).strings > before;
	return number;
}

static uint32_t string_number(struct otlp *o, const char *s)
{
	bool is_new;

	return number_in(o, o->strings, s, &is_new);
}

/* Returns the number of an attribute that is a text, which it adds on demand. Uses part and inner.
 */
static uint32_t attribute_number(struct otlp *o, const char *key, const char *value)
{
	uint32_t number;
	bool is_new;
	char *text;

	if (asprintf(&text, "%s=%s", key, value) < 0) {
		o->err = -ENOMEM;
		return 0;
	}
	number = number_in(o, o->attributes, text, &is_new);
	free(text);
	if (!is_new)
		return number;
	pb__clear(&o->inner);
	pb__string(&o->inner, VALUE_STRING, value);
	pb__clear(&o->part);
	pb__uint(&o->part, ATTRIBUTE_KEY, string_number(o, key));
	pb__message(&o->part, ATTRIBUTE_VALUE, &o->inner);
	pb__message(&o->tables, TABLE_ATTRIBUTES, &o->part);
	return number;
}

/* Adds an attribute to o->list; none for an empty value. */
static void list_attribute(struct otlp *o, const char *key, const char *value)
{
	if (value && *value)
		pb__varint(&o->list, attribute_number(o, key, value));
}

/* Returns the number of a row's stack, which it adds on demand. Uses part and list. */
static uint32_t stack_number(struct otlp *o, const struct row *row)
{
	const uint32_t *frames;
	char *text = NULL;
	uint32_t n, number = 0;
	size_t size;
	bool is_new;
	FILE *out;

	o->err = frames__of_row(o->frames, row, &frames, &n);
	if (o->err)
		return 0;
	out = open_memstream(&text, &size);
	for (uint32_t i = 0; out && i < n; i++)
		fprintf(out, "%" PRIu32 ",", frames[i]);
	if (!out || fclose(out)) {
		o->err = -ENOMEM;
		free(text);
		return 0;
	}
	number = number_in(o, o->stacks, text, &is_new);
	free(text);
	if (!is_new)
		return number;
	pb__clear(&o->list);
	while (n--) /* innermost first */
		pb__varint(&o->list, (uint64_t)frames[n] + 1);
	pb__clear(&o->part);
	pb__message(&o->part, STACK_LOCATIONS, &o->list);
	pb__message(&o->tables, TABLE_STACKS, &o->part);
	return number;
}

/* Adds a sample of a row to each profile. Returns 0 or -errno. */
static int put_row(struct otlp *o, const char *device, const struct row *row)
{
	const uint64_t values[PROFILES] = { [BYTES] = row->bytes, [BLOCKS] = row->count };
	uint32_t stack = stack_number(o, row);
	char tid[24];

	pb__clear(&o->list);
	list_attribute(o, "device", device);
	list_attribute(o, "module", row->module);
	list_attribute(o, "module_class", row->module_class);
	list_attribute(o, "category", row->category);
	if (!row->before_attach) {
		list_attribute(o, "phase", phase__name(row->phase));
		list_attribute(o, "thread.name", row->thread);
	}
	if (!row->before_attach && row->tid) {
		snprintf(tid, sizeof(tid), "%" PRIu64, (uint64_t)row->tid);
		list_attribute(o, "thread.id", tid);
	}
	for (int i = 0; i < PROFILES; i++) {
		pb__clear(&o->inner);
		pb__varint(&o->inner, values[i]);
		pb__clear(&o->part);
		pb__uint(&o->part, SAMPLE_STACK, stack);
		pb__message(&o->part, SAMPLE_ATTRIBUTES, &o->list);
		pb__message(&o->part, SAMPLE_VALUES, &o->inner);
		pb__message(&o->samples[i], PROFILE_SAMPLES, &o->part);
	}
	return o->err;
}

/* Adds the samples of a device. Returns 0, -ENOENT if it lacks the moment, or -errno. */
static int put_device(struct export_ctx *c, struct otlp *o, size_t device)
{
	const struct row_opts opts = {
		.split = 1 << BY_STACK | 1 << BY_MODULE | 1 << BY_PHASE | 1 << BY_THREAD |
			 1 << BY_CATEGORY,
		.when = ROWS_AT_MARK,
	};
	struct model_device d;
	struct holder_rows rows;
	int err = frames__rows(c->model, device, &opts, &rows);

	if (err)
		return err;
	model__device(c->model, device, &d);
	for (size_t i = 0; i < rows.n && !err; i++)
		if (rows.all[i].bytes || rows.all[i].count)
			err = put_row(o, d.name, &rows.all[i]);
	holder_rows__free(&rows);
	return err;
}

/* Adds the samples of the chosen device, or of all. Returns as put_samples() of pprof.c: 0,
 * -ENODATA (no devices), -ENOENT (no device has the moment) or -errno. */
static int put_devices(struct export_ctx *c, struct otlp *o)
{
	size_t n = model__devices(c->model);
	bool marked = false;
	int err = n ? 0 : -ENODATA;

	for (size_t i = 0; i < n && (!err || err == -ENOENT); i++) {
		if (c->device >= 0 && (size_t)c->device != i)
			continue;
		err = put_device(c, o, i);
		marked |= !err;
	}
	return err == -ENOENT && marked ? 0 : err;
}

/* Adds frame i as a function and a location, both with the number i + 1. */
static void put_frame(struct otlp *o, uint32_t i)
{
	const struct frame *f = frames__at(o->frames, i);

	pb__clear(&o->part);
	pb__uint(&o->part, FUNCTION_NAME, string_number(o, f->name));
	pb__uint(&o->part, FUNCTION_SYSTEM_NAME, string_number(o, f->name));
	if (f->file)
		pb__uint(&o->part, FUNCTION_FILE, string_number(o, f->file));
	pb__message(&o->tables, TABLE_FUNCTIONS, &o->part);
	pb__clear(&o->inner);
	pb__uint(&o->inner, LINE_FUNCTION, (uint64_t)i + 1);
	if (f->line)
		pb__uint(&o->inner, LINE_LINE, f->line);
	pb__clear(&o->part);
	pb__message(&o->part, LOCATION_LINES, &o->inner);
	pb__message(&o->tables, TABLE_LOCATIONS, &o->part);
}

/* Ends a profile: what its values are, its time, and what is known of the recording. */
static void end_profile(struct export_ctx *c, struct otlp *o, int which)
{
	static const char *const types[PROFILES][2] = {
		[BYTES] = { "inuse_space", "bytes" },
		[BLOCKS] = { "inuse_objects", "count" },
	};
	const char *start = facts__get(c->facts, "start");
	char detail[DETAIL_TEXT], name[128];
	struct pb *profile = &o->samples[which];
	uint64_t time;

	pb__clear(&o->part);
	pb__uint(&o->part, TYPE_TYPE, string_number(o, types[which][0]));
	pb__uint(&o->part, TYPE_UNIT, string_number(o, types[which][1]));
	pb__message(profile, PROFILE_TYPE, &o->part);
	if (start && !text__parse_date(start, &time))
		pb__fixed64(profile, PROFILE_TIME, time);
	pb__uint(profile, PROFILE_DURATION, c->duration);
	pb__clear(&o->list);
	list_attribute(o, "memtrace.moment", c->moment);
	list_attribute(o, "memtrace.recording",
		       text__clean(name, sizeof(name), c->name, strlen(c->name)));
	list_attribute(o, "memtrace.reduced_detail",
		       detail__reduced(detail, sizeof(detail), c->facts));
	pb__message(profile, PROFILE_ATTRIBUTES, &o->list);
}

/* Adds an attribute to the resource in o->list; none for a fact that is not known. */
static void put_fact(struct export_ctx *c, struct otlp *o, const char *key, const char *fact)
{
	const char *value = facts__get(c->facts, fact);
	char clean[128];

	if (!value || !*value)
		return;
	pb__clear(&o->inner);
	pb__string(&o->inner, VALUE_STRING,
		   text__clean(clean, sizeof(clean), value, strlen(value)));
	pb__clear(&o->part);
	pb__string(&o->part, ATTRIBUTE_KEY, key);
	pb__message(&o->part, ATTRIBUTE_VALUE, &o->inner);
	pb__message(&o->list, RESOURCE_ATTRIBUTES, &o->part);
}

/* Writes a message as a field of the file. */
static void write_field(struct export_ctx *c, struct otlp *o, uint32_t field,
			const struct pb *message)
{
	struct pb whole = { 0 };

	pb__message(&whole, field, message);
	if (whole.failed)
		o->err = -ENOMEM;
	else
		fwrite(whole.data, 1, whole.len, c->out);
	pb__free(&whole);
}

/* Adds the resource: what the process is. */
static void put_resource(struct export_ctx *c, struct otlp *o, struct pb *resources)
{
	pb__clear(&o->list); /* gets the attributes */
	put_fact(c, o, "service.name", "comm");
	put_fact(c, o, "host.name", "hostname");
	put_fact(c, o, "container.id", "container");
	put_fact(c, o, "k8s.pod.uid", "pod.uid");
	pb__message(resources, RESOURCES_RESOURCE, &o->list);
}

/* Adds the scope: who made the profiles. */
static void put_scope(struct export_ctx *c, struct otlp *o, struct pb *scopes)
{
	pb__clear(&o->part);
	pb__string(&o->part, SCOPE_NAME, "memtrace-bpf");
	pb__string(&o->part, SCOPE_VERSION, facts__get(c->facts, "version") ?: "unknown");
	pb__message(scopes, SCOPES_SCOPE, &o->part);
}

/* Writes the process with its profiles. The resource comes first: `serve --push-otlp` replaces it. */
static void write_profiles(struct export_ctx *c, struct otlp *o)
{
	struct pb resources = { 0 }, scopes = { 0 };

	put_resource(c, o, &resources);
	put_scope(c, o, &scopes);
	for (int i = 0; i < PROFILES; i++) {
		end_profile(c, o, i);
		pb__message(&scopes, SCOPES_PROFILES, &o->samples[i]);
	}
	pb__message(&resources, RESOURCES_SCOPES, &scopes);
	write_field(c, o, DATA_RESOURCES, &resources);
	pb__free(&resources);
	pb__free(&scopes);
}

/* Writes the tables. Call it last, because the other parts add to them. */
static void write_tables(struct export_ctx *c, struct otlp *o)
{
	uint32_t n = dict__counts(o->strings).strings;

	for (uint32_t i = 0; i < n; i++)
		pb__string(&o->tables, TABLE_STRINGS, dict__str(o->strings, i));
	write_field(c, o, DATA_DICTIONARY, &o->tables);
}

/* Adds the empty entry with the number 0 to each table. */
static void put_empty_entries(struct otlp *o)
{
	static const uint32_t tables[] = { TABLE_MAPPINGS, TABLE_LOCATIONS,  TABLE_FUNCTIONS,
					   TABLE_LINKS,	   TABLE_ATTRIBUTES, TABLE_STACKS };

	pb__clear(&o->part);
	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		pb__message(&o->tables, tables[i], &o->part);
}

static int put_all(struct export_ctx *c, struct otlp *o)
{
	int err;

	put_empty_entries(o);
	err = put_devices(c, o);
	if (err)
		return err;
	for (size_t i = 0; i < frames__count(o->frames); i++)
		put_frame(o, (uint32_t)i);
	write_profiles(c, o);
	write_tables(c, o);
	return o->err;
}

static int otlp_end(struct export_ctx *c, void *state)
{
	struct otlp o = {
		.frames = frames__new(c->dict, c->facts, FRAMES_HOLDERS),
		.strings = dict__new(),
		.stacks = dict__new(),
		.attributes = dict__new(),
	};
	int err = -ENOMEM;

	(void)state;
	if (o.frames && o.strings && o.stacks && o.attributes)
		err = put_all(c, &o);
	frames__free(o.frames);
	dict__free(o.strings);
	dict__free(o.stacks);
	dict__free(o.attributes);
	pb__free(&o.tables);
	for (int i = 0; i < PROFILES; i++)
		pb__free(&o.samples[i]);
	pb__free(&o.part);
	pb__free(&o.inner);
	pb__free(&o.list);
	return err;
}

const struct export_format export_otlp = {
	.name = "otlp",
	.suffix = ".otlp.pb",
	.help = "live bytes by stack, as a profile of OpenTelemetry",
	.next = "a POST of it to /v1development/profiles gives it to a collector; its type is "
		"application/x-protobuf",
	.end = otlp_end,
};
