/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/broker/broker.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/exit.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/kernel.h"
#include "serve/broker/capture.h"
#include "serve/broker/jobs.h"
#include "serve/broker/peers.h"
#include "serve/broker/processes.h"
#include "serve/broker/scanner.h"
#include "serve/broker/store.h"
#include "serve/broker/trace.h"
#include "serve/broker/users.h"
#include "serve/serve.h"
#include "serve/server/link.h"

#define TELL_EVERY UINT64_C(500000000)	 /* ns */
#define ENDS_WITHIN UINT64_C(6000000000) /* ns, time for captures to end when the server ends */
#define FIRST_LOOK_WITHIN UINT64_C(5000000000) /* ns */
#define FILES_WANTED 4096

/* ---- recordings from before: in the folder ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

struct symbolizer {
	char **v;
	size_t n, room;
};

/* True for "trace_1705536000000.mtr". Exported files do not count: they are made again on
 * request. */
static bool is_recording(const char *name)
{
	size_t len = strlen(name);

	return len > 10 && len < 64 && passed_files__good_name(name) &&
	       !strncmp(name, "trace_", 6) && !strcmp(name + len - 4, ".mtr");
}

static void note_name(void *ctx, const char *name)
{
	struct symbolizer *names = ctx;

	if (!is_recording(name))
		return;
	if (array__grow(&names->v, &names->room, names->n + 1, sizeof(*names->v)))
		return;
	names->v[names->n] = strdup(name);
	names->n += names->v[names->n] != NULL;
}

/* Removes an empty recording, left by a killed server. */
static void drop_empty(const struct broker *b, const char *name)
{
	char facts[128];

	store__remove(&b->store, name);
	snprintf(facts, sizeof(facts), "%.*s.json", (int)strlen(name) - 4, name);
	store__remove(&b->store, facts);
}

/* Removes complete and partial exports of an earlier server. */
static void drop_made(void *ctx, const char *name)
{
	struct broker *b = ctx;
	size_t len = strlen(name);
	char recording[128];
	const char *digits = name + 6, *end;

	if (!strncmp(name, ".trace_", 7) && strstr(name, ".part-")) {
		store__remove(&b->store, name);
		return;
	}
	if (strncmp(name, "trace_", 6) != 0 || !passed_files__good_name(name) || is_recording(name))
		return;
	for (end = digits; isdigit((unsigned char)*end); end++)
		;
	if (end == digits || end - name > 60)
		return;
	snprintf(recording, sizeof(recording), "%.*s.mtr", (int)(end - name), name);
	if (*end == '_' || (len > 5 && !strcmp(end, ".json") && !store__has(&b->store, recording)))
		store__remove(&b->store, name);
}

static void take_folder(struct broker *b)
{
	struct symbolizer names = { 0 };
	size_t skip;

	store__each(&b->store, drop_made, b);
	store__each(&b->store, note_name, &names);
	if (names.n)
		qsort(names.v, names.n, sizeof(*names.v), by_name);
	skip = names.n > b->args->max_traces ? names.n - b->args->max_traces : 0;
	if (skip)
		log_warn("%s: contains %zu recordings; using the last %u (--max-traces)",
			 b->store.path, names.n, b->args->max_traces);
	for (size_t i = 0; i < names.n; i++) {
		struct trace *t = NULL;
		uint64_t size = 0;
		int fd = i >= skip ? store__open_file(&b->store, names.v[i], &size) : -1;

		if (fd >= 0)
			close(fd);
		if (fd >= 0 && !size)
			drop_empty(b, names.v[i]);
		names.v[i][strlen(names.v[i]) - 4] = '\0';
		if (fd >= 0 && size)
			t = trace__new(b, names.v[i]);
		if (t && !trace__read_note(b, t)) {
			trace__delete(b, t);
		} else if (t) {
			t->bytes = size;
			trace__finish(b, t);
		}
		free(names.v[i]);
	}
	free(names.v);
}

/* ---- the command line ---- */

static void file_of(const char *id, char *buf, size_t size)
{
	snprintf(buf, size, "%s.mtr", id + strlen("trace_"));
}

/* Makes an ID from a path: "runs/big run.mtr" -> "trace_big_run" with the file name "big_run.mtr".
 * A used name gets a number. No name starts with a dash, which a worker would take for an option,
 * or with a dot. */
