/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The processes of a capture, from the first look at each to its end.
 *
 * The records of a process group (capture/probes/proc_group.h) arrive at any time, also during a
 * drain. They are noted then, and acted on in tracees__pump() and tracees__drain_new(). A process
 * that a traced one forks is traced from its first instruction on. Its records are queued until the
 * first allocation, when it gets a session. Other processes get a session that waits for PyTorch.
 */
#include "capture/capture_loop.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/exit.h"
#include "base/json.h"
#include "base/log.h"
#include "capture/decode/queue.h"
#include "capture/ending/scene.h"
#include "capture/ending/hooks.h"
#include "capture/kernel.h"
#include "capture/pick.h"
#include "capture/probes.h"
#include "capture/probes/proc_group.h"
#include "capture/session.h"
#include "inspect/proc.h"
#include "record/ending.h"
#include "record/stream.h"

#define STRANGERS_MAX 1024	     /* processes that called exec between two pumps */
#define TRACEES_MAX (2 * MT_WATCHED) /* twice the processes: some have ended and are still listed */

enum state {
	FORKED,	 /* forked by a traced process, without an allocation so far; has no session */
	WATCHED, /* has no session: none is possible now, or the capture of the process has ended */
	WAITING, /* the session waits for PyTorch */
	TRACED,	 /* the session is attached */
	OVER,	 /* has no session: the recording has ended and does not begin again */
};

struct tracee {
	struct tracees *all; /* the table that contains this struct */
	pid_t pid, parent;
	struct owner *owner;
	uint64_t came;	 /* sequence number of the process's arrival */
	size_t slot;	 /* index in tracees.at */
	uint32_t number; /* number in the group (proc_group.h); 0: none, so it is not recorded */
	enum state state;
	unsigned int times;	   /* number of its next output, for tracees_output.begin() */
	struct session *session;   /* NULL: none; see enum state */
	struct session *forked_by; /* FORKED: session of the nearest traced ancestor */
	void *output;		   /* from tracees_output.begin(); NULL: none */
	struct scene *scene;	   /* reads the process's memory when it ends; NULL: none */
	struct sink *sink;	   /* sink of output */
	/* CLOCK_MONOTONIC, ns. */
	uint64_t forked;    /* time of the fork */
	uint64_t diverged;  /* time when the process of forked_by forked this one or its ancestor */
	uint64_t next;	    /* time of the next look */
	uint64_t since;	    /* time when the session was opened, or attached */
	uint64_t followed;  /* time before follow_ending(); 0: a traced process forked this one */
	uint64_t exec;	    /* time of the last exec */
	uint64_t end;	    /* time of the process's end; valid with end_reported */
	struct queue early; /* FORKED: records that came so far */
	struct probes *early_from; /* FORKED: the programs of the records in early; a reference */
	bool picked;		   /* picked itself, not as a child of a picked process */
	bool given;		   /* see pick__is_given() */
	bool is_child;		   /* started by a process of the capture */
	bool lacks_number;	   /* forked by a recorded process when all numbers were taken */
	bool lacks_probes;	   /* see session__misses_forks() */
	bool has_events;	   /* has records in early, or lost some for lack of room */
	bool exec_reported, end_reported; /* reported by the kernel */
	bool execed, ended; /* exec or end was reported, and all records before it were drained */
};

/* A process of the last scan. The next scans do not look at it again soon. */
struct seen {
	pid_t pid;
	uint64_t pages; /* pages of the address space; 0: the process cannot have PyTorch */
};

struct tracees {
	struct tracees_opts opts;
	struct tracee *only; /* the process of opts.only; NULL: none, or it was removed */
	int status;	     /* exit code of the first failure, logged; 0: none */
	struct tracee *at[TRACEES_MAX]; /* below top, with gaps */
	size_t top;
	struct tracee *numbered[MT_MEMBERS]; /* process with each number of the group */
	uint32_t retired[MT_MEMBERS];	     /* numbers that are free once the rings are drained */
	size_t n_retired;
	struct tracee *heir[MT_MEMBERS]; /* gets a retired number; NULL: the number is freed */
	struct owners owners;
	uint64_t came;	      /* last number given as tracee.came */
	bool short_said;      /* a warning about missing numbers was logged */
	int wake;	      /* epoll descriptor of tracees__wake_fd() */
	size_t traced;	      /* processes that are traced now */
	size_t ever;	      /* processes that were ever traced */
	uint64_t begin;	      /* first attach, CLOCK_MONOTONIC in ns */
	uint64_t next_look;   /* time of the next look_for_ends(), CLOCK_MONOTONIC, ns */
	uint64_t missed_said; /* processes that were not followed, as logged */
	uint64_t unplaced;    /* forked processes without a place, in all */
	uint64_t unprobed;    /* processes that ended before they had probes, not reported yet */
	uint64_t unrecorded;  /* processes that ended without a number, not reported yet */
	/* For picked processes. */
	pid_t stranger[STRANGERS_MAX]; /* processes that called exec, to be looked at */
	size_t n_strangers;
	bool too_many_strangers; /* some were not noted: scan all processes */
	uint64_t unreported;	 /* proc_group__unreported() at the last look */
	struct seen *seen;	 /* processes of the last scan, by PID */
	size_t n_seen;
	struct torch_scan *torch; /* NULL: not needed yet */
	uint64_t next_scan;	  /* CLOCK_MONOTONIC, ns */
	unsigned int scans;	  /* scans so far */
	int nice;		  /* our nice value before it was lowered */
	bool hurries;		  /* our nice value is lowered */
	struct probes *kept;	  /* programs of the last traced process, for later ones */
};

static inline struct proc_group *get_group(const struct tracees *r)
{
	return r->opts.session.group;
}

/* ---- the table of processes ---- */

/* The running process with this PID, or NULL. */
static struct tracee *find_tracee(const struct tracees *r, pid_t pid)
{
	size_t i;

	for (i = 0; i < r->top; i++) {
		if (r->at[i] && r->at[i]->pid == pid && !r->at[i]->end_reported)
			return r->at[i];
	}
	return NULL;
}

/* Adds a process with this number, or 0. Takes over the owner, which may be NULL for lack of
 * memory. NULL: no room, and the number is free again. */
static struct tracee *add_tracee(struct tracees *r, pid_t pid, pid_t parent, uint32_t number,
				 struct owner *owner)
{
	struct tracee *p = NULL;
	size_t slot;

	for (slot = 0; slot < TRACEES_MAX && r->at[slot]; slot++)
		;
	if (slot < TRACEES_MAX && owner)
		p = calloc(1, sizeof(*p));
	if (!p) {
		if (get_group(r))
			proc_group__forget(get_group(r), pid, number);
		if (number)
			proc_group__free_number(get_group(r), number);
		owner__drop(owner);
		return NULL;
	}
	p->all = r;
	p->pid = pid;
	p->parent = parent;
	p->owner = owner;
	p->came = ++r->came;
	p->number = number;
	p->state = WATCHED;
	p->times = 1;
	p->slot = slot;
	r->at[slot] = p;
	if (slot >= r->top)
		r->top = slot + 1;
	if (number)
		r->numbered[number % MT_MEMBERS] = p;
	return p;
}

/* Takes over the number that the process's session may have got. */
static void take_over_number(struct tracee *p)
{
	uint32_t number = session__number(p->session);

	if (number == p->number)
		return;
	p->number = number;
	p->lacks_number = false;
	p->all->numbered[number % MT_MEMBERS] = p;
}

/* Takes the process's number away; it is free again once the rings are drained. */
static void retire_number(struct tracee *p)
{
	struct tracees *r = p->all;

	if (!p->number)
		return;
	proc_group__give_back(get_group(r), p->pid, p->number);
	r->numbered[p->number] = NULL;
	r->retired[r->n_retired++] = p->number;
	p->number = 0;
}

static void read_group_records(void *tracees);

