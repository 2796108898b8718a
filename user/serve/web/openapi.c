/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/web/openapi.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/web/route.h"
#include "serve/web/validate.h"
#include "serve/web/web.h"

#define NUMBER "{'type': ['number', 'null']}"
#define INTEGER "{'type': ['integer', 'null'], 'minimum': 0}"
#define TEXT "{'type': ['string', 'null']}"
#define BYTES "{'type': 'integer', 'minimum': 0}"
#define TRACE_GROWTH                                                                               \
	"{'type': ['object', 'null'], 'properties': {'device': " TEXT ", 'verdict': " TEXT         \
	", 'text': " TEXT ", 'confidence': " TEXT ", 'bytes_per_step': " NUMBER                    \
	", 'held_by': " TEXT "}, 'description': 'The growth of the device that grows most, as in " \
	"the report; null: not known.'}"
/* Members of every trace: the capture's request and its progress. */
#define TRACE_MEMBERS                                                                              \
	"'trace_id': {'type': 'string'}, 'model_name': {'type': 'string'}, 'pid': " INTEGER        \
	", 'process': " TEXT ","                                                                   \
	"'state': {'type': 'string', 'enum': ['starting', 'capturing', 'finishing', 'done', "      \
	"'failed']},"                                                                              \
	"'begun': {'type': 'number'}, 'seconds': " NUMBER ", 'events': " INTEGER                   \
	", 'lost': " INTEGER ", 'bytes': " INTEGER ","                                             \
	"'file': " TEXT ", 'folder': " TEXT ", 'max_events': " INTEGER                             \
	", 'host': {'type': 'boolean'}, 'uploaded': {'type': 'boolean'},"                          \
	"'host_parts': {'type': 'object', 'additionalProperties': " BYTES ", 'description': "      \
	"'Resident host memory by part while the trace captures.'},"                               \
	"'host_use': {'type': 'object', 'additionalProperties': " BYTES ", 'description': "        \
	"'Resident host memory in use (live) and free inside allocators (free), meanwhile.'}"      \
	", 'stop_reason': " TEXT ", 'error': " TEXT ", 'status': " INTEGER
#define NO_CONTROL "^[^\\u0000-\\u001f\\u007f]*$"
#define NO_COMMA "^[^,\\u0000-\\u001f\\u007f]*$"

/* ---- schemas of answers ---- */

/* JSON Schemas of the answers. Single quotes are easier to read here; openapi.c replaces them
 * with double quotes. */

