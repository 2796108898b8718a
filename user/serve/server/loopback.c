/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/secret.h"

#include <arpa/inet.h>
#include <string.h>

bool loopback__is(const char *url)
{
	const char *host = url +
			   (strncmp(url, "https://", 8) ? strlen("http://") : strlen("https://"));
	size_t len = strcspn(host, "/?#"), address;
	char text[64];
	struct in_addr in;

	if (len >= sizeof(text))
		return false;
	memcpy(text, host, len);
	text[len] = '\0';
	address = strcspn(text, *text == '[' ? "]" : ":");
	address += text[address] == ']';
	/* A port, and nothing else: "[::1]:9@example.org" is a user's name and another host. */
	if (text[address] &&
	    (text[address] != ':' || strspn(host + address + 1, "0123456789") != len - address - 1))
		return false;
	text[address] = '\0';
	return !strcmp(text, "[::1]") || !strcmp(text, "localhost") ||
	       (inet_pton(AF_INET, text, &in) == 1 && ntohl(in.s_addr) >> 24 == 127);
}

bool loopback__direct(const char *url, bool token)
{
	return loopback__is(url) || (token && strncmp(url, "https://", 8));
}
