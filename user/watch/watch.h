/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * `watch` reads processes from outside, with a few short reads per second, until a rule holds. Then
 * it dumps the live tensors and records all events for a while. Both run as separate programs, so
 * that their failure does not end `watch`.
 *
 * watch.c: the table of processes, the rules and the loop. find.c: finds processes. target.c: one
 * process. host.c: its host memory. host_growth.c: what grows in it. capture.c: captures, and
 * recordings of killed processes. say.c: lines on standard output. metrics.c: figures for other
 * programs. machine.c: the recorder of the machine's memory.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/openmetrics.h"
#include "capture/pick.h"
#include "inspect/container.h"
#include "inspect/cudaalloc.h"
#include "inspect/nvml.h"
#include "record/cond.h"
#include "record/detail.h"
#include "record/host.h"

#define WATCH_RULES 32
#define WATCH_TARGETS 256
#define WATCH_DEVICES 64
#define WATCH_TEXT 512

struct watch_args {
	struct pick_args pick;
	const char *rules[WATCH_RULES];
	size_t n_rules;
	uint64_t every;		/* interval between checks, in ns */
	uint64_t capture;	/* length of a capture, in ns; 0: capture_steps has it */
	uint64_t capture_steps; /* length of a capture, in steps; 0: `capture` has it, in ns */
	uint64_t cooldown;	/* time between captures of a process, in ns */
	uint64_t duration;	/* run time, in ns; 0: no limit */
	unsigned max_captures;	/* captures kept */
	uint64_t max_bytes;	/* total size of kept captures */
	const char *cost;	/* --cost of captures: "1%" or "off" */
	const char *output;	/* folder of captures; NULL: no captures */
	const char *exec;	/* shell command to run at each event; NULL: none */
	const char *metrics;	/* file of metrics; NULL: none */
	bool machine;		/* record the machine, and no process */
	bool on_kill;		/* keep a recording of the last minutes of killed processes */
	bool json;
};

/* ---- growth of a process's host memory (host_growth.c) ---- */

#define HOST_GROWTH_READINGS 256

struct host_growth_reading {
	uint64_t time; /* ns of any clock */
	struct host_use use;
};

/* Readings of a process's host memory, by time. All zero: none. */
struct host_growth {
	struct host_growth_reading v[HOST_GROWTH_READINGS];
	size_t n;
	uint64_t spacing; /* least time between two readings but the last, ns */
};

enum host_grows {
	HOST_GROWS_UNKNOWN, /* memory in use is not known, or there are too few readings */
	HOST_GROWS_NOTHING,
	HOST_GROWS_LIVE, /* memory in use, by malloc and other allocators that are read */
	HOST_GROWS_FREE, /* free memory inside allocators */
	HOST_GROWS_UNEXPLAINED,
	HOST_GROWS_SEVERAL, /* none of them has three quarters of the growth */
};

/* What has grown in a time. */
struct host_growth_verdict {
	enum host_grows what;
	struct host_use now; /* the last reading */
	uint64_t time;	     /* length of that time, ns */
	bool rate_known;     /* rss is known */
	/* Growth in bytes per minute; live + free is rss, unexplained is a part of live. Known if
	 * `what` is not HOST_GROWS_UNKNOWN. */
	double rss, live, free, unexplained;
	uint64_t live_low; /* lowest memory in use in the last quarter of the time, bytes */
	bool in_malloc;	   /* most of the growth of free memory is malloc's */
};

/* Adds a reading, which is later than those before. keep: time that the readings reach back at
 * least, ns; in a long time there are fewer of them. */
void host_growth__add(struct host_growth *g, uint64_t time, const struct host_use *use,
		      uint64_t keep);
/* Judges the readings of the last `window` ns. */
void host_growth__judge(const struct host_growth *g, uint64_t window,
			struct host_growth_verdict *ret);
/* Writes a sentence: "host memory grows 12.0 MiB/min: live objects (...)". why: reason why memory
 * in use is not known. Returns buf. */
char *host_growth__say(char *buf, size_t size, const struct host_growth_verdict *v,
		       const char *why);
struct json;
/* Writes the object "host_growth". */
void host_growth__json(struct json *j, const struct host_growth_verdict *v);

/* ---- a process (target.c) ---- */

