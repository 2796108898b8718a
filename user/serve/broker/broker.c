/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/broker/broker.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "base/array.h"
#include "base/clock.h"
#include "base/exit.h"
#include "base/io.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "capture/kernel.h"
#include "serve/broker/ask.h"
#include "serve/broker/capture.h"
#include "serve/broker/jobs.h"
#include "serve/broker/peers.h"
#include "serve/broker/processes.h"
#include "serve/broker/scanner.h"
#include "serve/broker/store.h"
#include "serve/broker/trace.h"
#include "serve/broker/upload.h"
#include "serve/broker/users.h"
#include "serve/serve.h"
#include "serve/server/link.h"
#include "serve/server/sandbox.h"

#define TELL_EVERY UINT64_C(500000000)	 /* ns between two reports on running captures */
#define ENDS_WITHIN UINT64_C(6000000000) /* ns, time for captures to end when the server ends */
#define FIRST_LOOK_WITHIN UINT64_C(5000000000) /* ns, time for the first search */
/* Time limits of poll(), ms. */
#define BUSY_POLL 250
#define AGAIN_POLL 500
#define LOOK_POLL 2000
#define FILES_WANTED 4096 /* descriptors, if the hard limit allows so many */

/* ---- recordings of earlier servers in the folder ---- */

/* Comparison for qsort() of names. */
static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

struct names { /* of recordings */
	char **v;
	size_t n, room;
};

#define ID_PREFIX "trace_" /* begins the ID of a trace, and the names of its files */
#define SUFFIX ".mtr"

/* True for "trace_1705536000000.mtr". Exported files do not count: they are made again on
 * request. */
static bool is_recording(const char *name)
{
	size_t len = strlen(name);

	if (len <= strlen(ID_PREFIX SUFFIX) || len >= 64 || !passed_files__good_name(name))
		return false;
	return !strncmp(name, ID_PREFIX, strlen(ID_PREFIX)) &&
	       !strcmp(name + len - strlen(SUFFIX), SUFFIX);
}

/* For store__each(): adds the name of a recording. One without memory is left out. */
static void add_recording(void *ctx, const char *name)
{
	struct names *names = ctx;

	if (!is_recording(name))
		return;
	if (array__grow(&names->v, &names->room, names->n + 1, sizeof(*names->v)))
		return;
	names->v[names->n] = strdup(name);
	names->n += names->v[names->n] != NULL;
}

/* Removes an empty recording, "trace_ID.mtr", left by a killed server, and its facts. */
static void remove_empty_recording(const struct broker *b, const char *name)
{
	const int len = (int)(strlen(name) - strlen(".mtr"));
	char facts[128];

	store__remove(&b->store, name);
	snprintf(facts, sizeof(facts), "%.*s.json", len, name);
	store__remove(&b->store, facts);
}

/* For store__each(): removes a file if it is an export of an earlier server, complete or not, or
 * has the facts of a recording that is gone. */
static void remove_old_export(void *ctx, const char *name)
{
	struct broker *b = ctx;
	bool lost_facts; /* those of a recording that is gone */
	char recording[128];
	const char *digits = name + strlen(ID_PREFIX),
		   *end; /* the number in the ID, if it has the prefix */

	if (text__starts(name, ".trace_") && strstr(name, ".part-")) {
		store__remove(&b->store, name);
		return;
	}
	if (strncmp(name, ID_PREFIX, strlen(ID_PREFIX)) != 0)
		return;
	if (!passed_files__good_name(name) || is_recording(name))
		return;
	for (end = digits; isdigit((unsigned char)*end); end++)
		;
	if (end == digits || end - name > 60)
		return;
	snprintf(recording, sizeof(recording), "%.*s.mtr", (int)(end - name), name);
	lost_facts = !strcmp(end, ".json") && !store__has(&b->store, recording);
	if (*end == '_' || lost_facts)
		store__remove(&b->store, name);
}

