/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The documents on this machine: guide and reference. */

/*
 * The path of a document, such as docs__path("guide/growth.md"), or with "" the folder with all of
 * them: ../share/doc/memtrace-bpf next to an installed program, ../docs next to a build folder.
 * The string is valid until the next call. Not for several threads.
 */
const char *docs__path(const char *name);
