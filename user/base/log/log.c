/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log/internal.h"
#include "base/outfile.h"
#include "base/text.h"

#define RELAYED_FIELDS 16
#define RELAYED_A_SECOND 200
#define RELAYED_A_MINUTE (1 << 20) /* bytes of relayed lines, per process */
#define RELAYED_FROM 4		   /* number of processes, by name, with a limit of their own */

static struct log_config config = LOG_CONFIG_INIT;
static const char *command = "memtrace-bpf", *process;
static int option_level = -1; /* level of standard error from -v or -q; -1: not set */
static enum log_level hushed = LOG_DEBUG;
static int relay = -1; /* socket that replaces the file; -1: none */
static void (*divert)(void *ctx, enum log_level level, const char *text);
static void (*before_line)(void);
static void *divert_ctx;

/* ---- levels ---- */

enum log_level log__level(void)
{
	if (option_level >= 0)
		return (enum log_level)option_level;
	return config.level >= 0 ? (enum log_level)config.level : LOG_INFO;
}

/* -q applies only to the terminal, -v also to the file. */
static enum log_level file_level(void)
{
	if (config.level >= 0)
		return (enum log_level)config.level;
	return log__level() == LOG_DEBUG ? LOG_DEBUG : LOG_INFO;
}

static bool has_file(void)
{
	return log_file__fd() >= 0 || relay >= 0;
}

void log__set_level(enum log_level level)
{
	option_level = level;
}

void log__hush(enum log_level level)
{
	hushed = level;
}

void log__divert(void (*to)(void *ctx, enum log_level level, const char *text), void *ctx)
{
	divert = to;
	divert_ctx = ctx;
}

void log__before_line(void (*fn)(void))
{
	before_line = fn;
}

bool log__json_on_terminal(void)
{
	return config.json && !has_file() && !config.file;
}

/* ---- lines ---- */

static void clean_text(char *dst, size_t size, const char *src)
{
	size_t at = 0, n;

	for (;; src += n + 1) {
		n = strcspn(src, "\n\t");
		text__clean(dst + at, size - at, src, n);
		at += strlen(dst + at);
		if (!src[n] || at + 2 > size)
			break;
		dst[at++] = src[n];
		dst[at] = '\0';
	}
}

void log__show(enum log_level level, const char *text)
{
	if (before_line)
		before_line();
	/* One call, so that lines of several processes do not mix. */
	fprintf(stderr, "memtrace-bpf: %s%s\n", level == LOG_WARN ? "warning: " : "", text);
}

static void show_json(const struct log_line *l)
{
	size_t len = 0;
	char *line = log_line__write(l, true, &len);

	if (line)
		fwrite(line, 1, len, stderr);
	free(line);
}

static void append(const struct log_line *l)
{
	char said[LOG_MAX_LINE];
	const char *why;
	size_t len = 0;
	char *line = log_line__write(l, config.json, &len);

	if (!line)
		return;
	log_file__append(line, len, &why);
	free(line);
	if (!why)
		return;
	/* Not by log_warn(), which would write to the file again. */
	snprintf(said, sizeof(said), "cannot write the log: %s; everything else continues", why);
	if (divert)
		divert(divert_ctx, LOG_WARN, said);
	else
		log__show(LOG_WARN, said);
}

static void write_to_file(const struct log_line *l)
{
	uint64_t missed;
	char text[96];

	append(l);
	missed = log_file__missed();
	if (!missed)
		return;
	snprintf(text, sizeof(text),
		 "%" PRIu64 " lines are missing before this one: they could not be written",
		 missed);
	append(&(struct log_line){ .time = l->time,
				   .level = LOG_WARN,
				   .pid = getpid(),
				   .command = command,
				   .part = "lib",
				   .event = "missing",
				   .fields = LOG_FIELDS(LOG_UINT("lines", missed)),
				   .text = text });
}

