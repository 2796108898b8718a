/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_SANDBOX_INTERNAL_H
#define MT_SERVE_SANDBOX_INTERNAL_H
#include "serve/sandbox.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANDBOX_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANDBOX_SANITIZED true
#endif
#endif
#ifndef SANDBOX_SANITIZED
#define SANDBOX_SANITIZED false
#endif

/* The rules for files, made while the paths can still be reached. *fd: -1 where the kernel has no
 * Landlock, else the caller's to close. 0 or -errno. */
int sandbox__make_rules(const struct sandbox_opts *o, int *fd, int *version);
/* They hold from here on. */
int sandbox__obey_rules(int fd);
/* From here on the kernel answers no other calls than ours. */
int sandbox__filter_calls(const struct sandbox_opts *o);

#endif
