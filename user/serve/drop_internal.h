/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_DROP_INTERNAL_H
#define MT_SERVE_DROP_INTERNAL_H
#include "serve/drop.h"

#if defined(__SANITIZE_ADDRESS__)
#define DROP_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DROP_SANITIZED true
#endif
#endif
#ifndef DROP_SANITIZED
#define DROP_SANITIZED false
#endif

/* The rules for files, made while the paths can still be reached. *fd: -1 where the kernel has no Landlock, else the caller's to close. 0 or -errno. */
int drop__make_rules(const struct drop_opts *o, int *fd, int *version);
/* They hold from here on. */
int drop__obey_rules(int fd);
/* From here on the kernel answers no other calls than ours. */
int drop__filter_calls(const struct drop_opts *o);

#endif
