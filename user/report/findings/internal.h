/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Declarations shared by the files of findings. */
#include "model/words.h"
#include "report/findings.h"
#include "report/leaks/internal.h"

struct growth_summary;

struct judging {
	const struct findings_source *source;
	struct findings *ret;
	size_t cap;
	bool models;		/* true if the text of a leak lists the process's models already */
	bool pinned;		/* true if growth of pinned memory has its finding already */
	struct leaks_host host; /* by host_findings__judge() */
};

/* Adds a finding with copies of its texts; NULL is "". Returns 0 or -ENOMEM. */
int findings__add(struct judging *j, const struct finding *f);
/* Writes a line, "train.py:41 (step)". Returns buf. */
char *findings__write_line(const struct findings_source *source, const struct row_frame *line,
			   char buf[REPORT_TEXT]);
/* Begins a finding's text with "at train.py:41 (step): ", or nothing for "". Returns the length. */
size_t findings__at(char text[REPORT_TEXT], const char *where);
/* Writes the line of user code of a stack; "": not known. Returns buf. */
char *findings__place(const struct findings_source *source, uint32_t stack, char buf[REPORT_TEXT]);

/* Free memory at the peak that lies between blocks, so that the allocator cannot give it back. */
struct fragments {
	uint64_t stuck;		 /* its bytes */
	uint64_t of_line;	 /* part of it in segments where one line has most of the blocks */
	char where[REPORT_TEXT]; /* that line; "": not known */
};
/* Sets *ret; all 0: there is none, or segments are not known. Returns 0 or -ENOMEM. */
int fragments__find(const struct findings_source *source, size_t device, struct fragments *ret);

/* Adds what a device has twice: weights, and state of optimizers. Returns 0 or -ENOMEM. */
int duplicates__add(struct judging *j, size_t device, const struct model_device *d);
/* Adds what CUDA's driver shows of a device: calls that it refused, and other processes. Returns 0
 * or -ENOMEM. */
int driver_findings__add(struct judging *j, size_t device, const struct model_device *d);

/* Growth of host memory. Call host_findings__judge() before the others; those that add return 0 or
 * -ENOMEM. */
void host_findings__judge(struct judging *j);
/* True if growth of the device host is that of PyTorch's pinned memory, most of it cached. */
bool host_findings__is_pinned(const struct judging *j, const struct growth_summary *s);
/* s: that growth, and where: its line; NULL: only the readings show it. */
int host_findings__add_pinned(struct judging *j, const struct growth_summary *s, const char *where);
/* True if tensors on the CPU grow: they are a part of host memory. The caller frees *ret then. */
bool host_findings__tensors_grow(const struct judging *j, struct growth_summary *ret);
/* Adds what grows in host memory (d, s) beside these tensors: nothing if they explain it. */
int host_findings__add_beside(struct judging *j, const struct model_device *d,
			      const struct growth_summary *s, const struct growth_summary *tensors);
/* Adds growth that no line of the program has. */
int host_findings__add(struct judging *j);

/* True if all texts of the finding were allocated. */
bool findings__is_whole(const struct finding *f);
void findings__free_texts(struct finding *f);
/* For qsort(): faults before savings, faults by code (host memory after a graph that is kept),
 * savings by share. */
int findings__compare(const struct finding *a, const struct finding *b);
/* Writes the finding's JSON members into the open object. */
void findings__put(struct json *j, const struct finding *f);

/* Prints a text of at most 20 lines: a head, then findings while there is room. Set out and width,
 * zero the rest. Call findings_page__begin(), write the head to mem, call
 * findings_page__end_head(), findings_page__add() for each finding, then findings_page__end(). */
struct findings_page {
	FILE *out, *mem;
	size_t width;
	char *text;			/* text written to mem, valid after mem is closed */
	size_t size;			/* length of text */
	size_t lines;			/* lines printed so far */
	size_t faults, shown, left_out; /* findings */
	bool broken;			/* memory is short: nothing more is printed */
};
void findings_page__begin(struct findings_page *p);
/* Prints the head. faults: number of findings that are faults, which come first. */
void findings_page__end_head(struct findings_page *p, size_t faults);
/* Prints a finding if there is room, and counts it otherwise. ranks: the recordings that have it,
 * such as "rank 2 of 4"; NULL: there is only one recording. */
void findings_page__add(struct findings_page *p, const struct finding *f, const char *ranks);
/* Prints how many findings had no room, and details, a command that shows more. Returns 0 or
 * -ENOMEM. */
int findings_page__end(struct findings_page *p, const char *details);
