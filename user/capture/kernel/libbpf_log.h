/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Sends libbpf's messages to the debug log from now on. Call it before a program is loaded. */
void libbpf_log__quiet(void);
