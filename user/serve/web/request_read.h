/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_WEB_REQUEST_READ_H
#define MT_SERVE_WEB_REQUEST_READ_H
/* What a request brings, before its route is called: who asks, which call, with what. */
#include <stdbool.h>
#include <stddef.h>

#include "lib/text.h"
#include "serve/web/validate.h"
#include "serve/web/web.h"

/*
 * Head and line are there: who may not ask, or asks for what is not there, has his answer already,
 * though it is sent when the body has been read. false: the body is not worth waiting for.
 */
bool request__begin(struct request *r, const char *url, const char *method);
/* A piece of the body. false: it is too long even to be thrown away. */
bool request__take(struct request *r, const char *data, size_t size);
/* A connection has nothing to do from now on. */
void web__conn_rested(struct conn *c);

#endif
