/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_WEB_FORMATS_H
#define MT_SERVE_WEB_FORMATS_H
/* Names of the export formats, the same as for `export`. Ends with NULL. */
extern const char *const serve_formats[];
#endif
