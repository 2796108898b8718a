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
#include "base/text.h"
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

static inline struct proc_group *get_group(const struct tracees *tracees)
{
	return tracees->opts.session.group;
}

/* ---- the table of processes ---- */

/* The running process with this PID, or NULL. */
static struct tracee *find_tracee(const struct tracees *tracees, pid_t pid)
{
	size_t i;

	for (i = 0; i < tracees->top; i++) {
		if (tracees->at[i] && tracees->at[i]->pid == pid && !tracees->at[i]->end_reported)
			return tracees->at[i];
	}
	return NULL;
}

/* Adds a process with this number, or 0. Takes over the owner, which may be NULL for lack of
 * memory. NULL: no room, and the number is free again. */
static struct tracee *add_tracee(struct tracees *tracees, pid_t pid, pid_t parent, uint32_t number,
				 struct owner *owner)
{
	struct tracee *tracee = NULL;
	size_t slot;

	for (slot = 0; slot < TRACEES_MAX && tracees->at[slot]; slot++)
		;
	if (slot < TRACEES_MAX && owner)
		tracee = calloc(1, sizeof(*tracee));
	if (!tracee) {
		if (get_group(tracees))
			proc_group__forget(get_group(tracees), pid, number);
		if (number)
			proc_group__free_number(get_group(tracees), number);
		owner__drop(owner);
		return NULL;
	}
	tracee->all = tracees;
	tracee->pid = pid;
	tracee->parent = parent;
	tracee->owner = owner;
	tracee->came = ++tracees->came;
	tracee->number = number;
	tracee->state = WATCHED;
	tracee->times = 1;
	tracee->slot = slot;
	tracees->at[slot] = tracee;
	if (slot >= tracees->top)
		tracees->top = slot + 1;
	if (number)
		tracees->numbered[number % MT_MEMBERS] = tracee;
	return tracee;
}

/* Takes over the number that the process's session may have got. */
static void take_over_number(struct tracee *tracee)
{
	uint32_t number = session__number(tracee->session);

	if (number == tracee->number)
		return;
	tracee->number = number;
	tracee->lacks_number = false;
	tracee->all->numbered[number % MT_MEMBERS] = tracee;
}

/* Takes the process's number away; it is free again once the rings are drained. */
static void retire_number(struct tracee *tracee)
{
	struct tracees *tracees = tracee->all;

	if (!tracee->number)
		return;
	proc_group__give_back(get_group(tracees), tracee->pid, tracee->number);
	tracees->numbered[tracee->number] = NULL;
	tracees->retired[tracees->n_retired++] = tracee->number;
	tracee->number = 0;
}

static void read_group_records(void *tracees);

/* Registers the sets of programs that sessions have added. */
static void register_sets(struct tracees *tracees)
{
	struct probes_sets *sets = tracees->opts.session.sets;
	struct epoll_event ev = { .events = EPOLLIN };
	size_t i;

	for (i = 0; sets && i < sets->n; i++) {
		probes__on_unknown(sets->set[i], read_group_records, tracees);
		epoll_ctl(tracees->wake, EPOLL_CTL_ADD, probes__wake_fd(sets->set[i]), &ev);
	}
}

/* The process waits for no number any longer. */
static void forget_heir(struct tracee *tracee)
{
	for (size_t i = 1; i < MT_MEMBERS; i++)
		if (tracee->all->heir[i] == tracee)
			tracee->all->heir[i] = NULL;
}

/* ---- which processes ---- */

/* True for programs that may import PyTorch. Scans find PyTorch in all others. */
static bool looks_like_python(const struct pick_process *process)
{
	char name[48], exe[PATH_MAX], *base;
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/%d/exe", (int)process->pid);
	n = readlink(name, exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = '\0';
	base = basename(exe);
	return text__starts(base, "python") || text__starts(base, "pypy") ||
	       text__starts(process->comm, "python");
}

/* Asks the helper process whether a process has PyTorch. */
static enum torch_scan_is has_torch(struct tracees *tracees, const struct pick_process *process)
{
	tracees->torch = tracees->torch ?: torch_scan__new(descendants__has_torch);
	return tracees->torch ? torch_scan__ask(tracees->torch, process) : TORCH_NO;
}

/* True if the capture wants the process. *later: not known yet. */
static bool is_picked(struct tracees *tracees, const struct pick_process *process, bool *later)
{
	enum pick_is choice = pick__is(tracees->opts.pick, process);
	enum torch_scan_is torch;

	*later = false;
	if (choice != PICK_IF_TORCH || looks_like_python(process))
		return choice != PICK_NO;
	torch = has_torch(tracees, process);
	*later = torch == TORCH_LATER;
	return torch == TORCH_YES;
}

/* The owner of a process, with a reference. NULL: out of memory. */
static struct owner *owner_of(struct tracees *tracees, pid_t pid)
{
	struct pick_process process;
	struct owner *ret;

	if (pick_process__read(pid, &process))
		return owners__named(&tracees->owners, "a user that is not known");
	ret = owners__of(&tracees->owners, &process);
	pick_process__free(&process);
	return ret;
}

/* Finds the owner again: the process may have changed its user before an exec. */
static void renew_owner(struct tracee *tracee)
{
	struct owner *owner = owner_of(tracee->all, tracee->pid);

	if (!owner)
		return;
	owner__drop(tracee->owner);
	tracee->owner = owner;
}

/* True if a process stays in the capture, after a fork by a process of the capture or after an
 * exec. Without a group an exec ends the capture. */
static bool stays_in(struct tracees *tracees, pid_t pid)
{
	struct pick_process process;
	bool ret, later;

	if (tracees->opts.children || !get_group(tracees))
		return tracees->opts.children;
	if (pick_process__read(pid, &process))
		return true; /* it has ended, and its record follows */
	ret = is_picked(tracees, &process, &later);
	pick_process__free(&process);
	return ret;
}

/* Remembers a traced process for --follow. */
static void remember_tracee(const struct tracee *tracee)
{
	struct pick_process process;

	if (!tracee->picked || pick_process__read(tracee->pid, &process))
		return;
	pick__remember(tracee->all->opts.pick, &process);
	pick_process__free(&process);
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
	ssize_t len[2];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/%d/exe", (int)(i ? b : a));
		len[i] = readlink(path, exe[i], sizeof(exe[i]));
	}
	return len[0] > 0 && len[0] == len[1] && !memcmp(exe[0], exe[1], (size_t)len[0]);
}

/* True if the parent belongs to the program: it is in the capture, or has the same interpreter and
 * session. Shells, terminals and supervisors do not belong to it. */
static bool belongs(const struct tracees *tracees, const struct pick_process *child,
		    const struct pick_process *parent)
{
	return find_tracee(tracees, parent->pid) ||
	       (getsid(parent->pid) == getsid(child->pid) && getsid(child->pid) > 0 &&
		same_program(parent->pid, child->pid));
}

static void put_process(struct json *j, const struct pick_process *process)
{
	char title[TITLE];

	json__open_object(j, NULL);
	json__uint(j, "pid", (uint64_t)process->pid);
	json__uint(j, "started", process->started);
	json__string(j, "title", pick_process__title(process, title, sizeof(title)));
	json__close_object(j);
}

/* Writes the ancestors, nearest first. Returns their number. */
static size_t put_ancestors(struct json *json, const struct tracee *tracee)
{
	struct pick_process child, parent;
	size_t n = 0;

	if (pick_process__read(tracee->pid, &child))
		return 0;
	/* After the parent's end, /proc has another one. */
	if (tracee->is_child && tracee->parent > 0)
		child.parent = tracee->parent;
	while (n < ANCESTORS_MAX && child.parent > 1 &&
	       !pick_process__read(child.parent, &parent)) {
		/* If it is younger than its child, it got the PID of the parent, which has ended. */
		if (parent.started > child.started || !belongs(tracee->all, &child, &parent)) {
			pick_process__free(&parent);
			break;
		}
		put_process(json, &parent);
		n++;
		pick_process__free(&child);
		child = parent;
	}
	pick_process__free(&child);
	return n;
}

