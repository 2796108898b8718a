/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include <stdbool.h>

/* Returns whether an http:// URL names this machine, so that a token may go to it unencrypted. Only
 * a plain host and port count: "http://localhost@other/" names another one. */
bool loopback__is(const char *url);