const struct openapi_schema openapi_schemas[] = {
	{ "Error",
	  "{'type': 'object', 'required': ['detail'], 'properties': {"
	  "'detail': {'type': 'string', 'description': 'The failure and its cause.'},"
	  "'field': {'type': 'string', 'description': 'The invalid member or parameter.'}},"
	  "'examples': [{'detail': 'max_events: must be at least 1, not -5', "
	  "'field': 'max_events'}]}" },
	{ "Message", "{'type': 'object', 'required': ['message'], 'properties': {'message': "
		     "{'type': 'string'}}}" },
	{ "Document", "{'type': 'object', 'description': 'The JSON document of the command of the "
		      "same name; reference/report.md lists its members.'}" },
	{ "Ranks",
	  "{'type': 'object', 'required': ['one_job', 'recordings', 'rows', 'outliers', "
	  "'outlier_limits', 'groups', 'step_outliers'], 'properties': {"
	  "'one_job': {'type': 'boolean'},"
	  "'recordings': {'type': 'array', 'items': {'type': 'object', 'required': "
	  "['recording', 'allocated', 'growth'], 'properties': {"
	  "'recording': {'type': 'string', 'description': 'As file in the trace.'}, "
	  "'rank': " INTEGER ", 'local_rank': " INTEGER ", 'allocated': " BYTES
	  ", 'step_time': " NUMBER ", 'growth': {'type': 'array'}}}},"
	  "'rows': {'type': 'array', 'items': {'type': 'object', 'required': ['index', 'bytes']}},"
	  "'outliers': {'type': 'array', 'items': {'type': 'object', 'required': ['recording', "
	  "'row', 'bytes', 'others_median', 'difference'], 'properties': {"
	  "'recording': " BYTES ", 'row': {'type': ['integer', 'null'], 'description': "
	  "'The index of a row; null: all memory.'}, 'bytes': " BYTES ", 'others_median': " BYTES
	  ", 'difference': {'type': 'integer'}}}},"
	  "'groups': {'type': 'array'}, 'step_outliers': {'type': 'array'}}}" },
	{ "Report",
	  "{'type': 'object', 'required': ['memtrace', 'target', 'capture', 'devices', 'rows'], "
	  "'properties': {"
	  "'memtrace': {'type': 'object'}, 'target': {'type': 'object'}, 'capture': {'type': "
	  "'object'},"
	  "'devices': {'type': 'array', 'items': {'type': 'object'}}, 'device': " TEXT
	  ", 'time': " NUMBER ","
	  "'rows': {'type': 'array', 'items': {'type': 'object', 'required': ['bytes', 'count']}},"
	  "'layers': {'type': 'object'}, 'phases': {'type': 'object'}}}" },
	{ "Layer", "{'type': 'object', 'required': ['layer_name', 'peak_allocated', "
		   "'peak_reserved', 'total_allocations', 'total_deallocations',"
		   "'avg_fragmentation', 'duration_ms'], 'properties': {"
		   "'layer_name': " TEXT ", 'peak_allocated': " INTEGER
		   ", 'peak_reserved': " INTEGER ", 'total_allocations': " INTEGER ","
		   "'total_deallocations': " INTEGER ", 'avg_fragmentation': " NUMBER
		   ", 'duration_ms': " NUMBER ", 'layer_class': " TEXT ","
		   "'calls': " INTEGER "}}" },
	{ "Summary", "{'type': 'object', 'properties': {"
		     "'total_events': " INTEGER ", 'total_layers': " INTEGER
		     ", 'peak_allocated_mb': " NUMBER ", 'peak_reserved_mb': " NUMBER ","
		     "'avg_fragmentation': " NUMBER ", 'tracing_time_ms': " NUMBER
		     ", 'device': " TEXT ", 'peak_allocated': " INTEGER ","
		     "'peak_reserved': " INTEGER ", 'before_attach': " INTEGER ", 'lost': " INTEGER
		     ", 'detail': " TEXT
		     ", 'complete': {'type': ['boolean', 'null']}, 'growth': " TRACE_GROWTH "}}" },
	{ "Trace", "{'type': 'object', 'required': ['trace_id', 'model_name', 'state', 'begun'], "
		   "'properties': {" TRACE_MEMBERS ","
		   "'steps': " INTEGER ", 'summary': {'$ref': '#/components/schemas/Summary'}}}" },
	{ "TraceResult",
	  "{'type': 'object', 'required': ['trace_id', 'model_name'], 'properties': {"
	  "'trace_id': {'type': 'string'}, 'model_name': " TEXT ", 'total_events': " INTEGER
	  ", 'total_layers': " INTEGER ","
	  "'peak_allocated_mb': {'type': ['number', 'null'], 'description': 'Peak of the device "
	  "with the largest peak, MiB.'},"
	  "'peak_reserved_mb': " NUMBER ","
	  "'avg_fragmentation': {'type': ['number', 'null'], 'description': 'Mean of (reserved - "
	  "allocated) / reserved over the"
	  " events of the device; null without enable_fragmentation.'},"
	  "'tracing_time_ms': " NUMBER ", 'pid': " INTEGER ", 'device': " TEXT
	  ", 'peak_allocated': " INTEGER ","
	  "'peak_reserved': " INTEGER ", 'lost': " INTEGER ", 'detail': " TEXT
	  ", 'complete': {'type': ['boolean', 'null']}, 'growth': " TRACE_GROWTH ","
	  "'layer_stats': {'type': 'object', 'additionalProperties': {'$ref': "
	  "'#/components/schemas/Layer'}}},"
	  "'examples': [{'trace_id': 'trace_1705536000000', 'model_name': 'my_model', "
	  "'total_events': 1523, 'total_layers': 1,"
	  "'peak_allocated_mb': 245.5, 'peak_reserved_mb': 512.0, 'avg_fragmentation': 0.15, "
	  "'tracing_time_ms': 2045.23, 'pid': 4242,"
	  "'device': 'cuda:0', 'peak_allocated': 257425408, 'peak_reserved': 536870912, 'lost': 0, "
	  "'complete': true,"
	  "'layer_stats': {'conv1': {'layer_name': 'conv1', 'peak_allocated': 12582912, "
	  "'peak_reserved': 536870912,"
	  "'total_allocations': 5, 'total_deallocations': 3, 'avg_fragmentation': 0.12, "
	  "'duration_ms': 2.34, 'layer_class': 'Conv2d',"
	  "'calls': 5}}}]}" },
	{ "TraceList",
	  "{'type': 'object', 'required': ['active_traces', 'count', 'traces'], 'properties': {"
	  "'active_traces': {'type': 'array', 'items': {'type': 'string'}}, 'count': " BYTES ","
	  "'traces': {'type': 'array', 'items': {'$ref': '#/components/schemas/Trace'}}}}" },
	{ "Export", "{'type': 'object', 'required': ['trace_id', 'format', 'download_url', "
		    "'file_size_bytes'], 'properties': {"
		    "'trace_id': {'type': 'string'}, 'format': {'type': 'string'}, 'download_url': "
		    "{'type': 'string'},"
		    "'file_size_bytes': " BYTES ", 'file': {'type': 'string'}},"
		    "'examples': [{'trace_id': 'trace_1705536000000', 'format': 'speedscope', "
		    "'file_size_bytes': 45678,"
		    "'download_url': '/api/trace/download/trace_1705536000000_flamegraph.json',"
		    "'file': 'trace_1705536000000_flamegraph.json'}]}" },
	{ "Deleted",
	  "{'type': 'object', 'required': ['message', 'remaining_traces'], 'properties': {"
	  "'message': {'type': 'string'}, 'remaining_traces': " BYTES "},"
	  "'examples': [{'message': 'Trace trace_1705536000000 deleted successfully', "
	  "'remaining_traces': 1}]}" },
	{ "Clock",
	  "{'type': 'object', 'required': ['time_ns'], 'properties': {'time_ns': "
	  "{'type': 'integer', 'minimum': 0, 'description': 'Nanoseconds since 1970.'}}}" },
	{ "Health",
	  "{'type': 'object', 'required': ['status', 'version', "
	  "'api_version'], 'properties': {'status': {'type': 'string', 'enum': ['ok', "
	  "'starting', 'stale'], 'description': '`stale`: processes were not searched for 10 s, "
	  "and "
	  "figures may be older than they seem.'}, 'version': {'type': 'string'}, 'api_version': "
	  "{'type': 'integer', "
	  "'description': 'Version of the HTTP API.'}, 'uptime_s': {'type': 'number'},"
	  "'can_trace': {'type': 'boolean', 'description': 'Whether this server can "
	  "capture processes; if not, `why` gives the reason.'},"
	  "'why': {'type': 'string'}, 'targets': {'type': 'array', 'items': {'type': "
	  "'string'}}, 'scan_age_s': {'type': ['number', 'null'], 'description': 'Age of the last "
	  "search of processes; null if the server searches for none.'}, 'processes': " BYTES ","
	  "'traces': " BYTES ", 'capturing': " BYTES ", 'limits': {'type': 'object'},"
	  "'formats': {'type': 'array', 'items': {'type': 'object'}}}}" },
	{ "Device", "{'type': 'object', 'required': ['device'], 'properties': {'device': {'type': "
		    "'string'}, 'allocated': " BYTES ","
		    "'reserved': " BYTES ", 'peak_allocated': " BYTES ", 'total': " BYTES
		    ", 'used': " BYTES ", 'free': " BYTES ", 'ooms': " BYTES ","
		    "'retries': " BYTES "}}" },
	{ "Growth",
	  "{'type': 'object', 'required': ['of', 'verdict', 'seconds', 'values'], "
	  "'properties': {"
	  "'of': {'type': 'string', 'enum': ['devices', 'host']}, 'verdict': " TEXT
	  ", 'seconds': {'type': 'number'}, 'values': {'type': 'array', 'items': {'type': "
	  "'integer'}}, 'confidence': " TEXT
	  ", 'bytes_per_minute': {'type': 'number'}, 'full_s': {'type': 'number'}}}" },
	{ "Process",
	  "{'type': 'object', 'required': ['pid', 'started', 'target', 'name', 'devices'], "
	  "'properties': {"
	  "'pid': {'type': 'integer'}, 'started': {'type': 'number'}, 'target': {'type': "
	  "'string'}, 'name': {'type': 'string'},"
	  "'rank': {'type': 'integer'}, 'container': {'type': 'string'}, 'pod': {'type': "
	  "'string'}, 'time': {'type': 'number'},"
	  "'rss': " BYTES ", 'why': {'type': 'string', 'description': 'The reason why device "
	  "figures are missing.'},"
	  "'growth': {'$ref': '#/components/schemas/Growth'},"
	  "'devices': {'type': 'array', 'items': {'$ref': '#/components/schemas/Device'}}}}" },
	{ "Targets",
	  "{'type': 'object', 'required': ['targets', 'processes'], 'properties': {"
	  "'targets': {'type': 'array', 'items': {'type': 'object', 'required': ['name', 'kind'], "
	  "'properties': {"
	  "'name': {'type': 'string'}, 'kind': {'type': 'string', 'enum': ['pid', 'pattern', "
	  "'command', 'all']},"
	  "'pattern': " TEXT ", 'pids': {'type': 'array', 'items': {'type': 'integer'}}}}},"
	  "'processes': {'type': 'array', 'items': {'$ref': '#/components/schemas/Process'}}}}" },
	{ "History",
	  "{'type': 'object', 'required': ['pid', 'samples'], 'properties': {'pid': {'type': "
	  "'integer'},"
	  "'samples': {'type': 'array', 'items': {'type': 'object', 'required': ['time'], "
	  "'properties': {"
	  "'time': {'type': 'number'}, 'rss': " BYTES ","
	  "'devices': {'type': 'array', 'items': {'$ref': '#/components/schemas/Device'}}}}}}}" },
	{ NULL, NULL },
};

