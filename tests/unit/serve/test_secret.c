/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Token, certificate and key files: which are accepted, and the reasons for rejections. */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "serve/secret.h"

static char folder[64], paths[2][96];

static const char *put(int which, const char *text, size_t len, mode_t mode)
{
	int fd;

	unlink(paths[which]);
	fd = open(paths[which], O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), len);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
	return paths[which];
}

static void test_token(void **state)
{
	static const struct {
		const char *text;
		size_t len;
		mode_t mode;
		int err;
		const char *want; /* the token, or the error message */
	} cases[] = {
		{ "0123456789abcdef\n", 17, 0600, 0, "0123456789abcdef" },
		{ "0123456789abcdef", 16, 0640, 0, "0123456789abcdef" },
		{ "0123456789abcdef\r\n", 18, 0400, 0, "0123456789abcdef" },
		{ "0123456789abcde\n", 16, 0600, -EINVAL, "16 to 512" },
		{ "\n", 1, 0600, -EINVAL, "16 to 512" },
		{ "", 0, 0600, -EINVAL, "16 to 512" },
		{ "0123456789abcdef", 16, 0644, -EPERM, "others can read" },
		{ "0123456789abcdef", 16, 0660, -EPERM, "others can read or write" },
		{ "0123456789 abcdef", 17, 0600, -EINVAL, "without spaces" },
		{ "0123456789abcdef\n\n", 18, 0600, -EINVAL, "one line" },
		{ "0123456789abcdef\nsecond", 23, 0600, -EINVAL, "one line" },
		{ "0123456789abcdef\0more", 21, 0600, -EINVAL, "NUL" },
		{ "0123456789abcdef\xc3\xa4", 18, 0600, -EINVAL, "ASCII" },
	};
	char why[SECRET_WHY], much[600], *token;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int err = secret__token(put(0, cases[i].text, cases[i].len, cases[i].mode), &token,
					why);

		if (err != cases[i].err || !strstr(err ? why : token, cases[i].want))
			fail_msg("case %zu: %d, %s", i, err, err ? why : token);
		if (!err)
			secret__free(token);
	}
	memset(much, 'a', sizeof(much));
	assert_int_equal(secret__token(put(0, much, 512, 0600), &token, why), 0);
	assert_int_equal(strlen(token), 512);
	secret__free(token);
	assert_int_equal(secret__token(put(0, much, 513, 0600), &token, why), -EINVAL);
	assert_int_equal(secret__token(put(0, much, 600, 0600), &token, why), -EFBIG);
	assert_int_equal(secret__token(folder, &token, why), -EINVAL);
	assert_int_equal(secret__token("/nowhere/at/all", &token, why), -ENOENT);
	assert_int_equal(secret__token("/dev/zero", &token, why), -EINVAL);
}

/* ---- a key pair, made by the library that reads it */

static gnutls_x509_privkey_t make_key(void)
{
	gnutls_x509_privkey_t key;

	assert_int_equal(gnutls_x509_privkey_init(&key), 0);
	assert_int_equal(
		gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA,
					     GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0),
		0);
	return key;
}

static const char *put_key(gnutls_x509_privkey_t key, mode_t mode)
{
	char text[4096];
	size_t len = sizeof(text);

	assert_int_equal(gnutls_x509_privkey_export(key, GNUTLS_X509_FMT_PEM, text, &len), 0);
	return put(1, text, len, mode);
}

static const char *put_cert(gnutls_x509_privkey_t key, time_t from, time_t to)
{
	gnutls_x509_crt_t cert;
	char text[4096];
	size_t len = sizeof(text);

	assert_int_equal(gnutls_x509_crt_init(&cert), 0);
	assert_int_equal(gnutls_x509_crt_set_version(cert, 3), 0);
	assert_int_equal(gnutls_x509_crt_set_serial(cert, "\1", 1), 0);
	assert_int_equal(gnutls_x509_crt_set_dn(cert, "CN=localhost", NULL), 0);
	assert_int_equal(gnutls_x509_crt_set_activation_time(cert, from), 0);
	assert_int_equal(gnutls_x509_crt_set_expiration_time(cert, to), 0);
	assert_int_equal(gnutls_x509_crt_set_key(cert, key), 0);
	assert_int_equal(gnutls_x509_crt_sign2(cert, cert, key, GNUTLS_DIG_SHA256, 0), 0);
	assert_int_equal(gnutls_x509_crt_export(cert, GNUTLS_X509_FMT_PEM, text, &len), 0);
	gnutls_x509_crt_deinit(cert);
	return put(0, text, len, 0644);
}

static int load(char *warning, char *why)
{
	char *cert = NULL, *key = NULL;
	int err = secret__tls(paths[0], paths[1], &cert, &key, warning, why);

	if (!err)
		assert_true(strstr(cert, "BEGIN CERTIFICATE") && strstr(key, "PRIVATE KEY"));
	else
		assert_true(!cert && !key && *why);
	secret__free(cert);
	secret__free(key);
	return err;
}

static void test_pair(void **state)
{
	gnutls_x509_privkey_t key = make_key(), other = make_key();
	char why[SECRET_WHY], warning[SECRET_WHY];
	const time_t now = time(NULL), day = 24 * 3600;

	put_key(key, 0600);
	put_cert(key, now - day, now + 365 * day);
	assert_int_equal(load(warning, why), 0);
	assert_string_equal(warning, "");
	put_cert(key, now - day, now + 10 * day);
	assert_int_equal(load(warning, why), 0);
	assert_non_null(strstr(warning, "expires on 2"));
	put_cert(key, now - 2 * day, now - day);
	assert_int_equal(load(warning, why), -EINVAL);
	assert_non_null(strstr(why, "expired on 2"));
	put_cert(key, now + day, now + 2 * day);
	assert_int_equal(load(warning, why), -EINVAL);
	assert_non_null(strstr(why, "valid only from 2"));
	put_cert(key, now - day, now + 365 * day);
	put_key(other, 0600);
	assert_int_equal(load(warning, why), -EINVAL);
	assert_non_null(strstr(why, "does not match"));
	put_key(key, 0644);
	assert_int_equal(load(warning, why), -EPERM);
	put(1, "nonsense", 8, 0600);
	assert_int_equal(load(warning, why), -EINVAL);
	put_key(key, 0600);
	put(0, "", 0, 0600);
	assert_int_equal(load(warning, why), -EINVAL);
	put(0, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 58, 0600);
	assert_int_equal(load(warning, why), -EINVAL);
	unlink(paths[0]);
	assert_int_equal(load(warning, why), -ENOENT);
	gnutls_x509_privkey_deinit(key);
	gnutls_x509_privkey_deinit(other);
}

static int set_up(void **state)
{
	strcpy(folder, "/tmp/memtrace-test-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	for (int i = 0; i < 2; i++)
		snprintf(paths[i], sizeof(paths[i]), "%s/%d", folder, i);
	return 0;
}

static int tear_down(void **state)
{
	unlink(paths[0]);
	unlink(paths[1]);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_token),
					    cmocka_unit_test(test_pair) };

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