/* Registers the sets of programs that sessions have added. */
static void register_sets(struct tracees *r)
{
	struct probes_sets *sets = r->opts.session.sets;
	struct epoll_event ev = { .events = EPOLLIN };
	size_t i;

	for (i = 0; sets && i < sets->n; i++) {
		probes__on_unknown(sets->set[i], read_group_records, r);
		epoll_ctl(r->wake, EPOLL_CTL_ADD, probes__wake_fd(sets->set[i]), &ev);
	}
}

/* The process waits for no number any longer. */
static void forget_heir(struct tracee *p)
{
	for (size_t i = 1; i < MT_MEMBERS; i++)
		if (p->all->heir[i] == p)
			p->all->heir[i] = NULL;
}

/* ---- which processes ---- */

/* True for programs that may import PyTorch. Scans find PyTorch in all others. */
static bool looks_like_python(const struct pick_process *q)
{
	char name[48], exe[PATH_MAX], *base;
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/%d/exe", (int)q->pid);
	n = readlink(name, exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = '\0';
	base = basename(exe);
	return !strncmp(base, "python", 6) || !strncmp(base, "pypy", 4) ||
	       !strncmp(q->comm, "python", 6);
}

/* Asks the helper process whether a process has PyTorch. */
static enum torch_scan_is has_torch(struct tracees *r, const struct pick_process *q)
{
	r->torch = r->torch ?: torch_scan__new(descendants__has_torch);
	return r->torch ? torch_scan__ask(r->torch, q) : TORCH_NO;
}

/* True if the capture wants the process. *later: not known yet. */
static bool is_picked(struct tracees *r, const struct pick_process *q, bool *later)
{
	enum pick_is choice = pick__is(r->opts.pick, q);
	enum torch_scan_is torch;

	*later = false;
	if (choice != PICK_IF_TORCH || looks_like_python(q))
		return choice != PICK_NO;
	torch = has_torch(r, q);
	*later = torch == TORCH_LATER;
	return torch == TORCH_YES;
}

/* The owner of a process, with a reference. NULL: out of memory. */
static struct owner *owner_of(struct tracees *r, pid_t pid)
{
	struct pick_process q;
	struct owner *ret;

	if (pick_process__read(pid, &q))
		return owners__named(&r->owners, "a user that is not known");
	ret = owners__of(&r->owners, &q);
	pick_process__free(&q);
	return ret;
}

/* Finds the owner again: the process may have changed its user before an exec. */
static void renew_owner(struct tracee *p)
{
	struct owner *owner = owner_of(p->all, p->pid);

	if (!owner)
		return;
	owner__drop(p->owner);
	p->owner = owner;
}

/* True if a process stays in the capture, after a fork by a process of the capture or after an
 * exec. Without a group an exec ends the capture. */
static bool stays_in(struct tracees *r, pid_t pid)
{
	struct pick_process q;
	bool ret, later;

	if (r->opts.children || !get_group(r))
		return r->opts.children;
	if (pick_process__read(pid, &q))
		return true; /* it has ended, and its record follows */
	ret = is_picked(r, &q, &later);
	pick_process__free(&q);
	return ret;
}

/* Remembers a traced process for --follow. */
static void remember_tracee(const struct tracee *p)
{
	struct pick_process q;

	if (!p->picked || pick_process__read(p->pid, &q))
		return;
	pick__remember(p->all->opts.pick, &q);
	pick_process__free(&q);
}

/* ---- beginning and end ---- */

/*
 * The processes that started a recorded one, so that a report can show which process of a service
 * started which. Most of them have no PyTorch and no recording. They end at any time, so each
 * recording has the names of its own ancestors, as of its attach.
 */

#define ANCESTORS_MAX 8
#define TITLE 256

/* True if both processes run the same file. */
static bool same_program(pid_t a, pid_t b)
{
	char path[48], exe[2][PATH_MAX];
	ssize_t n[2];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/%d/exe", (int)(i ? b : a));
		n[i] = readlink(path, exe[i], sizeof(exe[i]));
	}
	return n[0] > 0 && n[0] == n[1] && !memcmp(exe[0], exe[1], (size_t)n[0]);
}

/* True if the parent belongs to the program: it is in the capture, or has the same interpreter and
 * session. Shells, terminals and supervisors do not belong to it. */
static bool belongs(const struct tracees *r, const struct pick_process *child,
		    const struct pick_process *parent)
{
	return find_tracee(r, parent->pid) ||
	       (getsid(parent->pid) == getsid(child->pid) && getsid(child->pid) > 0 &&
		same_program(parent->pid, child->pid));
}

static void put_process(struct json *j, const struct pick_process *q)
{
	char title[TITLE];

	json__open_object(j, NULL);
	json__uint(j, "pid", (uint64_t)q->pid);
	json__uint(j, "started", q->started);
	json__string(j, "title", pick_process__title(q, title, sizeof(title)));
	json__close_object(j);
}

/* Writes the ancestors, nearest first. Returns their number. */
static size_t put_ancestors(struct json *j, const struct tracee *p)
{
	struct pick_process child, parent;
	size_t n = 0;

	if (pick_process__read(p->pid, &child))
		return 0;
	/* After the parent's end, /proc has another one. */
	if (p->is_child && p->parent > 0)
		child.parent = p->parent;
	while (n < ANCESTORS_MAX && child.parent > 1 &&
	       !pick_process__read(child.parent, &parent)) {
		/* If it is younger than its child, it got the PID of the parent, which has ended. */
		if (parent.started > child.started || !belongs(p->all, &child, &parent)) {
			pick_process__free(&parent);
			break;
		}
		put_process(j, &parent);
		n++;
		pick_process__free(&child);
		child = parent;
	}
	pick_process__free(&child);
	return n;
}

/* Sets the fact about the processes that started this one. */
static void set_ancestors(const struct tracee *p)
{
	char *text = NULL;
	size_t size, n = 0;
	FILE *out = open_memstream(&text, &size);
	struct json *j = out ? json__new(out, false) : NULL;

	if (j) {
		json__open_array(j, NULL);
		n = put_ancestors(j, p);
		json__close_array(j);
	}
	json__free(j);
	if (out && !fclose(out) && n) {
		text[strcspn(text, "\n")] = '\0';
		facts__set(session__facts(p->session), "ancestors", text);
	}
	free(text);
}

/* ---- how traced processes end, and their memory at that moment ---- */

/* A signal will end the process: reads its memory at once. */
static void on_signal(void *ctx, const struct mt_rec_ending *r)
{
	struct tracee *p = find_tracee(ctx, (pid_t)r->pid);

	if (p && p->scene)
		scene__read(p->scene, r);
}

/* Takes what the kernel reports about ends, and reads the memory of processes that end now. */
static void read_endings(struct tracees *r)
{
	if (r->opts.endings)
		ending_hooks__consume(r->opts.endings, on_signal, r);
}

/* Makes the kernel report how the process ends. Call it before the attach, which the process may
 * not survive. */
static void follow_ending(struct tracee *p)
{
	const struct tracees_opts *o = &p->all->opts;
	int err;

	/* A group's programs know the process already. */
	err = !o->endings || o->session.group ? 0 : ending_hooks__follow(o->endings, p->pid);
	if (err)
		log_warn("PID %d: the recording will not say how it ended: %s", (int)p->pid,
			 strerror(-err));
}

/* Sets the facts about the end of a process that has ended. */
static void set_ending_facts(struct tracee *p)
{
	const struct tracees_opts *o = &p->all->opts;
	struct oom_report report;
	struct mt_rec_ending r;
	uint64_t start;
	bool known;
	int err;

	if (!o->endings)
		return;
	read_endings(p->all);
	/* p->since would be too late: from Linux 6.16 on, a process keeps its memory for a moment
	 * after the record of its end, so that an attach after the record may succeed. */
	known = ending_hooks__take(o->endings, p->pid, p->followed ? p->followed : p->since, &r);
	/* Unless the process ended well, read the memory of its cgroup and of other processes. */
	if (p->scene && (!known || r.status))
		scene__read(p->scene, known ? &r : NULL);
	if (!p->scene)
		return;
	if (known && r.flags & MT_ENDING_VICTIM &&
	    ending_hooks__oom_report(o->endings, p->pid, &report))
		scene__take_report(p->scene, &report);
	start = session__start(p->session) ?: p->followed;
	err = scene__set_facts(p->scene, session__facts(p->session), known ? &r : NULL, start);
	if (err)
		log_debug("PID %d: facts about its end: %s", (int)p->pid, strerror(-err));
}