/* ---- the document ---- */

/* Parses JSON of any type. NULL: no memory, or not JSON. */
static json_t *parse_text(const char *text)
{
	return json_loads(text, JSON_DECODE_ANY, NULL);
}

/* Parses JSON that has ' for ". */
static json_t *parse_quoted(const char *text)
{
	char *copy = strdup(text);
	json_t *ret;

	if (!copy)
		return NULL;
	for (char *p = copy; *p; p++)
		*p = *p == '\'' ? '"' : *p;
	ret = parse_text(copy);
	free(copy);
	return ret;
}

/* A number, as an integer if it is whole. */
static json_t *number_json(double v)
{
	return v == trunc(v) ? json_integer((json_int_t)v) : json_real(v);
}

/* The field's largest value: max, or less if the broker's limits say so. */
static double upper_bound(const json_t *limits, const char *field, double max)
{
	/* fields, and the broker's limits of them */
	static const char *const limited[][2] = { { "max_events", "max_events" },
						  { "duration_s", "max_duration_s" },
						  { "align_s", "max_duration_s" },
						  { "seconds", "max_duration_s" } };

	for (size_t i = 0; i < sizeof(limited) / sizeof(*limited); i++) {
		const json_t *limit = json_object_get(limits, limited[i][1]);

		if (!strcmp(field, limited[i][0]) && json_is_number(limit) &&
		    json_number_value(limit) < max)
			return json_number_value(limit);
	}
	return max;
}

