/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_BROKER_BROKER_H
#define MT_SERVE_BROKER_BROKER_H
/*
 * The privileged process of `serve`: docs/SERVE.md, "The processes". Its one loop never blocks:
 * slow work runs in other processes. broker.c: the loop. peers.c: links to the other processes.
 * ask.c: their requests. capture.c and trace.c: captures and their recordings. jobs.c: workers.
 * saved.c: recordings that exist at the start.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/poll.h>
#include <sys/types.h>

#include "serve/broker/spawn.h"
#include "serve/broker/store.h"
#include "serve/link.h"
#include "serve/listen.h"
#include "serve/serve.h"

/* User IDs that a server as root gives to its processes without rights where --user names nobody.
 * No user has them: docs/SERVE.md, "Security". */
#define BROKER_IDS 0x6d740000u
#define BROKER_IDS_NR 0x10000u

#define BROKER_PROCESSES 256
#define BROKER_SHAPE 16 /* members of input_shape */
#define BROKER_EXPORTS                                                                             \
	32 /* files that are kept of a trace; one more takes the place of the one asked for        \
	      longest ago */
#define BROKER_WAITING 32 /* jobs of requests that may wait */
#define BROKER_LOG 2048	  /* bytes of what a command said that are told */

enum peer_kind { PEER_WEB, PEER_PUSH, PEER_LOOK, PEER_NR };

struct broker;

/* A process that we talk to. */
struct peer {
	struct broker *b;
	enum peer_kind kind;
	struct link *link; /* NULL: it does not run */
	struct subprocess process;
	uid_t uid; /* as whom it runs, where it has no rights */
	gid_t gid;
	bool met;    /* it has been told all that there is */
	bool broken; /* it does not take what it is told, or speaks otherwise: to be ended */
	uint64_t begun, again; /* monotonic, ns; when to start it once more */
	unsigned failures;     /* one after the other */
};

enum trace_state { TRACE_STARTING, TRACE_CAPTURING, TRACE_FINISHING, TRACE_DONE, TRACE_FAILED };

struct trace_export {
	char key[600]; /* format, moment, device */
	char file[200];
	uint64_t size;
	const char *type;
};

struct trace {
	char id[LINK_ID];
	enum trace_state state;
	char model[64], name[96], file[96], stop_reason[64], error[512];
	int given;  /* of a file of the command line: its descriptor; else -1 */
	int status; /* with error: of the answer, 0: it is done all the same */
	pid_t pid;  /* 0: not yet known */
	double begun, seconds;
	uint64_t events, lost, steps, dropped, bytes, max_events;
	bool fragmentation;
	/* As they were asked for; 0: not. */
	double duration_s;
	uint64_t steps_wanted, batch_size;
	int64_t shape[BROKER_SHAPE];
	size_t n_shape;
	/* Of a command. */
	bool is_command;
	int exit_status; /* -1: not known */
	char *log;
	/* Its capture. */
	struct peer *asker; /* where it goes with the one who asked; NULL: it is kept */
	struct spawned run;
	int tell; /* what the recorder tells comes from here; -1 */
	char line[1024];
	size_t n_line;
	bool opened, attached, stopping;
	bool dropping;		      /* to be deleted when it has ended */
	unsigned urged;		      /* how often it has been asked to end */
	uint64_t deadline;	      /* ns; UINT64_MAX: none */
	uint64_t reserved;	      /* bytes of the folder */
	int report;		      /* the document; -1: none yet */
	struct trace_export *exports; /* the one asked for longest ago comes first */
	size_t n_exports;
	unsigned named; /* of its exports, so many have a number in their name */
};

/* A process that may be captured, as the one who looks tells. */
struct broker_process {
	pid_t pid;
	uint64_t boot_ns; /* when it was started: proc__started() */
	char name[96];
	bool stale;  /* who told of it has ended: is it still there? */
	json_t *msg; /* the event, as it is told to others */
};

struct job;

struct broker {
	const struct serve_args *args;
	struct store store;
	struct listen_at listens[SERVE_LISTEN];
	size_t n_listens;
	struct peer peers[PEER_NR];
	json_t *targets; /* the last event of them; NULL: none so far */
	/* Questions about processes that are not known: asked once more when somebody has looked
	 * for them. */
	struct held {
		struct peer *peer;
		json_t *msg;
	} held[BROKER_WAITING];
	size_t n_held;
	bool scanning;
	uint64_t scan_until; /* ns */
	struct broker_process processes[BROKER_PROCESSES];
	size_t n_processes;
	struct trace *traces[1024]; /* oldest first */
	size_t n_traces;
	struct job *jobs; /* oldest first */
	bool own_ids; /* each process without rights gets an ID of BROKER_IDS; else all get these: */
	uid_t uid;
	gid_t gid;
	char command_user[64]; /* whom commands are run as; "": as we are */
	bool can_trace;
	char why[256];	 /* where not */
	double start;	 /* s since 1970 */
	int64_t last_id; /* ms of the last trace */
	uint64_t next_tell;
	int signals;
	bool quit;
	int status; /* exit code */
};

double broker__date(void); /* s since 1970 */
/* Whom the next process without rights becomes: one that no other process of ours is. */
void broker__new_user(const struct broker *b, uid_t *uid, gid_t *gid);
bool jobs__uses(const struct broker *b, uid_t uid); /* a worker runs as that user */

/* ---- peers (peers.c) ---- */

