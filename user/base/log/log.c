/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log/internal.h"
#include "base/outfile.h"
#include "base/text.h"

#define RELAYED_FIELDS 16	   /* fields of a relayed line that are written */
#define RELAYED_A_SECOND 200	   /* relayed lines, per process */
#define RELAYED_A_MINUTE (1 << 20) /* bytes of relayed lines, per process */
#define RELAYED_FROM 4		   /* number of process names that have their own limits */

static struct log_config config = LOG_CONFIG_INIT;
static const char *command = "memtrace-bpf"; /* log__set_command() */
static const char *process;		     /* log__relay_to(); NULL: the main process */
static int option_level = -1;		  /* level of standard error from -v or -q; -1: not set */
static enum log_level hushed = LOG_DEBUG; /* log__hush() */
static int relay = -1;			  /* socket that replaces the file; -1: none */
static void (*divert)(void *ctx, enum log_level level, const char *text);
static void (*before_line)(void);
static void *divert_ctx;
static int log_fd = -1;	  /* the log file; -1: none */
static uint64_t n_missed; /* lines lost since the last written one */
static bool is_failing;	  /* the last line was not written */

/* ---- settings as text ---- */

static const char *const level_names[] = {
	[LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"
};

#define N_LEVELS (sizeof(level_names) / sizeof(*level_names))

/* Returns the level with this name of len bytes, or -EINVAL. */
static int level_of(const char *name, size_t len)
{
	for (size_t i = 0; i < N_LEVELS; i++) {
		if (strlen(level_names[i]) == len && !strncmp(level_names[i], name, len))
			return (int)i;
	}
	return -EINVAL;
}

char *log__part(char buf[LOG_PART], const char *file)
{
	const char *at = file, *next;
	size_t len;

	/* The path may begin with any build folder. */
	while ((next = strstr(at, "user/")))
		at = next + strlen("user/");
	len = strcspn(at, "/.");
	if (len >= LOG_PART)
		len = LOG_PART - 1;
	memcpy(buf, at, len);
	buf[len] = '\0';
	return buf;
}

/* Sets why, of size bytes, to "'TEXT' WHAT". Returns -EINVAL. */
static int refuse(char *why, size_t size, const char *text, size_t len, const char *what)
{
	char clean[64];

	text__clean(clean, sizeof(clean), text, len);
	snprintf(why, size, "'%s' %s", clean, what);
	return -EINVAL;
}

static int refuse_no_memory(char *why, size_t size)
{
	snprintf(why, size, "out of memory");
	return -ENOMEM;
}

/* Sets c->fd to the number in a text of len bytes. Returns 0 or -EINVAL. */
static int parse_fd(struct log_config *c, const char *text, size_t len)
{
	char number[12], *end;
	long n;

	if (!len || len >= sizeof(number))
		return -EINVAL;
	snprintf(number, sizeof(number), "%.*s", (int)len, text);
	errno = 0;
	n = strtol(number, &end, 10);
	if (errno || *end || n < 3 || n > INT_MAX)
		return -EINVAL;
	c->fd = (int)n;
	return 0;
}

/* Parses one item of the comma-separated list, of len bytes, into *c. Returns 0, or -EINVAL or
 * -ENOMEM with the reason in why, of size bytes. */
static int parse_item(struct log_config *c, const char *text, size_t len, bool levels_only,
		      char *why, size_t size)
{
	const char *equals = memchr(text, '=', len), *value = equals ? equals + 1 : text;
	size_t key_len = equals ? (size_t)(equals - text) : 0,
	       value_len = len - (size_t)(value - text);
	int level;

	if (!equals || levels_only) {
		level = level_of(text, len);
		if (level < 0)
			return refuse(why, size, text, len,
				      "is not a level; use error, warn, info or debug");
		c->level = level;
		return 0;
	}
	if (key_len == 4 && text__starts(text, "file")) {
		if (!value_len)
			return refuse(why, size, text, len, "names no file");
		free(c->file);
		c->file = strndup(value, value_len);
		return c->file ? 0 : refuse_no_memory(why, size);
	}
	if (key_len == 6 && text__starts(text, "format")) {
		c->json = value_len == 4 && text__starts(value, "json");
		if (c->json || (value_len == 4 && text__starts(value, "text")))
			return 0;
		return refuse(why, size, text, len, "is not a format; use text or json");
	}
	if (key_len == 2 && text__starts(text, "fd")) {
		if (!parse_fd(c, value, value_len))
			return 0;
		return refuse(why, size, text, len, "names no descriptor");
	}
	return refuse(why, size, text, len,
		      "is no setting of the log; use a level, file=PATH or format=json");
}

/* Parses into a copy, so that an error leaves c unchanged. */
int log_config__parse(struct log_config *c, const char *text, bool levels_only, char *why,
		      size_t size)
{
	struct log_config parsed = *c;
	const char *at = text;
	size_t len;
	int err;

	parsed.file = c->file ? strdup(c->file) : NULL;
	if (c->file && !parsed.file)
		return refuse_no_memory(why, size);
	for (;; at += len + 1) {
		len = strcspn(at, ",");
		err = len || levels_only ? parse_item(&parsed, at, len, levels_only, why, size) : 0;
		if (err) {
			free(parsed.file);
			return err;
		}
		if (!at[len])
			break;
	}
	free(c->file);
	*c = parsed;
	return 0;
}

bool log_config__text(const struct log_config *c, int fd, char *buf, size_t size)
{
	FILE *out = fmemopen(buf, size, "w");

	if (!out)
		return false;
	fprintf(out, "format=%s", c->json ? "json" : "text");
	if (c->level >= 0)
		fprintf(out, ",%s", level_names[c->level]);
	if (fd >= 0)
		fprintf(out, ",fd=%d", fd);
	return !fclose(out) && strlen(buf) < size - 1;
}

/* ---- the file ---- */

/* Accepts regular files and character devices: a FIFO or socket could block, or show the log to its
 * owner. made: we have created the file. Returns 0 or -errno. */
static int check_file(int fd, bool made)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (S_ISCHR(st.st_mode))
		return 0;
	if (!S_ISREG(st.st_mode))
		return -ENOTSUP;
	/* An existing file must have one name and belong to us, because its owner could read and
	 * change the log. */
	return made || (st.st_nlink == 1 && outfile__is_ours(&st)) ? 0 : -EACCES;
}

