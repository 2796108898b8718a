/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The pages of the programs' variables begin here: see programs.c. First in the link. This page
 * holds no variable, so the recorder refuses an offset within it: the table lacks that variable.
 */
char mt_shared_first[4096]
	__attribute__((section("mt_shared"), aligned(4096), visibility("hidden"))) = { 0 };
