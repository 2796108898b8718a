/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Texts shared by the report formats. Functions with buf need REPORT_TEXT bytes and return buf. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/model.h"
#include "record/dict.h"
#include "record/host.h"
#include "record/stream.h"

/* Size of a string of DICT_MAX_STRING bytes with every byte escaped, plus a few words. */
#define REPORT_TEXT 16640

struct json;
struct oom_tensor; /* record/oom.h */
struct neighbour;
struct neighbours;
struct oom_tensors;

/* Cuts s in place to this width at a whole character, with "..." at the end. Returns s. */
char *words__cut(char *s, size_t columns);
/* Cuts the front of s in place to this width: "...ers.7.self_attn". */
char *words__cut_front(char *s, size_t columns);
/*
 * Location of a row's memory, clean, in at most this many columns. Examples: "net/model.py:336
 * (forward)", "global history[*]" or "before attach", "native (no Python thread)", "untraced".
 * Paths start at the target's folder (cwd) or the installed package and are cut at the front.
 */
char *words__location(char *buf, const struct row *r, const char *cwd, size_t columns);
/* As words__location(), but shows "forward" and not "Net.forward", for tables without room for the
 * class in all rows. */
char *words__location_short(char *buf, const struct row *r, const char *cwd, size_t columns);
/* Cuts the middle of s in place to this width, for names that differ at the end. */
char *words__cut_middle(char *s, size_t columns);
/* A place without a function, clean: "net/model.py:336", with the path as in words__location(). */
char *words__place(char *buf, const char *file, uint32_t line, const char *cwd);
/* A frame for machine formats, not cleaned: "function (file:line)". */
char *words__frame(char *buf, const struct dict *d, struct dict_frame f);
/* Module of a row, clean: "encoder.layers.0"; "GPT (model)" for a root; "": none. */
char *words__module(char *buf, const struct row *r);

/* Text for memory from before attach that no Python object holds, such as that of libraries. */
#define WORDS_UNHELD "held by no Python object"

/* A category for people: "optimizer state", "no role found"; NULL: "(several)". */
const char *words__role(const char *category);
/* Returns the name of the category or phase in text: its name ("optimizer_state") or the words of
 * words__role() and words__phase(), in any case, with '_', '-' or spaces. NULL: none. */
const char *words__parse_role(const char *text);
const char *words__parse_phase(const char *text);
/* A phase for people: "forward", "data loading", "between phases". */
const char *words__phase(enum phase p);
/* Where to run a list that other users' processes were missing from: "with sudo", and for root
 * "on the host". */
const char *words__see_all(void);
/* What memory from before the first event is called: "before attach", or with history "before the
 * history". */
const char *words__before(bool history);
/* The tensors in the variables of the failed call: of the frames from the innermost one to the line
 * that reports show, each tensor once, largest first. 0 or -ENOMEM; oom__free() must follow. */
int words__oom_tensors(const struct model *m, const struct facts *f, const struct model_oom *o,
		       enum frame_choice which_line, struct oom_tensors *ret);
/* Writes a tensor, clean: "x bfloat16 [1, 245000, 100352] 45.79 GiB", and where it differs from
 * the tensors of a failed call on this device: "view of 91.58 GiB", "on cpu". Returns buf. */
#define WORDS_TENSOR 512
char *words__oom_tensor(char buf[WORDS_TENSOR], const struct oom_tensor *t, const char *device);
/* Writes the shape: "[1, 245000, 100352]"; "[]" for a scalar, "[7 dimensions]" if that is all that
 * is known. Returns buf. */
#define WORDS_SHAPE 224
char *words__shape(char buf[WORDS_SHAPE], const struct oom_tensor *t);
/* Writes another process on a device, clean: "python train.py (PID 4242, user alice, container web)
 * 40.00 GiB". Returns buf. */
#define WORDS_NEIGHBOUR 512
char *words__neighbour(char buf[WORDS_NEIGHBOUR], const struct neighbour *n);
/* Finds the other processes at the device's first failure or, without one, at the end of the
 * process. False: not known. neighbours__free() must follow. */
bool words__neighbours_of(const struct model *m, const struct facts *f, size_t device,
			  struct neighbours *ret);
/* Thread of a row: "python (4242)"; "": unknown; without the number if tid is 0. */
char *words__thread(char *buf, const struct row *r);
/* Writes the row's scope, "outside of scopes" for none. buf has REPORT_TEXT bytes. */
char *words__scope(char *buf, const struct row *r);
/* Text of a row's group: location, module and class, phase, and so on; or "before attach". */
char *words__where(char *buf, const struct row *r, enum group by, const char *cwd, size_t columns);
const char *words__where_title(enum group by); /* title of the column of words__where() */

/*
 * The target's command line from the fact cmdline, as a NULL-terminated array for
 * words__free_cmdline(). NULL: the fact is missing, empty or not a JSON array of strings, or memory
 * is short.
 */
