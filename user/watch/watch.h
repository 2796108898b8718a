/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_WATCH_WATCH_H
#define MT_WATCH_WATCH_H
/*
 * `watch` reads processes from outside, a few short reads every second, until a rule holds. Then it
 * dumps the live tensors at once and records all events for a while. Other programs do both, so
 * that their failure does not end `watch`.
 *
 * watch.c: the loop and the rules. find.c: the watched processes. target.c: one process.
 * capture.c: captures. say.c: lines on standard output. metrics.c: figures for other programs.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cond/cond.h"
#include "follow/pick.h"
#include "nvml/nvml.h"
#include "process/cgroup.h"
#include "torch/cudaalloc.h"

#define WATCH_RULES 32
#define WATCH_TARGETS 256
#define WATCH_DEVICES 64
#define WATCH_TEXT 512

struct watch_args {
	struct pick_args pick;
	const char *rules[WATCH_RULES];
	size_t n_rules;
	uint64_t every;		/* ns */
	uint64_t capture;	/* ns; 0: no such bound */
	uint64_t capture_steps; /* 0: no such bound; both 0: nothing is captured */
	uint64_t cooldown;	/* ns, for each process */
	uint64_t duration;	/* ns; 0: for ever */
	unsigned max_captures;	/* that are kept */
	uint64_t max_bytes;	/* of all that are kept */
	const char *output;	/* a folder; NULL: nothing is captured */
	const char *exec;	/* for sh; NULL: nothing is run */
	const char *metrics;	/* a file; NULL: none is written */
	bool json;
};

/* ---- a process (target.c) ---- */

/* Of a rule and a device: is it firing, and where counts begin. */
struct watch_state {
	bool holds;
	bool told_unknown;
	uint64_t ooms, retries; /* that it has been told of already */
};

struct watch_device {
	struct cuda_figures now;
	bool counts_known; /* ooms and retries, as of the last reading that had them */
	uint64_t ooms, retries;
	uint64_t total; /* of its memory, 0: not known */
	bool used_known;
	uint64_t used;
	bool left_known; /* of the device, all processes counted */
	uint64_t left;
	unsigned series;
	struct watch_state state[WATCH_RULES];
};

struct session;
struct nvml;
struct proc;

struct watch_target {
	pid_t pid;
	uint64_t started; /* CLOCK_BOOTTIME, ns */
	char name[80];	  /* "python train.py", cleaned, cut */
	char comm[64];
	struct cgroup cgroup;
	int64_t rank; /* -1: not known */
	struct proc *proc;
	int image, statm;    /* proc__image(), /proc/PID/statm */
	uint64_t pages, rss; /* of the address space; bytes */
	uint64_t next_look;  /* when to look for what was not there, ns */
	uint64_t looked_pages;
	struct cudaalloc *alloc;
	char alloc_why[160]; /* why there are no figures; "" where there are */
	struct watch_device devices[WATCH_DEVICES];
	size_t n_devices; /* that anything was allocated on */
	struct nvml *smi;
	uint64_t next_used, used_asked; /* when to ask the driver next; of nvml__ask(), 0: no answer
					   is awaited */
	struct watch_device self;	/* of what no device has: series and states */
	/* Steps, where a rule asks for them. */
	struct session *session;
	bool attached, steps_failed;
	char steps_why[256];
	uint64_t steps, last_step, step_time; /* ns */
	uint64_t at_once, pace; /* steps that the last tick told of, and their length, ns */
	bool told;		/* that it is watched */
	uint64_t since;		/* ns */
	uint64_t cooldown;	/* no capture before that, ns */
};

/* Begins to look at a process. NULL: it has ended, may not be looked at (*err), or no memory. */
struct watch_target *watch_target__new(const struct pick_process *p, int *err);
void watch_target__free(struct watch_target *t);
bool watch_target__alive(const struct watch_target *t);
/*
 * Looks: 0, or -ESRCH: it has ended; -ESTALE: it runs another program. now: CLOCK_MONOTONIC, ns.
 * steps: they are wanted. used: the driver is to be asked.
 */
