/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The newest CPython that the tests know; user/inspect/python.h has the range for the tool. */
#define LAST_MINOR 15 /* of 3.15 */