/* Sets the fact about the processes that started this one. */
static void set_ancestors(const struct tracee *tracee)
{
	char *text = NULL;
	size_t size, n = 0;
	FILE *out = open_memstream(&text, &size);
	struct json *json = out ? json__new(out, false) : NULL;

	if (json) {
		json__open_array(json, NULL);
		n = put_ancestors(json, tracee);
		json__close_array(json);
	}
	json__free(json);
	if (out && !fclose(out) && n) {
		text[strcspn(text, "\n")] = '\0';
		facts__set(session__facts(tracee->session), "ancestors", text);
	}
	free(text);
}

/* ---- how traced processes end, and their memory at that moment ---- */

/* A signal will end the process: reads its memory at once. */
static void on_signal(void *ctx, const struct mt_rec_ending *record)
{
	struct tracee *tracee = find_tracee(ctx, (pid_t)record->pid);

	if (tracee && tracee->scene)
		scene__read(tracee->scene, record);
}

/* Takes what the kernel reports about ends, and reads the memory of processes that end now. */
static void read_endings(struct tracees *tracees)
{
	if (tracees->opts.endings)
		ending_hooks__consume(tracees->opts.endings, on_signal, tracees);
}

/* Makes the kernel report how the process ends. Call it before the attach, which the process may
 * not survive. */
static void follow_ending(struct tracee *tracee)
{
	const struct tracees_opts *o = &tracee->all->opts;
	int err;

	/* A group's programs know the process already. */
	err = !o->endings || o->session.group ? 0 : ending_hooks__follow(o->endings, tracee->pid);
	if (err)
		log_warn("PID %d: the recording will not say how it ended: %s", (int)tracee->pid,
			 strerror(-err));
}

/* Sets the facts about the end of a process that has ended. */
static void set_ending_facts(struct tracee *tracee)
{
	const struct tracees_opts *o = &tracee->all->opts;
	struct oom_report report;
	struct mt_rec_ending r;
	uint64_t start;
	bool known;
	int err;

	if (!o->endings)
		return;
	read_endings(tracee->all);
	/* tracee->since would be too late: from Linux 6.16 on, a process keeps its memory for a
	 * moment after the record of its end, so that an attach after the record may succeed. */
	known = ending_hooks__take(o->endings, tracee->pid,
				   tracee->followed ? tracee->followed : tracee->since, &r);
	/* Unless the process ended well, read the memory of its cgroup and of other processes. */
	if (tracee->scene && (!known || r.status))
		scene__read(tracee->scene, known ? &r : NULL);
	if (!tracee->scene)
		return;
	if (known && r.flags & MT_ENDING_VICTIM &&
	    ending_hooks__oom_report(o->endings, tracee->pid, &report))
		scene__take_report(tracee->scene, &report);
	start = session__start(tracee->session) ?: tracee->followed;
	err = scene__set_facts(tracee->scene, session__facts(tracee->session), known ? &r : NULL,
			       start);
	if (err)
		log_debug("PID %d: facts about its end: %s", (int)tracee->pid, strerror(-err));
}

/* Queues a record of a forked process. */
static int queue_early(void *tracee, const void *rec, size_t len)
{
	const struct mt_hdr *header = rec;
	struct tracee *p = tracee;

	p->has_events = p->has_events || header->type != MT_REC_CODE_GONE;
	return queue__push_early(&p->early, rec, len, QUEUE_EARLY);
}

/* Drops the records of a forked process, and what they need. */
static void drop_early(struct tracee *tracee)
{
	if (tracee->early_from) {
		probes__feed(tracee->early_from, tracee->number, /*fn=*/NULL, NULL);
		probes__reset_counters(tracee->early_from, tracee->number);
		probes__free(tracee->early_from);
	}
	tracee->early_from = NULL;
	tracee->forked_by = NULL;
	free(tracee->early.buf);
	tracee->early = (struct queue){ 0 };
	tracee->has_events = false;
}

/* Drops the queues that refer to a session before it is freed. Counts processes that lose records
 * by this. */
static void orphan_forked_by(struct tracees *tracees, const struct session *session)
{
	size_t i;

	for (i = 0; i < tracees->top && session; i++) {
		if (!tracees->at[i] || tracees->at[i]->forked_by != session)
			continue;
		tracees->unrecorded += tracees->at[i]->has_events;
		drop_early(tracees->at[i]);
		tracees->at[i]->state = WATCHED;
	}
}

static void open_forked(struct tracee *p);

/* Opens the sessions of all processes that this session's process has forked. */
static void open_all_forked_by(struct tracees *tracees, const struct session *session)
{
	size_t i;

	for (i = 0; i < tracees->top; i++) {
		if (!tracees->at[i] || tracees->at[i]->state != FORKED ||
		    tracees->at[i]->forked_by != session)
			continue;
		open_forked(tracees->at[i]);
		/* open_forked() drains the ring, and may add a process at any index. So begin
		 * again. */
		i = (size_t)-1;
	}
}

/* Keeps the exit code of the first failure. */
static void keep_status(struct tracees *tracees, int status)
{
	if (!tracees->status)
		tracees->status = status;
}

/* Logs the end of a recording. reason: "target exited", "exec", "signal" or a bound of the
 * capture. */
static void say_stopped(const struct tracee *tracee, const char *reason, int err)
{
	const struct session *session = tracee->session;

	log_event(LOG_DEBUG, "stopped",
		  LOG_FIELDS(LOG_INT("target", tracee->pid), LOG_STRING("reason", reason),
			     LOG_UINT("events", session__events(session)),
			     LOG_UINT("lost", session__lost(session)),
			     LOG_UINT("steps", session__steps(session)), LOG_INT("error", err)),
		  "PID %d: stopped: %s", (int)tracee->pid, err ? strerror(-err) : reason);
	/* `run` logs the end of its command. */
	if (err || tracee != tracee->all->only || tracee->all->opts.session.started)
		return;
	if (!strcmp(reason, "target exited"))
		log_event(LOG_INFO, "ended", LOG_FIELDS(LOG_INT("target", tracee->pid)),
			  "PID %d has ended", (int)tracee->pid);
	else if (!strcmp(reason, "exec") && !get_group(tracee->all))
		log_event(LOG_INFO, "exec", LOG_FIELDS(LOG_INT("target", tracee->pid)),
			  "PID %d runs another program now (exec): attach again to trace that",
			  (int)tracee->pid);
}

/* Says how the process of opts.only ended that was waited for, if it did not end well. */
static void say_ended_early(const struct tracee *tracee)
{
	char text[512];

	ending__text(text, sizeof(text), session__facts(tracee->session));
	if (tracee == tracee->all->only && !tracee->all->opts.session.started && *text)
		log_warn("PID %d: %s", (int)tracee->pid, text);
}

/* Ends the session and the output; the process stays. reason and err: as in session__finish() and
 * end(). */