/* True if the field's example is within the broker's limits. */
static bool example_fits(const struct field *f, const json_t *limits)
{
	json_t *v = parse_text(f->example);
	bool ret = !json_is_number(v) ||
		   json_number_value(v) <= upper_bound(limits, f->name, f->max);

	json_decref(v);
	return ret;
}

/* A regular expression as JSON Schema has them: JavaScript has no [:cntrl:], which is replaced by
 * the characters from NUL to 1f and 7f. A new reference. */
static json_t *javascript_pattern(const char *pattern)
{
	static const char posix[] = "[:cntrl:]";
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	json_t *ret;

	if (!f)
		return NULL;
	for (const char *p; (p = strstr(pattern, posix)); pattern = p + sizeof(posix) - 1)
		fprintf(f, "%.*s\\u0000-\\u001f\\u007f", (int)(p - pattern), pattern);
	fputs(pattern, f);
	ret = fclose(f) ? NULL : json_string(text);
	free(text);
	return ret;
}

/* The schema of a field's value, or of each member if the field is an array. type: of the value. */
static json_t *value_schema(const struct field *f, enum field_type type, const json_t *limits)
{
	static const char *const names[] = { [FIELD_INTEGER] = "integer",
					     [FIELD_NUMBER] = "number",
					     [FIELD_STRING] = "string",
					     [FIELD_BOOLEAN] = "boolean" };
	json_t *o = json_pack("{s:s}", "type", names[type]);

	if ((type == FIELD_INTEGER || type == FIELD_NUMBER) && (f->min || f->max)) {
		json_object_set_new(o, "minimum", number_json(f->min));
		json_object_set_new(o, "maximum",
				    number_json(upper_bound(limits, f->name, f->max)));
	}
	if (type != FIELD_STRING)
		return o;
	if (f->type == FIELD_STRING && f->shortest)
		json_object_set_new(o, "minLength", json_integer((json_int_t)f->shortest));
	if (!f->choices && !f->pattern)
		json_object_set_new(o, "maxLength",
				    json_integer(f->type == FIELD_STRING && f->longest
							 ? (json_int_t)f->longest
							 : VALIDATE_STRING));
	if (!f->choices)
		json_object_set_new(o, "pattern",
				    f->pattern ? javascript_pattern(f->pattern)
					       : json_string(NO_CONTROL));
	if (f->choices) {
		json_t *all = json_array();

		for (const char *const *c = f->choices; *c; c++)
			json_array_append_new(all, json_string(*c));
		json_object_set_new(o, "enum", all);
	}
	return o;
}

