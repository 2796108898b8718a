/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include <stdbool.h>

/* Returns whether an http:// or https:// URL names this machine, so that a token may go to it
 * unencrypted. Only a plain host and port count: "http://localhost@other/" names another one. */
bool loopback__is(const char *url);
/* Returns whether a request to an http:// or https:// URL must not go through a proxy: the URL names
 * this machine, which for a proxy is another one, or a token would reach the proxy unencrypted. */
bool loopback__direct(const char *url, bool token);
