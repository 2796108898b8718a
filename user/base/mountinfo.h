/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once

/* Decodes the escapes of a path in /proc/PID/mountinfo, such as \040 for a space, in place. */
static inline void mountinfo__unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}
