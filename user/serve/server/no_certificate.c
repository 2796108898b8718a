/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <stdio.h>

#include "serve/secret.h"

int secret__tls(const char *cert_path, const char *key_path, char **cert, char **key, char *warning,
		char *why)
{
	(void)cert_path, (void)key_path, (void)cert, (void)key, (void)warning;
	snprintf(why, SECRET_WHY,
		 "this build of serve has no HTTPS: leave --tls-cert and --tls-key out, listen on "
		 "127.0.0.1 or a Unix socket, and put a proxy such as nginx in front");
	return -ENOTSUP;
}
