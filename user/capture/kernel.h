/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Whether this process may trace, and this kernel can: capabilities, which are dropped when they
 * are not needed, tokens, and features of BPF.
 */
#include <stdbool.h>
#include <stddef.h>

/* The capabilities missing to trace others, as text ("CAP_BPF, CAP_PERFMON"); "": none. */
const char *caps__missing(void);
/* The capabilities missing to read other processes without tracing them, as `dump` does, as text;
 * "": none. */
const char *caps__missing_to_read(void);
/* True if files that were replaced on disk can be opened, through /proc/PID/map_files. */
bool caps__reach_replaced(void);
bool caps__sys_admin(void); /* true if this process has CAP_SYS_ADMIN */
enum {
	CAPS_KILL = 1,	/* to send signals */
	CAPS_FILES = 2, /* to make files in another user's folder */
	CAPS_PERF = 4,	/* for perf uprobes, on kernels without uprobe.multi */
};
/* Drops for good all capabilities that a running capture does not need, except those in keep
 * (CAPS_*), and turns off this process's core files. 0 or -errno. */
int caps__limit(unsigned int keep);
/* Drops for good all capabilities except those in keep, in a process without a capture. 0 or
 * -errno. */
int caps__only(unsigned int keep);

/*
 * BPF tokens (Linux 6.9): a mounted BPF file system can delegate BPF to the user namespace that it
 * was opened in; docs/guide/containers.md. libbpf 1.4 and newer take the token of /sys/fs/bpf, or
 * of LIBBPF_BPF_TOKEN_PATH, for the objects that they load.
 */

enum bpf_token_state {
	BPF_TOKEN_NOT_NEEDED,	 /* not in a user namespace */
	BPF_TOKEN_HERE,		 /* BPF is delegated to this user namespace */
	BPF_TOKEN_NOT_DELEGATED, /* a user namespace without a token */
	BPF_TOKEN_NOT_BUILT,	 /* a user namespace; this build's libbpf knows no tokens */
};
/* Returns how this process can load BPF programs. From BPF_TOKEN_NOT_DELEGATED on, it cannot. */
enum bpf_token_state bpf_token__state(void);
/* The state in words, and what to do; static text. */
const char *bpf_token__text(enum bpf_token_state state);

/* Sends libbpf's messages to the debug log from now on. Call it before a program is loaded. */
void libbpf_log__quiet(void);

struct bpf_prog_load_opts;
/* Adds the token, if there is one, to the options of a program that is loaded without an object. */
void bpf_token__use(struct bpf_prog_load_opts *opts);

/* The features of this kernel's BPF. Each is found by loading a program of a few instructions,
 * never from the kernel's version: vendors' kernels carry newer features under older numbers. */
/*
 * The features that bpf/memtrace.bpf.c needs and this kernel lacks, each with the first Linux that
 * has it: "bpf_loop (5.17), attach cookies (5.15)". Empty: it lacks none, or no program can be
 * loaded at all. Needs CAP_BPF and CAP_PERFMON; found out once, in about a millisecond.
 */
const char *features__missing(void);
/* Loads a program that does nothing, to test the kernel. opts: get the token, if there is one;
 * NULL: none. A descriptor or -errno. */
int features__load_empty(int type, struct bpf_prog_load_opts *opts);

/* Tests whether this kernel shows how processes end (capture/ending/hooks.h): loads the programs
 * and removes them. Returns whether it shows all. buf gets the result in words; 256 bytes
 * suffice. */
bool ending_hooks__try(char *buf, size_t size);
