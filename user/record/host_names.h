/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Frames of blocks on the device "host" that no recorded system call mapped. Such a stack has one
 * frame without a line: its file is the mapping's name as in /proc/PID/maps, its function one of
 * these. */
#define HOST_BEFORE_ATTACH "before attach"
#define HOST_INHERITED "inherited from the parent process"
#define HOST_UNSEEN "mapped unseen"
#define HOST_ANONYMOUS "[anonymous memory]" /* name of a mapping that has none */
