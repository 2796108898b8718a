/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* cmocka.h, after the headers that it needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
