/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TESTS_UNIT_CMOCKA_H
#define MT_TESTS_UNIT_CMOCKA_H
/* cmocka.h, after the headers that it needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
