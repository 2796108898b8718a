/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_WEB_FORMATS_H
#define MT_SERVE_WEB_FORMATS_H
/* The formats that a trace can be exported to, as `export` has them. Ends with NULL. */
extern const char *const serve_formats[];
#endif
