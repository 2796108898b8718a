/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* JSON Schemas of the answers. Single quotes are easier to read here; openapi.c replaces them
 * with double quotes. */
#include "serve/web/openapi.h"

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
	", 'host': {'type': 'boolean'},"                                                           \
	"'host_parts': {'type': 'object', 'additionalProperties': " BYTES ", 'description': "      \
	"'Resident host memory by part while the trace captures.'}"                                \
	", 'stop_reason': " TEXT ", 'error': " TEXT ", 'status': " INTEGER

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