int log_file__open(const char *path)
{
	/* O_NONBLOCK: opening a FIFO without a reader must not block. */
	const int flags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	int fd = open(path, flags | O_CREAT | O_EXCL, 0600), err;
	bool made = fd >= 0;

	if (fd < 0 && errno == EEXIST)
		fd = open(path, flags);
	if (fd < 0)
		return errno == ENXIO ? -ENOTSUP : -errno;
	if (made)
		outfile__give(fd);
	err = check_file(fd, made);
	if (!err && fcntl(fd, F_SETFL, O_APPEND))
		err = -errno;
	if (err) {
		close(fd);
		return err;
	}
	log__close();
	log_fd = fd;
	return 0;
}

/* Uses a descriptor from the parent process as the log file. Returns 0, or -EBADF: it is no log
 * file. */
static int take_file(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || (flags & O_ACCMODE) != O_WRONLY || !(flags & O_APPEND) ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC))
		return -EBADF;
	log__close();
	log_fd = fd;
	return 0;
}

void log__close(void)
{
	if (log_fd >= 0)
		close(log_fd);
	log_fd = -1;
	n_missed = 0;
	is_failing = false;
}

int log_file__fd(void)
{
	return log_fd;
}

/* False if a line would make the file larger than RLIMIT_FSIZE: that would send SIGXFSZ, which
 * ends the process. */
static bool fits_limit(size_t len)
{
	struct rlimit limit;
	struct stat st;

	if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return true;
	return !fstat(log_fd, &st) &&
	       (!S_ISREG(st.st_mode) || (uint64_t)st.st_size + len <= limit.rlim_cur);
}

