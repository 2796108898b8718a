/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Token, certificate and key, read before the process gives up its rights. secret__free() wipes
 * the text. */
#include <stdbool.h>
#include <stddef.h>

#define SECRET_WHY 256	    /* size of an error message, in bytes, with the NUL */
#define SECRET_TOKEN_MIN 16 /* shortest and longest token, in bytes */
#define SECRET_TOKEN_MAX 512

/*
 * Reads a token: the first line of a file, SECRET_TOKEN_MIN to SECRET_TOKEN_MAX visible ASCII
 * characters. Returns 0, -EPERM (users other than owner and group can read or write the file, or
 * the group can write it) or another -errno. why: at least SECRET_WHY bytes, gets the error. Free
 * *ret with secret__free().
 */
int secret__token(const char *path, char **ret, char *why);
/*
 * Reads a PEM certificate, optionally with its chain, and its private key. Access to the key file
 * as for secret__token(). Returns -EINVAL if the text is malformed, the key does not match, or the
 * certificate is expired or not yet valid. *warning (at least SECRET_WHY bytes): "" or a warning
 * that the certificate expires within a month. Free *cert and *key with secret__free().
 * certificate.c has it with GnuTLS; no_certificate.c, for builds without HTTPS, returns -ENOTSUP.
 */
int secret__tls(const char *cert_path, const char *key_path, char **cert, char **key, char *warning,
		char *why);
/* Reads a file of at most max bytes and adds a NUL. is_private: returns -EPERM as
 * secret__token() does. Free *ret with secret__free(). */
int secret__read(const char *path, size_t max, int is_private, char **ret, char *why);
void secret__free(char *text); /* NULL is fine */
/* Writes "PATH: WHAT" to why (SECRET_WHY bytes); what NULL: the text of the negative errno err.
 * Returns err. */
int secret__refuse(int err, const char *path, const char *what, char *why);

/* ---- where a token may go ---- */

/* Returns whether an http:// or https:// URL names this machine, so that a token may go to it
 * unencrypted. Only a plain host and port count: "http://localhost@other/" names another one. */
bool loopback__is(const char *url);
/* Returns whether a request to an http:// or https:// URL must not go through a proxy: the URL names
 * this machine, which for a proxy is another one, or a token would reach the proxy unencrypted. */
bool loopback__direct(const char *url, bool token);
