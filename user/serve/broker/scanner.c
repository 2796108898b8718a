/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds targets and reads their allocators' figures from outside, like `watch`. The process has
 * rights and reads untrusted memory. If it crashes, the broker starts it again. */
#include "serve/broker/scanner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "capture/pick.h"
#include "inspect/container.h"
#include "inspect/proc.h"
#include "serve/broker/broker.h"
#include "serve/broker/processes.h"
#include "serve/serve.h"
#include "serve/server/link.h"
#include "watch/watch.h"

#define SECOND UINT64_C(1000000000)
#define STUCK_AFTER (10 * SECOND)	/* PEER_LOOK waits in a read for longer: it is stuck */
#define BUSY_MOST (60 * SECOND)		/* the same if it computes, on a busy machine */
#define LEFT_OUT_FOR (600 * SECOND)	/* a stuck process is not read again for so long */
#define LEFT_OUT_MOST 256		/* processes left out because a read did not return */
#define TIMES_OF_OWNER 2		/* so many of one owner: all of the owner are left out */
#define SCAN_EVERY UINT64_C(2000000000) /* time between two searches, ns */
#define SHARE 20			/* divisor: reading a process may take 1/20 of a CPU */

#define LEFT_OUT 1024 /* entries for processes without a place */

/* ---- memory shared with the broker ---- */

struct left_out {
	pid_t pid;
	char owner[OWNER_NAME];
	uint64_t until; /* CLOCK_MONOTONIC, ns */
};

struct scan_guard {
	/* when the present read began or, between reads, when the last one ended; monotonic, ns */
	_Atomic uint64_t since;
	_Atomic pid_t pid; /* process that is read; 0: none */
	char owner[OWNER_NAME];
	struct left_out v[LEFT_OUT_MOST]; /* written by the broker */
	size_t next;			  /* entry of v to replace next; written by the broker */
};