/* Adds the last --max-traces recordings of the folder, by name and so by age. */
static void load_folder(struct broker *b)
{
	struct names names = { 0 };
	size_t n_skipped;

	store__each(&b->store, remove_old_export, b);
	store__each(&b->store, add_recording, &names);
	if (names.n)
		qsort(names.v, names.n, sizeof(*names.v), by_name);
	n_skipped = names.n > b->args->max_traces ? names.n - b->args->max_traces : 0;
	if (n_skipped)
		log_warn("%s: contains %zu recordings; using the last %u (--max-traces)",
			 b->store.path, names.n, b->args->max_traces);
	for (size_t i = 0; i < names.n; i++) {
		struct trace *t = NULL;
		uint64_t size = 0;
		int fd = i >= n_skipped ? store__open_file(&b->store, names.v[i], &size) : -1;

		if (fd >= 0)
			close(fd);
		if (fd >= 0 && !size)
			remove_empty_recording(b, names.v[i]);
		names.v[i][strlen(names.v[i]) - strlen(SUFFIX)] = '\0';
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

/* The file name of a recording from the command line, by its trace's ID. */
static void recording_name(const char *id, char *buf, size_t size)
{
	snprintf(buf, size, "%s.mtr", id + strlen("trace_"));
}

/* Makes an ID from a path: "runs/big run.mtr" -> "trace_big_run" with the file name "big_run.mtr".
 * A used name gets a number. No name starts with a dash, which a worker would take for an option,
 * or with a dot. */
static void choose_id(const struct broker *b, const char *path, char *buf, size_t size)
{
	char file[LINK_ID + 4];
	const char *base = strrchr(path, '/');
	char stem[48];
	size_t n = 0;

	base = base ? base + 1 : path;
	for (; base[n] && n < sizeof(stem) - 1; n++)
		stem[n] = isalnum((unsigned char)base[n]) || strchr("._-", base[n]) ? base[n] : '_';
	stem[n] = '\0';
	if (n > strlen(SUFFIX) && !strcmp(stem + n - strlen(SUFFIX), SUFFIX))
		stem[n - strlen(SUFFIX)] = '\0';
	if (*stem == '-' || *stem == '.')
		*stem = '_';
	snprintf(buf, size, "trace_%s", stem);
	recording_name(buf, file, sizeof(file));
	for (unsigned k = 2; trace__find(b, buf) || trace__of_recording(b, file); k++) {
		snprintf(buf, size, "trace_%s_%u", stem, k);
		recording_name(buf, file, sizeof(file));
	}
}

/* Copies the name of the folder in a path: "b" of "a/b/run.mtr". "": the path has none, or ".". */
static void copy_folder_name(const char *path, char *buf, size_t size)
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

/* Adds a recording from the command line. Returns 0 or an exit code, logged. */
static int load_file(struct broker *b, const char *path)
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
	choose_id(b, path, id, sizeof(id));
	t = trace__new(b, id);
	if (!t) {
		close(fd);
		log_err("%s: out of memory", clean);
		return EXIT_FAILED;
	}
	recording_name(t->id, t->file, sizeof(t->file));
	t->given = fd;
	t->bytes = (uint64_t)st.st_size;
	t->begun = (double)st.st_mtime;
	t->fragmentation = true;
	copy_folder_name(path, t->folder, sizeof(t->folder));
	base = base ? base + 1 : path;
	text__clean(t->name, sizeof(t->name), base, strlen(base));
	trace__finish(b, t);
	return EXIT_OK;
}

int broker_saved__take(struct broker *b)
{
	int status = EXIT_OK;

	if (!b->store.own)
		load_folder(b);
	for (size_t i = 0; i < b->args->n_files && !status; i++)
		status = load_file(b, b->args->files[i]);
	return status;
}

/* ---- child processes: what runs in them ---- */

#define AGAIN_AFTER UINT64_C(1000000000) /* first pause, ns; doubled with each failure */
#define AGAIN_MOST UINT64_C(60000000000) /* longest pause before the next start, ns */
#define STEADY UINT64_C(60000000000) /* ns; a process that ran longer did not fail at its start */
#define MEMORY (UINT64_C(4) << 30)   /* limit of the address space, in bytes */
#define FILES 4096		     /* limit of descriptors */
#define PEER_ENDS_WITHIN 2000	     /* ms */

/* Gives up the rights of a peer in its process. False: failed, logged. */
static bool give_up_rights(const struct broker *b, enum peer_kind kind)
{
	struct sandbox_opts d = {
		.uid = b->peers[kind].uid,
		.gid = b->peers[kind].gid,
	};
	struct sandbox_done done;
	const char *bounding;
	char why[256];

	if (kind == PEER_PUSH) {
		d.flags = SANDBOX_CONNECTS | SANDBOX_THREADS;
		d.readable = sandbox_names;
	}
	if (sandbox__drop_rights(&d, &done, why)) {
		log_err("%s: %s", peer__name(kind), why);
		return false;
	}
	if (kind != PEER_WEB)
		return true;
	bounding = done.bounding ? "empty" : "as it was";
	if (done.landlock)
		log_debug("gave up rights: Landlock %d, seccomp: %s, bounding set: %s",
			  done.landlock, done.filtered ? "yes" : "no", bounding);
	else
		log_warn("this kernel has no Landlock: the processes that read recordings and that "
			 "push can read every file that their user can");
	return true;
}

/* Erases a text from memory; NULL: does nothing. */
static void wipe_secret(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
}

/* Erases the secrets of other processes from this process's memory. The broker keeps its copy,
 * because the pages are private. */
static void forget_secrets(const struct serve_secrets *s, enum peer_kind kind)
{
	if (kind != PEER_WEB) {
		wipe_secret(s->token);
		wipe_secret(s->cert);
		wipe_secret(s->key);
	}
	if (kind != PEER_PUSH)
		wipe_secret(s->push_token);
}

struct peer_start {
	const struct broker *b;
	enum peer_kind kind;
	int link_fd;
};

/* Runs the main function of a peer in its process, without rights except for PEER_LOOK. */
static int run_kind(const struct broker *b, enum peer_kind kind, int link_fd, const int *listens,
		    size_t n)
{
	/* PEER_LOOK keeps the broker's rights, because it reads other processes. */
	if (kind != PEER_LOOK && !give_up_rights(b, kind))
		return EXIT_FAILED;
	if (kind == PEER_WEB)
		return web__run(b->args, link_fd, listens, n);
	if (kind == PEER_PUSH)
		return push__run(b->args, link_fd);
	return scanner__run(b->args, link_fd, b->guard);
}

/* Runs in the new process. Returns its exit code. */
static int run_peer(void *ctx)
{
	static const char *const names[PEER_NR] = {
		[PEER_WEB] = "memtrace-web", [PEER_PUSH] = "memtrace-push", [PEER_LOOK] = "memtrace-look"
	};
	const struct peer_start *s = ctx;
	const struct broker *b = s->b;
	int keep[SERVE_LISTEN + 1] = { s->link_fd }, listens[SERVE_LISTEN], status;
	size_t n = 0;

	for (; s->kind == PEER_WEB && n < b->n_listens; n++)
		keep[n + 1] = listens[n] = b->listens[n].fd;
	forget_secrets(&b->args->secrets, s->kind);
	/* Send log lines to the broker, because a process with the log file could overwrite it. */
	log__relay_to(s->link_fd, peer__name(s->kind));
	prctl(PR_SET_NAME, names[s->kind]);
	status = EXIT_FAILED;
	if (!subprocess__close_others(keep, n + 1))
		status = run_kind(b, s->kind, s->link_fd, listens, n);
	fflush(stderr);
#ifdef __SANITIZE_ADDRESS__
	__lsan_do_leak_check(); /* _exit() skips the leak check */
#endif
	return status;
}

/* ---- child processes: first messages to them ---- */

/* The first message to a peer: what the server can do, and its limits. NULL: no memory. */
static json_t *make_hello(const struct broker *b)
{
	const struct serve_args *a = b->args;
	json_t *limits = json_pack("{s:I,s:i,s:i,s:f,s:I}", "max_events", (json_int_t)a->max_events,
				   "max_traces", (int)a->max_traces, "max_captures",
				   (int)a->max_captures, "max_duration_s",
				   (double)a->max_duration / 1e9, "disk_bytes",
				   (json_int_t)(a->max_disk > INT64_MAX ? INT64_MAX : a->max_disk));
	json_t *o = json_pack("{s:s,s:s,s:f,s:b,s:o,s:o,s:f}", "event", "hello", "version",
			      MEMTRACE_VERSION, "start", b->start, "can_trace", b->can_trace,
			      "limits", limits, "formats", jobs__formats(), "interval",
			      (double)a->interval / 1e9);

	if (o && !b->can_trace)
		json_object_set_new(o, "why", json_string(b->why));
	return o;
}

/* The targets before the first search, without processes. */
static json_t *first_targets(const struct broker *b)
{
	json_t *list = json_array();

	for (size_t i = 0; i < b->args->n_targets; i++)
		json_array_append_new(list, processes__target(&b->args->targets[i], json_array()));
	return json_pack("{s:s,s:o}", "event", "targets", "targets", list);
}

/* Sends the current state to the process, once. */
static void send_state(struct peer *p)
{
	struct broker *b = p->b;

	if (!b->processes.targets)
		b->processes.targets = first_targets(b);
	peer__send(p, make_hello(b), /*fd=*/-1);
	peer__send(p, json_incref(b->processes.targets), /*fd=*/-1);
	for (size_t i = 0; i < b->processes.n; i++)
		peer__send(p, json_incref(b->processes.v[i].msg), /*fd=*/-1);
	for (size_t i = 0; i < b->traces.n; i++)
		trace__tell_one(p, b->traces.v[i]);
	p->met = true;
}

/* ---- child processes: in the broker ---- */

/* Starts the process. 0 or -errno, logged. */
static int start_peer(struct broker *b, enum peer_kind kind)
{
	enum { LIMIT_FILES, LIMIT_ADDRESS_SPACE, LIMIT_NR };
	static const struct subprocess_limit limits[LIMIT_NR] = {
		[LIMIT_FILES] = { RLIMIT_NOFILE, FILES },
		[LIMIT_ADDRESS_SPACE] = { RLIMIT_AS, MEMORY },
	};
	struct peer *p = &b->peers[kind];
	/* AddressSanitizer reserves address space beyond the last limit. */
	size_t n_limits = SANDBOX_SANITIZED ? LIMIT_ADDRESS_SPACE : LIMIT_NR;
	int fds[2], err;

	*p = (struct peer){
		.b = b, .kind = kind, .failures = p->failures, .begun = clock__monotonic()
	};
	users__new(b, &p->uid, &p->gid);
	/* PEER_LOOK reads other processes, as many and as large as there are. */
	if (kind == PEER_LOOK) {
		n_limits = 0;
		scan_guard__enter(b->guard, 0, ""); /* it reads no process yet */
	}
	err = link__pair(fds);
	if (err)
		goto failed;
	err = subprocess__start(
		&(struct subprocess_opts){
			.main = run_peer,
			.ctx = &(struct peer_start){ b, kind, fds[1] },
			.in = SUBPROCESS_INHERIT,
			.out = SUBPROCESS_INHERIT,
			.err = SUBPROCESS_INHERIT,
			.keep_all_fds = true, /* run_peer() closes them after the log */
			.group = SUBPROCESS_OWN_GROUP,
			.death_signal = SIGKILL,
			.limits = limits,
			.n_limits = n_limits,
		},
		&p->process);
	close(fds[1]);
	p->link = link__new(fds[0]);
	if (!err && !p->link)
		err = -ENOMEM;
	if (err)
		goto failed;
	/* PEER_LOOK only reports processes and needs no state. */
	if (kind != PEER_LOOK)
		send_state(p);
	return 0;
failed:
	log_err("%s: cannot be started: %s", peer__name(kind), strerror(-err));
	subprocess__kill(&p->process);
	link__free(p->link);
	p->link = NULL;
	return err;
}

/* For link__pump(): takes a message of a peer. */
static void take_message(void *ctx, json_t *msg, int fd)
{
	struct peer *p = ctx;
	json_t *log = json_object_get(msg, "log");

	/* Peers must not send descriptors. */
	if (fd >= 0)
		close(fd);
	if (json_is_object(log))
		log__relayed(p->process.pid, peer__name(p->kind), log);
	else if (p->kind == PEER_LOOK)
		processes__report(p->b, msg);
	else
		ask__handle(p, msg);
}

void peer__pump(struct peer *p)
{
	int err = p->link ? link__pump(p->link, take_message, p) : 0;

	if (err == -EPROTO) {
		log_err("%s: sent an invalid message: stopping it", peer__name(p->kind));
		p->broken = true;
	}
	/* -EPIPE: the process is about to end. */
	if (err) {
		link__free(p->link);
		p->link = NULL;
		subprocess__signal(&p->process, SIGTERM);
	}
	if (p->broken)
		subprocess__signal(&p->process, SIGKILL);
}

/* Sends SIGTERM. wait: waits for the end for at most 2 s, then sends SIGKILL and waits for at most
 * 2 s more. */
static void stop_peer(struct peer *p, bool wait)
{
	int status;

	subprocess__signal(&p->process, SIGTERM);
	if (!wait)
		return;
	if (!subprocess__wait(&p->process, PEER_ENDS_WITHIN, &status)) {
		/* A file system may hold the process in a wait that SIGKILL does not end. */
		subprocess__signal(&p->process, SIGKILL);
		subprocess__wait(&p->process, PEER_ENDS_WITHIN, &status);
	}
	link__free(p->link);
	p->link = NULL;
}

/* Drops all that depends on a process that has ended: its link, requests and temporary traces. */
static void forget_peer(struct broker *b, struct peer *p)
{
	link__free(p->link);
	p->link = NULL;
	jobs__forget_peer(b, p);
	processes__forget(b, p);
	if (p->kind == PEER_LOOK) {
		for (size_t i = 0; i < b->processes.n; i++)
			b->processes.v[i].stale = true;
		processes__release(b);
	}
	for (size_t i = b->traces.n; i-- > 0;)
		if (b->traces.v[i]->asker == p) {
			b->traces.v[i]->asker = NULL;
			trace__delete(b, b->traces.v[i]);
		}
}

/* Kills the process without waiting for its end, because a file system may delay it, and lets the
 * loop start another one. With BROKER_ABANDONED such processes it starts none, until a later call
 * finds that one of them has ended. */
static void abandon_peer(struct peer *p)
{
	struct broker *b = p->b;
	bool first = p->link;
	size_t i = 0;
	int status;

	subprocess__signal(&p->process, SIGKILL);
	forget_peer(b, p);
	while (i < BROKER_ABANDONED && b->abandoned[i].pid &&
	       !subprocess__ended(&b->abandoned[i], &status))
		i++;
	if (i == BROKER_ABANDONED) {
		if (first)
			log_err("%s: %d processes wait for file systems that do not answer, so no "
				"other is started until one ends",
				peer__name(p->kind), BROKER_ABANDONED);
		return;
	}
	p->again = clock__monotonic();
	b->abandoned[i] = p->process;
	p->process = (struct subprocess){ 0 };
}

/* Handles the end of the process, if it has ended, and plans the next start. True: it was the web
 * process, so the broker has to end, too. */
static bool reap_peer(struct peer *p)
{
	struct broker *b = p->b;
	uint64_t now = clock__monotonic(), pause = AGAIN_AFTER;
	int status;

	if (!subprocess__ended(&p->process, &status))
		return false;
	/* Read the last messages. */
	peer__pump(p);
	forget_peer(b, p);
	if (b->quit)
		return false;
	if (WIFSIGNALED(status))
		log_event(LOG_ERROR, "ended",
			  LOG_FIELDS(LOG_STRING("who", peer__name(p->kind)),
				     LOG_INT("signal", WTERMSIG(status))),
			  "%s: ended by signal %d (%s)", peer__name(p->kind), WTERMSIG(status),
			  sigdescr_np(WTERMSIG(status)));
	else
		log_event(LOG_ERROR, "ended",
			  LOG_FIELDS(LOG_STRING("who", peer__name(p->kind)),
				     LOG_INT("exit_code", WEXITSTATUS(status))),
			  "%s: ended with status %d", peer__name(p->kind), WEXITSTATUS(status));
	if (p->kind == PEER_WEB)
		return true;
	p->failures = now - p->begun > STEADY ? 0 : p->failures + 1;
	for (unsigned i = 1; i < p->failures && pause < AGAIN_MOST; i++)
		pause *= 2;
	p->again = now + (pause < AGAIN_MOST ? pause : AGAIN_MOST);
	return false;
}

/* ---- start ---- */

/* Sets b->can_trace, or b->why if the server cannot capture. */
static void check_can_trace(struct broker *b)
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

/* Opens the sockets of --listen. Returns 0 or an exit code, logged. */
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

/* Blocks the signals that end the server, and SIGCHLD. Returns a descriptor that reads them, or -1
 * with errno. */
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
static void notify_systemd(const char *text)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;
	int fd;

	if (!len || len >= sizeof(un.sun_path))
		return;
	if (*path != '/' && *path != '@') /* '@': a name in the abstract namespace */
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

/* Logs the URLs, and tells systemd that the server is ready. */
static void announce_ready(const struct broker *b)
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
	notify_systemd("READY=1");
}

