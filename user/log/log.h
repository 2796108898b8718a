/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LOG_LOG_H
#define MT_LOG_LOG_H
/*
 * Messages: to the person at the terminal, on standard error, one line each, "memtrace-bpf: " in
 * front; and, where one is wanted, into a log file, with the time and more, as text or as JSON
 * (docs/LOGGING.md). Text from the target must have passed text__clean() before.
 *
 * A part is where a message comes from: the folder of its source below user/ ("capture", "serve").
 * Each may have a level of its own.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* What is said beside the words, for programs. key: static, none of those that every line has. */
struct log_field {
	const char *key; /* NULL: the end */
	enum log_kind {
		LOG_KIND_STRING,
		LOG_KIND_UINT,
		LOG_KIND_INT,
		LOG_KIND_DOUBLE,
		LOG_KIND_BOOL
	} kind;
	union {
		const char *string; /* NULL: null */
		uint64_t uint;
		int64_t sint;
		double real;
		bool yes;
	};
};

#define LOG_STRING(name, value)                                                                    \
	{                                                                                          \
		.key = (name), .kind = LOG_KIND_STRING, .string = (value)                          \
	}
#define LOG_UINT(name, value)                                                                      \
	{                                                                                          \
		.key = (name), .kind = LOG_KIND_UINT, .uint = (value)                              \
	}
#define LOG_INT(name, value)                                                                       \
	{                                                                                          \
		.key = (name), .kind = LOG_KIND_INT, .sint = (value)                               \
	}
#define LOG_DOUBLE(name, value)                                                                    \
	{                                                                                          \
		.key = (name), .kind = LOG_KIND_DOUBLE, .real = (value)                            \
	}
#define LOG_BOOL(name, value)                                                                      \
	{                                                                                          \
		.key = (name), .kind = LOG_KIND_BOOL, .yes = (value)                               \
	}
#define LOG_FIELDS(...) ((const struct log_field[]){ __VA_ARGS__, { .key = NULL } })

/* file: of the source. event: what it is, in a word for programs, static; NULL: just a message.
 * fields: NULL: none. */
void log__write(enum log_level level, const char *file, const char *event,
		const struct log_field *fields, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

#define log_event(level, event, fields, ...) log__write(level, __FILE__, event, fields, __VA_ARGS__)
#define log__print(level, ...) log__write(level, __FILE__, NULL, NULL, __VA_ARGS__)
#define log_err(...) log__print(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log__print(LOG_WARN, __VA_ARGS__)
#define log_info(...) log__print(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log__print(LOG_DEBUG, __VA_ARGS__)

/* Of the terminal: LOG_INFO at first; -v gives LOG_DEBUG, -q LOG_WARN. */
void log__set_level(enum log_level level);
enum log_level log__level(void);
/* For a while nothing beyond this level goes anywhere; LOG_DEBUG: as it was. */
void log__hush(enum log_level level);
/*
 * While set, messages go there instead of standard error, cleaned and without "memtrace-bpf: " and
 * the like in front: the screen is not theirs. NULL: standard error again.
 */
void log__divert(void (*to)(void *ctx, enum log_level level, const char *text), void *ctx);
/* What was diverted, on standard error after all; the file has it. */
void log__show(enum log_level level, const char *text);
/* Are messages on standard error JSON? Then nothing else is to stand there. */
bool log__json_on_terminal(void);

#endif
