/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* report FOLDER of `watch --machine`: what grew in the last minute before the recording breaks off.
 */
#include <stdbool.h>

/* Prints it. Logs errors. Returns the exit code. */
int report_machine__print(const char *folder, bool json);