int watch_target__look(struct watch_target *t, uint64_t now, bool steps, bool used);
/* Looks at what grows alone, which is a few microseconds' work. False: it cannot be. */
bool watch_target__glance(struct watch_target *t, bool rss);
/* What conditions are fed with; device NULL: of the process alone. */
void watch_target__values(const struct watch_target *t, const struct watch_device *d, uint64_t now,
			  struct cond_values *ret);

/* ---- who (find.c) ---- */

struct watch_find;
struct watch_find *watch_find__new(const struct pick_args *args);
void watch_find__free(struct watch_find *f);
/*
 * Looks for processes that are meant; calls fn for each that is new, which says whether it takes
 * it: what is refused is asked for again only when its memory has changed.
 */
void watch_find__scan(struct watch_find *f, bool (*fn)(void *ctx, const struct pick_process *p),
		      void *ctx);
void watch_find__ended(struct watch_find *f, pid_t pid, uint64_t now);
/* Others may come. */
bool watch_find__open_ended(const struct watch_find *f);
const char *watch_find__title(struct watch_find *f, char *buf, size_t size);

/* ---- the whole ---- */

struct watch_rule {
	struct cond *cond;
	bool of_process; /* speaks of no device */
	uint64_t fired;
	size_t holding; /* devices for which it holds now */
};

struct watch_capture;

struct watch {
	struct watch_args args;
	struct watch_rule rules[WATCH_RULES];
	size_t n_rules;
	bool wants_steps, wants_used, wants_growth, wants_rss_growth;
	struct watch_find *find;
	struct watch_target *targets[WATCH_TARGETS];
	size_t n_targets;
	uint8_t series[COND_SERIES];		   /* taken */
	struct watch_capture *captures;		   /* NULL: none are made */
	uint64_t fired, captured, skipped, failed; /* counts, for the metrics */
	uint64_t ram;				   /* of the machine */
	uint64_t start, next_scan, next_tick;
	bool metrics_failed;
	bool quit;
};

/* Runs to the end: a signal, the targets' end, the duration. An exit code, logged. */
int watch__run(const struct watch_args *args);

/* ---- captures (capture.c) ---- */

/* One that is to be made, or is. */
struct watch_shot {
	pid_t pid;
	char name[80], comm[64], device[16], rule[256], text[WATCH_TEXT];
	int64_t rank;
	char container[128], pod[128];
	char begin[40];		       /* RFC 3339 */
	char file[320], snapshot[320]; /* paths; "" where there is none */
	uint64_t events, lost, bytes;
	bool growth;	 /* it is of growth */
	char blame[256]; /* the line that is to blame, cleaned; "" */
};

struct watch_capture *watch_capture__new(const struct watch_args *args, struct watch *w);
void watch_capture__free(
	struct watch_capture *c); /* what is under way is stopped, and written as far as it came */
bool watch_capture__busy(const struct watch_capture *c);
/* Takes it on, if nothing else is under way. 0, -EBUSY. */
int watch_capture__begin(struct watch_capture *c, const struct watch_shot *shot);
void watch_capture__pump(struct watch_capture *c, uint64_t now);
/* Runs --exec for it. */
void watch_exec__run(struct watch *w, const char *event, const struct watch_shot *shot);
void watch_exec__pump(uint64_t now);
void watch_exec__finish(void); /* those that wait are run; ten seconds at most */

/* ---- output (say.c, metrics.c) ---- */

/* Lines on standard output, one for each event. t, d, rule may be NULL. */
void watch_say__target(const struct watch *w, const char *event, const struct watch_target *t,
		       const char *text);
void watch_say__rule(const struct watch *w, const char *event, const struct watch_target *t,
		     const struct watch_device *d, const char *rule, const struct cond_result *r);
void watch_say__shot(const struct watch *w, const char *event, const struct watch_shot *s,
		     const char *text);
/* RFC 3339, in UTC. */
const char *watch_say__time(char buf[40]);
/* The name of a device of a target: "cuda:0", "" for the process itself. */
const char *watch_device__name(const struct watch_target *t, const struct watch_device *d,
			       char buf[16]);
/* Writes the file anew. */
void watch_metrics__write(struct watch *w);

#endif
