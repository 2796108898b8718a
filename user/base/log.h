/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Messages of the program. They go to standard error, one line each with the prefix
 * "memtrace-bpf: ". They may also go to a log file, with time and more fields, as text or JSON
 * (docs/reference/log.md). Clean text from the target with text__clean() first.
 *
 * Each message has a part: the room of its source file in user/ ("capture", "serve").
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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

/* Writes a message. file: the source file. event: the kind of event as a static word for programs;
 * NULL: none. fields: NULL: none. */
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
/* Sends messages to a function instead of standard error, while a screen is shown. They are
 * cleaned and have no prefix. NULL: standard error again. */
void log__divert(void (*to)(void *ctx, enum log_level level, const char *text), void *ctx);
/* Sets a function that is called before each message on standard error, to remove an incomplete
 * line there. */
void log__before_line(void (*fn)(void));
/* Prints a diverted message on standard error; not in the file, which already has it. */
void log__show(enum log_level level, const char *text);
/* True if messages go to standard error as JSON: then print nothing else there. */
bool log__json_on_terminal(void);

struct json_t;

/* Settings of the log: levels, file and format, from MEMTRACE_LOG and options. Child processes
 * inherit them. */

#define LOG_ENV "MEMTRACE_LOG"
#define LOG_PART 24 /* bytes of a part's name, with the NUL */

struct log_config {
	int level;  /* enum log_level; -1: not set */
	char *file; /* path of the log file, owned; NULL: none */
	int fd;	    /* log file opened by the parent process; -1: none */
	bool json;
};

#define LOG_CONFIG_INIT                                                                            \
	{                                                                                          \
		.level = -1, .fd = -1                                                              \
	}

/*
 * Parses "debug,file=/var/log/memtrace.log,format=json" and adds it to c. levels_only:
 * allows only a level, as in the option. Returns 0, or -EINVAL or -ENOMEM with *why and c
 * unchanged.
 */
int log_config__parse(struct log_config *c, const char *text, bool levels_only, char *why,
		      size_t size);
/* Writes the settings as text, with fd (-1: none) instead of the file. False: buf is too small. */
bool log_config__text(const struct log_config *c, int fd, char *buf, size_t size);
/* The part of a source file: its room in user/. Returns buf. */
char *log__part(char buf[LOG_PART], const char *file);

/* Sets the command name shown in log lines, such as "record". Static string. */
void log__set_command(const char *name);
/* Reads MEMTRACE_LOG. Warns of errors and ignores the variable then. Call before everything
 * else. */
void log__from_environment(void);
/* Each handles the argument of an option. Returns 0, or a negative error with *why. */
int log__option_level(const char *arg, char *why, size_t size);
int log__option_file(const char *arg, char *why, size_t size);
int log__option_format(const char *arg, char *why, size_t size);
/*
 * Opens the log file if one is set: appends, creates with mode 0600, and rejects symbolic links and
 * other users' files. On failure, warns and continues without a file. A second call does nothing.
 */
void log__open(void);
/* Closes the log file. log__open() opens it again. */
void log__close(void);
/*
 * Call in a child before it executes this program again. Passes the log on by an inherited
 * descriptor named in the environment. file_only: passes nothing on without a log file, for
 * children whose standard error is parsed. Returns the descriptor, or -1.
 */
int log__hand_on(bool file_only);
/*
 * For a process without access to the file: sends lines as {"log": {...}} packets on the socket fd
 * instead. Lines that cannot be sent at once are dropped. process: name shown in its lines, static.
 */
void log__relay_to(int fd, const char *process);
/*
 * For the process that has the log file: writes a "log" object that it received, which is
 * untrusted. Limits for each process name (static text; at most 4 names): 200 lines per second and
 * 1 MiB per minute. Reports the number of dropped lines with the next written line.
 */
void log__relayed(pid_t pid, const char *process, struct json_t *said);

/*
 * A progress line on standard error with a bar, percentage and remaining time, or a count if the
 * total is not known. Shown only on a terminal and after one second; removed at the end. Messages
 * of log.h appear above it. Only one progress at a time, in one thread.
 *
 *  struct progress p = progress__begin("reading run.mtr", size, "events");
 *  while (...)
 *    progress__at(&p, bytes, events);
 *  progress__end(&p);
 */

struct progress {
	bool on;	      /* progress is shown on this terminal */
	bool shown;	      /* the line is on the terminal now */
	char what[96];	      /* description of the work, cleaned */
	const char *noun;     /* unit of .count */
	uint64_t total;	      /* value of .done at the end; 0: not known */
	uint64_t start, next; /* clock__monotonic() at the start and at the next update, ns */
	uint64_t done, count; /* values of the last progress__at() */
};

/*
 * what: "reading run.mtr"; may be untrusted text. total: value of `done` at the end; 0: not known.
 * noun: unit of the count, static. Does nothing if standard error is not a terminal or another
 * progress is running.
 */
struct progress progress__begin(const char *what, uint64_t total, const char *noun);
/* Updates done (of total) and the count. Cheap enough for every few events. */
void progress__at(struct progress *p, uint64_t done, uint64_t count);
/* Removes the line. */
void progress__end(struct progress *p);
/* True if standard error is a terminal that can rewrite a line. */
bool progress__visible(void);