static void send_to_relay(const struct log_line *l)
{
	char *packet = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&packet, &len);
	struct json *j = out ? json__new(out, false) : NULL;

	if (j) {
		json__open_object(j, NULL);
		log_line__object(l, j, "log");
		json__close_object(j);
	}
	json__free(j);
	/* If the socket is full, the line is only on standard error. */
	if (out && !fclose(out) && len > 1)
		send(relay, packet, len - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	free(packet);
}

void log__write(enum log_level level, const char *file, const char *event,
		const struct log_field *fields, const char *fmt, ...)
{
	char raw[LOG_MAX_LINE], text[LOG_MAX_TEXT], part[LOG_PART];
	struct log_line line = { .level = level,
				 .command = command,
				 .process = process,
				 .part = part,
				 .event = event,
				 .fields = fields,
				 .text = text };
	bool terminal, filed;
	va_list args;
	size_t len;

	if (level > hushed)
		return;
	log__part(part, file);
	terminal = level <= log__level();
	filed = has_file() && level <= file_level();
	if (!terminal && !filed)
		return;
	va_start(args, fmt);
	vsnprintf(raw, sizeof(raw), fmt, args);
	va_end(args);
	/* One line per message: remove newlines that libraries such as libbpf add. */
	len = strlen(raw);
	while (len && raw[len - 1] == '\n')
		raw[--len] = '\0';
	clean_text(text, sizeof(text), raw);
	clock_gettime(CLOCK_REALTIME, &line.time);
	line.pid = getpid();
	if (filed && relay >= 0)
		send_to_relay(&line);
	else if (filed)
		write_to_file(&line);
	if (terminal && divert)
		divert(divert_ctx, level, text);
	else if (terminal && log__json_on_terminal())
		show_json(&line);
	else if (terminal)
		log__show(level, text);
}

/* ---- options and environment ---- */

void log__set_command(const char *name)
{
	command = name;
}

void log__from_environment(void)
{
	const char *text = getenv(LOG_ENV);
	char why[128];

	if (!text || !*text)
		return;
	if (log_config__parse(&config, text, false, why, sizeof(why)))
		log_warn(LOG_ENV ": %s: ignored", why);
	if (config.fd < 0)
		return;
	/* The descriptor is from our parent. Programs that we start must not see it. */
	unsetenv(LOG_ENV);
	if (log_file__take(config.fd))
		log_warn(LOG_ENV ": descriptor %d is not a log", config.fd);
}

int log__option_level(const char *arg, char *why, size_t size)
{
	struct log_config levels = LOG_CONFIG_INIT;

	if (log_config__parse(&levels, arg, true, why, size))
		return -1;
	config.level = levels.level;
	return 0;
}

int log__option_file(const char *arg, char *why, size_t size)
{
	char *file = *arg ? strdup(arg) : NULL;

	if (!file) {
		snprintf(why, size, "which file?");
		return -1;
	}
	log__close();
	free(config.file);
	config.file = file;
	return 0;
}

int log__option_format(const char *arg, char *why, size_t size)
{
	config.json = !strcmp(arg, "json");
	if (config.json || !strcmp(arg, "text"))
		return 0;
	snprintf(why, size, "'%s' is not a format; use text or json", arg);
	return -1;
}

void log__open(void)
{
	int err;

	if (!config.file || has_file())
		return;
	err = log_file__open(config.file);
	if (!err)
		return;
	log_warn("no log: %s: %s", config.file,
		 err == -EACCES ? "not permitted, or it is another user's, or it has several names"
				: outfile__why(err));
	free(config.file);
	config.file = NULL;
}

int log__hand_on(bool file_only)
{
	int fd = log_file__fd();
	char text[1024];

	if (!(file_only && fd < 0) && log_config__text(&config, fd, text, sizeof(text)) &&
	    !setenv(LOG_ENV, text, 1) && (fd < 0 || !fcntl(fd, F_SETFD, 0)))
		return fd;
	unsetenv(LOG_ENV);
	return -1;
}

/* ---- processes without a file ---- */

void log__relay_to(int fd, const char *name)
{
	process = name;
	if (!has_file())
		return;
	log__close();
	relay = fd;
}