/* The schema of a field. limits: of the broker. A new reference. */
static json_t *field_schema(const struct field *f, const json_t *limits)
{
	enum field_type member_type = f->type == FIELD_INTEGERS ? FIELD_INTEGER : FIELD_STRING;
	json_t *o;

	if (f->type != FIELD_INTEGERS && f->type != FIELD_STRINGS)
		return value_schema(f, f->type, limits);
	o = value_schema(f, member_type, limits);
	if (member_type == FIELD_STRING) {
		json_object_set_new(o, "minLength", json_integer(1));
		json_object_set_new(o, "pattern", json_string(NO_COMMA));
	}
	o = json_pack("{s:s, s:o}", "type", "array", "items", o);
	if (f->shortest)
		json_object_set_new(o, "minItems", json_integer((json_int_t)f->shortest));
	if (f->longest)
		json_object_set_new(o, "maxItems", json_integer((json_int_t)f->longest));
	return o;
}

/* Adds fields to the array `to`. in: "path", whose parameters are all required, or "query". */
static void add_parameters(json_t *to, const struct field *fields, const char *in,
			   const json_t *limits)
{
	for (const struct field *f = fields; f && f->name; f++) {
		json_t *p = json_pack("{s:s, s:s, s:b, s:s*}", "name", f->name, "in", in,
				      "required", f->required || *in == 'p', "description",
				      f->help);
		/* A list is one query parameter with commas between the members. */
		if (f->type == FIELD_STRINGS) {
			json_object_set_new(p, "style", json_string("form"));
			json_object_set_new(p, "explode", json_false());
			json_object_set_new(p, "schema", field_schema(f, limits));
		} else {
			json_object_set_new(p, "schema", field_schema(f, limits));
			if (f->example && example_fits(f, limits))
				json_object_set_new(p, "example", parse_text(f->example));
		}
		json_array_append_new(to, p);
	}
}

