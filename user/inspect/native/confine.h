/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once

/*
 * Confines this process for good: no capability, no privilege through exec, no core file, and only
 * system calls for memory and for descriptors that it has. Other calls fail with EPERM. It cannot
 * open a file or a socket, signal, trace or start a process. 0, or -errno: the process must exit.
 */
int confine__self(void);
