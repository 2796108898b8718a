/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/loopback.h"

#include <arpa/inet.h>
#include <string.h>

bool loopback__is(const char *url)
{
	const char *host = url + strlen("http://");
	size_t len = strcspn(host, "/?#");
	char text[64];
	struct in_addr in;

	if (len >= sizeof(text))
		return false;
	memcpy(text, host, len);
	text[len] = '\0';
	if (!strncmp(text, "[::1]", 5) && (!text[5] || text[5] == ':'))
		return true;
	text[strcspn(text, ":")] = '\0';
	if (strspn(host + strlen(text), ":0123456789") + strlen(text) != len)
		return false;
	return !strcmp(text, "localhost") ||
	       (inet_pton(AF_INET, text, &in) == 1 && ntohl(in.s_addr) >> 24 == 127);
}