/* What the document says about the body of a request. limits: of the broker. A new reference. */
static json_t *request_body_of(const struct route *r, const json_t *limits)
{
	json_t *properties = json_object();
	json_t *required = json_array();
	json_t *example = json_object(), *schema, *extra;

	for (const struct field *f = r->in_body; f->name; f++) {
		json_t *o = field_schema(f, limits);

		if (f->help)
			json_object_set_new(o, "description", json_string(f->help));
		if (f->example && example_fits(f, limits))
			json_object_set_new(o, "examples",
					    json_pack("[o]", parse_text(f->example)));
		/* pid and model_name exclude each other. */
		if (f->example && example_fits(f, limits) && strcmp(f->name, "pid"))
			json_object_set_new(example, f->name, parse_text(f->example));
		json_object_set_new(properties, f->name, o);
		if (f->required)
			json_array_append_new(required, json_string(f->name));
	}
	schema = json_pack("{s:s, s:o}", "type", "object", "properties", properties);
	if (json_array_size(required))
		json_object_set(schema, "required", required);
	json_decref(required);
	extra = r->body_extra ? parse_text(r->body_extra) : NULL;
	json_object_update(schema, extra);
	json_decref(extra);
	if (!json_object_size(example)) {
		json_decref(example);
		example = NULL;
	}
	return json_pack("{s:b, s:{s:{s:o, s:o*}}}", "required", 1, "content", "application/json",
			 "schema", schema, "example", example);
}

/* Adds an answer to the object `to`, whose keys are statuses. If the status is already there, adds
 * only the type. type NULL: the answer has no content. schema NULL: any content. */
static void add_answer(json_t *to, int status, const char *type, const char *schema,
		       const char *help)
{
	char code[16], ref[96];
	json_t *content, *answer, *types;

	snprintf(code, sizeof(code), "%d", status);
	answer = json_object_get(to, code);
	types = json_object_get(answer, "content");
	if (answer && (!type || json_object_get(types, type)))
		return;
	snprintf(ref, sizeof(ref), "#/components/schemas/%s", schema ? schema : "");
	content = schema ? json_pack("{s:{s:s}}", "schema", "$ref", ref)
			 : json_pack("{s:{}}", "schema");
	if (answer) {
		json_object_set_new(types, type, content);
		return;
	}
	answer = json_pack("{s:s}", "description", help ? help : "");
	if (type)
		json_object_set_new(answer, "content", json_pack("{s:o}", type, content));
	else
		json_decref(content);
	json_object_set_new(to, code, answer);
}

/* What the document says about the answers of a route. token: requests need one. A new reference. */
static json_t *answers_of(const struct route *r, bool token)
{
	static const char json[] = "application/json";
	json_t *o = json_object();

	for (const struct answer *a = r->answers; a && a->status; a++)
		add_answer(o, a->status, a->type, a->schema, a->help);
	add_answer(o, 400, json, "Error",
		   "The request is not valid HTTP, or its Host is not a name of this server.");
	if (token && !(r->flags & ROUTE_OPEN))
		add_answer(o, 401, json, "Error", "The token is missing or wrong.");
	add_answer(o, 403, json, "Error", "The request comes from a page of another site.");
	if (r->in_path)
		add_answer(o, 404, json, "Error", "Not found.");
	add_answer(o, 405, json, "Error", "This path does not support the method.");
	add_answer(o, 413, json, "Error", "The body is too large.");
	if (r->in_body)
		add_answer(o, 415, json, "Error", "The body is not application/json.");
	if (r->flags & ROUTE_UPLOAD)
		add_answer(o, 415, json, "Error", "The body is not " ROUTE_FILE_TYPE ".");
	add_answer(o, 422, json, "Error", "A field or parameter is invalid; `field` names it.");
	add_answer(o, 429, json, "Error", "Too many requests; Retry-After says when to try again.");
	return o;
}

