/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/secret.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/text.h"

bool loopback__is(const char *url)
{
	const char *host = url + (!text__starts(url, "https://") ? strlen("http://")
								 : strlen("https://"));
	size_t len = strcspn(host, "/?#"), address_len;
	char text[64];
	const char *port; /* ":8000", or "" */
	struct in_addr in;

	if (len >= sizeof(text))
		return false;
	memcpy(text, host, len);
	text[len] = '\0';
	address_len = strcspn(text, *text == '[' ? "]" : ":");
	address_len += text[address_len] == ']'; /* keeps the brackets of an IPv6 address */
	/* Only a port may follow: in "[::1]:9@example.org" the host is example.org. */
	port = text + address_len;
	if (*port && (*port != ':' || strspn(port + 1, "0123456789") != strlen(port + 1)))
		return false;
	text[address_len] = '\0';
	return !strcmp(text, "[::1]") || !strcmp(text, "localhost") ||
	       (inet_pton(AF_INET, text, &in) == 1 && ntohl(in.s_addr) >> 24 == IN_LOOPBACKNET);
}

/* An http request shows its token to each proxy on the way, an https request does not. */
bool loopback__direct(const char *url, bool token)
{
	return loopback__is(url) || (token && !text__starts(url, "https://"));
}
