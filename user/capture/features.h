/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The features of this kernel's BPF. Each is found by loading a program of a few instructions,
 * never from the kernel's version: vendors' kernels carry newer features under older numbers. */

/*
 * The features that bpf/memtrace.bpf.c needs and this kernel lacks, each with the first Linux that
 * has it: "bpf_loop (5.17), attach cookies (5.15)". Empty: it lacks none, or no program can be
 * loaded at all. Needs CAP_BPF and CAP_PERFMON; found out once, in about a millisecond.
 */
const char *features__missing(void);