static void name_given(const struct broker *b, const char *path, char *buf, size_t size)
{
	char file[LINK_ID + 4];
	const char *base = strrchr(path, '/');
	char stem[48];
	size_t n = 0;

	base = base ? base + 1 : path;
	for (; base[n] && n < sizeof(stem) - 1; n++)
		stem[n] = isalnum((unsigned char)base[n]) || strchr("._-", base[n]) ? base[n] : '_';
	stem[n] = '\0';
	if (n > 4 && !strcmp(stem + n - 4, ".mtr"))
		stem[n - 4] = '\0';
	if (*stem == '-' || *stem == '.')
		*stem = '_';
	snprintf(buf, size, "trace_%s", stem);
	file_of(buf, file, sizeof(file));
	for (unsigned k = 2; trace__find(b, buf) || trace__of_recording(b, file); k++) {
		snprintf(buf, size, "trace_%s_%u", stem, k);
		file_of(buf, file, sizeof(file));
	}
}

/* The last part of the path's folder, as it was written; "" if it was not, or is ".". */
static void name_folder(const char *path, char *buf, size_t size)
{
	const char *end = strrchr(path, '/'), *begin;

	while (end && end > path && end[-1] == '/')
		end--;
	begin = end ? memrchr(path, '/', (size_t)(end - path)) : NULL;
	begin = begin ? begin + 1 : path;
	text__clean(buf, size, begin, end ? (size_t)(end - begin) : 0);
	if (!strcmp(buf, "."))
		*buf = '\0';
}

static int take_file(struct broker *b, const char *path)
{
	const char *base = strrchr(path, '/');
	struct trace *t;
	struct stat st;
	char id[LINK_ID], clean[512];
	int fd = io__open_regular(AT_FDCWD, path, LINKS_FOLLOW, &st);

	text__clean(clean, sizeof(clean), path, strlen(path));
	if (fd < 0) {
		log_err("%s: cannot open: %s; give .mtr files, or a folder with -o FOLDER", clean,
			fd == -EINVAL ? "it is not a file" : strerror(-fd));
		return EXIT_UNUSABLE;
	}
	name_given(b, path, id, sizeof(id));
	t = trace__new(b, id);
	if (!t) {
		close(fd);
		log_err("%s: out of memory", clean);
		return EXIT_FAILED;
	}
	file_of(t->id, t->file, sizeof(t->file));
	t->given = fd;
	t->bytes = (uint64_t)st.st_size;
	t->begun = (double)st.st_mtime;
	t->fragmentation = true;
	name_folder(path, t->folder, sizeof(t->folder));
	base = base ? base + 1 : path;
	text__clean(t->name, sizeof(t->name), base, strlen(base));
	trace__finish(b, t);
	return EXIT_OK;
}

int broker_saved__take(struct broker *b)
{
	int status = EXIT_OK;

	if (!b->store.own)
		take_folder(b);
	for (size_t i = 0; i < b->args->n_files && !status; i++)
		status = take_file(b, b->args->files[i]);
	return status;
}

/* ---- start ---- */

static void find_out_whether_we_may(struct broker *b)
{
	const char *missing = caps__missing();

	if (!b->args->n_targets)
		snprintf(b->why, sizeof(b->why),
			 "no target was given: use --target, --command or --all");
	else if (*missing)
		snprintf(b->why, sizeof(b->why), "not permitted: %s needed; run it with sudo",
			 missing);
	else
		b->can_trace = true;
}

static int open_listens(struct broker *b)
{
	const struct serve_args *a = b->args;
	struct listen_opts lo = { .uid = (uid_t)-1, .gid = (gid_t)-1 };
	char why[LISTEN_WHY];

	if (a->user)
		lo = (struct listen_opts){ .uid = b->ids.uid, .gid = b->ids.gid };
	for (size_t i = 0; i < a->n_listen; i++) {
		int err = listen__open(a->listen[i], a->secrets.cert != NULL, &lo, &b->listens[i],
				       why);

		if (err) {
			log_err("--listen: %s", why);
			if (err == -EINVAL)
				return EXIT_USAGE;
			return err == -EACCES || err == -EPERM ? EXIT_NOT_PERMITTED : EXIT_FAILED;
		}
		b->n_listens++;
	}
	return 0;
}

