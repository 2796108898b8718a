/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The check of a TLS certificate and its key. Two files implement it: certificate.c with GnuTLS,
 * and no_certificate.c for builds without HTTPS. */

/*
 * Checks PEM texts: that the key matches the first certificate and that the certificate is valid
 * now. The paths are for messages. 0 with *warning "" or that it expires within a month; -EINVAL;
 * -ENOTSUP: this build has no HTTPS. warning and why: at least SECRET_WHY bytes.
 */
int certificate__check(const char *cert_path, const char *cert, const char *key_path,
		       const char *key, char *warning, char *why);
