/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/secret.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PEM_MAX 1048576	       /* largest certificate or key file, in bytes */
#define CHAIN 16	       /* number of certificates checked per file */
#define MONTH (30 * 24 * 3600) /* s */

struct pair {
	gnutls_x509_crt_t chain[CHAIN]; /* the server's own certificate is the first */
	unsigned n;			/* certificates in `chain` */
	gnutls_x509_privkey_t key;
};

static void release_pair(struct pair *p)
{
	for (unsigned i = 0; i < p->n; i++)
		gnutls_x509_crt_deinit(p->chain[i]);
	if (p->key)
		gnutls_x509_privkey_deinit(p->key);
}

/* Parses the PEM texts of a certificate chain and its key. The paths are for messages. 0, or
 * negative with why; the caller frees p in both cases. */
static int load_pair(struct pair *p, const char *cert_path, const char *cert, const char *key_path,
		     const char *key, char *why)
{
	const gnutls_datum_t c = { (unsigned char *)cert, strlen(cert) },
			     k = { (unsigned char *)key, strlen(key) };
	unsigned n = CHAIN;
	int rc = gnutls_x509_crt_list_import(p->chain, &n, &c, GNUTLS_X509_FMT_PEM,
					     GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED);

	if (rc < 0 || !n)
		return secret__refuse(-EINVAL, cert_path,
				      rc < 0 ? gnutls_strerror(rc) : "contains no certificate",
				      why);
	p->n = n;
	rc = gnutls_x509_privkey_init(&p->key);
	if (!rc)
		rc = gnutls_x509_privkey_import2(p->key, &k, GNUTLS_X509_FMT_PEM, NULL, 0);
	if (rc == GNUTLS_E_DECRYPTION_FAILED)
		return secret__refuse(-EINVAL, key_path,
				      "the key has a password, which serve cannot ask for; use a "
				      "key without one",
				      why);
	return rc < 0 ? secret__refuse(-EINVAL, key_path, gnutls_strerror(rc), why) : 0;
}

/* Checks that the key is that of the certificate. 0, or negative with why. */
static int check_key(const struct pair *p, const char *key_path, char *why)
{
	unsigned char cert_id[64], key_id[64];
	size_t cert_len = sizeof(cert_id), key_len = sizeof(key_id);
	bool matches;

	matches = !gnutls_x509_crt_get_key_id(p->chain[0], GNUTLS_KEYID_USE_SHA256, cert_id,
					      &cert_len) &&
		  !gnutls_x509_privkey_get_key_id(p->key, GNUTLS_KEYID_USE_SHA256, key_id,
						  &key_len) &&
		  cert_len == key_len && !memcmp(cert_id, key_id, key_len);
	if (!matches)
		return secret__refuse(
			-EINVAL, key_path,
			"does not match the certificate, which must be the first in its file", why);
	return 0;
}

/* Checks that the certificate is valid now; warning: it expires soon, or "". 0, or negative with
 * why. */
static int check_time(const struct pair *p, const char *path, char *warning, char *why)
{
	time_t valid_from = gnutls_x509_crt_get_activation_time(p->chain[0]);
	time_t valid_to = gnutls_x509_crt_get_expiration_time(p->chain[0]);
	time_t now = time(NULL);
	char date[32] = "?", text[96];
	struct tm tm;

	if (valid_from == (time_t)-1 || valid_to == (time_t)-1)
		return secret__refuse(-EINVAL, path, "the certificate has no expiry date", why);
	if (gmtime_r(now < valid_from ? &valid_from : &valid_to, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d", &tm);
	if (now < valid_from || now > valid_to) {
		snprintf(text, sizeof(text),
			 now < valid_from ? "the certificate is valid only from %s on"
					  : "the certificate expired on %s",
			 date);
		return secret__refuse(-EINVAL, path, text, why);
	}
	*warning = '\0';
	if (valid_to - now < MONTH) {
		snprintf(text, sizeof(text), "the certificate expires on %s", date);
		secret__refuse(0, path, text, warning); /* only formats the warning */
	}
	return 0;
}

/* Checks a certificate and its key. 0, or negative with why. */
static int check_pair(const char *cert_path, const char *cert, const char *key_path,
		      const char *key, char *warning, char *why)
{
	struct pair p = { .n = 0 };
	int err = load_pair(&p, cert_path, cert, key_path, key, why);

	if (err)
		goto out;
	err = check_key(&p, key_path, why);
	if (err)
		goto out;
	err = check_time(&p, cert_path, warning, why);
out:
	release_pair(&p);
	return err;
}

int secret__tls(const char *cert_path, const char *key_path, char **ret_cert, char **ret_key,
		char *warning, char *why)
{
	char *cert = NULL, *key = NULL;
	int err = secret__read(cert_path, PEM_MAX, 0, &cert, why);

	if (err)
		return err;
	err = secret__read(key_path, PEM_MAX, 1, &key, why);
	if (err)
		goto failed;
	err = check_pair(cert_path, cert, key_path, key, warning, why);
	if (err)
		goto failed;
	*ret_cert = cert;
	*ret_key = key;
	return 0;
failed:
	secret__free(cert);
	secret__free(key);
	return err;
}
