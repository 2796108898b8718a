/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/kernel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define WITH_TOKENS (LIBBPF_MAJOR_VERSION > 1 || LIBBPF_MINOR_VERSION >= 4)
#define FIRST_USER_NAMESPACE 0xEFFFFFFDu /* PROC_USER_INIT_INO */
#define NO_TOKEN (-1)
#define NOT_ASKED (-2) /* no token was created so far */

static bool in_user_namespace(void)
{
	struct stat st;

	return !stat("/proc/self/ns/user", &st) && st.st_ino != FIRST_USER_NAMESPACE;
}

#if WITH_TOKENS
/* The descriptor of a BPF token, which stays open until this process ends, or NO_TOKEN. */
static int token(void)
{
	const char *path = getenv("LIBBPF_BPF_TOKEN_PATH") ?: "/sys/fs/bpf";
	static int fd = NOT_ASKED;
	int bpffs;

	if (fd != NOT_ASKED)
		return fd;
	fd = NO_TOKEN;
	bpffs = in_user_namespace() ? open(path, O_DIRECTORY | O_CLOEXEC) : -1;
	if (bpffs < 0)
		return fd;
	fd = bpf_token_create(bpffs, NULL);
	if (fd < 0)
		fd = NO_TOKEN;
	close(bpffs);
	return fd;
}

void bpf_token__use(struct bpf_prog_load_opts *opts)
{
	if (token() < 0)
		return;
	opts->token_fd = (uint32_t)token();
	opts->prog_flags |= 1u << 16; /* BPF_F_TOKEN_FD, include/uapi/linux/bpf.h */
}
#else
static int token(void)
{
	return NO_TOKEN;
}

void bpf_token__use(struct bpf_prog_load_opts *opts)
{
	(void)opts;
}
#endif

enum bpf_token_state bpf_token__state(void)
{
	if (!in_user_namespace())
		return BPF_TOKEN_NOT_NEEDED;
	if (!WITH_TOKENS)
		return BPF_TOKEN_NOT_BUILT;
	return token() < 0 ? BPF_TOKEN_NOT_DELEGATED : BPF_TOKEN_HERE;
}

#define TEXT(x) #x
#define VERSION(major, minor) TEXT(major) "." TEXT(minor)

const char *bpf_token__text(enum bpf_token_state state)
{
	switch (state) {
	case BPF_TOKEN_NOT_NEEDED:
		return "not needed outside of user namespaces";
	case BPF_TOKEN_HERE:
		return "BPF is delegated to this user namespace";
	case BPF_TOKEN_NOT_DELEGATED:
		return "BPF is not delegated to this user namespace: start a shell with "
		       "`sudo memtrace-bpf-token USER` (Linux 6.9 or newer), or run memtrace-bpf "
		       "on the host";
	case BPF_TOKEN_NOT_BUILT:
		return "this is a user namespace, and this build's libbpf " VERSION(
			LIBBPF_MAJOR_VERSION,
			LIBBPF_MINOR_VERSION) " has no BPF tokens "
					      "(1.4 and newer have them): run memtrace-bpf on the "
					      "host, or build it "
					      "with a newer libbpf";
	}
	return "";
}