/* ---- the loop ---- */

/* Replaces PEER_LOOK if it does not go on, because it waits for a process that it reads. */
static void replace_stuck_look(struct broker *b)
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
	abandon_peer(p);
}

/* Reads the signals that have come. All but SIGCHLD end the server. */
static void read_signals(struct broker *b)
{
	struct signalfd_siginfo si;

	while (read(b->signals, &si, sizeof(si)) == sizeof(si))
		if (si.ssi_signo != SIGCHLD)
			b->quit = true;
}

/* Handles all that has happened in the peers, captures, jobs and searches. */
static void pump_all(struct broker *b)
{
	uint64_t now = clock__monotonic();
	bool tell = now >= b->next_tell, start_is_due;

	replace_stuck_look(b);
	for (int k = 0; k < PEER_NR; k++) {
		struct peer *p = &b->peers[k];

		peer__pump(p);
		if (reap_peer(p)) {
			b->quit = true;
			b->status = EXIT_FAILED;
		}
		start_is_due = !p->process.pid && p->again && now >= p->again;
		if (start_is_due && !b->quit && start_peer(b, k))
			p->again = now + AGAIN_MOST;
	}
	/* From the end, because a trace may be deleted on the way. */
	for (size_t i = b->traces.n; i-- > 0;) {
		struct trace *t = b->traces.v[i];

		if (!trace__runs(t))
			continue;
		capture__pump(b, t, now);
		if (tell && i < b->traces.n && b->traces.v[i] == t && trace__runs(t))
			trace__tell(b, t, /*soft=*/true);
	}
	upload__pump(b);
	jobs__pump(b, now);
	upload__sweep(b);
	if (b->processes.scanning && now >= b->processes.scan_until)
		processes__release(b);
	if (tell)
		b->next_tell = now + TELL_EVERY;
}

