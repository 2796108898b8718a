/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Functions that pybind11 makes for Python, in pybind11 2.2 to 3.0. */
#include <stdint.h>

struct python;

/* Words of pybind11::detail::function_record, by their offsets. */
enum pybind_word {
	PYBIND_IMPL = 48,     /* the function that Python's call comes to first */
	PYBIND_FUNCTION = 56, /* the C function that it calls, if def() was given a pointer to one */
};

/* Reads a word of the record of the function with this name in the module `object`. 0; -ENOENT: no
 * such function; -EBADMSG: not made by pybind11 as known; -EFAULT. */
int pybind__word(const struct python *py, uint64_t object, const char *name, enum pybind_word which,
		 uint64_t *ret);