/* State of a rule for a device. */
struct watch_state {
	bool holds;		/* the rule fired, and is not normal again */
	uint64_t below_since;	/* time since which it does not hold any more, ns; 0: it holds */
	bool reported_unknown;	/* the event "unknown" was printed */
	uint64_t ooms, retries; /* counts when the rule held last: it counts from these */
};

struct watch_device {
	struct cuda_figures now;
	bool counts_known; /* ooms and retries are known, as of the last successful reading */
	uint64_t ooms, retries;
	uint64_t total; /* device total, in bytes; 0: not known */
	bool used_known;
	uint64_t used; /* driver-reported use of the process, in bytes */
	bool left_known;
	uint64_t left;	 /* free bytes on the device, considering all processes */
	unsigned series; /* index of its growth series in struct watch; COND_SERIES: no series */
	struct watch_state state[WATCH_RULES]; /* by rule */
};

struct session;
struct nvml;
struct proc;

struct watch_target {
	pid_t pid;
	struct owner *owner; /* for watch.c: owners share the places fairly */
	uint64_t came;	     /* for watch.c: sequence number: watching began in this order */
	uint64_t started;    /* start time, ns of CLOCK_BOOTTIME */
	char name[80];	     /* command, "python train.py", cleaned and cut */
	char comm[64];
	struct cgroup cgroup;
	int64_t rank;	  /* rank; -1: not known */
	char hpc_job[48]; /* its job's ID in Slurm, LSF or PBS; "": none */
	struct proc *proc;
	int image, statm;      /* descriptors: proc__image() and /proc/PID/statm; negative: none */
	uint64_t pages, rss;   /* pages of address space; resident bytes */
	uint64_t next_look;    /* next search for a missing allocator, in ns */
	uint64_t looked_pages; /* pages at the last search of the maps for the allocator */
	struct cudaalloc *alloc; /* PyTorch's CUDA allocator; NULL: not found so far */
	char alloc_why[160]; /* reason why the allocator's figures are missing; "": they are known */
	struct watch_device devices[WATCH_DEVICES];
	size_t n_devices;	  /* devices with allocations so far */
	struct nvml *smi;	  /* the driver's figures; NULL: none */
	uint64_t next_used;	  /* time of the next request to the driver, in ns */
	uint64_t used_asked;	  /* ID of the pending request, from nvml__ask(); 0: none */
	struct watch_device self; /* series and rule states of the process itself */
	struct {
		struct host_sheet sheet; /* the last reading, if it is known */
		struct host_use use;	 /* of that reading */
		bool known, failed;
		bool fresh;    /* no rule has judged the reading so far */
		uint64_t rss;  /* t->rss when the last whole reading began */
		uint64_t next; /* earliest next reading, CLOCK_MONOTONIC, ns */
		char why[160]; /* reason why memory in use is not known; "": it is */
		struct host_growth growth;
	} host; /* host memory, if a rule is about it */
	/* Steps, if a rule needs them. */
	struct session *session;      /* records only steps; NULL: none */
	bool attached, steps_failed;  /* the session is attached; steps cannot be counted */
	char steps_why[256];	      /* reason of steps_failed */
	uint64_t steps;		      /* number of steps since the session attached */
	uint64_t last_step;	      /* end of the last step, ns of the session's clock */
	uint64_t step_time;	      /* length of the last step, in ns; 0: not known */
	uint64_t steps_at_once, pace; /* steps in the last tick, and their mean length, in ns */
	bool reported;		      /* the event "watching" was printed */
	uint64_t since;		      /* start of watching, in ns */
	uint64_t cooldown;	      /* earliest next capture, in ns */
};

/* Starts watching a process. NULL with *err: the process has ended, access is denied, or no
 * memory. files_only: as proc__set_files_only(), for a process that --all found. */
struct watch_target *watch_target__new(const struct pick_process *p, bool files_only, int *err);
void watch_target__free(struct watch_target *t);
/* Reads the process. Returns 0, -ESRCH (it has ended) or -ESTALE (it runs another program). now:
 * CLOCK_MONOTONIC, ns. steps: also count steps. used: also ask the driver. */
int watch_target__look(struct watch_target *t, uint64_t now, bool steps, bool used);
/* Reads only figures of growth rules, in a few microseconds. False: the process has ended. */
bool watch_target__read_growth(struct watch_target *t, bool rss);
/* Fills *ret with the figures for rules. d NULL: only those of the process. */
void watch_target__values(const struct watch_target *t, const struct watch_device *d, uint64_t now,
			  struct cond_values *ret);