static void finish_tracee(struct tracee *tracee, const char *reason, int err)
{
	bool ended = !strcmp(reason, "target exited");
	int ret;

	if (tracee->state == WAITING && ended) {
		set_ending_facts(tracee);
		say_ended_early(tracee);
	}
	if (tracee->state == TRACED) {
		open_all_forked_by(tracee->all, tracee->session);
		if (ended)
			set_ending_facts(tracee);
		ret = session__finish(tracee->session, tracee->sink, reason);
		/* The last drain may have brought more of them. */
		open_all_forked_by(tracee->all, tracee->session);
		err = err ? err : ret;
		say_stopped(tracee, reason, err);
		tracee->all->traced--;
	}
	if (tracee->output)
		keep_status(tracee->all,
			    tracee->all->opts.output->end(tracee->output, reason, err));
	tracee->state = WATCHED;
	orphan_forked_by(tracee->all, tracee->session);
	session__free(tracee->session);
	scene__free(tracee->scene);
	tracee->session = NULL;
	tracee->scene = NULL;
	tracee->output = NULL;
	drop_early(tracee);
	retire_number(tracee);
}

/* Ends, removes and frees the process. */
static void remove_tracee(struct tracee *tracee, const char *reason)
{
	struct tracees *tracees = tracee->all;

	finish_tracee(tracee, reason, 0);
	if (tracee->ended)
		pick__ended(tracees->opts.pick, tracee->pid, tracee->end);
	forget_heir(tracee);
	if (get_group(tracees) &&
	    !tracee->end_reported) /* otherwise the PID may belong to another process */
		proc_group__forget(get_group(tracees), tracee->pid, tracee->number);
	tracees->at[tracee->slot] = NULL;
	while (tracees->top && !tracees->at[tracees->top - 1])
		tracees->top--;
	if (tracees->only == tracee)
		tracees->only = NULL;
	owner__drop(tracee->owner);
	free(tracee);
}

/* Begins the output of a process. Returns 0 or an exit code, logged. */
static int begin_output(struct tracee *tracee)
{
	const struct tracees_opts *o = &tracee->all->opts;

	tracee->output = o->output->begin(o->ctx, tracee->session, tracee->pid, tracee->times++,
					  &tracee->sink);
	return tracee->output ? EXIT_OK : EXIT_FAILED;
}

/* Begins to trace an attached or forked process. False: its output failed. */
static bool begin_tracing(struct tracee *tracee)
{
	struct tracees *tracees = tracee->all;
	int status;

	if (tracee->is_child)
		session__set_parent(tracee->session, tracee->parent);
	session__set_process(tracee->session);
	set_ancestors(tracee);
	remember_tracee(tracee);
	status = tracee->output ? EXIT_OK : begin_output(tracee);
	if (!status && tracees->opts.output->attached)
		status = tracees->opts.output->attached(tracee->output);
	if (status) {
		keep_status(tracees, status);
		finish_tracee(tracee, "signal", 0);
		tracee->state = OVER;
		return false;
	}
	tracee->state = TRACED;
	if (tracees->opts.endings && !tracee->scene)
		tracee->scene = scene__new(tracee->pid);
	if (pick__open_ended(tracees->opts.pick)) {
		probes__free(tracees->kept);
		tracees->kept = probes__share_set(session__probes(tracee->session));
	}
	tracees->traced++;
	tracees->ever++;
	if (!tracees->begin)
		tracees->begin = clock__kernel();
	return true;
}