/* Starts it in a process of its own. 0 or -errno, logged. */
int peer__start(struct broker *b, enum peer_kind kind);
/* Takes in what it says; what it asks is answered. */
void peer__pump(struct peer *p);
void peer__meet(struct peer *p); /* tells it all that there is, once (ask.c) */
void peer__stop(struct peer *p,
		bool wait); /* SIGTERM; wait: until it has ended, some seconds at most */
/* It has ended. True: we have to end, too. */
bool peer__ended(struct peer *p);
/* Sends; both are taken. */
void peer__send(struct peer *p, json_t *msg, int fd);
/* To web and push; fd (-1: none) stays the caller's. soft: it is told again soon, and may be left
 * out. */
void broker__tell(struct broker *b, json_t *msg, int fd, bool soft);

/* ---- asked (ask.c) ---- */

void broker__asked(struct peer *p, json_t *msg);
/* Says no. field NULL: none is to blame. */
void broker__refuse(struct peer *p, json_int_t id, int status, const char *field, const char *fmt,
		    ...) __attribute__((format(printf, 5, 6)));
/* Says yes. doc's members go with it; doc NULL: nothing does. Both are taken. */
void broker__answer(struct peer *p, json_int_t id, json_t *doc, int fd);
/* Of the process that looks. */
void broker__looked(struct broker *b, json_t *msg);
/* Those that wait for it are answered, with what is known: it has looked, or takes too long. */
void broker__release(struct broker *b);
void broker__forget_held(struct broker *b, const struct peer *p);
/* The process that is meant by pid or model_name, one that may be captured; NULL: refused. *target:
 * of the name, if there is one. */
struct broker_process *broker__find(struct peer *p, json_int_t id, json_t *msg,
				    const struct serve_target **target);

/*
 * A member of a request. False: it has been refused. What is not there leaves *ret as it is.
 */
bool ask__number(struct peer *p, json_t *msg, const char *key, double min, double max, double *ret);
bool ask__count(struct peer *p, json_t *msg, const char *key, uint64_t min, uint64_t max,
		uint64_t *ret);
bool ask__text(struct peer *p, json_t *msg, const char *key,
	       const char **ret); /* 256 bytes at most, no control characters */
/* The trace that the member names; NULL: refused. */
struct trace *ask__trace(struct peer *p, json_t *msg, const char *key);
json_int_t ask__id(const json_t *msg);

/* ---- traces (trace.c) ---- */

struct trace *trace__new(struct broker *b,
			 const char *id); /* in the table; NULL: no memory, or no room */
struct trace *trace__find(const struct broker *b, const char *id);
struct trace *trace__of_recording(
	const struct broker *b,
	const char *file); /* the one whose recording is called so; NULL: none */
/* The file is removed with it. A capture is stopped first, and the rest comes later. */
void trace__delete(struct broker *b, struct trace *t);
void trace__free(struct trace *t); /* alone; the folder's files stay */
json_t *trace__facts(const struct trace *t);
/* Tells what is known now. With its document where it is done. */
void trace__tell(struct broker *b, const struct trace *t, bool soft);
void trace__tell_one(struct peer *p, const struct trace *t);
/* The recording is there: it is looked at, and then done. */
void trace__finish(struct broker *b, struct trace *t);
void trace__done(struct broker *b, struct trace *t, int report); /* report is taken */
void trace__fail(struct broker *b, struct trace *t, int status, const char *text);
/* The recording, for reading. A descriptor or -errno. */
int trace__open(const struct broker *b, const struct trace *t, uint64_t *size);

/* ---- captures (capture.c) ---- */

void capture__asked(struct peer *p, json_t *msg);
void capture__stop(struct broker *b, struct trace *t);
bool capture__runs(const struct trace *t);
void capture__pump(struct broker *b, struct trace *t, uint64_t now);
size_t capture__count(const struct broker *b);
uint64_t capture__reserved(
	const struct broker *b); /* bytes of the folder that running captures may yet take */

/* ---- workers (jobs.c) ---- */

void jobs__asked(struct peer *p, json_t *msg,
		 const char *what); /* report, leaks, diff, compare, export, dump */
int jobs__report(struct broker *b, struct trace *t); /* for trace__done(); 0 or -errno */
void jobs__pump(struct broker *b, uint64_t now);
size_t jobs__poll(const struct broker *b, struct pollfd *fds, size_t room);
void jobs__forget(struct broker *b, const struct peer *p,
		  const struct trace *t); /* who does not want it any more */
/* Whoever asked the peer for the question with this id has gone: it is not answered, and its worker
 * ends. An export that is being made is kept. */
void jobs__cancel(struct broker *b, const struct peer *p, json_int_t id);
void jobs__free(struct broker *b);
uint64_t jobs__reserved(
	const struct broker *b); /* bytes of the folder that running exports may yet take */

/* ---- formats (formats.c) ---- */

struct export_format;
json_t *broker_formats__all(void);			    /* as `hello` tells them */
const char *broker_formats__content_type(const char *file); /* of the name's ending */
/* What comes after the trace's name: "_events.csv"; of speedscope and timeline as clients of the
 * guide expect it. Returns buf. */
char *broker_formats__suffix(const struct export_format *f, char *buf, size_t size);

/* ---- the folder (saved.c) ---- */

/* What an earlier server left in it, and the files of the command line. 0 or an exit code, logged. */
int broker_saved__take(struct broker *b);
/* Facts that are to be found again. */
void broker_saved__note(const struct broker *b, const struct trace *t);
void broker_saved__forget(const struct broker *b, const struct trace *t);

/* ---- the process that looks (scanner.c) ---- */

int scanner__run(const struct serve_args *args, int link_fd);

#endif