void log_file__append(const char *line, size_t len, const char **why)
{
	ssize_t n;

	*why = NULL;
	do {
		errno = EFBIG;
		n = fits_limit(len) ? write(log_fd, line, len) : -1;
	} while (n < 0 && errno == EINTR);
	if (n == (ssize_t)len) {
		is_failing = false;
		return;
	}
	n_missed++;
	if (!is_failing)
		*why = n < 0 ? outfile__why(-errno) : outfile__why(-ENOSPC);
	is_failing = true;
	/* If a part of the line was written, end it, so that the next line starts on its own. */
	if (n > 0 && write(log_fd, "\n", 1) < 0)
		errno = 0;
}

uint64_t log_file__missed(void)
{
	uint64_t lines = is_failing ? 0 : n_missed;

	if (lines)
		n_missed = 0;
	return lines;
}

/* ---- lines ---- */

/* Format: "2026-01-02T03:04:05.678901Z". */
static void write_time(char *buf, size_t size, const struct timespec *t)
{
	struct tm tm;
	size_t n;

	if (!gmtime_r(&t->tv_sec, &tm))
		memset(&tm, 0, sizeof(tm));
	n = strftime(buf, size, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf + n, size - n, ".%06ldZ", t->tv_nsec / 1000);
}

static void write_field(struct json *j, const struct log_field *f)
{
	char text[LOG_MAX_STRING];

	switch (f->kind) {
	case LOG_KIND_STRING:
		if (f->string)
			text__clean(text, sizeof(text), f->string, strlen(f->string));
		json__string(j, f->key, f->string ? text : NULL);
		break;
	case LOG_KIND_UINT:
		json__uint(j, f->key, f->uint);
		break;
	case LOG_KIND_INT:
		json__int(j, f->key, f->sint);
		break;
	case LOG_KIND_DOUBLE:
		json__double(j, f->key, f->real, /*decimals=*/6);
		break;
	case LOG_KIND_BOOL:
		json__bool(j, f->key, f->yes);
		break;
	}
}

/* Writes a line as an object; key: its name in the object around it, or NULL. */
static void write_object(const struct log_line *l, struct json *j, const char *key)
{
	char time[40];

	write_time(time, sizeof(time), &l->time);
	json__open_object(j, key);
	json__string(j, "time", time);
	json__string(j, "level", level_names[l->level]);
	json__string(j, "command", l->command);
	if (l->process)
		json__string(j, "process", l->process);
	json__int(j, "pid", l->pid);
	json__string(j, "part", l->part);
	if (l->event)
		json__string(j, "event", l->event);
	json__string(j, "message", l->text);
	for (const struct log_field *f = l->fields; f && f->key; f++)
		write_field(j, f);
	json__close_object(j);
}

/* Writes a line as text. Indents further lines of a message, so that they do not look like
 * messages. */
static void write_plain(const struct log_line *l, FILE *out)
{
	char time[40];

	write_time(time, sizeof(time), &l->time);
	fprintf(out, "%s %-5s %s", time, level_names[l->level], l->command);
	if (l->process)
		fprintf(out, "/%s", l->process);
	fprintf(out, "[%d] %s: ", (int)l->pid, l->part);
	for (const char *c = l->text; *c; c++) {
		fputc(*c, out);
		if (*c == '\n')
			fputs("    ", out);
	}
	fputc('\n', out);
}

char *log_line__write(const struct log_line *l, bool json, size_t *len)
{
	char *line = NULL;
	FILE *out = open_memstream(&line, len);
	struct json *j;

	if (!out)
		return NULL;
	if (!json) {
		write_plain(l, out);
	} else {
		j = json__new(out, false);
		if (j)
			write_object(l, j, NULL);
		json__free(j);
	}
	if (fclose(out) || !*len) {
		free(line);
		return NULL;
	}
	return line;
}

/* ---- levels ---- */

enum log_level log__level(void)
{
	if (option_level >= 0)
		return (enum log_level)option_level;
	return config.level >= 0 ? (enum log_level)config.level : LOG_INFO;
}

/* Returns the level of the file: -q applies only to the terminal, -v also to the file. */
static enum log_level file_level(void)
{
	if (config.level >= 0)
		return (enum log_level)config.level;
	return log__level() == LOG_DEBUG ? LOG_DEBUG : LOG_INFO;
}

static bool has_file(void)
{
	return log_fd >= 0 || relay >= 0;
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

/* ---- messages ---- */

/* Like text__clean(), but keeps line ends and tabs. */
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
	char *line = log_line__write(l, /*json=*/true, &len);

	if (line)
		fwrite(line, 1, len, stderr);
	free(line);
}