/* Opens the session of a forked process, which begins to be traced. */
static void open_forked(struct tracee *tracee)
{
	struct session *by = tracee->forked_by;
	struct failure failure;

	tracee->session = session__new_forked(by, tracee->pid, tracee->number, tracee->forked,
					      tracee->diverged, &tracee->early, &failure);
	if (!tracee->session) {
		log_warn("%s", failure.text);
		finish_tracee(tracee, "", 0);
		return;
	}
	probes__free(tracee->early_from);
	tracee->early_from = NULL;
	tracee->forked_by = NULL;
	if (begin_tracing(tracee))
		log_event(LOG_INFO, "attached",
			  LOG_FIELDS(LOG_INT("target", tracee->pid),
				     LOG_INT("parent", tracee->parent), LOG_BOOL("forked", true)),
			  "following PID %d, forked by PID %d%s", (int)tracee->pid,
			  (int)tracee->parent,
			  tracee->lacks_probes ? "; PyTorch may have allocated before" : "");
	tracee->lacks_probes = false;
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

static void add_to_table(struct table *table, struct tracee *tracee, unsigned rank)
{
	table->places[table->n] = (struct place){ .owner = tracee->owner,
						  .rank = rank,
						  .came = tracee->came };
	table->holders[table->n++] = tracee;
}

/* Rank for shares__choose(): processes of the lowest rank lose their place first. */
static unsigned rank_of_place(const struct tracee *tracee)
{
	if (tracee->given || tracee->state == TRACED || tracee->state == OVER)
		return KEPT;
	if (!pick__needs_torch(tracee->all->opts.pick) || tracee->state == FORKED ||
	    (tracee->session && session__found_torch(tracee->session)))
		return FOLLOWED;
	return WITHOUT_TORCH;
}

/* Lists the processes that have a place. */
static void list_places(const struct tracees *tracees, struct table *table)
{
	table->n = 0;
	for (size_t i = 0; i < tracees->top; i++)
		if (tracees->at[i] && !tracees->at[i]->end_reported)
			add_to_table(table, tracees->at[i], rank_of_place(tracees->at[i]));
}

/* Rank for shares__choose(): processes of the lowest rank lose their number first. */
static unsigned rank_of_number(const struct tracee *tracee)
{
	if (tracee->given)
		return GIVEN;
	return tracee->state == TRACED || (tracee->state == FORKED && tracee->has_events) ? RECORDED
											  : IDLE;
}

/* Lists the processes that have a number. */
static void list_numbers(const struct tracees *tracees, struct table *table)
{
	table->n = 0;
	for (size_t i = 1; i < MT_MEMBERS; i++)
		if (tracees->numbered[i] && !tracees->numbered[i]->end_reported)
			add_to_table(table, tracees->numbered[i],
				     rank_of_number(tracees->numbered[i]));
}

/* Says once for each owner that some of its processes are not followed. */
static void say_refused(const struct table *table, pid_t pid, struct owner *owner)
{
	const struct owner *most = shares__largest(table->places, table->n);

	if (owner->said || !most)
		return;
	owner->said = true;
	log_warn("PID %d and maybe more of %s are not followed: %d processes are, the most at a "
		 "time, and %zu of them are of %s. Choose fewer: a longer --name, or --container",
		 (int)pid, owner->name, MT_WATCHED, most->places, most->name);
}

/* Warns once for each owner that a process lost its place. */
static void say_replaced(const struct tracee *tracee, const struct owner *for_whom)
{
	if (tracee->owner->said)
		return;
	tracee->owner->said = true;
	log_warn("PID %d and maybe more of %s are not followed any longer: %d processes are, the "
		 "most at a time, and %s gets its share of them",
		 (int)tracee->pid, tracee->owner->name, MT_WATCHED, for_whom->name);
}

/* Makes room for a process of this owner if all places are taken. May remove and free another
 * process. 0, or -ENOSPC, with a warning: others have no more than their share. */
static int make_room(struct tracees *tracees, struct owner *owner,
		     const struct pick_process *process)
{
	struct table table;
	unsigned rank = pick__needs_torch(tracees->opts.pick) ? WITHOUT_TORCH : FOLLOWED;
	size_t i;

	list_places(tracees, &table);
	if (table.n < MT_WATCHED)
		return 0;
	i = shares__choose(table.places, table.n, owner, rank);
	if (i == SHARES_NONE && rank == WITHOUT_TORCH && has_torch(tracees, process) == TORCH_YES)
		i = shares__choose(table.places, table.n, owner, FOLLOWED);
	if (i == SHARES_NONE) {
		say_refused(&table, process->pid, owner);
		return -ENOSPC;
	}
	if (table.holders[i]->owner != owner)
		say_replaced(table.holders[i], owner);
	remove_tracee(table.holders[i], "");
	return 0;
}

/* Removes forked processes above the number of places, from the owners with the most. A newcomer
 * without places stands for the process that needs a place. */
static void trim_places(struct tracees *tracees)
{
	struct owner newcomer = { 0 };
	struct table table;
	size_t i;

	for (;;) {
		list_places(tracees, &table);
		i = table.n > MT_WATCHED
			    ? shares__choose(table.places, table.n, &newcomer, FOLLOWED)
			    : SHARES_NONE;
		if (i == SHARES_NONE)
			return;
		say_refused(&table, table.holders[i]->pid, table.holders[i]->owner);
		remove_tracee(table.holders[i], "");
	}
}

/* ---- numbers ---- */

/* Ends the recording of a process that loses its number to another owner. n_owned: numbers that its
 * owner had. */
static void end_recording(struct tracee *tracee, const struct owner *for_whom, size_t n_owned)
{
	if (rank_of_number(tracee) == IDLE) {
		log_debug("PID %d: its number goes to %s", (int)tracee->pid, for_whom->name);
		finish_tracee(tracee, "", 0);
		return;
	}
	log_warn("PID %d: its recording ends here: %s has %zu of the %d recordings at a time, and "
		 "%s gets its share of them",
		 (int)tracee->pid, tracee->owner->name, n_owned, MT_MEMBERS - 1, for_whom->name);
	finish_tracee(tracee, "share", 0);
	tracee->state = OVER;
}

/* True if the process gets a number once the rings are drained. */
static bool has_number_to_come(const struct tracees *tracees, const struct tracee *tracee)
{
	for (size_t i = 1; i < MT_MEMBERS; i++)
		if (tracees->heir[i] == tracee)
			return true;
	return false;
}

/* For tracee, which waits for a number: takes the number of another process, whose owner has more
 * places. tracee gets it once the rings are drained. */
static void free_a_number(struct tracee *tracee)
{
	struct tracees *tracees = tracee->all;
	unsigned rank = session__found_torch(tracee->session) ? RECORDED : IDLE;
	struct tracee *loser;
	struct table table;
	uint32_t number;
	size_t i;

	if (has_number_to_come(tracees, tracee))
		return;
	list_numbers(tracees, &table);
	if (table.n + tracees->n_retired < MT_MEMBERS - 1)
		return; /* one is free by now */
	i = shares__choose(table.places, table.n, tracee->owner, rank);
	if (i == SHARES_NONE) {
		if (!tracees->short_said)
			log_warn("%d processes are recorded, the most at a time: others wait until "
				 "one ends",
				 MT_MEMBERS - 1);
		tracees->short_said = true;
		return;
	}
	loser = table.holders[i];
	number = loser->number;
	end_recording(loser, tracee->owner, shares__count(table.places, table.n, loser->owner));
	tracees->heir[number] = tracee;
}

/* Gives a number whose last records were read to the process that it was taken for. False: the
 * number can be freed. */
static bool pass_number_on(struct tracees *tracees, uint32_t number)
{
	struct tracee *tracee = tracees->heir[number];

	tracees->heir[number] = NULL;
	if (!tracee || tracee->number || tracee->state != WAITING || !tracee->session ||
	    proc_group__hand_over(tracees->opts.session.group, number, tracee->pid))
		return false;
	session__give_number(tracee->session, number);
	take_over_number(tracee);
	tracee->next = 0;
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
static void hurry(struct tracees *tracees)
{
	struct sched_param param = { 0 };

	if (tracees->hurries)
		return;
	tracees->nice = getpriority(PRIO_PROCESS, 0);
	tracees->hurries = !sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &param) &&
			   !setpriority(PRIO_PROCESS, 0, NICE_DRAINING);
	if (!tracees->hurries)
		log_debug("the priority is as before: %s", strerror(errno));
}

void tracees__limit_caps(struct tracees *tracees)
{
	bool perf = !tracees->opts.session.inside && probes__kernel_perf();
	int err;

	hurry(tracees);
	err = caps__limit(tracees->opts.caps | (perf ? CAPS_PERF : 0));
	if (err)
		log_debug("cannot give up capabilities: %s", strerror(-err));
}

/* Begins to wait for PyTorch. Returns 0, or negative with *failure. */
static int await_torch(struct tracee *tracee, struct failure *failure)
{
	struct session_opts opts = tracee->all->opts.session;
	bool first = tracee == tracee->all->only && !tracee->times;

	opts.number = tracee->number;
	opts.started = opts.started && first;
	/* A launcher may never have PyTorch itself. */
	opts.late = !opts.started && (opts.group || !first);
	tracee->followed = clock__kernel();
	follow_ending(tracee);
	if (tracee == tracee->all->only && tracee->all->opts.endings && !tracee->scene)
		tracee->scene = scene__new(tracee->pid);
	tracee->since = clock__kernel();
	tracee->session = session__new(tracee->pid, &opts, failure);
	tracee->state = tracee->session ? WAITING : WATCHED;
	tracee->next = tracee->session ? 0 : UINT64_MAX;
	return tracee->session ? 0 : -ESRCH;
}

/* Begins to wait for PyTorch in a process whose failure does not end the capture. */
static void try_to_await(struct tracee *tracee)
{
	struct failure failure;

	if (await_torch(tracee, &failure))
		log_debug("%s", failure.text);
}

/* True if a picked process will hardly import PyTorch: its number is given back. */
static bool is_hopeless(const struct tracee *tracee, uint64_t now)
{
	const struct tracees *tracees = tracee->all;
	size_t i, n_numbers = 0;

	if (tracees->opts.only || tracees->opts.children || !tracee->picked ||
	    now <= tracee->since || session_opts__any_process(&tracees->opts.session))
		return false;
	if (!session__has_python(tracee->session))
		return now - tracee->since > NO_PYTHON;
	/* it may import PyTorch later; its number is needed only if numbers are short */
	for (i = 1; i < MT_MEMBERS; i++)
		n_numbers += tracees->numbered[i] != NULL;
	return n_numbers >= NUMBERS_SHORT && !pick__only_pids(tracees->opts.pick) &&
	       now - tracee->since > NO_TORCH;
}

/* Stops following a picked process that will hardly import PyTorch. A later scan may find it
 * again. */
static void give_up(struct tracee *tracee)
{
	if (session__has_python(tracee->session))
		log_debug("PID %d has no PyTorch so far: checking it from time to time",
			  (int)tracee->pid);
	else if (pick__only_pids(tracee->all->opts.pick))
		log_warn("PID %d has no Python interpreter, PyTorch or CUDA in it: not traced "
			 "(--children follows what it starts)",
			 (int)tracee->pid);
	remove_tracee(tracee, "");
}

/* Says what is recorded of a process without PyTorch. */
static void say_what_it_lacks(const struct tracee *tracee)
{
	const struct session_opts *asked = &tracee->all->opts.session;
	bool waits = session__has_interpreter(tracee->session) && !asked->started;

	if (session__uses_cuda(tracee->session)) {
		log_info(
			"PID %d uses CUDA without PyTorch: recording its calls into CUDA%s; it may "
			"have taken memory before",
			(int)tracee->pid, asked->host ? ", and its host memory" : "");
		return;
	}
	log_info("PID %d has neither PyTorch nor CUDA: recording its host memory%s",
		 (int)tracee->pid,
		 waits ? ". If it imports PyTorch, its tensors, too (--wait-for torch begins then)"
		       : "");
}

/* Says that the process of opts.only is traced. start: from PyTorch's first allocation on. */
static void say_only_traced(const struct tracee *tracee, bool start)
{
	const char *problem = session__python_problem(tracee->session);
	const char *after = "; PyTorch may have allocated before";

	if (session__no_torch(tracee->session))
		say_what_it_lacks(tracee);
	if (problem)
		log_warn("no Python lines: %s", problem);
	if (session__no_torch(tracee->session))
		after = "";
	else if (start)
		after = " from PyTorch's first allocation on";
	if (tracee->all->opts.session.started)
		log_event(LOG_INFO, "attached",
			  LOG_FIELDS(LOG_INT("target", tracee->pid), LOG_BOOL("from_start", start)),
			  "recording PID %d%s", (int)tracee->pid, after);
	else
		log_event(LOG_INFO, "attached",
			  LOG_FIELDS(LOG_INT("target", tracee->pid), LOG_BOOL("from_start", false)),
			  "attached to PID %d; until %s, Ctrl-C stops earlier", (int)tracee->pid,
			  tracee->all->opts.until);
}

/* Logs that a recording has begun. */
static void say_traced(const struct tracee *tracee)
{
	const char *at = facts__get(session__facts(tracee->session), "attached_at");
	bool start = at && !strcmp(at, "start");
	const char *how = "; PyTorch may have allocated before";
	struct pick_process process;
	char title[96];

	if (session__no_torch(tracee->session))
		how = ", which has no PyTorch";
	else if (start)
		how = ", from PyTorch's first allocation on";
	if (tracee == tracee->all->only && tracee->times == 1) {
		say_only_traced(tracee, start);
		return;
	}
	if (tracee->is_child || pick_process__read(tracee->pid, &process)) {
		log_event(LOG_INFO, "attached",
			  LOG_FIELDS(LOG_INT("target", tracee->pid),
				     LOG_INT("parent", tracee->parent),
				     LOG_BOOL("from_start", start)),
			  "following PID %d, started by PID %d%s", (int)tracee->pid,
			  (int)tracee->parent, how);
		return;
	}
	pick_process__title(&process, title, sizeof(title));
	log_event(LOG_INFO, "attached",
		  LOG_FIELDS(LOG_INT("target", tracee->pid), LOG_STRING("title", title),
			     LOG_BOOL("from_start", start)),
		  "attached to PID %d (%s)%s", (int)tracee->pid, title, how);
	pick_process__free(&process);
}

/* Logs why a process is not traced. The failure of opts.only is that of the capture. */
static void cannot_attach(struct tracee *tracee, const struct failure *failure)
{
	if (tracee == tracee->all->only) {
		log_err("%s", failure->text);
		keep_status(tracee->all, failure->status);
	} else {
		log__print(tracee->picked ? LOG_WARN : LOG_DEBUG, "PID %d is not traced: %s",
			   (int)tracee->pid, failure->text);
	}
	finish_tracee(tracee, "", 0);
	tracee->next = UINT64_MAX;
}

/* Without a group the process's own programs wake the loop. */
static void add_wake(const struct tracee *tracee)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (!get_group(tracee->all))
		epoll_ctl(tracee->all->wake, EPOLL_CTL_ADD, session__wake_fd(tracee->session), &ev);
}

