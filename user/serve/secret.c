/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/io.h"
#include "lib/text.h"

#define PEM_MAX 1048576
#define CHAIN 16 /* number of certificates checked per file */
#define MONTH (30 * 24 * 3600)
#define SHOWN 80

void secret__free(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

/* ---- files ---- */

static int refuse(int err, const char *path, const char *what, char *why)
{
	char shown[SHOWN + 1];

	text__clean(shown, sizeof(shown), path, strlen(path));
	snprintf(why, SECRET_WHY, "%s: %s", shown, what ? what : strerror(-err));
	return err;
}

/* Checks the open descriptor, so that the checked file is also the file that is read. */
static int check_file(int fd, size_t max, int is_private, const char *path, char *why)
{
	struct stat st;

	if (fstat(fd, &st))
		return refuse(-errno, path, NULL, why);
	if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode))
		return refuse(-EINVAL, path, "not a file", why);
	if (is_private && st.st_mode & (S_IROTH | S_IWOTH | S_IWGRP))
		return refuse(
			-EPERM, path,
			"others can read or write it: run chmod o-rwx,g-w and replace its content",
			why);
	if ((uint64_t)st.st_size > max)
		return refuse(-EFBIG, path, "too long", why);
	return 0;
}

int secret__read(const char *path, size_t max, int is_private, char **ret, char *why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), err;
	ssize_t got;
	size_t len;
	char *text;

	if (fd < 0)
		return refuse(-errno, path, NULL, why);
	err = check_file(fd, max, is_private, path, why);
	if (err) {
		close(fd);
		return err;
	}
	text = malloc(max + 2);
	got = text ? io__read(fd, text, max + 1) : -ENOMEM;
	len = got > 0 ? (size_t)got : 0;
	err = got < 0 ? (int)got : len > max ? -EFBIG : 0;
	close(fd);
	if (!err) {
		text[len] = '\0';
		if (strlen(text) != len)
			err = refuse(-EINVAL, path, "contains a NUL byte", why);
	} else {
		refuse(err, path, err == -EFBIG ? "too long" : NULL, why);
	}
	if (err) {
		if (text)
			explicit_bzero(text, max + 2);
		free(text);
		return err;
	}
	*ret = text;
	return 0;
}

/* ---- the token ---- */

int secret__token(const char *path, char **ret, char *why)
{
	char *text;
	size_t len;
	int err = secret__read(path, SECRET_TOKEN_MAX + 2, 1, &text, why);

	if (err)
		return err;
	len = strlen(text);
	if (len && text[len - 1] == '\n')
		text[--len] = '\0';
	if (len && text[len - 1] == '\r')
		text[--len] = '\0';
	for (size_t i = 0; i < len; i++) {
		if (text[i] <= ' ' || text[i] > '~')
			err = refuse(-EINVAL, path,
				     "a token must be one line of ASCII without spaces; make one "
				     "with openssl rand -hex 32",
				     why);
	}
	if (!err && (len < SECRET_TOKEN_MIN || len > SECRET_TOKEN_MAX))
		err = refuse(-EINVAL, path,
			     "a token must have 16 to 512 characters; make one with openssl rand "
			     "-hex 32",
			     why);
	if (err)
		secret__free(text);
	else
		*ret = text;
	return err;
}

/* ---- certificate and key ---- */

struct pair {
	gnutls_x509_crt_t chain[CHAIN];
	unsigned n;
	gnutls_x509_privkey_t key;
};

static void release(struct pair *p)
{
	for (unsigned i = 0; i < p->n; i++)
		gnutls_x509_crt_deinit(p->chain[i]);
	if (p->key)
		gnutls_x509_privkey_deinit(p->key);
}

static int load(struct pair *p, const char *cert_path, const char *cert, const char *key_path,
		const char *key, char *why)
{
	const gnutls_datum_t c = { (unsigned char *)cert, strlen(cert) },
			     k = { (unsigned char *)key, strlen(key) };
	unsigned n = CHAIN;
	int rc = gnutls_x509_crt_list_import(p->chain, &n, &c, GNUTLS_X509_FMT_PEM,
					     GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED);

	if (rc < 0 || !n)
		return refuse(-EINVAL, cert_path,
			      rc < 0 ? gnutls_strerror(rc) : "contains no certificate", why);
	p->n = n;
	rc = gnutls_x509_privkey_init(&p->key);
	if (!rc)
		rc = gnutls_x509_privkey_import2(p->key, &k, GNUTLS_X509_FMT_PEM, NULL, 0);
	return rc < 0 ? refuse(-EINVAL, key_path,
			       rc == GNUTLS_E_DECRYPTION_FAILED
				       ? "the key has a password, which serve cannot ask for; use "
					 "a key without one"
				       : gnutls_strerror(rc),
			       why)
		      : 0;
}

static int key_fits(const struct pair *p, const char *key_path, char *why)
{
	unsigned char of_cert[64], of_key[64];
	size_t cert_len = sizeof(of_cert), key_len = sizeof(of_key);

	if (gnutls_x509_crt_get_key_id(p->chain[0], GNUTLS_KEYID_USE_SHA256, of_cert, &cert_len) ||
	    gnutls_x509_privkey_get_key_id(p->key, GNUTLS_KEYID_USE_SHA256, of_key, &key_len) ||
	    cert_len != key_len || memcmp(of_cert, of_key, key_len))
		return refuse(-EINVAL, key_path,
			      "does not match the certificate, which must be the first in its file",
			      why);
	return 0;
}

static int check_time(const struct pair *p, const char *path, char *warning, char *why)
{
	time_t now = time(NULL), from = gnutls_x509_crt_get_activation_time(p->chain[0]),
	       to = gnutls_x509_crt_get_expiration_time(p->chain[0]);
	char date[32] = "?", text[96];
	struct tm tm;

	if (from == (time_t)-1 || to == (time_t)-1)
		return refuse(-EINVAL, path, "the certificate has no expiry date", why);
	if (gmtime_r(now < from ? &from : &to, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d", &tm);
	if (now < from || now > to) {
		snprintf(text, sizeof(text),
			 now < from ? "the certificate is valid only from %s on"
				    : "the certificate expired on %s",
			 date);
		return refuse(-EINVAL, path, text, why);
	}
	*warning = '\0';
	if (to - now < MONTH) {
		snprintf(text, sizeof(text), "the certificate expires on %s", date);
		refuse(0, path, text, warning);
	}
	return 0;
}

static int check_pair(const char *cert_path, const char *cert, const char *key_path,
		      const char *key, char *warning, char *why)
{
	struct pair p = { .n = 0 };
	int err = load(&p, cert_path, cert, key_path, key, why);

	if (!err)
		err = key_fits(&p, key_path, why);
	if (!err)
		err = check_time(&p, cert_path, warning, why);
	release(&p);
	return err;
}

int secret__tls(const char *cert_path, const char *key_path, char **ret_cert, char **ret_key,
		char *warning, char *why)
{
	char *cert = NULL, *key = NULL;
	int err = secret__read(cert_path, PEM_MAX, 0, &cert, why);

	if (!err)
		err = secret__read(key_path, PEM_MAX, 1, &key, why);
	if (!err)
		err = check_pair(cert_path, cert, key_path, key, warning, why);
	if (err) {
		secret__free(cert);
		secret__free(key);
		return err;
	}
	*ret_cert = cert;
	*ret_key = key;
	return 0;
}
