/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
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
/* How this process can load BPF programs. From NOT_DELEGATED on it cannot. */
enum bpf_token_state bpf_token__state(void);
/* The state in words, and what to do; static text. */
const char *bpf_token__text(enum bpf_token_state state);

struct bpf_prog_load_opts;
/* Adds the token, if there is one, to the options of a program that is loaded without an object. */
void bpf_token__use(struct bpf_prog_load_opts *opts);