/* Attaches if PyTorch is there; otherwise sets the time of the next attempt. The process's number
 * is its place in the tables of the BPF programs; attaching needs one. */
static void try_to_attach(struct tracee *tracee, uint64_t now)
{
	const uint64_t before = clock__kernel(); /* an exec while it attaches is a later one */
	struct failure failure;
	int err = session__attach(tracee->session, &failure);

	take_over_number(tracee);
	if (err == -EAGAIN) {
		tracee->next = now + session__poll_ms(tracee->session) * 1000000ULL;
		if (session__lacks_number(tracee->session)) {
			tracee->next = now + NUMBER_AGAIN;
			free_a_number(tracee);
		}
		return;
	}
	register_sets(tracee->all);
	if (err) {
		cannot_attach(tracee, &failure);
		return;
	}
	tracee->since = before;
	add_wake(tracee);
	if (!begin_tracing(tracee))
		return;
	if (tracee == tracee->all->only)
		tracees__limit_caps(tracee->all);
	say_traced(tracee);
}

/* Applies an exec: ends the recording of the old program, and waits for PyTorch in the new one if
 * the process stays in the capture. False: the process was removed and freed. */
static bool follow_exec(struct tracee *tracee)
{
	tracee->execed = false;
	if (tracee->state == FORKED && tracee->has_events)
		open_forked(tracee);
	/* A session that was attached after the exec has the new program already. */
	if ((tracee->state == TRACED && tracee->exec >= tracee->since) || tracee->state == FORKED)
		finish_tracee(tracee, "exec", 0);
	if (!tracee->ended)
		renew_owner(tracee);
	if (!tracee->ended && !stays_in(tracee->all, tracee->pid)) {
		remove_tracee(tracee, "exec");
		return false;
	}
	if (tracee->state == WAITING) /* the session notices an exec itself */
		tracee->since = clock__kernel();
	else if (tracee->state != TRACED && !tracee->ended)
		try_to_await(tracee);
	return true;
}

/* The reason to end the recording of a process; NULL: none. */
static const char *bound_reached(const struct tracee *tracee)
{
	const struct tracees_opts *o = &tracee->all->opts;

	if (o->session.steps && session__steps(tracee->session) >= o->session.steps)
		return "steps";
	return o->output->full ? o->output->full(tracee->output) : NULL;
}