struct scan_guard *scan_guard__new(void)
{
	void *g = mmap(NULL, sizeof(struct scan_guard), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return g == MAP_FAILED ? NULL : g;
}

void scan_guard__free(struct scan_guard *g)
{
	if (g)
		munmap(g, sizeof(*g));
}

/* True for a process that is left out itself, or whose owner is. */
static bool is_left_out(const struct scan_guard *g, pid_t pid, const char *owner)
{
	uint64_t now = clock__monotonic();
	unsigned times = 0;

	for (size_t i = 0; i < LEFT_OUT_MOST; i++) {
		const struct left_out *l = &g->v[i];

		if (l->until <= now)
			continue;
		if (l->pid == pid)
			return true;
		times += *owner && !strncmp(l->owner, owner, sizeof(l->owner));
	}
	return times >= TIMES_OF_OWNER;
}

bool scan_guard__enter(struct scan_guard *g, pid_t pid, const char *owner)
{
	if (!g)
		return true;
	if (pid && is_left_out(g, pid, owner))
		return false;
	snprintf(g->owner, sizeof(g->owner), "%s", pid ? owner : "");
	atomic_store(&g->pid, pid);
	atomic_store(&g->since, clock__monotonic());
	return true;
}

bool scan_guard__stuck(struct scan_guard *g, const struct subprocess *look, pid_t *pid)
{
	uint64_t since = atomic_load(&g->since);
	uint64_t now = clock__monotonic();

	*pid = atomic_load(&g->pid);
	if (now <= since || now - since < STUCK_AFTER)
		return false;
	return now - since >= BUSY_MOST || !subprocess__computes(look);
}

/* The newest entry replaces the oldest one. The owner comes from PEER_LOOK and may lack its NUL. */
void scan_guard__leave_out(struct scan_guard *g)
{
	struct left_out *l = &g->v[g->next++ % LEFT_OUT_MOST];

	*l = (struct left_out){ .pid = atomic_load(&g->pid),
				.until = clock__monotonic() + LEFT_OUT_FOR };
	snprintf(l->owner, sizeof(l->owner), "%.*s", (int)sizeof(g->owner) - 1, g->owner);
}

/* ---- the search ---- */

/* A process of a target, with a place in the table. */
struct seen {
	struct watch_target *t;
	struct owner *owner; /* owners share the table fairly */
	uint64_t came;	     /* sequence number of the process's arrival */
	uint64_t targets;    /* bit mask of the targets that the process matches */
	double started;	     /* s since 1970 */
	uint64_t next;	     /* time of the next reading, monotonic, ns */
};

struct look {
	const struct serve_args *args;
	struct link *link;
	struct scan_guard *guard;
	struct watch_find *finds[SERVE_TARGETS]; /* search of each target; NULL: a command */
	struct owners owners;
	struct seen seen[BROKER_PROCESSES];
	size_t n;
	uint64_t came; /* number of the last arrival */
	/* Running processes without a place in the table. */
	pid_t left_out[LEFT_OUT];
	size_t n_left_out;
	/* Processes that lost their place in the current search. */
	pid_t evicted[LEFT_OUT];
	size_t n_evicted;
	size_t target_index; /* target of the current search */
	bool full_logged;    /* a message said that the table is full */
	bool changed;	     /* the list of targets has changed */
	bool asked;	     /* the broker wants a search */
	bool quit;
};

/* A time since boot as s since 1970. */
static double date_of(uint64_t boot_ns)
{
	return (double)(clock__read(CLOCK_REALTIME) - clock__read(CLOCK_BOOTTIME) + boot_ns) / 1e9;
}

/* Sends a message to the broker. Without the broker, the process ends. */
static void send_message(struct look *l, json_t *msg)
{
	if (link__send(l->link, msg, /*fd=*/-1))
		l->quit = true;
}

/* ---- targets ---- */

/* Reports the targets with their processes. */
static void send_targets(struct look *l)
{
	json_t *list = json_array();

	for (size_t i = 0; i < l->args->n_targets; i++) {
		json_t *pids = json_array();

		for (size_t k = 0; k < l->n; k++)
			if (l->seen[k].targets & UINT64_C(1) << i)
				json_array_append_new(pids, json_integer(l->seen[k].t->pid));
		json_array_append_new(list, processes__target(&l->args->targets[i], pids));
	}
	send_message(l, json_pack("{s:s,s:o,s:I}", "event", "targets", "targets", list, "left_out",
				  (json_int_t)l->n_left_out));
	l->changed = false;
}

/* The name of a process's first target that has one; "": none has. */
static const char *target_name(const struct look *l, uint64_t targets)
{
	for (size_t i = 0; i < l->args->n_targets; i++)
		if (targets & UINT64_C(1) << i && *l->args->targets[i].name)
			return l->args->targets[i].name;
	return "";
}

/* The message about a process; NULL: no memory. */
static json_t *process_message(const struct look *l, const struct seen *s)
{
	return json_pack("{s:s,s:i,s:f,s:I,s:s,s:s}", "event", "process", "pid", (int)s->t->pid,
			 "started", s->started, "boot_ns", (json_int_t)s->t->started, "target",
			 target_name(l, s->targets), "name", s->t->name);
}

/* Adds a text without control characters; nothing for "". */
static void put_clean(json_t *o, const char *key, const char *text)
{
	char clean[80];

	if (*text)
		json_object_set_new(
			o, key, json_string(text__clean(clean, sizeof(clean), text, strlen(text))));
}

/* Reports a process, with its container if it has one. */
static void send_process(struct look *l, const struct seen *s)
{
	const struct cgroup *c = &s->t->cgroup;
	struct container_names names = { 0 };
	json_t *o = process_message(l, s);
	const char *name = c->name;
	char id[16];

	if (o && s->t->rank >= 0)
		json_object_set_new(o, "rank", json_integer(s->t->rank));
	if (o && (*c->container || *c->pod || *c->name)) {
		container__names(s->t->pid, c, "", &names);
		snprintf(id, sizeof(id), "%.12s", c->container);
		if (!*name)
			name = id;
		put_clean(o, "container", *names.name ? names.name : name);
		put_clean(o, "pod", *names.pod ? names.pod : c->pod);
		put_clean(o, "container_name", names.name);
		put_clean(o, "pod_name", names.pod);
		put_clean(o, "namespace", names.space);
	}
	if (o)
		put_clean(o, "hpc_job", s->t->hpc_job);
	send_message(l, o);
}

/* ---- places in the table ---- */

/* True if one of the targets is not --all. */
static bool is_named(const struct look *l, uint64_t targets)
{
	for (size_t i = 0; i < l->args->n_targets; i++)
		if (targets & UINT64_C(1) << i && l->args->targets[i].kind != TARGET_ALL)
			return true;
	return false;
}

/* Chooses the process that loses its place to a new process of an owner. named: the new process
 * matches a --target, and replaces processes that match only --all. NULL: none. */
static struct seen *choose_evicted(struct look *l, const struct owner *owner, bool named)
{
	struct place v[BROKER_PROCESSES];
	size_t i;

