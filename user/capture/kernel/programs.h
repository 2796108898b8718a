/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The programs of one BPF object file, which are loaded when they are needed. The kernel verifies
 * a program that walks stacks in 10 to 60 ms. A capture needs about half of them at once, and
 * several threads load these at the same time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The program that one link runs at the entry of a function and, if it returned 0 there, at the
 * return: an uprobe.session link of Linux 6.13 and newer. */
#define PROGRAMS_SESSION "malloc_session"

struct bpf_object;
struct bpf_program;
struct programs;

/* maps: an object of the file with loaded maps and no programs. elf: the file's bytes. Both are
 * borrowed and must outlive the result. multi: the programs are for uprobe.multi links. NULL: no
 * memory. */
struct programs *programs__new(const struct bpf_object *maps, const void *elf, size_t size,
			       bool multi);
void programs__free(struct programs *programs); /* waits for programs__begin(); NULL is fine */
/* Loads those of the n programs that are not loaded yet. names: static text. Returns 0. On an error
 * loads none of them, and returns -E2BIG (too many programs), -ENOENT (the file has no program of
 * this name) or -errno. */
int programs__load(struct programs *programs, const char *const *names, size_t n);
/* Starts to load programs like programs__load(), in one other thread. Call nothing but
 * programs__poll() and programs__free() while programs__poll() returns -EINPROGRESS. Returns 0, or
 * -errno if the thread cannot be started. */
int programs__begin(struct programs *programs, const char *const *names, size_t n);
/* Returns the result of the load that programs__begin() started, with the values of
 * programs__load(); -EINPROGRESS while it runs. Does not wait. */
int programs__poll(struct programs *programs);
/* The program of this name; NULL: it is not loaded. */
struct bpf_program *programs__get(const struct programs *programs, const char *name);
/*
 * Hits for which the kernel skipped a loaded program, as far as it counts them: a program does not
 * run on a CPU where it already runs, in a task that was preempted there. Linux 5.12 and newer
 * count that, for perf's probes 6.7 and newer. Probes by uprobe.multi are never skipped.
 */
uint64_t programs__skipped(const struct programs *programs);
/* Like programs__skipped(), of the n programs with these descriptors; negative ones are left out.
 * info: bpf_obj_get_info_by_fd(), or a test's function. */
typedef int (*programs_info_fn)(int fd, void *info, uint32_t *len);
uint64_t programs__skipped_of(const int *fds, size_t n, programs_info_fn info);