/* Applies execs and ends, and drains the session. May free the process. */
static void pump_tracee(struct tracee *tracee, uint64_t now)
{
	const char *reason;
	int err;

	if (tracee->execed && !follow_exec(tracee))
		return;
	if (tracee->state == FORKED &&
	    (tracee->has_events || (tracee->lacks_probes && !tracee->ended && now >= tracee->next)))
		open_forked(tracee);
	if (tracee->ended) {
		remove_tracee(tracee, "target exited");
		return;
	}
	if (tracee->state == WATCHED && now >= tracee->next)
		try_to_await(tracee);
	if (tracee->state == WAITING && now >= tracee->next)
		try_to_attach(tracee, now);
	if (tracee->state == WAITING && is_hopeless(tracee, now)) {
		give_up(tracee);
		return;
	}
	if (tracee->state != TRACED)
		return;
	err = session__pump(tracee->session, tracee->sink);
	reason = err ? "signal" : bound_reached(tracee);
	if (!reason)
		return;
	finish_tracee(tracee, reason, err);
	tracee->state = OVER;
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
static int add_process(struct tracees *tracees, const struct pick_process *process,
		       struct tracee **ret)
{
	struct owner *owner = owners__of(&tracees->owners, process);
	int err;

	*ret = NULL;
	if (!owner)
		return -ENOMEM;
	err = make_room(tracees, owner, process);
	if (err)
		goto no_place;
	err = get_group(tracees) ? proc_group__add(get_group(tracees), process->pid) : 0;
	if (err)
		goto no_place;
	*ret = add_tracee(tracees, process->pid, process->parent, 0, owner);
	return *ret ? 0 : -ENOMEM;
no_place:
	owner__drop(owner);
	return err;
}

/* Reads a process; of one that has ended meanwhile only its PID is known. */
static struct pick_process read_process(pid_t pid)
{
	struct pick_process process;

	return pick_process__read(pid, &process) ? (struct pick_process){ .pid = pid } : process;
}

/* Adds the existing child processes and their children, until a search finds no new one. The kernel
 * reports children that added processes fork. */
static void add_descendants(struct tracees *tracees, pid_t pid)
{
	pid_t pids[DESCENDANTS_MAX], parents[DESCENDANTS_MAX];
	size_t i, n, found = 1;
	struct tracee *tracee;
	int tries, err;

	for (tries = 0; found && tries < SCANS; tries++) {
		n = descendants__list(pid, pids, parents, DESCENDANTS_MAX);
		for (found = 0, i = 0; i < n; i++) {
			struct pick_process process = read_process(pids[i]);

			process.parent = parents[i];
			err = add_process(tracees, &process, &tracee);
			pick_process__free(&process);
			if (err)
				continue;
			tracee->is_child = true;
			found++;
		}
	}
}

/* Adds a picked process, which waits for PyTorch, and its children. Returns 0, or negative with
 * *failure: the process cannot be waited for. */
static int take_process(struct tracees *tracees, const struct pick_process *process,
			struct failure *failure)
{
	bool only = process->pid == tracees->opts.only,
	     given = pick__is_given(tracees->opts.pick, process);
	struct tracee *tracee;
	int err = add_process(tracees, process, &tracee);

	if (err)
		return only ? failure__set(failure, EXIT_FAILED, err,
					   "PID %d cannot be followed: %s", (int)process->pid,
					   strerror(-err))
			    : 0;
	tracee->picked = true;
	tracee->given = given;
	if (only) {
		tracees->only = tracee;
		tracee->times = 0;
	}
	if (process->cmdline)
		pick__remember(tracees->opts.pick, process);
	err = await_torch(tracee, failure);
	if (tracees->opts.children)
		add_descendants(tracees, process->pid);
	return err;
}

int tracees__take(struct tracees *tracees, pid_t pid, struct failure *failure)
{
	struct pick_process process;
	int err;

	if (find_tracee(tracees, pid))
		return 0; /* given twice */
	process = read_process(pid);
	err = take_process(tracees, &process, failure);
	pick_process__free(&process);
	return err;
}

/* Adds a process that a scan or an exec has found. */
static void pick_found(struct tracees *tracees, const struct pick_process *process)
{
	struct failure failure;

	if (take_process(tracees, process, &failure))
		log_debug("%s", failure.text);
}

/* Adds a process outside the capture that called exec, if the capture wants it now. If that is not
 * known yet, a scan of /proc checks the process again. */
static void look_at_stranger(struct tracees *tracees, pid_t pid)
{
	struct pick_process process;
	bool later; /* not used */

	if (find_tracee(tracees, pid) || pick_process__read(pid, &process))
		return;
	if (is_picked(tracees, &process, &later))
		pick_found(tracees, &process);
	pick_process__free(&process);
}

/* ---- scan of /proc ---- */

/* Adds a process that the capture wants; otherwise notes in *seen whether it may get PyTorch later.
 */
static void check_process(struct tracees *tracees, struct seen *seen)
{
	struct pick_process process;
	bool later;

	if (pick_process__read(seen->pid, &process))
		return;
	if (is_picked(tracees, &process, &later))
		pick_found(tracees, &process);
	else if (pick__is(tracees->opts.pick, &process) == PICK_IF_TORCH)
		seen->pages = later ? LATER : descendants__pages(seen->pid);
	pick_process__free(&process);
}

/* Checks a process again if it has mapped more memory since the last scan: otherwise it cannot have
 * PyTorch now. */
static void check_if_grown(struct tracees *tracees, struct seen *s, uint64_t pages_before)
{
	s->pages = descendants__pages(s->pid);
	if (s->pages && s->pages != pages_before)
		check_process(tracees, s);
}

/* Checks a process of a scan. before: its entry of the last scan; NULL: it is new. all: also checks
 * processes that were not wanted then. */
static void check_seen(struct tracees *tracees, struct seen *s, const struct seen *before, bool all)
{
	if (find_tracee(tracees, s->pid))
		return;
	if (!before || (all && !before->pages))
		check_process(tracees, s);
	else if (before->pages)
		check_if_grown(tracees, s, before->pages);
}

/* Checks all processes of /proc. Those that the last scan has rejected are checked again only if
 * they have grown, or in every tenth scan. */
static void scan_processes(struct tracees *tracees)
{
	bool check_all = !(tracees->scans++ % FULL_SCAN_EVERY) || tracees->too_many_strangers;
	DIR *dir = opendir("/proc");
	size_t n = 0, cap = 0, before = 0;
	struct seen *seen = NULL;
	struct dirent *entry;

	if (tracees->torch)
		torch_scan__begin(tracees->torch);
	while (dir && (entry = readdir(dir))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		if (array__grow(&seen, &cap, n + 1, sizeof(*seen)))
			break;
		seen[n] = (struct seen){ .pid = atoi(entry->d_name) };
		/* Both lists are in order of PIDs, as the kernel lists them. So the search in
		 * tracees->seen continues where the last one ended. */
		while (before < tracees->n_seen && tracees->seen[before].pid < seen[n].pid)
			before++;
		check_seen(tracees, &seen[n],
			   before < tracees->n_seen && tracees->seen[before].pid == seen[n].pid
				   ? &tracees->seen[before]
				   : NULL,
			   check_all);
		n++;
	}
	if (dir)
		closedir(dir);
	free(tracees->seen);
	tracees->seen = seen;
	tracees->n_seen = n;
	tracees->too_many_strangers = false;
}

/* Checks processes that called exec, and scans /proc once a second. */
static void find_others(struct tracees *tracees, uint64_t now)
{
	size_t i, n = tracees->n_strangers;
	uint64_t unreported;

	tracees->n_strangers = 0;
	for (i = 0; i < n; i++)
		look_at_stranger(tracees, tracees->stranger[i]);
	if (pick__only_pids(tracees->opts.pick) && !pick__open_ended(tracees->opts.pick))
		return;
	unreported = proc_group__unreported(get_group(tracees));
	if (unreported != tracees->unreported)
		tracees->too_many_strangers = true;
	tracees->unreported = unreported;
	if (now < tracees->next_scan && !tracees->too_many_strangers)
		return;
	tracees->next_scan = now + SCAN_EVERY;
	scan_processes(tracees);
}

/* ---- messages ---- */

/* Writes "; PID 12 (bash train.sh) is no Python program" about matches, otherwise names processes
 * with PyTorch that do not match. */
void tracees__nearest(struct tracees *tracees, char *buf, size_t size)
{
	struct pick_process process;
	size_t i, len = 0, n_named = 0;
	char title[96];

	buf[0] = '\0';
	for (i = 0; i < tracees->top && n_named < NEAREST && len < size; i++) {
		if (!tracees->at[i] || pick_process__read(tracees->at[i]->pid, &process))
			continue;
		len += snprintf(buf + len, size - len, "%s PID %d (%s)", n_named++ ? "," : ";",
				(int)process.pid,
				pick_process__title(&process, title, sizeof(title)));
		pick_process__free(&process);
	}
	if (n_named) {
		if (len < size)
			snprintf(buf + len, size - len, "%s",
				 n_named > 1 ? " match, but are no Python (--host records them)"
					     : " matches, but is no Python (--host records it)");
		return;
	}
	for (i = 0; i < tracees->n_seen && n_named < NEAREST && len < size; i++) {
		if (pick_process__read(tracees->seen[i].pid, &process))
			continue;
		if (has_torch(tracees, &process) == TORCH_YES)
			len += snprintf(buf + len, size - len, "%s PID %d (%s)",
					n_named++ ? "," : "; PyTorch is in", (int)process.pid,
					pick_process__title(&process, title, sizeof(title)));
		pick_process__free(&process);
	}
}

#define LEFT_OUT_MAX 64		 /* descendants of a process that are looked at */
#define MAY_EXEC 5000000ULL	 /* ns after a fork until the child has usually called exec */
#define LOOK_EVERY 1000000000ULL /* ns between two checks for ended processes */

/* ---- records of the group ---- */

/* The session of the process with a number; NULL: it is not recorded. */
static struct session *find_session(const struct tracees *tracees, uint32_t number)
{
	return number < MT_MEMBERS && tracees->numbered[number] &&
			       tracees->numbered[number]->state == TRACED
		       ? tracees->numbered[number]->session
		       : NULL;
}

/* The probes of a group; NULL: none are loaded. */
static struct probes *find_set(const struct tracees *tracees, uint32_t group)
{
	const struct probes_sets *sets = tracees->opts.session.sets;
	size_t i;

	for (i = 0; i < sets->n; i++) {
		if (probes__group(sets->set[i]) == group)
			return sets->set[i];
	}
	return NULL;
}

/* Returns the session with number, or that of the nearest traced ancestor. */
static struct session *nearest_session(const struct tracees *tracees, uint32_t number)
{
	struct session *session = find_session(tracees, number);

	return session || number >= MT_MEMBERS || !tracees->numbered[number]
		       ? session
		       : tracees->numbered[number]->forked_by;
}

/* Notes the end of a process; apply_records() applies it. */
static void note_end(struct tracee *tracee, uint64_t when)
{
	if (!tracee->end_reported)
		tracee->end = when;
	tracee->all->unrecorded += tracee->lacks_number && !tracee->end_reported;
	tracee->all->unprobed += tracee->lacks_probes && tracee->state != TRACED &&
				 !tracee->end_reported;
	tracee->end_reported = true;
}

/* Notes an exec; apply_records() applies it. */
static void note_exec(struct tracee *tracee, uint64_t when)
{
	tracee->exec = when;
	tracee->exec_reported = true;
	tracee->lacks_probes = false; /* the new program gets its own */
}

/* Adds a forked process. If a traced process has forked it, its records are queued from now on. */
static int on_fork(struct tracees *tracees, const struct mt_rec_group *record)
{
	struct tracee *parent = find_tracee(tracees, (pid_t)record->parent), *tracee;

	tracee = add_tracee(tracees, record->pid, record->parent, record->number,
			    parent ? owner__share(parent->owner) : owner_of(tracees, record->pid));
	if (!tracee) {
		tracees->unplaced++;
		return 0;
	}
	tracee->is_child = true;
	if (!stays_in(tracees, tracee->pid)) {
		remove_tracee(tracee, "");
		return 0;
	}
	tracee->lacks_number = !record->number && nearest_session(tracees, record->from);
	tracee->forked = tracee->diverged = record->time;
	/* If the ancestor in between has no session, it left the traced process before. */
	if (!find_session(tracees, record->from) && tracees->numbered[record->from % MT_MEMBERS])
		tracee->diverged = tracees->numbered[record->from % MT_MEMBERS]->diverged;
	tracee->next = record->time + MAY_EXEC;
	tracee->early_from = record->group ? find_set(tracees, record->group) : NULL;
	tracee->forked_by = nearest_session(tracees, record->from);
	tracee->lacks_probes = tracee->forked_by && session__misses_forks(tracee->forked_by);
	/* Queue its records only if they come from the programs of that session. */
	if (!tracee->early_from || !tracee->forked_by ||
	    session__probes(tracee->forked_by) != tracee->early_from) {
		tracee->early_from = NULL;
		tracee->forked_by = NULL;
		return 0;
	}
	tracee->state = FORKED;
	tracee->early_from = probes__share_set(tracee->early_from);
	probes__feed(tracee->early_from, tracee->number, queue_early, tracee);
	return 0;
}

/* Takes a record of the group about a fork, exec or end. Ends and execs are only noted: this may be
 * during a drain. */
static int on_group_record(void *ctx, const struct mt_rec_group *record)
{
	struct tracees *tracees = ctx;
	struct tracee *tracee = record->what == MT_GROUP_STRANGER
					? NULL
					: find_tracee(tracees, record->pid);

	if (record->what == MT_GROUP_FORK && record->number < MT_MEMBERS &&
	    !tracees->numbered[record->number]) {
		if (tracee)
			note_end(tracee, record->time); /* the record of its end was lost */
		return on_fork(tracees, record);
	}
	/* find_others() checks it later. */
	if (record->what == MT_GROUP_STRANGER || (record->what == MT_GROUP_EXEC && !tracee)) {
		if (tracees->n_strangers < STRANGERS_MAX)
			tracees->stranger[tracees->n_strangers++] = record->pid;
		else
			tracees->too_many_strangers = true;
		return 0;
	}
	if (!tracee)
		return 0;
	if (record->what == MT_GROUP_EXEC)
		note_exec(tracee, record->time);
	if (record->what == MT_GROUP_END)
		note_end(tracee, record->time);
	return 0;
}

/* Reads the kernel's records of forks, execs and ends. */
static void read_group_records(void *ctx)
{
	struct tracees *tracees = ctx;

	if (get_group(tracees))
		proc_group__consume(get_group(tracees), on_group_record, tracees);
}

/* Marks execs and ends as due (execed, ended) once all earlier records were drained. Then passes on
 * or frees the numbers that were given up before. */
static void apply_records(struct tracees *tracees)
{
	const struct probes_sets *sets = tracees->opts.session.sets;
	bool exec[TRACEES_MAX] = { 0 }, end[TRACEES_MAX] = { 0 };
	size_t i, retired = tracees->n_retired;

	read_group_records(tracees);
	for (i = 0; i < tracees->top; i++) {
		exec[i] = tracees->at[i] && tracees->at[i]->exec_reported;
		end[i] = tracees->at[i] && tracees->at[i]->end_reported;
	}
	/* Drain all records that are older than these execs and ends. */
	for (i = 0; sets && i < sets->n; i++) {
		if (probes__consume(sets->set[i], /*fn=*/NULL, NULL) < 0)
			return; /* the queue is full: try again later */
	}
	for (i = 0; i < tracees->top; i++) {
		if (exec[i])
			tracees->at[i]->exec_reported = false;
		if (tracees->at[i]) {
			tracees->at[i]->execed |= exec[i];
			tracees->at[i]->ended |= end[i];
		}
	}
	for (i = 0; i < retired; i++)
		if (!pass_number_on(tracees, tracees->retired[i]))
			proc_group__free_number(get_group(tracees), tracees->retired[i]);
	tracees->n_retired -= retired;
	memmove(tracees->retired, tracees->retired + retired,
		tracees->n_retired * sizeof(*tracees->retired));
}

/* ---- all processes ---- */

/* Warns of processes that could not be followed or recorded, when their number has grown. */
static void say_missed(struct tracees *tracees)
{
	struct proc_group *group = get_group(tracees);
	uint64_t missed = (group ? proc_group__missed(group) : 0) + tracees->unplaced;

	if (tracees->unrecorded)
		log_warn("%" PRIu64 " forked processes ended before one of %d places was free: "
			 "they are not recorded",
			 tracees->unrecorded, MT_MEMBERS - 1);
	tracees->unrecorded = 0;
	if (tracees->unprobed)
		log_warn("%" PRIu64 " forked processes ended before they were attached to: they "
			 "are not recorded (root may not open their PyTorch, so probes do not pass "
			 "on to children)",
			 tracees->unprobed);
	tracees->unprobed = 0;
	if (missed == tracees->missed_said)
		return;
	log_warn("%" PRIu64 " processes are not followed: no more than %d are at a time",
		 missed - tracees->missed_said, MT_WATCHED);
	tracees->missed_said = missed;
}

/* True if the process has ended. Does not wait: without a group, each pump calls it. */
static bool has_ended(const struct session *session)
{
	struct pollfd fd = { .fd = proc__pidfd(session__proc(session)), .events = POLLIN };

	return poll(&fd, 1, 0) > 0;
}

/* Finds ends and execs that no record reports: without a group all, otherwise those whose record
 * was lost. */
static void look_for_ends(struct tracees *tracees, uint64_t now)
{
	size_t i;

	if (get_group(tracees) && now < tracees->next_look)
		return;
	tracees->next_look = now + LOOK_EVERY;
	for (i = 0; i < tracees->top; i++) {
		struct tracee *tracee = tracees->at[i];

		if (tracee && (tracee->session ? has_ended(tracee->session)
					       : !descendants__exists(tracee->pid)))
			note_end(tracee, now - LOOK_EVERY);
		else if (tracee && tracee->state == TRACED && session__replaced(tracee->session))
			note_exec(tracee, now);
	}
}

struct tracees *tracees__new(const struct tracees_opts *opts)
{
	struct tracees *tracees = calloc(1, sizeof(*tracees));
	struct epoll_event ev = { .events = EPOLLIN };
	bool only_pids = pick__only_pids(opts->pick);

	if (!tracees)
		return NULL;
	tracees->opts = *opts;
	tracees->wake = epoll_create1(EPOLL_CLOEXEC);
	if (tracees->wake < 0 ||
	    (get_group(tracees) && epoll_ctl(tracees->wake, EPOLL_CTL_ADD,
					     proc_group__wake_fd(get_group(tracees)), &ev)) ||
	    (opts->endings &&
	     epoll_ctl(tracees->wake, EPOLL_CTL_ADD, ending_hooks__wake_fd(opts->endings), &ev))) {
		tracees__free(tracees);
		return NULL;
	}
	if (get_group(tracees) && only_pids && !opts->children)
		proc_group__leave_children(get_group(tracees));
	if (get_group(tracees) && (!only_pids || pick__open_ended(opts->pick)))
		proc_group__report_strangers(get_group(tracees));
	return tracees;
}

void tracees__free(struct tracees *tracees)
{
	size_t i;

	if (!tracees)
		return;
	for (i = 0; i < tracees->top; i++) {
		if (tracees->at[i])
			remove_tracee(tracees->at[i], "");
	}
	probes__free(tracees->kept);
	if (tracees->wake >= 0)
		close(tracees->wake);
	free(tracees->seen);
	torch_scan__free(tracees->torch);
	owners__free(&tracees->owners);
	free(tracees);
}

int tracees__begin_output(struct tracees *tracees)
{
	return tracees->only ? begin_output(tracees->only) : EXIT_OK;
}

void tracees__pump(struct tracees *tracees)
{
	uint64_t now = clock__kernel();
	size_t i;

	read_endings(tracees);
	register_sets(tracees);
	look_for_ends(tracees, now);
	apply_records(tracees);
	find_others(tracees, now);
	trim_places(tracees);
	for (i = 0; i < tracees->top; i++) {
		if (tracees->at[i] && tracees->at[i]->scene)
			scene__tick(tracees->at[i]->scene, now);
		if (tracees->at[i])
			pump_tracee(tracees->at[i], now);
	}
	say_missed(tracees);
}

void tracees__drain_new(struct tracees *tracees)
{
	struct tracee *tracee;
	size_t i;
	int err;

	read_endings(tracees);
	apply_records(tracees);
	for (i = 0; i < tracees->top; i++) {
		tracee = tracees->at[i];
		if (tracee && tracee->state == FORKED && tracee->has_events)
			open_forked(tracee);
		if (!tracee || (tracee->execed && !follow_exec(tracee)) || tracee->state != TRACED)
			continue;
		err = session__drain_new(tracee->session, tracee->sink);
		if (err) {
			finish_tracee(tracee, "signal", err);
			tracee->state = OVER;
		}
	}
}

int tracees__poll_ms(const struct tracees *tracees)
{
	uint64_t now = clock__kernel(), next = tracees->n_strangers ? now : UINT64_MAX;
	size_t i;

	for (i = 0; i < tracees->top; i++) {
		const struct tracee *tracee = tracees->at[i];

		if (tracee && tracee->next < next &&
		    (tracee->state == WAITING || (tracee->state == FORKED && tracee->lacks_probes)))
			next = tracee->next;
	}
	if (next == UINT64_MAX)
		return -1;
	return next > now ? (int)((next - now + 999999) / 1000000) : 0;
}

bool tracees__quiet(const struct tracees *tracees)
{
	for (size_t i = 0; i < tracees->top; i++) {
		const struct tracee *tracee = tracees->at[i];

		if (tracee && (tracee->state != TRACED || !session__quiet(tracee->session)))
			return false;
	}
	return true;
}

int tracees__wake_fd(const struct tracees *tracees)
{
	return tracees->wake;
}

struct session *tracees__only(const struct tracees *tracees)
{
	return tracees->only ? tracees->only->session : NULL;
}

/* See tracees__hopeful(). */
static bool is_hopeful(const struct tracee *tracee)
{
	const struct tracees_opts *o = &tracee->all->opts;

	if (tracee->state != WAITING || o->only)
		return tracee->state == TRACED ||
		       (tracee->state == WAITING && tracee == tracee->all->only);
	return o->children || session_opts__any_process(&o->session) ||
	       session__has_python(tracee->session);
}

size_t tracees__hopeful(const struct tracees *tracees)
{
	size_t i, n = 0;

	for (i = 0; i < tracees->top; i++)
		n += tracees->at[i] && is_hopeful(tracees->at[i]);
	return n;
}

size_t tracees__traced(const struct tracees *tracees)
{
	return tracees->traced;
}

size_t tracees__ever(const struct tracees *tracees)
{
	return tracees->ever;
}

/* True if the capture has the process. */
static bool is_in(const struct tracees *tracees, pid_t pid)
{
	for (size_t i = 0; i < tracees->top; i++) {
		if (tracees->at[i] && tracees->at[i]->pid == pid)
			return true;
	}
	return false;
}

size_t tracees__left_out(const struct tracees *tracees, pid_t *parent, pid_t *first)
{
	pid_t children[LEFT_OUT_MAX];
	size_t most = 0;

	for (size_t i = 0; i < tracees->top; i++) {
		const struct tracee *tracee = tracees->at[i];
		size_t k, n_left_out = 0, n_children;
		pid_t child = 0;

		if (!tracee || !tracee->picked || tracee->state == OVER)
			continue;
		n_children = descendants__with_torch(tracee->pid, children, LEFT_OUT_MAX);
		for (k = 0; k < n_children && k < LEFT_OUT_MAX; k++) {
			if (is_in(tracees, children[k]))
				continue;
			child = n_left_out++ ? child : children[k];
		}
		if (n_left_out > most) {
			*parent = tracee->pid;
			*first = child;
			most = n_left_out;
		}
	}
	return most;
}

uint64_t tracees__now(const struct tracees *tracees)
{
	return tracees->begin ? clock__kernel() - tracees->begin : 0;
}

int tracees__finish(struct tracees *tracees, const char *reason)
{
	size_t i;

	apply_records(tracees);
	/* The end of a traced process begins the recordings of those that it forked, which may be
	 * anywhere in the list. Numbers are not freed meanwhile, so only so many can begin. */
	while (tracees->top) {
		for (i = 0; i < tracees->top; i++) {
			if (tracees->at[i] && tracees->at[i]->state != FORKED)
				remove_tracee(tracees->at[i],
					      tracees->at[i]->ended ? "target exited" : reason);
		}
	}
	say_missed(tracees);
	if (tracees->hurries)
		setpriority(PRIO_PROCESS, 0, tracees->nice);
	tracees->hurries = false;
	return tracees->status;
}
