/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The first page of the programs' variables (see programs.c), linked first. It holds no variable,
 * so the recorder takes an offset within it as "this table lacks the variable".
 */
char mt_shared_first[4096]
	__attribute__((section("mt_shared"), aligned(4096), visibility("hidden"))) = { 0 };