char **words__cmdline(const struct facts *f);
void words__free_cmdline(char **argv);
/* Writes the program of the fact cmdline, clean: the script's name without its folder, "-m MODULE",
 * or the name of argv[0]. "": not known. Returns buf. */
char *words__program(char *buf, size_t size, const struct facts *f);
/* Writes NUL-separated arguments, such as those of proc__cmdline(), for people: clean, and the
 * program without its folder. "": there are none. Returns buf. */
char *words__arguments(char *buf, size_t size, const char *cmdline, size_t len);

struct report_stacks {
	uint64_t all;
	uint64_t full;	    /* complete up to the root */
	uint64_t truncated; /* too deep; the outermost frames are missing */
	uint64_t none;	    /* without a Python frame: native and autograd threads */
	uint64_t failed;    /* the stack could not be read: any other enum mt_walk */
};
void words__stacks(const struct model *m, struct report_stacks *ret);
/* True for outcomes that words__stacks() counts as failed. */
bool words__walk_failed(unsigned walk);
/* Number of lost events: the stream counts them, and a fact of the recording, too; returns the
 * larger number. */
uint64_t words__lost(const struct model *m, const struct facts *f);
#define WORDS_MODELS 2048
/* Writes how many models of one class the program had at the last reading of its objects: "73
 * models of class Net, 16.00 MiB each: held by global best[*]"; "" if no class has several. */
const char *words__models(char *buf, size_t size, const struct facts *f);
/* How the steps of a snapshot were found: "steps by the trace's own period (sure)", "steps not
 * known". "": they are an optimizer's, or it is a recording. */
const char *words__steps_from(const struct facts *f);
/* Where the roles of a snapshot are from: "roles by frames and lifetimes". */
const char *words__roles_from(const struct facts *f);
#define WORDS_OOM 256
/* Where a library made the request of the user's line: " in transformers/sdpa.py:182 (attend)". "":
 * the request is that line's own, or its line is not known. */
const char *words__oom_inside(char buf[REPORT_TEXT], const struct model *m, const struct facts *f,
			      const struct model_oom *o);
/* A pool at an out-of-memory event: "default pool, stream 0x5", "CUDA graph 1, small blocks". */
const char *words__oom_pool(char buf[WORDS_OOM], const struct model_oom_pool *p);
/* The pool with a free piece that is large enough, but was not the request's; NULL: none. */
const struct model_oom_pool *words__oom_fits(const struct model_oom *o);
/* Why the request found no place: "2.30 GiB are free, but in 41 pieces: the largest has 512.0
 * MiB". "": not known. */
const char *words__oom_why(char buf[WORDS_OOM], const struct model_oom *o);
/* "CUDA graph", or "MemPool" also for the pool of graph_pool_handle(). */
const char *words__private_pool(enum private_pool kind);
/* Writes "window from 43.9 s on", or "part ..." for a part of a rolling folder. Writes "" if the
 * recording begins with its capture. Returns buf. */
const char *words__window(const struct model *m, const struct facts *f, char *buf, size_t size);
/* Writes the key window_start (s) if the recording begins later than its capture. */
void words__put_window(struct json *j, const struct model *m);
/* Qualifier before a number of bytes: "", "at least " or "about ". */
const char *words__about(enum figure f);
uint64_t words__fact_number(const struct facts *f,
			    const char *key); /* facts__number(); 0: unknown */

/* The fact device.<i>.<what> of a device; NULL: unknown. */
const char *words__device_fact(const struct facts *f, const struct model_device *d,
			       const char *what);
/* Bytes of a device, from the fact device.<i>.total; 0: unknown. */
uint64_t words__device_total(const struct facts *f, const struct model_device *d);
/* Bytes that other processes have on the device, by the driver's last figures. False: not known. */
bool words__other_processes(const struct facts *f, const struct model_device *d, uint64_t *ret);
/* Returns "small", "large" or "unknown". */
const char *words__segment_kind(const struct segment *s);
/* Comparison of the memory below the blocks with other figures at one moment. */
struct report_below {
	bool any; /* something is known: reserved bytes, a segment or the driver's figure */
	bool segments_known; /* segments are known, not only a total */
	int64_t missing;     /* allocator's reserved bytes minus the known segments */
	int64_t nameless;    /* allocator's allocated bytes minus the known blocks */
	int64_t not_seen;    /* driver-reported use minus reserved bytes and other known memory */
	bool adds_up;
};
struct report_below words__below(const struct model_segments *s);

double words__fragmentation(uint64_t allocated, uint64_t reserved);
/* Returns the properties that rows describe, as bits 1 << BY_*; split is as in struct row_opts. */
unsigned words__row_properties(enum group by, unsigned split);
/* Returns names such as "module,category". */
char *words__groups(char buf[64], enum group by, unsigned split);

/* ---- host memory by parts, which add up to the process's RSS ---- */