/* Fills fds with the descriptors to wait for. Returns their number. */
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
	for (size_t i = 0; i < b->traces.n && n + 3 <= room; i++) { /* each has three at most */
		const struct trace *t = b->traces.v[i];

		if (!trace__runs(t))
			continue;
		fds[n++] = (struct pollfd){ .fd = t->run.process.pidfd, .events = POLLIN };
		if (t->run.err_fd >= 0)
			fds[n++] = (struct pollfd){ .fd = t->run.err_fd, .events = POLLIN };
		if (t->tell >= 0)
			fds[n++] = (struct pollfd){ .fd = t->tell, .events = POLLIN };
	}
	n += upload__poll(b, fds + n, room - n);
	return n + jobs__poll(b, fds + n, room - n);
}

/* Time limit of poll() in ms: short while jobs, searches or captures with deadlines run; -1: no
 * limit. */
static int poll_limit(const struct broker *b)
{
	if (b->jobs || b->processes.scanning || traces__running(b))
		return BUSY_POLL;
	for (int k = 0; k < PEER_NR; k++)
		if (!b->peers[k].process.pid && b->peers[k].again)
			return AGAIN_POLL; /* a peer is to be started again */
	/* for replace_stuck_look() */
	return b->peers[PEER_LOOK].process.pid ? LOOK_POLL : -1;
}

