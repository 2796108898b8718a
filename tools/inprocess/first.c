/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Where the pages of the programs' variables begin: see programs.c. First in the link. This page
 * holds no variable, so the recorder refuses an offset within it as one that nobody has set.
 */
char mt_shared_first[4096]
	__attribute__((section("mt_shared"), aligned(4096), visibility("hidden"))) = { 0 };
