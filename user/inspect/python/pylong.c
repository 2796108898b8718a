/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/python/pylong.h"

#include <errno.h>

#include "inspect/python/pydict.h"

#define DIGIT_BITS 30
#define PYTYPE_LONG (1ul << 24) /* Py_TPFLAGS_LONG_SUBCLASS */

/* Layout: ob_size, then digits of 30 bits, lowest first. ob_size is the number of digits, negative
 * for negative numbers. From CPython 3.12 on it is lv_tag: the number is in bits 3 and up, the sign
 * in the lowest two (0 positive, 1 zero, 2 negative). */
int pylong__read(struct pymem *mem, uint64_t obj, uint64_t *ret)
{
	struct {
		uint64_t size;
		uint32_t digits[2];
	} head;
	uint64_t n_digits;
	int err = pydict__check_kind(mem, obj, PYTYPE_LONG)
			  ?: pymem__read(mem, obj + mem->layout->ob_size, &head.size,
					 sizeof(head.size));

	if (err)
		return err;
	n_digits = head.size;
	if (mem->layout->minor >= 12) {
		if (n_digits & 2) /* negative */
			return -E2BIG;
		n_digits = n_digits & 1 ? 0 : n_digits >> 3;
	}
	if (n_digits > 2)
		return -E2BIG;
	/* The second digit of a small int is beyond the object. */
	head.digits[0] = head.digits[1] = 0;
	err = n_digits ? pymem__read(mem, obj + mem->layout->ob_size + 8, head.digits,
				     n_digits * sizeof(*head.digits))
		       : 0;
	if (err)
		return err;
	if ((head.digits[0] | head.digits[1]) >> DIGIT_BITS)
		return -EBADMSG;
	*ret = (uint64_t)head.digits[1] << DIGIT_BITS | head.digits[0];
	return 0;
}
