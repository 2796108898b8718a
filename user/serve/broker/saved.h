/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Recordings that exist when the server starts: in its folder, and from the command line. */

struct broker;

/* Adds the recordings to the table. 0 or an exit code, logged. */
int broker_saved__take(struct broker *b);