/* Serves until b->quit. Sets b->status on failure. */
static void run_loop(struct broker *b)
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

/* Opens and starts everything. Returns 0 or an exit code, logged. */
static int start_broker(struct broker *b)
{
	char why[256];
	int err, status = users__choose(b);

	if (status)
		return status;
	check_can_trace(b);
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
	if (b->can_trace && start_peer(b, PEER_LOOK))
		return EXIT_FAILED;
	wait_for_first_search(b);
	if ((b->args->push_pyroscope || b->args->push_otlp || b->args->push_otlp_profiles) &&
	    start_peer(b, PEER_PUSH))
		return EXIT_FAILED;
	if (start_peer(b, PEER_WEB))
		return EXIT_FAILED;
	announce_ready(b);
	return 0;
}

/* Stops the other processes and frees b. */
static void close_broker(struct broker *b)
{
	notify_systemd("STOPPING=1");
	b->quit = true;
	/* First the peers, so that no new work arrives. */
	for (int k = 0; k < PEER_NR; k++)
		stop_peer(&b->peers[k], /*wait=*/false);
	end_captures(b);
	jobs__free(b);
	for (int k = 0; k < PEER_NR; k++)
		stop_peer(&b->peers[k], /*wait=*/true);
	for (size_t i = 0; i < b->n_listens; i++)
		listen__close(&b->listens[i]);
	for (size_t i = 0; i < b->traces.n; i++) {
		trace__end_upload(b, b->traces.v[i], /*remove=*/true);
		trace__free(b->traces.v[i]);
	}
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
	status = start_broker(b);
	if (!status) {
		run_loop(b);
		status = b->status;
	}
	close_broker(b);
	return status;
}
