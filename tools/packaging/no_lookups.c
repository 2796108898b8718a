/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * For the static program, in place of the C library's functions, which load shared libraries.
 * c-ares calls the first two for names of services, but libcurl gives it port numbers. wolfSSL
 * calls the others to ask whether a certificate was revoked, which libcurl does not request. libdw
 * would load a library that fetches files from other machines.
 */
#include <dlfcn.h>
#include <netdb.h>
#include <stddef.h>

void *dlopen(const char *file, int mode)
{
	(void)file, (void)mode;
	return NULL;
}

struct servent *getservbyname(const char *name, const char *proto)
{
	(void)name, (void)proto;
	return NULL;
}

int getservbyport_r(int port, const char *proto, struct servent *entry, char *buf, size_t size,
		    struct servent **ret)
{
	(void)port, (void)proto, (void)entry, (void)buf, (void)size;
	*ret = NULL;
	return 0;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		struct addrinfo **ret)
{
	(void)node, (void)service, (void)hints;
	*ret = NULL;
	return EAI_FAIL;
}

void freeaddrinfo(struct addrinfo *list)
{
	(void)list;
}
