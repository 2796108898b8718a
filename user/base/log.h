/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Messages go to standard error, one line each with the prefix "memtrace-bpf: ". They may also go
 * to a log file, with time and more fields, as text or JSON (docs/reference/log.md). Clean text
 * from the target with text__clean() first.
 *
 * The part of a message is the room of its source in user/ ("capture", "serve").
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* A field for programs in addition to the message. key: static, and not one of the fields of
 * every line. */
struct log_field {
	const char *key; /* name of the field; NULL: end of the list */
	enum log_kind {
		LOG_KIND_STRING,
		LOG_KIND_UINT,
		LOG_KIND_INT,
		LOG_KIND_DOUBLE,
		LOG_KIND_BOOL
	} kind;
	union {
		const char *string; /* text; NULL: null in JSON */
		uint64_t uint;
		int64_t sint;
		double real;
		bool yes;
	};
};

#define LOG_STRING(name, value)                                                                    \
	((struct log_field){ .key = (name), .kind = LOG_KIND_STRING, .string = (value) })
#define LOG_UINT(name, value)                                                                      \
	((struct log_field){ .key = (name), .kind = LOG_KIND_UINT, .uint = (value) })
#define LOG_INT(name, value)                                                                       \
	((struct log_field){ .key = (name), .kind = LOG_KIND_INT, .sint = (value) })
#define LOG_DOUBLE(name, value)                                                                    \
	((struct log_field){ .key = (name), .kind = LOG_KIND_DOUBLE, .real = (value) })
#define LOG_BOOL(name, value)                                                                      \
	((struct log_field){ .key = (name), .kind = LOG_KIND_BOOL, .yes = (value) })
#define LOG_FIELDS(...) ((const struct log_field[]){ __VA_ARGS__, { .key = NULL } })

/* file: source file. event: kind of the event as a static word for programs; NULL: none. fields:
 * NULL: none. */
void log__write(enum log_level level, const char *file, const char *event,
		const struct log_field *fields, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

#define log_event(level, event, fields, ...) log__write(level, __FILE__, event, fields, __VA_ARGS__)
#define log__print(level, ...) log__write(level, __FILE__, NULL, NULL, __VA_ARGS__)
#define log_err(...) log__print(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log__print(LOG_WARN, __VA_ARGS__)
#define log_info(...) log__print(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log__print(LOG_DEBUG, __VA_ARGS__)

/* Level of standard error: LOG_INFO by default, LOG_DEBUG with -v, LOG_WARN with -q. */
void log__set_level(enum log_level level);
enum log_level log__level(void);
/* Suppresses all messages above this level, also in the file. LOG_DEBUG: no suppression. */
void log__hush(enum log_level level);
/* Sends messages to a function instead of standard error, cleaned and without prefix, while a
 * screen is shown. NULL: standard error again. */
void log__divert(void (*to)(void *ctx, enum log_level level, const char *text), void *ctx);
/* Sets a function that clears the line under way on standard error before each message. */
void log__before_line(void (*fn)(void));
/* Prints a diverted message on standard error; not in the file, which already has it. */
void log__show(enum log_level level, const char *text);
/* True if standard error gets JSON; then print nothing else there. */
bool log__json_on_terminal(void);
