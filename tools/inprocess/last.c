/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The last page of the programs' variables, linked last. */
char mt_shared_last[4096]
	__attribute__((section("mt_shared"), aligned(4096), visibility("hidden"))) = { 0 };