/* Queues a record of a forked process. */
static int queue_early(void *tracee, const void *rec, size_t len)
{
	const struct mt_hdr *h = rec;
	struct tracee *p = tracee;

	p->has_events = p->has_events || h->type != MT_REC_CODE_GONE;
	return queue__push_early(&p->early, rec, len, QUEUE_EARLY);
}

/* Drops the records of a forked process, and what they need. */
static void drop_early(struct tracee *p)
{
	if (p->early_from) {
		probes__feed(p->early_from, p->number, NULL, NULL);
		probes__reset_counters(p->early_from, p->number);
		probes__free(p->early_from);
	}
	p->early_from = NULL;
	p->forked_by = NULL;
	free(p->early.buf);
	p->early = (struct queue){ 0 };
	p->has_events = false;
}

/* Drops the queues that refer to a session before it is freed. Counts processes that lose records
 * by this. */
static void orphan_forked_by(struct tracees *r, const struct session *s)
{
	size_t i;

	for (i = 0; i < r->top && s; i++) {
		if (!r->at[i] || r->at[i]->forked_by != s)
			continue;
		r->unrecorded += r->at[i]->has_events;
		drop_early(r->at[i]);
		r->at[i]->state = WATCHED;
	}
}

static void open_forked(struct tracee *p);

/* Opens the sessions of all processes that this session's process has forked. */
static void open_all_forked_by(struct tracees *r, const struct session *s)
{
	size_t i;

	for (i = 0; i < r->top; i++) {
		if (!r->at[i] || r->at[i]->state != FORKED || r->at[i]->forked_by != s)
			continue;
		open_forked(r->at[i]);
		/* open_forked() drains the ring, and may add a process at any index. So begin
		 * again. */
		i = (size_t)-1;
	}
}

/* Keeps the exit code of the first failure. */
static void keep_status(struct tracees *r, int status)
{
	if (!r->status)
		r->status = status;
}

static void say_stopped(const struct tracee *p, const char *reason, int err)
{
	const struct session *s = p->session;

	log_event(LOG_DEBUG, "stopped",
		  LOG_FIELDS(LOG_INT("target", p->pid), LOG_STRING("reason", reason),
			     LOG_UINT("events", session__events(s)),
			     LOG_UINT("lost", session__lost(s)),
			     LOG_UINT("steps", session__steps(s)), LOG_INT("error", err)),
		  "PID %d: stopped: %s", (int)p->pid, err ? strerror(-err) : reason);
	/* `run` logs the end of its command. */
	if (err || p != p->all->only || p->all->opts.session.started)
		return;
	if (!strcmp(reason, "target exited"))
		log_event(LOG_INFO, "ended", LOG_FIELDS(LOG_INT("target", p->pid)),
			  "PID %d has ended", (int)p->pid);
	else if (!strcmp(reason, "exec") && !get_group(p->all))
		log_event(LOG_INFO, "exec", LOG_FIELDS(LOG_INT("target", p->pid)),
			  "PID %d runs another program now (exec): attach again to trace that",
			  (int)p->pid);
}

/* Says how the process of opts.only ended that was waited for, if it did not end well. */
static void say_ended_early(const struct tracee *p)
{
	char text[512];

	ending__text(text, sizeof(text), session__facts(p->session));
	if (p == p->all->only && !p->all->opts.session.started && *text)
		log_warn("PID %d: %s", (int)p->pid, text);
}

/* Ends the session and the output; the process stays. reason and err: as in session__finish() and
 * end(). */
static void finish_tracee(struct tracee *p, const char *reason, int err)
{
	bool ended = !strcmp(reason, "target exited");
	int ret;

	if (p->state == WAITING && ended) {
		set_ending_facts(p);
		say_ended_early(p);
	}
	if (p->state == TRACED) {
		open_all_forked_by(p->all, p->session);
		if (ended)
			set_ending_facts(p);
		ret = session__finish(p->session, p->sink, reason);
		/* The last drain may have brought more of them. */
		open_all_forked_by(p->all, p->session);
		err = err ? err : ret;
		say_stopped(p, reason, err);
		p->all->traced--;
	}
	if (p->output)
		keep_status(p->all, p->all->opts.output->end(p->output, reason, err));
	p->state = WATCHED;
	orphan_forked_by(p->all, p->session);
	session__free(p->session);
	scene__free(p->scene);
	p->session = NULL;
	p->scene = NULL;
	p->output = NULL;
	drop_early(p);
	retire_number(p);
}

/* Ends, removes and frees the process. */
static void remove_tracee(struct tracee *p, const char *reason)
{
	struct tracees *r = p->all;

	finish_tracee(p, reason, 0);
	if (p->ended)
		pick__ended(r->opts.pick, p->pid, p->end);
	forget_heir(p);
	if (get_group(r) && !p->end_reported) /* otherwise the PID may belong to another process */
		proc_group__forget(get_group(r), p->pid, p->number);
	r->at[p->slot] = NULL;
	while (r->top && !r->at[r->top - 1])
		r->top--;
	if (r->only == p)
		r->only = NULL;
	owner__drop(p->owner);
	free(p);
}

/* Begins the output of a process. Returns 0 or an exit code, logged. */
static int begin_output(struct tracee *p)
{
	const struct tracees_opts *o = &p->all->opts;

	p->output = o->output->begin(o->ctx, p->session, p->pid, p->times++, &p->sink);
	return p->output ? EXIT_OK : EXIT_FAILED;
}

/* Begins to trace an attached or forked process. False: its output failed. */
static bool begin_tracing(struct tracee *p)
{
	struct tracees *r = p->all;
	int status;

	if (p->is_child)
		session__set_parent(p->session, p->parent);
	session__set_process(p->session);
	set_ancestors(p);
	remember_tracee(p);
	status = p->output ? EXIT_OK : begin_output(p);
	if (!status && r->opts.output->attached)
		status = r->opts.output->attached(p->output);
	if (status) {
		keep_status(r, status);
		finish_tracee(p, "signal", 0);
		p->state = OVER;
		return false;
	}
	p->state = TRACED;
	if (r->opts.endings && !p->scene)
		p->scene = scene__new(p->pid);
	if (pick__open_ended(r->opts.pick)) {
		probes__free(r->kept);
		r->kept = probes__share_set(session__probes(p->session));
	}
	r->traced++;
	r->ever++;
	if (!r->begin)
		r->begin = clock__kernel();
	return true;
}

/* Opens the session of a forked process, which begins to be traced. */
static void open_forked(struct tracee *p)
{
	struct session *by = p->forked_by;
	struct failure f;

	p->session = session__new_forked(by, p->pid, p->number, p->forked, p->diverged, &p->early,
					 &f);
	if (!p->session) {
		log_warn("%s", f.text);
		finish_tracee(p, "", 0);
		return;
	}
	probes__free(p->early_from);
	p->early_from = NULL;
	p->forked_by = NULL;
	if (begin_tracing(p))
		log_event(LOG_INFO, "attached",
			  LOG_FIELDS(LOG_INT("target", p->pid), LOG_INT("parent", p->parent),
				     LOG_BOOL("forked", true)),
			  "following PID %d, forked by PID %d%s", (int)p->pid, (int)p->parent,
			  p->lacks_probes ? "; PyTorch may have allocated before" : "");
	p->lacks_probes = false;
}

/* ---- shares of places and numbers ---- */

/*
 * Chooses the followed and the recorded processes when there are more than places or numbers. The
 * owners of processes (pick.h) get equal shares of both. A process of --all that has no PyTorch
 * makes room for any that has.
 */