/* ---- watched processes (find.c) ---- */

struct watch_find;
struct watch_find *watch_find__new(const struct pick_args *args);
/* For a list of processes: finds all with PyTorch or CUDA, and Python processes that may have it
 * but are not readable. */
struct watch_find *watch_find__new_for_list(void);
void watch_find__free(struct watch_find *f);
/* Processes that the last scan could not judge: their files did not answer, or there was no time. */
size_t watch_find__unanswered(const struct watch_find *f);
/*
 * Finds new processes that match and calls fn for each. fn returns whether it accepts the process.
 * A rejected process is offered again when its address space changes or, at the latest, after some
 * scans.
 */
void watch_find__scan(struct watch_find *f, bool (*fn)(void *ctx, const struct pick_process *p),
		      void *ctx);
/* may: called before a scan reads anything of a process; false: do not read it. NULL: read all. */
void watch_find__guard(struct watch_find *f, bool (*may)(void *ctx, pid_t pid), void *ctx);
/* A process that fn accepted has ended, or has lost its place. now: CLOCK_MONOTONIC, ns. */
void watch_find__ended(struct watch_find *f, pid_t pid, uint64_t now);
/* True if more processes may appear. */
bool watch_find__open_ended(const struct watch_find *f);
/* Describes the choice of processes: "a process that matches 'train.py'". Returns buf. */
const char *watch_find__title(struct watch_find *f, char *buf, size_t size);

/* ---- watch (watch.c) ---- */

struct watch_rule {
	struct cond *cond;
	bool is_per_process; /* the rule has no device figure: it is judged once per process */
	uint64_t fired;	     /* how often the rule began to hold, for the metrics */
	size_t holding; /* number of devices for which the rule fired and is not normal again */
};

struct watch_capture;
struct watch_host;

struct watch {
	struct watch_args args;
	struct watch_rule rules[WATCH_RULES];
	size_t n_rules;
	bool wants_steps, wants_used, wants_growth, wants_rss_growth;
	bool wants_cgroup; /* use of the control group */
	/* Readings of host memory that rules need. */
	struct {
		bool parts;    /* regularly: a rule has a figure of them */
		bool tensors;  /* with the tensors on the CPU */
		bool free;     /* with the free memory of allocators */
		bool explains; /* when RSS changes: a rule is about RSS, and its event says why */
		uint64_t every, window; /* interval; longest window of a growth rule; ns */
	} host_needs;
	struct watch_find *find;
	struct watch_target *targets[WATCH_TARGETS];
	size_t n_targets;
	struct owners owners;
	uint64_t came;		      /* last number given as watch_target.came */
	pid_t evicted[WATCH_TARGETS]; /* processes that lost their places in this scan */
	size_t n_evicted;
	uint8_t series[COND_SERIES];	    /* 1: a device uses the growth series of this index */
	struct watch_capture *captures;	    /* state of captures; NULL: none are made */
	struct watch_host *host;	    /* reader of host memory; NULL: none */
	uint64_t host_cpu;		    /* CPU time of all its readings, ns, for the metrics */
	uint64_t captured, skipped, failed; /* counts for the metrics */
	uint64_t ram;			    /* memory of the machine, in bytes */
	/* CLOCK_MONOTONIC, ns; next_scan: UINT64_MAX if no more processes may appear */
	uint64_t start, next_scan, next_tick;
	bool metrics_failed; /* the last writing of the metrics failed, and was logged */
};

/* Runs until a signal, the end of all targets or the duration. Logs errors. Returns the exit
 * code. */
int watch__run(const struct watch_args *args);

/* ---- host memory (host.c) ---- */

/* Reads the host memory of the watched processes, one at a time. Borrows w. NULL: no memory. */
struct watch_host *watch_host__new(struct watch *w);
void watch_host__free(struct watch_host *h); /* ends a reading under way; NULL is fine */
/* Takes a reading that has ended, or begins the next one that is due. Does not wait. now:
 * CLOCK_MONOTONIC, ns. */
void watch_host__pump(struct watch_host *h, uint64_t now);
/* Adds what a rule needs to w->host_needs. */
void watch_host__need(struct watch *w, const struct cond *c);
/* Says what grows in the target's host memory since the window of figure f began, which condition c
 * compares: fills *v and writes a sentence to buf. False: f is no figure of host memory, or no
 * reading of it was made. */