/* What the document says about a route. limits: of the broker. token: requests need one. A new
 * reference. */
static json_t *operation_of(const struct route *r, const json_t *limits, bool token)
{
	json_t *o = json_pack("{s:s, s:[s], s:s*, s:s*}", "operationId", r->id, "tags", r->tag,
			      "summary", r->summary, "description", r->help);
	json_t *parameters = json_array();

	add_parameters(parameters, r->in_path, "path", limits);
	add_parameters(parameters, r->in_query, "query", limits);
	if (json_array_size(parameters))
		json_object_set(o, "parameters", parameters);
	json_decref(parameters);
	if (r->in_body)
		json_object_set_new(o, "requestBody", request_body_of(r, limits));
	if (r->flags & ROUTE_UPLOAD)
		json_object_set_new(o, "requestBody",
				    json_pack("{s:b, s:{s:{s:{s:s, s:s}}}}", "required", 1,
					      "content", ROUTE_FILE_TYPE, "schema", "type",
					      "string", "format", "binary"));
	json_object_set_new(o, "responses", answers_of(r, token));
	if (token && r->flags & ROUTE_OPEN)
		json_object_set_new(o, "security", json_array());
	return o;
}

/* The schemas, and how a client proves who it is. cookie: name of the session's; NULL: no token is
 * needed. A new reference. */
static json_t *make_components(const char *cookie)
{
	json_t *schemas = json_object(), *ret;

	for (const struct openapi_schema *s = openapi_schemas; s->name; s++)
		json_object_set_new(schemas, s->name, parse_quoted(s->text));
	ret = json_pack("{s:o}", "schemas", schemas);
	if (cookie)
		json_object_set_new(ret, "securitySchemes",
				    json_pack("{s:{s:s, s:s, s:s}, s:{s:s, s:s, s:s, s:s}}",
					      "token", "type", "http", "scheme", "bearer",
					      "description", "The token of --token-file.",
					      "session", "type", "apiKey", "in", "cookie", "name",
					      cookie, "description",
					      "The cookie that POST /api/session sets."));
	return ret;
}

char *openapi__text(const struct route *const *tables, const json_t *limits, const char *cookie,
		    size_t *size)
{
	json_t *doc = json_pack(
		"{s:s, s:{s:s, s:s, s:i, s:s}, s:[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}, {s:s, s:s}]}",
		"openapi", "3.1.0", "info", "title", "memtrace-bpf", "version", MEMTRACE_VERSION,
		"x-api-version", HTTP_API_VERSION, "description",
		"Memory of PyTorch programs by line and by module, over HTTP. Sizes are in bytes "
		"unless the name says otherwise, times in seconds.",
		"tags", "name", "traces", "description", "Captures and their results", "name",
		"targets", "description", "Targets and processes that can be captured", "name",
		"fleet", "description", "For monitoring systems", "name", "server", "description",
		"The server itself");
	json_t *paths = json_object();
	const struct route *r;
	char *text;

	for (size_t i = 0; (r = routes__at(tables, i)); i++) {
		json_t *path = json_object_get(paths, r->path);
		char method[12];
		size_t k = 0;

		if (!path) {
			path = json_object();
			json_object_set_new(paths, r->path, path);
		}
		for (; r->method[k] && k < sizeof(method) - 1; k++)
			method[k] = (char)tolower((unsigned char)r->method[k]);
		method[k] = '\0';
		json_object_set_new(path, method, operation_of(r, limits, cookie));
	}
	json_object_set_new(doc, "paths", paths);
	json_object_set_new(doc, "components", make_components(cookie));
	if (cookie)
		json_object_set_new(doc, "security",
				    json_pack("[{s:[]}, {s:[]}]", "token", "session"));
	text = json_dumps(doc, JSON_COMPACT);
	json_decref(doc);
	*size = text ? strlen(text) : 0;
	return text;
}