/* Ranks of places: a process makes room for those of a higher rank. */
enum { WITHOUT_TORCH, FOLLOWED, KEPT };
/* Ranks of numbers: waits for PyTorch; has events; was given by -p. */
enum { IDLE, RECORDED, GIVEN };

/* Places or numbers that could be taken away, each with the process that has it. */
struct table {
	struct place places[TRACEES_MAX];
	struct tracee *holders[TRACEES_MAX];
	size_t n;
};

static void add_to_table(struct table *t, struct tracee *p, unsigned rank)
{
	t->places[t->n] = (struct place){ .owner = p->owner, .rank = rank, .came = p->came };
	t->holders[t->n++] = p;
}

static unsigned rank_of_place(const struct tracee *p)
{
	if (p->given || p->state == TRACED || p->state == OVER)
		return KEPT;
	if (!pick__needs_torch(p->all->opts.pick) || p->state == FORKED ||
	    (p->session && session__found_torch(p->session)))
		return FOLLOWED;
	return WITHOUT_TORCH;
}

static void list_places(const struct tracees *r, struct table *t)
{
	t->n = 0;
	for (size_t i = 0; i < r->top; i++)
		if (r->at[i] && !r->at[i]->end_reported)
			add_to_table(t, r->at[i], rank_of_place(r->at[i]));
}

static unsigned rank_of_number(const struct tracee *p)
{
	if (p->given)
		return GIVEN;
	return p->state == TRACED || (p->state == FORKED && p->has_events) ? RECORDED : IDLE;
}

static void list_numbers(const struct tracees *r, struct table *t)
{
	t->n = 0;
	for (size_t i = 1; i < MT_MEMBERS; i++)
		if (r->numbered[i] && !r->numbered[i]->end_reported)
			add_to_table(t, r->numbered[i], rank_of_number(r->numbered[i]));
}

/* Says once for each owner that some of its processes are not followed. */
static void say_refused(const struct table *t, pid_t pid, struct owner *owner)
{
	const struct owner *most = shares__largest(t->places, t->n);

	if (owner->said || !most)
		return;
	owner->said = true;
	log_warn("PID %d and maybe more of %s are not followed: %d processes are, the most at a "
		 "time, and %zu of them are of %s. Choose fewer: a longer --name, or --container",
		 (int)pid, owner->name, MT_WATCHED, most->places, most->name);
}

static void say_replaced(const struct tracee *p, const struct owner *for_whom)
{
	if (p->owner->said)
		return;
	p->owner->said = true;
	log_warn("PID %d and maybe more of %s are not followed any longer: %d processes are, the "
		 "most at a time, and %s gets its share of them",
		 (int)p->pid, p->owner->name, MT_WATCHED, for_whom->name);
}

/* Makes room for a process of this owner if all places are taken. May remove and free another
 * process. 0, or -ENOSPC, with a warning: others have no more than their share. */
static int make_room(struct tracees *r, struct owner *owner, const struct pick_process *q)
{
	struct table t;
	unsigned rank = pick__needs_torch(r->opts.pick) ? WITHOUT_TORCH : FOLLOWED;
	size_t i;

	list_places(r, &t);
	if (t.n < MT_WATCHED)
		return 0;
	i = shares__choose(t.places, t.n, owner, rank);
	if (i == SHARES_NONE && rank == WITHOUT_TORCH && has_torch(r, q) == TORCH_YES)
		i = shares__choose(t.places, t.n, owner, FOLLOWED);
	if (i == SHARES_NONE) {
		say_refused(&t, q->pid, owner);
		return -ENOSPC;
	}
	if (t.holders[i]->owner != owner)
		say_replaced(t.holders[i], owner);
	remove_tracee(t.holders[i], "");
	return 0;
}

/* Removes forked processes above the number of places, from the owners with the most. A newcomer
 * without places stands for the process that needs a place. */
static void trim_places(struct tracees *r)
{
	struct owner newcomer = { 0 };
	struct table t;
	size_t i;

	for (;;) {
		list_places(r, &t);
		i = t.n > MT_WATCHED ? shares__choose(t.places, t.n, &newcomer, FOLLOWED)
				     : SHARES_NONE;
		if (i == SHARES_NONE)
			return;
		say_refused(&t, t.holders[i]->pid, t.holders[i]->owner);
		remove_tracee(t.holders[i], "");
	}
}

/* ---- numbers ---- */

/* Ends the recording of a process that loses its number to another owner. n_owned: numbers that its
 * owner had. */
static void end_recording(struct tracee *p, const struct owner *for_whom, size_t n_owned)
{
	if (rank_of_number(p) == IDLE) {
		log_debug("PID %d: its number goes to %s", (int)p->pid, for_whom->name);
		finish_tracee(p, "", 0);
		return;
	}
	log_warn("PID %d: its recording ends here: %s has %zu of the %d recordings at a time, and "
		 "%s gets its share of them",
		 (int)p->pid, p->owner->name, n_owned, MT_MEMBERS - 1, for_whom->name);
	finish_tracee(p, "share", 0);
	p->state = OVER;
}

/* True if the process gets a number once the rings are drained. */
static bool has_number_to_come(const struct tracees *r, const struct tracee *p)
{
	for (size_t i = 1; i < MT_MEMBERS; i++)
		if (r->heir[i] == p)
			return true;
	return false;
}

/* For p, which waits for a number: takes the number of another process, whose owner has more
 * places. p gets it once the rings are drained. */
static void free_a_number(struct tracee *p)
{
	struct tracees *r = p->all;
	unsigned rank = session__found_torch(p->session) ? RECORDED : IDLE;
	struct tracee *loser;
	struct table t;
	uint32_t number;
	size_t i;

	if (has_number_to_come(r, p))
		return;
	list_numbers(r, &t);
	if (t.n + r->n_retired < MT_MEMBERS - 1)
		return; /* one is free by now */
	i = shares__choose(t.places, t.n, p->owner, rank);
	if (i == SHARES_NONE) {
		if (!r->short_said)
			log_warn("%d processes are recorded, the most at a time: others wait until "
				 "one ends",
				 MT_MEMBERS - 1);
		r->short_said = true;
		return;
	}
	loser = t.holders[i];
	number = loser->number;
	end_recording(loser, p->owner, shares__count(t.places, t.n, loser->owner));
	r->heir[number] = p;
}

/* Gives a number whose last records were read to the process that it was taken for. False: the
 * number can be freed. */
static bool pass_number_on(struct tracees *r, uint32_t number)
{
	struct tracee *p = r->heir[number];

	r->heir[number] = NULL;
	if (!p || p->number || p->state != WAITING || !p->session ||
	    proc_group__hand_over(r->opts.session.group, number, p->pid))
		return false;
	session__give_number(p->session, number);
	take_over_number(p);
	p->next = 0;
	return true;
}

/* ---- one process: waits for PyTorch, attaches, drains, follows execs ---- */

/* Times after which a picked process is given up, in ns: */
#define NO_PYTHON 1000000000ULL		   /* without Python */
#define NO_TORCH 10000000000ULL		   /* with Python, without PyTorch, if numbers are short */
#define NUMBER_AGAIN 100000000ULL	   /* ns between two attempts to get a number */
#define NUMBERS_SHORT (MT_MEMBERS * 3 / 4) /* so many numbers in use are short */
#define NICE_DRAINING (-20)		   /* our nice value while we drain */

/* Takes a high priority: with many threads of the target for each CPU, an ordinary thread gets too
 * little time for the few percent of a core that draining takes. Optional: needs CAP_SYS_NICE.
 * Processes that we start later get the usual priority. */
static void hurry(struct tracees *r)
{
	struct sched_param param = { 0 };

	if (r->hurries)
		return;
	r->nice = getpriority(PRIO_PROCESS, 0);
	r->hurries = !sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &param) &&
		     !setpriority(PRIO_PROCESS, 0, NICE_DRAINING);
	if (!r->hurries)
		log_debug("the priority is as before: %s", strerror(errno));
}