static int open_signals(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGCHLD };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		sigaddset(&set, numbers[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Sends a datagram to systemd, see sd_notify(3). */
static void notify(const char *text)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;
	int fd;

	if (!len || len >= sizeof(un.sun_path) || (*path != '/' && *path != '@'))
		return;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	memcpy(un.sun_path, path, len);
	if (*path == '@')
		un.sun_path[0] = '\0';
	if (sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&un,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		log_debug("cannot notify systemd: %s", strerror(errno));
	close(fd);
}

static void say_ready(const struct broker *b)
{
	for (size_t i = 0; i < b->n_listens; i++) {
		log_event(LOG_INFO, "listening", LOG_FIELDS(LOG_STRING("url", b->listens[i].url)),
			  "listening on %s", b->listens[i].url);
		if (!b->listens[i].local && !b->args->secrets.cert)
			log_warn("%s is open to the network without TLS: anyone who listens on the "
				 "network can read the token; give --tls-cert and --tls-key",
				 b->listens[i].url);
	}
	if (!b->can_trace && !b->args->n_files && !b->traces.n)
		log_warn("cannot trace: %s", b->why);
	notify("READY=1");
}

/* ---- the loop ---- */

/* Replaces the process that looks, if a process that it reads holds it up. */
static void guard_look(struct broker *b)
{
	struct peer *p = &b->peers[PEER_LOOK];
	pid_t pid;

	if (!p->process.pid || !scan_guard__stuck(b->guard, &p->process, &pid))
		return;
	if (pid && p->link) { /* the first time */
		log_event(LOG_ERROR, "stuck",
			  LOG_FIELDS(LOG_STRING("who", "look"), LOG_INT("pid", pid)),
			  "look: PID %d does not let itself be read, for 10 s; it is left out for "
			  "10 minutes: look at its file systems",
			  (int)pid);
		scan_guard__leave_out(b->guard);
	} else if (p->link) {
		log_event(LOG_ERROR, "stuck", LOG_FIELDS(LOG_STRING("who", "look")),
			  "look: it has not gone on for 10 s, for an unknown reason: starting "
			  "another");
	}
	peer__abandon(p);
}

static void read_signals(struct broker *b)
{
	struct signalfd_siginfo si;

	while (read(b->signals, &si, sizeof(si)) == sizeof(si))
		if (si.ssi_signo != SIGCHLD)
			b->quit = true;
}

static void pump_all(struct broker *b)
{
	uint64_t now = clock__monotonic();
	bool tell = now >= b->next_tell;

	guard_look(b);
	for (int k = 0; k < PEER_NR; k++) {
		struct peer *p = &b->peers[k];

		peer__pump(p);
		if (peer__ended(p)) {
			b->quit = true;
			b->status = EXIT_FAILED;
		}
		if (!p->process.pid && p->again && now >= p->again && !b->quit && peer__start(b, k))
			p->again = now + UINT64_C(60000000000);
	}
	/* From the end, because a trace may be deleted on the way. */
	for (size_t i = b->traces.n; i-- > 0;) {
		struct trace *t = b->traces.v[i];

		if (!trace__runs(t))
			continue;
		capture__pump(b, t, now);
		if (tell && i < b->traces.n && b->traces.v[i] == t && trace__runs(t))
			trace__tell(b, t, true);
	}
	jobs__pump(b, now);
	if (b->processes.scanning && now >= b->processes.scan_until)
		processes__release(b);
	if (tell)
		b->next_tell = now + TELL_EVERY;
}

static size_t collect_fds(struct broker *b, struct pollfd *fds, size_t room)
{
	size_t n = 0;

	fds[n++] = (struct pollfd){ .fd = b->signals, .events = POLLIN };
	for (int k = 0; k < PEER_NR; k++) {
		const struct peer *p = &b->peers[k];

		if (p->link)
			fds[n++] = (struct pollfd){ .fd = link__fd(p->link),
						    .events = link__events(p->link) };
		if (p->process.pid)
			fds[n++] = (struct pollfd){ .fd = p->process.pidfd, .events = POLLIN };
	}
	for (size_t i = 0; i < b->traces.n && n + 3 <= room; i++) {
		const struct trace *t = b->traces.v[i];

		if (!trace__runs(t))
			continue;
		fds[n++] = (struct pollfd){ .fd = t->run.process.pidfd, .events = POLLIN };
		if (t->run.said >= 0)
			fds[n++] = (struct pollfd){ .fd = t->run.said, .events = POLLIN };
		if (t->tell >= 0)
			fds[n++] = (struct pollfd){ .fd = t->tell, .events = POLLIN };
	}
	return n + jobs__poll(b, fds + n, room - n);
}

/* Time limit of poll() in ms: short while jobs, searches or captures with deadlines run; -1: no
 * limit. */
static int poll_limit(const struct broker *b)
{
	if (b->jobs || b->processes.scanning || traces__running(b))
		return 250;
	for (int k = 0; k < PEER_NR; k++)
		if (!b->peers[k].process.pid && b->peers[k].again)
			return 500;
	return b->peers[PEER_LOOK].process.pid ? 2000 : -1; /* for guard_look() */
}

static void loop(struct broker *b)
{
	struct pollfd fds[512];

	while (!b->quit) {
		size_t n = collect_fds(b, fds, sizeof(fds) / sizeof(*fds));

		if (poll(fds, n, poll_limit(b)) < 0 && errno != EINTR) {
			log_err("cannot wait: %s", strerror(errno));
			b->status = EXIT_FAILED;
			return;
		}
		read_signals(b);
		pump_all(b);
	}
}

/* Ends the captures, so that their recordings are complete. */
static void end_captures(struct broker *b)
{
	uint64_t until = clock__monotonic() + ENDS_WITHIN;

	for (size_t i = 0; i < b->traces.n; i++)
		if (trace__runs(b->traces.v[i]))
			capture__stop(b->traces.v[i]);
	while (traces__running(b) && clock__monotonic() < until) {
		uint64_t now = clock__monotonic();

		for (size_t i = b->traces.n; i-- > 0;)
			if (trace__runs(b->traces.v[i]))
				capture__pump(b, b->traces.v[i], now);
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	}
}

/* Waits for the first search, so that the first request finds the existing processes. */
static void wait_for_first_search(struct broker *b)
{
	uint64_t until = clock__monotonic() + FIRST_LOOK_WITHIN;
	struct peer *p = &b->peers[PEER_LOOK];

	while (p->link && !b->processes.targets && clock__monotonic() < until) {
		struct pollfd fds[] = { { .fd = link__fd(p->link),
					  .events = link__events(p->link) },
					{ .fd = b->signals, .events = POLLIN } };

		if (poll(fds, 2, 100) > 0 && fds[1].revents)
			return; /* the main loop reads the signal */
		peer__pump(p);
	}
}

/* ---- main function ---- */

static int begin(struct broker *b)
{
	char why[256];
	int err, status = users__choose(b);

	if (status)
		return status;
	find_out_whether_we_may(b);
	io__raise_limit(FILES_WANTED);
	err = store__open(&b->store, b->args->folder, why);
	if (err) {
		log_err("%s: %s", b->args->folder ? b->args->folder : "the folder for recordings",
			why);
		return err == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
	}
	status = open_listens(b);
	status = status ? status : broker_saved__take(b);
	if (status)
		return status;
	b->signals = open_signals();
	if (b->signals < 0) {
		log_err("cannot make a signalfd: %s", strerror(errno));
		return EXIT_FAILED;
	}
	b->guard = scan_guard__new();
	if (!b->guard) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	if (b->can_trace && peer__start(b, PEER_LOOK))
		return EXIT_FAILED;
	wait_for_first_search(b);
	if ((b->args->push_pyroscope || b->args->push_otlp) && peer__start(b, PEER_PUSH))
		return EXIT_FAILED;
	if (peer__start(b, PEER_WEB))
		return EXIT_FAILED;
	say_ready(b);
	return 0;
}

static void end(struct broker *b)
{
	notify("STOPPING=1");
	b->quit = true;
	/* First the peers, so that no new work arrives. */
	for (int k = 0; k < PEER_NR; k++)
		peer__stop(&b->peers[k], false);
	end_captures(b);
	jobs__free(b);
	for (int k = 0; k < PEER_NR; k++)
		peer__stop(&b->peers[k], true);
	for (size_t i = 0; i < b->n_listens; i++)
		listen__close(&b->listens[i]);
	for (size_t i = 0; i < b->traces.n; i++)
		trace__free(b->traces.v[i]);
	for (size_t i = 0; i < b->processes.n_held; i++)
		json_decref(b->processes.held[i].msg);
	for (size_t i = 0; i < b->processes.n; i++)
		json_decref(b->processes.v[i].msg);
	json_decref(b->processes.targets);
	store__close(&b->store);
	if (b->signals >= 0)
		close(b->signals);
	scan_guard__free(b->guard);
	free(b);
}

int broker__run(const struct serve_args *args)
{
	struct broker *b = calloc(1, sizeof(*b));
	int status;

	if (!b) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	b->args = args;
	b->signals = -1;
	b->store.dir = -1;
	for (int k = 0; k < PEER_NR; k++)
		b->peers[k] = (struct peer){ .b = b, .kind = k };
	b->start = clock__date();
	status = begin(b);
	if (!status) {
		loop(b);
		status = b->status;
	}
	end(b);
	return status;
}