/* Name of a part for people, such as "CPU tensors" or "malloc"; NULL: no such part. */
const char *host_words__part(unsigned part);
/* Writes the largest parts on one line: "CPU tensors 1.2 GiB, malloc 310 MiB, unknown 2 MiB".
 * Parts below 1 % of the total are added up as "other". columns: room for the text; the smallest
 * parts are left out. Returns buf. */
char *host_words__line(char *buf, size_t size, const struct host_sheet *s, size_t columns);
/* Writes "parts": an object of each part, with label, of_rss (whether it is part of RSS), bytes,
 * known, second and second_label. */
void host_words__json(struct json *j, const struct host_sheet *s);
/*
 * Prints the parts as a table, largest first, and the figures next to RSS below it. columns: width.
 * 0 or -ENOMEM.
 */
int host_words__table(FILE *out, const struct host_sheet *s, size_t columns);

/* ---- whether resident memory is in use, or kept by an allocator ---- */

struct growth_summary; /* model/growth_summary.h */

/* Allocators that keep memory which the program has freed. */
enum host_keeper {
	HOST_KEEPER_MALLOC,
	HOST_KEEPER_PYTHON, /* CPython's arenas */
	HOST_KEEPER_PINNED, /* PyTorch's cache of pinned memory */
	HOST_KEEPER_NR,
};
enum host_verdict_kind {
	HOST_VERDICT_IN_USE,
	HOST_VERDICT_KEPT,	 /* malloc keeps whole pages that are free */
	HOST_VERDICT_FRAGMENTED, /* malloc has free memory between blocks in use */
	HOST_VERDICT_PYTHON,
	HOST_VERDICT_PINNED,
	HOST_VERDICT_UNKNOWN, /* half of RSS is memory whose use no table tells */
};
enum host_sure { HOST_SURE_LOW, HOST_SURE_MEDIUM, HOST_SURE_HIGH };

/* Something that the user can do, and the RSS that it returns. */
struct host_remedy {
	const char *name; /* in JSON: "malloc_trim" */
	const char *text;
	uint64_t returns;  /* bytes; valid if known */
	bool known, exact; /* exact: returned now; otherwise an upper bound */
};
#define HOST_REMEDIES 5
#define HOST_VERDICT_TEXT 2560

struct host_verdict {
	enum host_verdict_kind kind;
	enum host_sure sure;
	uint64_t resident, in_use, free; /* bytes; resident = in_use + free */
	uint64_t unknown;		 /* bytes whose use is not known; in_use has them */
	uint64_t kept;	 /* part of free: that of the allocator which the verdict is about */
	bool grows;	 /* the sentence names a line that grows */
	bool grew_known; /* grew and grew_in_use are known */
	uint64_t grew, grew_in_use; /* growth of RSS from the first to the last reading, bytes */
	char sentence[HOST_VERDICT_TEXT];
	struct host_remedy remedies[HOST_REMEDIES]; /* n of them, the first one is the best */
	unsigned n;
};

/* Facts of a recording besides the sheet that is judged. All pointers are borrowed. */
struct host_history {
	const struct host_sheet *first, *last; /* first and last reading of the recording */
	uint64_t time;			       /* from the first to the last reading, ns */
	bool has_lines;			       /* the recording has the device "host" */
	const struct growth_summary *growth;   /* of the device "host"; NULL: not known */
};
/* Judges a sheet. h: NULL for a single reading. */
void host_verdict__judge(const struct host_sheet *s, const struct host_history *h,
			 struct host_verdict *ret);
/* Judges the host memory of a recording at the model's moment, with the growth of the device "host"
 * if that is watched. The model has a reading. duration: ns so far; 0: of the facts. 0 or
 * -ENOMEM. */
int host_verdict__of_model(const struct model *m, const struct facts *f, uint64_t duration,
			   struct host_verdict *ret);
/* Judges as if this allocator's free memory were the largest. False: it has less than 1 % of RSS or
 * 1 MiB free, or that is not known. */
bool host_verdict__of_keeper(const struct host_sheet *s, enum host_keeper k,
			     struct host_verdict *ret);
/* Writes all remedies with their bytes on one line. Returns buf. */
char *host_verdict__remedies(const struct host_verdict *v, char *buf, size_t size);
/* Prints the sentence, the remedies and the confidence as paragraphs. */
void host_verdict__text(FILE *out, const struct host_verdict *v, size_t columns);
/* Writes "verdict": an object. */
void host_verdict__json(struct json *j, const struct host_verdict *v);

/* ---- fields of CSV ---- */

/*
 * Writes text as a CSV field (RFC 4180); NULL as an empty field. The caller writes commas and line
 * ends. Control characters and line ends are escaped, because tables are also read on terminals.
 * Text that a spreadsheet takes for a formula (= + - or @ at its start or after a semicolon) gets a
 * leading apostrophe. Do not use it for numbers: "-5" would get one, too.
 */
void csv__put(FILE *out, const char *s);
/* Sets for the whole process whether csv__put() leaves out the apostrophes (raw). */
void csv__set_raw(bool raw);
