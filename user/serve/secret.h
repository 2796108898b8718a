/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_SECRET_H
#define MT_SERVE_SECRET_H
/* What is read from files before the rights to do so are given up: token, certificate and key. All
 * text is wiped when it is freed. */
#include <stddef.h>
#include <stdint.h>

#define SECRET_WHY 256
#define SECRET_TOKEN_MIN 16 /* bytes */
#define SECRET_TOKEN_MAX 512

/*
 * The token of a file: its first line, SECRET_TOKEN_MIN to SECRET_TOKEN_MAX bytes of printing ASCII
 * without blanks. Refused with -EPERM where others than its owner and group may read it. 0, -errno;
 * why: at least SECRET_WHY bytes. *ret is freed by secret__free().
 */
int secret__token(const char *path, char **ret, char *why);
/*
 * A certificate (PEM; those between it and the authority behind it) and its key, which only their
 * owner and group may read. Refused, -EINVAL, are what does not read as such, a key that is not the
 * certificate's, and one that has expired or is not yet valid. *warning: "", or what to tell (it
 * ends within a month; at least SECRET_WHY bytes). *cert and *key are freed by secret__free().
 */
int secret__tls(const char *cert_path, const char *key_path, char **cert, char **key, char *warning,
		char *why);
/* A file of at most max bytes, with a NUL behind; is_private: refused with -EPERM where others may
 * read it. */
int secret__read(const char *path, size_t max, int is_private, char **ret, char *why);
void secret__free(char *text); /* NULL is fine */

#endif