	for (i = 0; i < l->n; i++)
		v[i] = (struct place){ .owner = l->seen[i].owner,
				       .rank = is_named(l, l->seen[i].targets),
				       .came = l->seen[i].came };
	i = shares__choose(v, l->n, owner, named);
	return i == SHARES_NONE ? NULL : &l->seen[i];
}

/* Counts a process without a place. */
static void leave_out(struct look *l, pid_t pid)
{
	for (size_t i = 0; i < l->n_left_out; i++)
		if (l->left_out[i] == pid)
			return;
	if (l->n_left_out == LEFT_OUT)
		return;
	/* A process that cannot be read is left out of a table with room. */
	if (l->n == BROKER_PROCESSES && !l->full_logged) {
		log_warn("more than %d processes: some are left out; memtrace_serve_left_out "
			 "counts them",
			 BROKER_PROCESSES);
		l->full_logged = true;
	}
	l->left_out[l->n_left_out++] = pid;
	l->changed = true;
}

/* Forgets a process without a place; pid 0: all processes that have ended. */
static void forget_left_out(struct look *l, pid_t pid)
{
	for (size_t i = l->n_left_out; i-- > 0;) {
		/* no pages: the process has ended */
		if (l->left_out[i] != pid && (pid || descendants__pages(l->left_out[i])))
			continue;
		l->left_out[i] = l->left_out[--l->n_left_out];
		l->changed = true;
	}
	l->full_logged &= l->n_left_out > 0;
}

static void remove_seen(struct look *l, size_t i);

/* Makes room for a process of this owner, if needed by removing another one. False: none may be
 * removed. */
static bool make_room(struct look *l, const struct owner *owner)
{
	struct seen *s;

	if (l->n < BROKER_PROCESSES)
		return true;
	s = l->n_evicted < LEFT_OUT
		    ? choose_evicted(l, owner, l->args->targets[l->target_index].kind != TARGET_ALL)
		    : NULL;
	if (!s)
		return false;
	l->evicted[l->n_evicted++] = s->t->pid;
	leave_out(l, s->t->pid);
	remove_seen(l, (size_t)(s - l->seen));
	return true;
}

/* Callback of watch_find: adds a process that matches the target. False: there is no place. */
static bool add_match(void *ctx, const struct pick_process *p)
{
	struct look *l = ctx;
	uint64_t bit = UINT64_C(1) << l->target_index;
	const struct serve_target *wanted = &l->args->targets[l->target_index];
	bool of_all = wanted->kind == TARGET_ALL, fits;
	struct watch_target *t;
	struct owner *owner;
	struct seen *s;
	int err;

	if (wanted->has_user && p->uid != wanted->user)
		return false;
	for (size_t i = 0; i < l->n; i++) {
		if (l->seen[i].t->pid != p->pid)
			continue;
		l->changed |= !(l->seen[i].targets & bit);
		l->seen[i].targets |= bit;
		return true;
	}
	owner = owners__of(&l->owners, p);
	fits = owner && scan_guard__enter(l->guard, p->pid, of_all ? owner->name : "") &&
	       make_room(l, owner);
	if (owner && !fits) {
		leave_out(l, p->pid);
		owner__drop(owner);
		return false;
	}
	t = owner ? watch_target__new(p, of_all, &err) : NULL;
	if (!t) {
		owner__drop(owner);
		return false;
	}
	forget_left_out(l, p->pid);
	s = &l->seen[l->n++];
	*s = (struct seen){ .t = t,
			    .owner = owner,
			    .targets = bit,
			    .started = date_of(p->started),
			    .came = ++l->came };
	l->changed = true;
	send_process(l, s);
	return true;
}

/* Callback of watch_find before it reads a process. False: the process is left out. */
static bool may_read(void *ctx, pid_t pid)
{
	struct look *l = ctx;

	if (scan_guard__enter(l->guard, pid, ""))
		return true;
	leave_out(l, pid);
	return false;
}

/* Searches for processes of all targets. */
static void scan_targets(struct look *l, bool first)
{
	for (size_t i = 0; i < l->args->n_targets; i++) {
		l->target_index = i;
		/* A target given by PID needs one search: later processes with this PID are
		 * others. */
		if (l->finds[i] && (first || watch_find__open_ended(l->finds[i])))
			watch_find__scan(l->finds[i], add_match, l);
	}
	/* Tell watch_find that the evicted processes have ended, so that the next search finds them
	 * again. */
	while (l->n_evicted) {
		pid_t pid = l->evicted[--l->n_evicted];

		for (size_t i = 0; i < l->args->n_targets; i++)
			if (l->finds[i])
				watch_find__ended(l->finds[i], pid, clock__monotonic());
	}
	forget_left_out(l, 0);
	scan_guard__enter(l->guard, 0, "");
	/* The next message replaces this one. */
	if (link__offer(l->link, json_pack("{s:s}", "event", "scan")) == -EPIPE)
		l->quit = true;
}

/* Removes process i from the table, and reports that. */
static void remove_seen(struct look *l, size_t i)
{
	struct seen *s = &l->seen[i];
	json_t *o = process_message(l, s);

	if (o)
		json_object_set_new(o, "gone", json_true());
	send_message(l, o);
	for (size_t k = 0; k < l->args->n_targets; k++)
		if (l->finds[k])
			watch_find__ended(l->finds[k], s->t->pid, clock__monotonic());
	watch_target__free(s->t);
	owner__drop(s->owner);
	*s = l->seen[--l->n];
	l->changed = true;
}

/* ---- figures ---- */

/* The figures of device i as an object; NULL: no memory. */
static json_t *device_figures_of(const struct watch_target *t, size_t i)
{
	const struct watch_device *d = &t->devices[i];
	char name[16];
	uint64_t n;
	json_t *o;
	int gpu;

	o = json_pack("{s:s}", "device", watch_device__name(t, d, name));
	gpu = t->smi && !nvml__is_dry_run(t->smi) ? nvml__gpu(t->smi, (unsigned)i) : -1;
	if (o && gpu >= 0 && *gpus__get((unsigned)gpu)->uuid) {
		put_clean(o, "uuid", gpus__get((unsigned)gpu)->uuid);
		json_object_set_new(o, "gpu", json_integer(gpu));
	}
	for (int f = 0; o && f < FIG_NR; f++)
		if (watch_device__figure(t, d, f, &n))
			json_object_set_new(o, device_figures[f].json,
					    json_integer(n > INT64_MAX ? INT64_MAX
								       : (json_int_t)n));
	return o;
}

/* Reports the figures of a process, or why they are unknown. */
static void send_sample(struct look *l, const struct watch_target *t)
{
	const char *none = t->n_devices ? "" : "the trace has no CUDA allocations";
	const char *why = t->alloc_why[0] ? t->alloc_why : none;
	json_t *devices = json_array(), *o;
	char clean[160];

	for (size_t i = 0; i < t->n_devices && i < 16; i++)
		if (t->devices[i].now.peak_reserved || t->devices[i].now.reserved)
			json_array_append_new(devices, device_figures_of(t, i));
	o = json_pack("{s:s,s:i,s:f,s:I,s:o}", "event", "sample", "pid", (int)t->pid, "time",
		      clock__date(), "rss", (json_int_t)t->rss, "devices", devices);
	if (o && *why)
		json_object_set_new(
			o, "why", json_string(text__clean(clean, sizeof(clean), why, strlen(why))));
	/* The next sample replaces this one, so a full link may drop it. */
	if (link__offer(l->link, o) == -EPIPE)
		l->quit = true;
}

/* Reads and sends the figures that are due. Removes processes that have ended. */
static void read_processes(struct look *l, uint64_t now)
{
	for (size_t i = l->n; i-- > 0;) {
		struct seen *s = &l->seen[i];
		uint64_t took;

		if (now < s->next && proc__alive(s->t->proc))
			continue;
		scan_guard__enter(l->guard, s->t->pid,
				  is_named(l, s->targets) ? "" : s->owner->name);
		if (watch_target__look(s->t, now, /*steps=*/false, /*used=*/false)) {
			remove_seen(l, i);
			continue;
		}
		took = clock__monotonic() - now;
		/* a process that is slow to read is read less often */
		s->next = now +
			  (took * SHARE > l->args->interval ? took * SHARE : l->args->interval);
		send_sample(l, s->t);
		now = clock__monotonic();
	}
	scan_guard__enter(l->guard, 0, "");
}

/* When the next reading is due; UINT64_MAX: never. */
static uint64_t next_reading(const struct look *l)
{
	uint64_t next = UINT64_MAX;

	for (size_t i = 0; i < l->n; i++)
		next = l->seen[i].next < next ? l->seen[i].next : next;
	return next;
}

/* ---- messages and the loop ---- */

/* Adds the process of a command target, which the broker has started. */
static void add_process(struct look *l, pid_t pid, const char *target)
{
	struct pick_process p;

	if (pid <= 0 || pick_process__read(pid, &p))
		return;
	for (l->target_index = 0; l->target_index < l->args->n_targets; l->target_index++) {
		if (target && !strcmp(l->args->targets[l->target_index].name, target)) {
			add_match(l, &p);
			break;
		}
	}
	pick_process__free(&p);
}

/* For link__pump(): takes a message of the broker. */
static void take_message(void *ctx, json_t *msg, int fd)
{
	const char *action = json_string_value(json_object_get(msg, "do"));
	struct look *l = ctx;

	l->asked |= action && !strcmp(action, "scan");
	if (action && !strcmp(action, "add"))
		add_process(l, (pid_t)json_integer_value(json_object_get(msg, "pid")),
			    json_string_value(json_object_get(msg, "target")));
	if (fd >= 0)
		close(fd);
}

/* Prepares the search of each target that is not a command. Returns 0 or -ENOMEM. */
static int open_finds(struct look *l)
{
	for (size_t i = 0; i < l->args->n_targets; i++) {
		const struct serve_target *t = &l->args->targets[i];
		struct pick_args a = { 0 };

		if (t->kind == TARGET_COMMAND)
			continue;
		if (t->kind == TARGET_PID)
			a.pids[a.n_pids++] = t->pid;
		else if (t->kind == TARGET_PATTERN)
			a.names[a.n_names++] = t->text;
		a.all = t->kind == TARGET_ALL;
		l->finds[i] = watch_find__new(&a);
		if (!l->finds[i])
			return -ENOMEM;
		watch_find__guard(l->finds[i], may_read, l);
	}
	return 0;
}

/* Searches and reads until l->quit. */
static void run_loop(struct look *l)
{
	struct pollfd fds[1 + BROKER_PROCESSES];
	uint64_t next_scan = 0;
	bool first = true;

	while (!l->quit) {
		uint64_t now = clock__monotonic(), until;
		size_t n = 0;

		if (now >= next_scan || l->asked) {
			scan_targets(l, first);
			first = false;
			next_scan = clock__monotonic() + SCAN_EVERY;
		}
		if (l->changed)
			send_targets(l);
		if (l->asked)
			send_message(l, json_pack("{s:s}", "event", "scanned"));
		l->asked = false;
		read_processes(l, clock__monotonic());
		if (l->changed)
			send_targets(l);
		until = next_reading(l) < next_scan ? next_reading(l) : next_scan;
		now = clock__monotonic();
		fds[n++] = (struct pollfd){ .fd = link__fd(l->link),
					    .events = link__events(l->link) };
		for (size_t i = 0; i < l->n; i++)
			fds[n++] = (struct pollfd){ .fd = proc__pidfd(l->seen[i].t->proc),
						    .events = POLLIN };
		poll(fds, n, until > now ? (int)((until - now) / 1000000) + 1 : 0);
		if (link__pump(l->link, take_message, l))
			l->quit = true;
	}
}

int scanner__run(const struct serve_args *args, int link_fd, struct scan_guard *guard)
{
	struct look *l = calloc(1, sizeof(*l));

	signal(SIGTERM, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	if (l)
		*l = (struct look){
			.args = args, .guard = guard, .link = link__new(link_fd), .changed = true
		};
	if (!l || !l->link || open_finds(l)) {
		log_err("look: %s", strerror(ENOMEM));
		return EXIT_FAILED;
	}
	run_loop(l);
	return EXIT_OK; /* the process ends and frees the rest */
}
