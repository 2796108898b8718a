/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Export formats: names of files and their content types. */
#include <jansson.h>
#include <stddef.h>

struct export_format;

/* All formats, for the message `hello`. */
json_t *broker_formats__all(void);
/* The content type by the ending of a file name, static. */
const char *broker_formats__content_type(const char *file);
/* The part of a file name after the trace's id: "_events.csv". Returns buf. */
char *broker_formats__suffix(const struct export_format *f, char *buf, size_t size);
