/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A library with as little in it as can be. */
int nothing_at_all(void);

int nothing_at_all(void)
{
	return 0;
}
