/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reading and checking a request (headers, client, route, parameters) before its handler is
 * called. */
#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "serve/web/validate.h"
#include "serve/web/web.h"

/* Call when the request line and headers have arrived. Checks them and sets an error answer if a
 * check fails; the answer is sent after the body. False: do not read the body. */
bool request__begin(struct request *r, const char *url, const char *method);
/* Adds a piece of the body. False: the body is too long even to be discarded. */
bool request__take(struct request *r, const char *data, size_t size);
/* Call when a request on the connection has ended: starts the idle time. */
void web__conn_idle(struct conn *c);