void tracees__limit_caps(struct tracees *r)
{
	bool perf = !r->opts.session.inside && probes__kernel_perf();
	int err;

	hurry(r);
	err = caps__limit(r->opts.caps | (perf ? CAPS_PERF : 0));
	if (err)
		log_debug("cannot give up capabilities: %s", strerror(-err));
}

/* Begins to wait for PyTorch. Returns 0, or negative with *f. */
static int await_torch(struct tracee *p, struct failure *f)
{
	struct session_opts opts = p->all->opts.session;
	bool first = p == p->all->only && !p->times;

	opts.number = p->number;
	opts.started = opts.started && first;
	/* A launcher may never have PyTorch itself. */
	opts.late = !opts.started && (opts.group || !first);
	p->followed = clock__kernel();
	follow_ending(p);
	if (p == p->all->only && p->all->opts.endings && !p->scene)
		p->scene = scene__new(p->pid);
	p->since = clock__kernel();
	p->session = session__new(p->pid, &opts, f);
	p->state = p->session ? WAITING : WATCHED;
	p->next = p->session ? 0 : UINT64_MAX;
	return p->session ? 0 : -ESRCH;
}

/* Begins to wait for PyTorch in a process whose failure does not end the capture. */
static void try_to_await(struct tracee *p)
{
	struct failure f;

	if (await_torch(p, &f))
		log_debug("%s", f.text);
}

/* True if a picked process will hardly import PyTorch: its number is given back. */
static bool is_hopeless(const struct tracee *p, uint64_t now)
{
	const struct tracees *r = p->all;
	size_t i, n_numbers = 0;

	if (r->opts.only || r->opts.children || !p->picked || now <= p->since ||
	    session_opts__any_process(&r->opts.session))
		return false;
	if (!session__has_python(p->session))
		return now - p->since > NO_PYTHON;
	for (i = 1; i < MT_MEMBERS; i++)
		n_numbers += r->numbered[i] != NULL;
	return n_numbers >= NUMBERS_SHORT && !pick__only_pids(r->opts.pick) &&
	       now - p->since > NO_TORCH;
}

/* Stops following a picked process that will hardly import PyTorch. A later scan may find it
 * again. */
static void give_up(struct tracee *p)
{
	if (session__has_python(p->session))
		log_debug("PID %d has no PyTorch so far: checking it from time to time",
			  (int)p->pid);
	else if (pick__only_pids(p->all->opts.pick))
		log_warn("PID %d has no Python interpreter, PyTorch or CUDA in it: not traced "
			 "(--children follows what it starts)",
			 (int)p->pid);
	remove_tracee(p, "");
}

/* Says what is recorded of a process without PyTorch. */
static void say_what_it_lacks(const struct tracee *p)
{
	const struct session_opts *asked = &p->all->opts.session;
	bool waits = session__has_interpreter(p->session) && !asked->started;

	if (session__uses_cuda(p->session)) {
		log_info(
			"PID %d uses CUDA without PyTorch: recording its calls into CUDA%s; it may "
			"have taken memory before",
			(int)p->pid, asked->host ? ", and its host memory" : "");
		return;
	}
	log_info("PID %d has neither PyTorch nor CUDA: recording its host memory%s", (int)p->pid,
		 waits ? ". If it imports PyTorch, its tensors, too (--wait-for torch begins then)"
		       : "");
}

/* Says that the process of opts.only is traced. start: from PyTorch's first allocation on. */
static void say_only_traced(const struct tracee *p, bool start)
{
	const char *problem = session__python_problem(p->session);
	const char *after = "; PyTorch may have allocated before";

	if (session__no_torch(p->session))
		say_what_it_lacks(p);
	if (problem)
		log_warn("no Python lines: %s", problem);
	if (session__no_torch(p->session))
		after = "";
	else if (start)
		after = " from PyTorch's first allocation on";
	if (p->all->opts.session.started)
		log_event(LOG_INFO, "attached",
			  LOG_FIELDS(LOG_INT("target", p->pid), LOG_BOOL("from_start", start)),
			  "recording PID %d%s", (int)p->pid, after);
	else
		log_event(LOG_INFO, "attached",
			  LOG_FIELDS(LOG_INT("target", p->pid), LOG_BOOL("from_start", false)),
			  "attached to PID %d; until %s, Ctrl-C stops earlier", (int)p->pid,
			  p->all->opts.until);
}

static void say_traced(const struct tracee *p)
{
	const char *at = facts__get(session__facts(p->session), "attached_at");
	bool start = at && !strcmp(at, "start");
	const char *how = "; PyTorch may have allocated before";
	struct pick_process q;
	char title[96];

	if (session__no_torch(p->session))
		how = ", which has no PyTorch";
	else if (start)
		how = ", from PyTorch's first allocation on";
	if (p == p->all->only && p->times == 1) {
		say_only_traced(p, start);
		return;
	}
	if (p->is_child || pick_process__read(p->pid, &q)) {
		log_event(LOG_INFO, "attached",
			  LOG_FIELDS(LOG_INT("target", p->pid), LOG_INT("parent", p->parent),
				     LOG_BOOL("from_start", start)),
			  "following PID %d, started by PID %d%s", (int)p->pid, (int)p->parent,
			  how);
		return;
	}
	pick_process__title(&q, title, sizeof(title));
	log_event(LOG_INFO, "attached",
		  LOG_FIELDS(LOG_INT("target", p->pid), LOG_STRING("title", title),
			     LOG_BOOL("from_start", start)),
		  "attached to PID %d (%s)%s", (int)p->pid, title, how);
	pick_process__free(&q);
}

/* Logs why a process is not traced. The failure of opts.only is that of the capture. */
static void cannot_attach(struct tracee *p, const struct failure *f)
{
	if (p == p->all->only) {
		log_err("%s", f->text);
		keep_status(p->all, f->status);
	} else {
		log__print(p->picked ? LOG_WARN : LOG_DEBUG, "PID %d is not traced: %s",
			   (int)p->pid, f->text);
	}
	finish_tracee(p, "", 0);
	p->next = UINT64_MAX;
}

/* Without a group the process's own programs wake the loop. */
static void add_wake(const struct tracee *p)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (!get_group(p->all))
		epoll_ctl(p->all->wake, EPOLL_CTL_ADD, session__wake_fd(p->session), &ev);
}

/* Attaches if PyTorch is there; otherwise sets the time of the next attempt. */
static void try_to_attach(struct tracee *p, uint64_t now)
{
	const uint64_t before = clock__kernel();
	struct failure f;
	int err = session__attach(p->session, &f);

	take_over_number(p);
	if (err == -EAGAIN) {
		p->next = now + session__poll_ms(p->session) * 1000000ULL;
		if (session__lacks_number(p->session)) {
			p->next = now + NUMBER_AGAIN;
			free_a_number(p);
		}
		return;
	}
	register_sets(p->all);
	if (err) {
		cannot_attach(p, &f);
		return;
	}
	p->since = before;
	add_wake(p);
	if (!begin_tracing(p))
		return;
	if (p == p->all->only)
		tracees__limit_caps(p->all);
	say_traced(p);
}

/* Applies an exec: ends the recording of the old program, and waits for PyTorch in the new one if
 * the process stays in the capture. False: the process was removed and freed. */
static bool follow_exec(struct tracee *p)
{
	p->execed = false;
	if (p->state == FORKED && p->has_events)
		open_forked(p);
	/* A session that was attached after the exec has the new program already. */
	if ((p->state == TRACED && p->exec >= p->since) || p->state == FORKED)
		finish_tracee(p, "exec", 0);
	if (!p->ended)
		renew_owner(p);
	if (!p->ended && !stays_in(p->all, p->pid)) {
		remove_tracee(p, "exec");
		return false;
	}
	if (p->state == WAITING) /* the session notices an exec itself */
		p->since = clock__kernel();
	else if (p->state != TRACED && !p->ended)
		try_to_await(p);
	return true;
}

