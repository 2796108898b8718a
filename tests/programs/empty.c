/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A minimal library. */
int nothing_at_all(void);

int nothing_at_all(void)
{
	return 0;
}