/* Writes a line to the file. The first line that fails gives a warning on the terminal. */
static void append_line(const struct log_line *l)
{
	char message[LOG_MAX_LINE];
	const char *why;
	size_t len = 0;
	char *line = log_line__write(l, config.json, &len);

	if (!line)
		return;
	log_file__append(line, len, &why);
	free(line);
	if (!why)
		return;
	/* Do not call log_warn(), which would write to the file again. */
	snprintf(message, sizeof(message), "cannot write the log: %s; everything else continues",
		 why);
	if (divert)
		divert(divert_ctx, LOG_WARN, message);
	else
		log__show(LOG_WARN, message);
}

/* Writes a line. If lines before it were lost, then adds a line that says how many. */
static void write_to_file(const struct log_line *l)
{
	uint64_t missed;
	char text[96];

	append_line(l);
	missed = log_file__missed();
	if (!missed)
		return;
	snprintf(text, sizeof(text),
		 "%" PRIu64 " lines are missing before this one: they could not be written",
		 missed);
	append_line(&(struct log_line){ .time = l->time,
					.level = LOG_WARN,
					.pid = getpid(),
					.command = command,
					.part = "lib",
					.event = "missing",
					.fields = LOG_FIELDS(LOG_UINT("lines", missed)),
					.text = text });
}

/* Sends a line to the process that has the file. */
static void send_to_relay(const struct log_line *l)
{
	char *packet = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&packet, &len);
	struct json *j = out ? json__new(out, false) : NULL;

	if (j) {
		json__open_object(j, NULL);
		write_object(l, j, "log");
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
	if (log_config__parse(&config, text, /*levels_only=*/false, why, sizeof(why)))
		log_warn(LOG_ENV ": %s: ignored", why);
	if (config.fd < 0)
		return;
	/* The descriptor is from our parent. Programs that we start must not see it. */
	unsetenv(LOG_ENV);
	if (take_file(config.fd))
		log_warn(LOG_ENV ": descriptor %d is not a log", config.fd);
}

int log__option_level(const char *arg, char *why, size_t size)
{
	struct log_config levels = LOG_CONFIG_INIT;

	if (log_config__parse(&levels, arg, /*levels_only=*/true, why, size))
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
	int fd = log_fd;
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

/* True for the keys that every line has. */
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

/* Sets fields to the fields of a received line, at most max, and the end of the list. The strings
 * stay in said. */
static void take_fields(json_t *said, struct log_field *fields, size_t max)
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
}

/* What a process has used of its limits. */
struct allowance {
	const char *name;
	time_t second, minute; /* the current ones, since the epoch */
	unsigned lines;	       /* in this second */
	size_t bytes;	       /* in this minute */
	uint64_t left_out;     /* lines over the limits that no line tells of yet */
};

/* Writes a line that says how many lines of the process were left out. */
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

/* True if a process may write a line of so many bytes now; counts the line as written or left
 * out. */
static bool is_allowed(const char *name, size_t bytes, const struct timespec *now)
{
	static struct allowance all[RELAYED_FROM];
	struct allowance *own = all;

	while (own->name && strcmp(own->name, name) != 0 && own < all + RELAYED_FROM - 1)
		own++;
	own->name = name;
	if (own->second != now->tv_sec) {
		own->second = now->tv_sec;
		own->lines = 0;
	}
	if (own->minute != now->tv_sec / 60) {
		own->minute = now->tv_sec / 60;
		own->bytes = 0;
	}
	if (own->lines == RELAYED_A_SECOND || bytes > RELAYED_A_MINUTE - own->bytes) {
		own->left_out++;
		return false;
	}
	if (own->left_out)
		write_left_out(own, now);
	own->lines++;
	own->bytes += bytes;
	return true;
}

/* Drops a line that is malformed, below the file's level or above its sender's limits. */
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

	if (log_fd < 0 ||
	    json_unpack(said, "{s:s, s:s, s:s}", "message", &text, "part", &part, "level", &level))
		return;
	number = level_of(level, strlen(level));
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