/* The reason to end the recording of a process; NULL: none. */
static const char *bound_reached(const struct tracee *p)
{
	const struct tracees_opts *o = &p->all->opts;

	if (o->session.steps && session__steps(p->session) >= o->session.steps)
		return "steps";
	return o->output->full ? o->output->full(p->output) : NULL;
}

/* Applies execs and ends, and drains the session. May free the process. */
static void pump_tracee(struct tracee *p, uint64_t now)
{
	const char *reason;
	int err;

	if (p->execed && !follow_exec(p))
		return;
	if (p->state == FORKED &&
	    (p->has_events || (p->lacks_probes && !p->ended && now >= p->next)))
		open_forked(p);
	if (p->ended) {
		remove_tracee(p, "target exited");
		return;
	}
	if (p->state == WATCHED && now >= p->next)
		try_to_await(p);
	if (p->state == WAITING && now >= p->next)
		try_to_attach(p, now);
	if (p->state == WAITING && is_hopeless(p, now)) {
		give_up(p);
		return;
	}
	if (p->state != TRACED)
		return;
	err = session__pump(p->session, p->sink);
	reason = err ? "signal" : bound_reached(p);
	if (!reason)
		return;
	finish_tracee(p, reason, err);
	p->state = OVER;
}

/* ---- the search for processes ---- */

/*
 * Finds the processes of a capture. The kernel reports each exec of a process at once, before it
 * can import PyTorch. A scan of /proc, once a second, finds processes that are older than the
 * capture, that changed their name, or that have PyTorch without looking like Python.
 */

#define DESCENDANTS_MAX MT_WATCHED /* child processes that are added at once */
#define SCANS 8			   /* attempts of add_descendants() to find all */
#define SCAN_EVERY 1000000000ULL   /* ns between two scans of /proc */
#define LATER 1			   /* a value of seen.pages: check the process in the next scan */
#define NEAREST 3		   /* near matches in a message */
#define FULL_SCAN_EVERY 10	   /* every tenth scan looks at all processes again */

/* Adds a process. Returns 0 or negative; -EEXIST: it was added before; -ENOSPC: it has no place. */
static int add_process(struct tracees *r, const struct pick_process *q, struct tracee **ret)
{
	struct owner *owner = owners__of(&r->owners, q);
	int err;

	*ret = NULL;
	if (!owner)
		return -ENOMEM;
	err = make_room(r, owner, q);
	if (err)
		goto no_place;
	err = get_group(r) ? proc_group__add(get_group(r), q->pid) : 0;
	if (err)
		goto no_place;
	*ret = add_tracee(r, q->pid, q->parent, 0, owner);
	return *ret ? 0 : -ENOMEM;
no_place:
	owner__drop(owner);
	return err;
}

/* Reads a process; of one that has ended meanwhile only its PID is known. */
static struct pick_process read_process(pid_t pid)
{
	struct pick_process q;

	return pick_process__read(pid, &q) ? (struct pick_process){ .pid = pid } : q;
}

/* Adds the existing child processes and their children, until a search finds no new one. The kernel
 * reports children that added processes fork. */
static void add_descendants(struct tracees *r, pid_t pid)
{
	pid_t pids[DESCENDANTS_MAX], parents[DESCENDANTS_MAX];
	size_t i, n, found = 1;
	struct tracee *p;
	int tries, err;

	for (tries = 0; found && tries < SCANS; tries++) {
		n = descendants__list(pid, pids, parents, DESCENDANTS_MAX);
		for (found = 0, i = 0; i < n; i++) {
			struct pick_process q = read_process(pids[i]);

			q.parent = parents[i];
			err = add_process(r, &q, &p);
			pick_process__free(&q);
			if (err)
				continue;
			p->is_child = true;
			found++;
		}
	}
}

/* Adds a picked process, which waits for PyTorch, and its children. Returns 0, or negative with *f:
 * the process cannot be waited for. */
static int take_process(struct tracees *r, const struct pick_process *q, struct failure *f)
{
	bool only = q->pid == r->opts.only, given = pick__is_given(r->opts.pick, q);
	struct tracee *p;
	int err = add_process(r, q, &p);

	if (err)
		return only ? failure__set(f, EXIT_FAILED, err, "PID %d cannot be followed: %s",
					   (int)q->pid, strerror(-err))
			    : 0;
	p->picked = true;
	p->given = given;
	if (only) {
		r->only = p;
		p->times = 0;
	}
	if (q->cmdline)
		pick__remember(r->opts.pick, q);
	err = await_torch(p, f);
	if (r->opts.children)
		add_descendants(r, q->pid);
	return err;
}

int tracees__take(struct tracees *r, pid_t pid, struct failure *f)
{
	struct pick_process q;
	int err;

	if (find_tracee(r, pid))
		return 0; /* given twice */
	q = read_process(pid);
	err = take_process(r, &q, f);
	pick_process__free(&q);
	return err;
}

/* Adds a process that a scan or an exec has found. */
static void pick_found(struct tracees *r, const struct pick_process *q)
{
	struct failure f;

	if (take_process(r, q, &f))
		log_debug("%s", f.text);
}

/* Adds a process outside the capture that called exec, if the capture wants it now. If that is not
 * known yet, a scan of /proc checks the process again. */
static void look_at_stranger(struct tracees *r, pid_t pid)
{
	struct pick_process q;
	bool later; /* not used */

	if (find_tracee(r, pid) || pick_process__read(pid, &q))
		return;
	if (is_picked(r, &q, &later))
		pick_found(r, &q);
	pick_process__free(&q);
}

/* ---- scan of /proc ---- */

/* Adds a process that the capture wants; otherwise notes in s whether it may get PyTorch later. */
static void check_process(struct tracees *r, struct seen *s)
{
	struct pick_process q;
	bool later;

	if (pick_process__read(s->pid, &q))
		return;
	if (is_picked(r, &q, &later))
		pick_found(r, &q);
	else if (pick__is(r->opts.pick, &q) == PICK_IF_TORCH)
		s->pages = later ? LATER : descendants__pages(s->pid);
	pick_process__free(&q);
}

/* Checks a process again if it has mapped more memory since the last scan: otherwise it cannot have
 * PyTorch now. */
static void check_if_grown(struct tracees *r, struct seen *s, uint64_t pages_before)
{
	s->pages = descendants__pages(s->pid);
	if (s->pages && s->pages != pages_before)
		check_process(r, s);
}

/* Checks a process of a scan. before: its entry of the last scan; NULL: it is new. all: also checks
 * processes that were not wanted then. */
static void check_seen(struct tracees *r, struct seen *s, const struct seen *before, bool all)
{
	if (find_tracee(r, s->pid))
		return;
	if (!before || (all && !before->pages))
		check_process(r, s);
	else if (before->pages)
		check_if_grown(r, s, before->pages);
}

/* Checks all processes of /proc. Those that the last scan has rejected are checked again only if
 * they have grown, or in every tenth scan. */
static void scan_processes(struct tracees *r)
{
	bool check_all = !(r->scans++ % FULL_SCAN_EVERY) || r->too_many_strangers;
	DIR *dir = opendir("/proc");
	size_t n = 0, cap = 0, before = 0;
	struct seen *seen = NULL;
	struct dirent *entry;

	if (r->torch)
		torch_scan__begin(r->torch);
	while (dir && (entry = readdir(dir))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		if (array__grow(&seen, &cap, n + 1, sizeof(*seen)))
			break;
		seen[n] = (struct seen){ .pid = atoi(entry->d_name) };
		/* Both lists are in order of PIDs, as the kernel lists them. So the search in
		 * r->seen continues where the last one ended. */
		while (before < r->n_seen && r->seen[before].pid < seen[n].pid)
			before++;
		check_seen(r, &seen[n],
			   before < r->n_seen && r->seen[before].pid == seen[n].pid
				   ? &r->seen[before]
				   : NULL,
			   check_all);
		n++;
	}
	if (dir)
		closedir(dir);
	free(r->seen);
	r->seen = seen;
	r->n_seen = n;
	r->too_many_strangers = false;
}