/* Keys that every line has. */
static bool is_reserved(const char *key)
{
	static const char *const names[] = { "time", "level", "command", "process",
					     "pid",  "part",  "event",	 "message" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (!strcmp(names[i], key))
			return true;
	}
	return false;
}

static size_t take_fields(json_t *said, struct log_field *fields, size_t max)
{
	const char *key;
	json_t *value;
	size_t n = 0;

	json_object_foreach(said, key, value) {
		if (is_reserved(key) || strlen(key) > LOG_PART || n == max)
			continue;
		if (json_is_string(value))
			fields[n++] = LOG_STRING(key, json_string_value(value));
		else if (json_is_integer(value))
			fields[n++] = LOG_INT(key, json_integer_value(value));
		else if (json_is_real(value))
			fields[n++] = LOG_DOUBLE(key, json_real_value(value));
		else if (json_is_boolean(value))
			fields[n++] = LOG_BOOL(key, json_is_true(value));
	}
	fields[n] = (struct log_field){ .key = NULL };
	return n;
}

/* Usage of a process's limits; left_out: dropped lines. */
struct allowance {
	const char *name;
	time_t second, minute;
	unsigned lines;
	size_t bytes;
	uint64_t left_out;
};

static void write_left_out(struct allowance *a, const struct timespec *now)
{
	char text[160];
	struct log_line line = { .level = LOG_WARN,
				 .pid = getpid(),
				 .command = command,
				 .part = "log",
				 .text = text,
				 .time = *now };

	snprintf(text, sizeof(text),
		 "%s: %" PRIu64 " lines were left out: more than %d a second or %d KiB a minute",
		 a->name, a->left_out, RELAYED_A_SECOND, RELAYED_A_MINUTE >> 10);
	a->left_out = 0;
	write_to_file(&line);
}

static bool is_allowed(const char *name, size_t bytes, const struct timespec *now)
{
	static struct allowance all[RELAYED_FROM];
	struct allowance *a = all;

	while (a->name && strcmp(a->name, name) != 0 && a < all + RELAYED_FROM - 1)
		a++;
	a->name = name;
	if (a->second != now->tv_sec) {
		a->second = now->tv_sec;
		a->lines = 0;
	}
	if (a->minute != now->tv_sec / 60) {
		a->minute = now->tv_sec / 60;
		a->bytes = 0;
	}
	if (a->lines == RELAYED_A_SECOND || bytes > RELAYED_A_MINUTE - a->bytes) {
		a->left_out++;
		return false;
	}
	if (a->left_out)
		write_left_out(a, now);
	a->lines++;
	a->bytes += bytes;
	return true;
}

void log__relayed(pid_t pid, const char *name, json_t *said)
{
	const char *event = json_string_value(json_object_get(said, "event"));
	const char *text, *part, *level;
	int number;
	char clean[LOG_MAX_TEXT], clean_part[LOG_PART], clean_event[LOG_PART];
	struct log_field fields[RELAYED_FIELDS + 1];
	struct log_line line = { .pid = pid,
				 .command = command,
				 .process = name,
				 .part = clean_part,
				 .text = clean,
				 .fields = fields };

	if (log_file__fd() < 0 ||
	    json_unpack(said, "{s:s, s:s, s:s}", "message", &text, "part", &part, "level", &level))
		return;
	number = log_config__level_of(level, strlen(level));
	if (number < 0)
		return;
	line.level = number;
	clean_text(clean, sizeof(clean), text);
	text__clean(clean_part, sizeof(clean_part), part, strlen(part));
	clock_gettime(CLOCK_REALTIME, &line.time);
	if (file_level() < line.level ||
	    !is_allowed(name, json_dumpb(said, NULL, 0, JSON_COMPACT), &line.time))
		return;
	if (event)
		line.event = text__clean(clean_event, sizeof(clean_event), event, strlen(event));
	take_fields(said, fields, RELAYED_FIELDS);
	write_to_file(&line);
}