bool watch_host__explain(const struct watch_target *t, const struct cond *c, enum cond_figure f,
			 struct host_growth_verdict *v, char *buf, size_t size);
/* Sets the figures of host memory that rules need, and the machine's memory as 100 % of RSS. */
void watch_host__values(const struct watch *w, const struct watch_target *t, struct cond_values *v);

/* ---- captures (capture.c) ---- */

/* A capture that is running or about to start. */
struct watch_shot {
	pid_t pid;
	char name[80], comm[64], device[16], rule[256], text[WATCH_TEXT];
	int64_t rank;
	char container[128], pod[128];
	char begin[40];		       /* time in RFC 3339 */
	char file[320], snapshot[320]; /* paths of recording and dump; "": none */
	uint64_t events, lost, bytes;
	char detail[DETAIL_TEXT]; /* text: the detail that --cost left out; "": none */
	bool growth;		  /* a growth rule has fired */
	bool host;		  /* the rule is about host memory: record it, too (--host) */
	bool killed;	    /* the process was killed or failed; file is the recording of its end */
	char blame[400];    /* line of code with the most memory, cleaned; "": none */
	char findings[256]; /* codes of the faults by `diagnose`, "leak,ranks_differ"; "": none */
	bool diagnosed;	    /* diagnose has read the recording; otherwise findings is not known */
};

/* Fills the shot with the process, the rule and the present time. */
void watch_shot__fill(struct watch_shot *s, const struct watch_target *t, const char *rule);
/*
 * Borrows w. NULL: failed, logged. With `watch --on-kill`, one `record --on-kill` for all watched
 * processes runs as a separate program. It keeps the last minutes in memory and writes a file into
 * the folder of captures when one of them is killed or fails. memtrace-bpf watch then reads that
 * file as it reads its own captures.
 */
struct watch_capture *watch_capture__new(struct watch *w);
/* Stops a running capture and saves what was recorded. Ends the recorder of --on-kill. NULL is
 * fine. */
void watch_capture__free(struct watch_capture *c);
/* True while a capture runs, or files of ended processes are expected. */
bool watch_capture__busy(const struct watch_capture *c);
/* Starts a capture. Returns 0, or -EBUSY if one is running. */
int watch_capture__begin(struct watch_capture *c, const struct watch_shot *shot);
/* With --on-kill: a watched process has ended. Expects a file, unless it ended well. */
void watch_capture__expect(struct watch_capture *c, const struct watch_target *t);
/* Goes on with a capture, and with --on-kill: starts the recorder if it does not run, and reads the
 * files that it has written. now: CLOCK_MONOTONIC, ns. */
void watch_capture__pump(struct watch_capture *c, uint64_t now);

/* ---- the machine (machine.c) ---- */

/* Records the machine's memory until a signal or the duration ends it: watch_args.machine. Judges
 * the rules, which are about the machine and its GPUs. Logs errors. Returns the exit code. */
int watch_machine__run(const struct watch_args *args);

/* Queues the --exec command for an event. watch_exec__pump() runs it. */
void watch_exec__run(struct watch *w, const char *event, const struct watch_shot *shot);
/* Starts the next command when none runs, and ends one after a minute. now: CLOCK_MONOTONIC, ns. */
void watch_exec__pump(uint64_t now);
/* Runs the waiting commands, for ten seconds at most. Then skips those that have not started; the
 * command that runs goes on. */
void watch_exec__finish(void);

/* ---- output (say.c, metrics.c) ---- */

/* Print a line on standard output. t, d, rule and grown may be NULL. */
void watch_say__target(const struct watch *w, const char *event, const struct watch_target *t,
		       const char *text);
void watch_say__rule(const struct watch *w, const char *event, const struct watch_target *t,
		     const struct watch_device *d, const char *rule, const struct cond_result *r,
		     const struct host_growth_verdict *grown);
void watch_say__shot(const struct watch *w, const char *event, const struct watch_shot *s,
		     const char *text);
/* Stores a figure of a device in *ret. Returns false if it is not known. */
bool watch_device__figure(const struct watch_target *t, const struct watch_device *d,
			  enum device_figure which, uint64_t *ret);
/* Name of a target's device, "cuda:0"; "" for the process itself. */
const char *watch_device__name(const struct watch_target *t, const struct watch_device *d,
			       char buf[16]);
/* Writes the file of metrics again. Logs the first failure in a row. */
void watch_metrics__write(struct watch *w);