/* Checks processes that called exec, and scans /proc once a second. */
static void find_others(struct tracees *r, uint64_t now)
{
	size_t i, n = r->n_strangers;
	uint64_t unreported;

	r->n_strangers = 0;
	for (i = 0; i < n; i++)
		look_at_stranger(r, r->stranger[i]);
	if (pick__only_pids(r->opts.pick) && !pick__open_ended(r->opts.pick))
		return;
	unreported = proc_group__unreported(get_group(r));
	if (unreported != r->unreported)
		r->too_many_strangers = true;
	r->unreported = unreported;
	if (now < r->next_scan && !r->too_many_strangers)
		return;
	r->next_scan = now + SCAN_EVERY;
	scan_processes(r);
}

/* ---- messages ---- */

/* Writes "; PID 12 (bash train.sh) is no Python program" about matches, otherwise names processes
 * with PyTorch that do not match. */
void tracees__nearest(struct tracees *r, char *buf, size_t size)
{
	struct pick_process q;
	size_t i, len = 0, n_named = 0;
	char title[96];

	buf[0] = '\0';
	for (i = 0; i < r->top && n_named < NEAREST && len < size; i++) {
		if (!r->at[i] || pick_process__read(r->at[i]->pid, &q))
			continue;
		len += snprintf(buf + len, size - len, "%s PID %d (%s)", n_named++ ? "," : ";",
				(int)q.pid, pick_process__title(&q, title, sizeof(title)));
		pick_process__free(&q);
	}
	if (n_named) {
		if (len < size)
			snprintf(buf + len, size - len, "%s",
				 n_named > 1 ? " match, but are no Python (--host records them)"
					     : " matches, but is no Python (--host records it)");
		return;
	}
	for (i = 0; i < r->n_seen && n_named < NEAREST && len < size; i++) {
		if (pick_process__read(r->seen[i].pid, &q))
			continue;
		if (has_torch(r, &q) == TORCH_YES)
			len += snprintf(buf + len, size - len, "%s PID %d (%s)",
					n_named++ ? "," : "; PyTorch is in", (int)q.pid,
					pick_process__title(&q, title, sizeof(title)));
		pick_process__free(&q);
	}
}

#define LEFT_OUT_MAX 64		 /* descendants of a process that are looked at */
#define MAY_EXEC 5000000ULL	 /* ns after a fork until the child has usually called exec */
#define LOOK_EVERY 1000000000ULL /* ns between two checks for ended processes */

/* ---- records of the group ---- */

static struct session *find_session(const struct tracees *r, uint32_t number)
{
	return number < MT_MEMBERS && r->numbered[number] && r->numbered[number]->state == TRACED
		       ? r->numbered[number]->session
		       : NULL;
}

static struct probes *find_set(const struct tracees *r, uint32_t group)
{
	const struct probes_sets *sets = r->opts.session.sets;
	size_t i;

	for (i = 0; i < sets->n; i++) {
		if (probes__group(sets->set[i]) == group)
			return sets->set[i];
	}
	return NULL;
}

/* Returns the session with number, or that of the nearest traced ancestor. */
static struct session *nearest_session(const struct tracees *r, uint32_t number)
{
	struct session *s = find_session(r, number);

	return s || number >= MT_MEMBERS || !r->numbered[number] ? s
								 : r->numbered[number]->forked_by;
}

/* Notes the end of a process; apply_records() applies it. */
static void note_end(struct tracee *p, uint64_t when)
{
	if (!p->end_reported)
		p->end = when;
	p->all->unrecorded += p->lacks_number && !p->end_reported;
	p->all->unprobed += p->lacks_probes && p->state != TRACED && !p->end_reported;
	p->end_reported = true;
}

/* Notes an exec; apply_records() applies it. */
static void note_exec(struct tracee *p, uint64_t when)
{
	p->exec = when;
	p->exec_reported = true;
	p->lacks_probes = false; /* the new program gets its own */
}

/* Adds a forked process. If a traced process has forked it, its records are queued from now on. */
static int on_fork(struct tracees *r, const struct mt_rec_group *record)
{
	struct tracee *parent = find_tracee(r, (pid_t)record->parent), *p;

	p = add_tracee(r, record->pid, record->parent, record->number,
		       parent ? owner__share(parent->owner) : owner_of(r, record->pid));
	if (!p) {
		r->unplaced++;
		return 0;
	}
	p->is_child = true;
	if (!stays_in(r, p->pid)) {
		remove_tracee(p, "");
		return 0;
	}
	p->lacks_number = !record->number && nearest_session(r, record->from);
	p->forked = p->diverged = record->time;
	/* If the ancestor in between has no session, it left the traced process before. */
	if (!find_session(r, record->from) && r->numbered[record->from % MT_MEMBERS])
		p->diverged = r->numbered[record->from % MT_MEMBERS]->diverged;
	p->next = record->time + MAY_EXEC;
	p->early_from = record->group ? find_set(r, record->group) : NULL;
	p->forked_by = nearest_session(r, record->from);
	p->lacks_probes = p->forked_by && session__misses_forks(p->forked_by);
	/* Queue its records only if they come from the programs of that session. */
	if (!p->early_from || !p->forked_by || session__probes(p->forked_by) != p->early_from) {
		p->early_from = NULL;
		p->forked_by = NULL;
		return 0;
	}
	p->state = FORKED;
	p->early_from = probes__share_set(p->early_from);
	probes__feed(p->early_from, p->number, queue_early, p);
	return 0;
}

/* Takes a record of the group about a fork, exec or end. Ends and execs are only noted: this may be
 * during a drain. */
static int on_group_record(void *ctx, const struct mt_rec_group *record)
{
	struct tracees *r = ctx;
	struct tracee *p = record->what == MT_GROUP_STRANGER ? NULL : find_tracee(r, record->pid);

	if (record->what == MT_GROUP_FORK && record->number < MT_MEMBERS &&
	    !r->numbered[record->number]) {
		if (p)
			note_end(p, record->time); /* the record of its end was lost */
		return on_fork(r, record);
	}
	/* find_others() checks it later. */
	if (record->what == MT_GROUP_STRANGER || (record->what == MT_GROUP_EXEC && !p)) {
		if (r->n_strangers < STRANGERS_MAX)
			r->stranger[r->n_strangers++] = record->pid;
		else
			r->too_many_strangers = true;
		return 0;
	}
	if (!p)
		return 0;
	if (record->what == MT_GROUP_EXEC)
		note_exec(p, record->time);
	if (record->what == MT_GROUP_END)
		note_end(p, record->time);
	return 0;
}

static void read_group_records(void *ctx)
{
	struct tracees *r = ctx;

	if (get_group(r))
		proc_group__consume(get_group(r), on_group_record, r);
}

/* Marks execs and ends as due (execed, ended) once all earlier records were drained. Then passes on
 * or frees the numbers that were given up before. */
static void apply_records(struct tracees *r)
{
	const struct probes_sets *sets = r->opts.session.sets;
	bool exec[TRACEES_MAX] = { 0 }, end[TRACEES_MAX] = { 0 };
	size_t i, retired = r->n_retired;

	read_group_records(r);
	for (i = 0; i < r->top; i++) {
		exec[i] = r->at[i] && r->at[i]->exec_reported;
		end[i] = r->at[i] && r->at[i]->end_reported;
	}
	/* Drain all records that are older than these execs and ends. */
	for (i = 0; sets && i < sets->n; i++) {
		if (probes__consume(sets->set[i], NULL, NULL) < 0)
			return; /* the queue is full: try again later */
	}
	for (i = 0; i < r->top; i++) {
		if (exec[i])
			r->at[i]->exec_reported = false;
		if (r->at[i]) {
			r->at[i]->execed |= exec[i];
			r->at[i]->ended |= end[i];
		}
	}
	for (i = 0; i < retired; i++)
		if (!pass_number_on(r, r->retired[i]))
			proc_group__free_number(get_group(r), r->retired[i]);
	r->n_retired -= retired;
	memmove(r->retired, r->retired + retired, r->n_retired * sizeof(*r->retired));
}

/* ---- all processes ---- */

