/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPLAY_TRUST_H
#define MT_REPLAY_TRUST_H
/*
 * Finds PyTorch's libraries. Replay runs code from them. The user may name an interpreter; it is
 * run as it is. A path that only the recording names is used if nobody but root can change what it
 * leads to: whoever made the recording, or was traced, chose that path. That a file belongs to the
 * user says nothing: what the user unpacked or cloned belongs to the user, too. Nor is anything
 * used that lies in the folder of the recording or in the current one: what root unpacked belongs
 * to root. Only a file whose name is that of a Python is run.
 */
#include <stdbool.h>
#include <stddef.h>

struct facts;
struct failure;
struct replay_opts;
struct user;

/*
 * Opens the file or folder with O_PATH, component by component, links included. 0 or the
 * descriptor, the caller's; -EINVAL not absolute, -EPERM something on the way is not root's, or
 * others can write it; -EXDEV it leads into /proc or /sys, where a name is another file for each
 * process; else what opening gave.
 */
int replay_trust__open(const char *path);
/*
 * Opens (O_PATH) the folder with libc10_cuda.so: of opts->python's PyTorch, or of the one that was
 * recorded. path gets its name, for messages. The descriptor, the caller's, or -errno and *f.
 */
int replay_trust__find(const struct replay_opts *opts, const struct facts *facts, char *path,
		       size_t size, struct failure *f);
/* In a child that is to run such code: becomes the user behind sudo, or, of an own recording
 * (struct replay_opts), that user. Exits where it cannot. */
void replay_trust__become(bool own, const struct user *user);

#endif