/* Warns of processes that could not be followed or recorded, when their number has grown. */
static void say_missed(struct tracees *r)
{
	struct proc_group *group = get_group(r);
	uint64_t missed = (group ? proc_group__missed(group) : 0) + r->unplaced;

	if (r->unrecorded)
		log_warn("%" PRIu64 " forked processes ended before one of %d places was free: "
			 "they are not recorded",
			 r->unrecorded, MT_MEMBERS - 1);
	r->unrecorded = 0;
	if (r->unprobed)
		log_warn("%" PRIu64 " forked processes ended before they were attached to: they "
			 "are not recorded (root may not open their PyTorch, so probes do not pass "
			 "on to children)",
			 r->unprobed);
	r->unprobed = 0;
	if (missed == r->missed_said)
		return;
	log_warn("%" PRIu64 " processes are not followed: no more than %d are at a time",
		 missed - r->missed_said, MT_WATCHED);
	r->missed_said = missed;
}

/* True if the process has ended. Does not wait: without a group, each pump calls it. */
static bool has_ended(const struct session *s)
{
	struct pollfd fd = { .fd = proc__pidfd(session__proc(s)), .events = POLLIN };

	return poll(&fd, 1, 0) > 0;
}

/* Finds ends and execs that no record reports: without a group all, otherwise those whose record
 * was lost. */
static void look_for_ends(struct tracees *r, uint64_t now)
{
	size_t i;

	if (get_group(r) && now < r->next_look)
		return;
	r->next_look = now + LOOK_EVERY;
	for (i = 0; i < r->top; i++) {
		struct tracee *p = r->at[i];

		if (p && (p->session ? has_ended(p->session) : !descendants__exists(p->pid)))
			note_end(p, now - LOOK_EVERY);
		else if (p && p->state == TRACED && session__replaced(p->session))
			note_exec(p, now);
	}
}

struct tracees *tracees__new(const struct tracees_opts *opts)
{
	struct tracees *r = calloc(1, sizeof(*r));
	struct epoll_event ev = { .events = EPOLLIN };
	bool only_pids = pick__only_pids(opts->pick);

	if (!r)
		return NULL;
	r->opts = *opts;
	r->wake = epoll_create1(EPOLL_CLOEXEC);
	if (r->wake < 0 ||
	    (get_group(r) &&
	     epoll_ctl(r->wake, EPOLL_CTL_ADD, proc_group__wake_fd(get_group(r)), &ev)) ||
	    (opts->endings &&
	     epoll_ctl(r->wake, EPOLL_CTL_ADD, ending_hooks__wake_fd(opts->endings), &ev))) {
		tracees__free(r);
		return NULL;
	}
	if (get_group(r) && only_pids && !opts->children)
		proc_group__alone(get_group(r));
	if (get_group(r) && (!only_pids || pick__open_ended(opts->pick)))
		proc_group__tell_untracked(get_group(r));
	return r;
}

void tracees__free(struct tracees *r)
{
	size_t i;

	if (!r)
		return;
	for (i = 0; i < r->top; i++) {
		if (r->at[i])
			remove_tracee(r->at[i], "");
	}
	probes__free(r->kept);
	if (r->wake >= 0)
		close(r->wake);
	free(r->seen);
	torch_scan__free(r->torch);
	owners__free(&r->owners);
	free(r);
}

int tracees__begin_output(struct tracees *r)
{
	return r->only ? begin_output(r->only) : EXIT_OK;
}

void tracees__pump(struct tracees *r)
{
	uint64_t now = clock__kernel();
	size_t i;

	read_endings(r);
	register_sets(r);
	look_for_ends(r, now);
	apply_records(r);
	find_others(r, now);
	trim_places(r);
	for (i = 0; i < r->top; i++) {
		if (r->at[i] && r->at[i]->scene)
			scene__tick(r->at[i]->scene, now);
		if (r->at[i])
			pump_tracee(r->at[i], now);
	}
	say_missed(r);
}

void tracees__drain_new(struct tracees *r)
{
	struct tracee *p;
	size_t i;
	int err;

	read_endings(r);
	apply_records(r);
	for (i = 0; i < r->top; i++) {
		p = r->at[i];
		if (p && p->state == FORKED && p->has_events)
			open_forked(p);
		if (!p || (p->execed && !follow_exec(p)) || p->state != TRACED)
			continue;
		err = session__drain_new(p->session, p->sink);
		if (err) {
			finish_tracee(p, "signal", err);
			p->state = OVER;
		}
	}
}

int tracees__poll_ms(const struct tracees *r)
{
	uint64_t now = clock__kernel(), next = r->n_strangers ? now : UINT64_MAX;
	size_t i;

	for (i = 0; i < r->top; i++) {
		const struct tracee *p = r->at[i];

		if (p && p->next < next &&
		    (p->state == WAITING || (p->state == FORKED && p->lacks_probes)))
			next = p->next;
	}
	if (next == UINT64_MAX)
		return -1;
	return next > now ? (int)((next - now + 999999) / 1000000) : 0;
}

bool tracees__quiet(const struct tracees *r)
{
	for (size_t i = 0; i < r->top; i++) {
		const struct tracee *p = r->at[i];

		if (p && (p->state != TRACED || !session__quiet(p->session)))
			return false;
	}
	return true;
}

int tracees__wake_fd(const struct tracees *r)
{
	return r->wake;
}

struct session *tracees__only(const struct tracees *r)
{
	return r->only ? r->only->session : NULL;
}

/* See tracees__hopeful(). */
static bool is_hopeful(const struct tracee *p)
{
	const struct tracees_opts *o = &p->all->opts;

	if (p->state != WAITING || o->only)
		return p->state == TRACED || (p->state == WAITING && p == p->all->only);
	return o->children || session_opts__any_process(&o->session) ||
	       session__has_python(p->session);
}

size_t tracees__hopeful(const struct tracees *r)
{
	size_t i, n = 0;

	for (i = 0; i < r->top; i++)
		n += r->at[i] && is_hopeful(r->at[i]);
	return n;
}

size_t tracees__traced(const struct tracees *r)
{
	return r->traced;
}

size_t tracees__ever(const struct tracees *r)
{
	return r->ever;
}

/* True if the capture has the process. */
static bool is_in(const struct tracees *r, pid_t pid)
{
	for (size_t i = 0; i < r->top; i++) {
		if (r->at[i] && r->at[i]->pid == pid)
			return true;
	}
	return false;
}

size_t tracees__left_out(const struct tracees *r, pid_t *parent, pid_t *first)
{
	pid_t children[LEFT_OUT_MAX];
	size_t most = 0;

	for (size_t i = 0; i < r->top; i++) {
		const struct tracee *t = r->at[i];
		size_t k, n_left_out = 0, n_children;
		pid_t child = 0;

		if (!t || !t->picked || t->state == OVER)
			continue;
		n_children = descendants__with_torch(t->pid, children, LEFT_OUT_MAX);
		for (k = 0; k < n_children && k < LEFT_OUT_MAX; k++) {
			if (is_in(r, children[k]))
				continue;
			child = n_left_out++ ? child : children[k];
		}
		if (n_left_out > most) {
			*parent = t->pid;
			*first = child;
			most = n_left_out;
		}
	}
	return most;
}

uint64_t tracees__now(const struct tracees *r)
{
	return r->begin ? clock__kernel() - r->begin : 0;
}

int tracees__finish(struct tracees *r, const char *reason)
{
	size_t i;

	apply_records(r);
	/* The end of a traced process begins the recordings of those that it forked, which may be
	 * anywhere in the list. Numbers are not freed meanwhile, so only so many can begin. */
	while (r->top) {
		for (i = 0; i < r->top; i++) {
			if (r->at[i] && r->at[i]->state != FORKED)
				remove_tracee(r->at[i], r->at[i]->ended ? "target exited" : reason);
		}
	}
	say_missed(r);
	if (r->hurries)
		setpriority(PRIO_PROCESS, 0, r->nice);
	r->hurries = false;
	return r->status;
}
