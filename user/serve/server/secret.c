/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/text.h"

#define SHOWN 80 /* bytes of a path shown in messages */

void secret__free(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

/* ---- files ---- */

int secret__refuse(int err, const char *path, const char *what, char *why)
{
	char shown[SHOWN + 1];

	text__clean(shown, sizeof(shown), path, strlen(path));
	snprintf(why, SECRET_WHY, "%s: %s", shown, what ? what : strerror(-err));
	return err;
}

/* Checks that a file is a regular file or a pipe, of at most max bytes. is_private: its group must
 * not be able to write it, and others neither to read nor to write it. Checks the open descriptor
 * and not the path, so that the checked file is also the file that is read. Returns 0, or -errno
 * with the reason in why. */
static int check_file(int fd, size_t max, int is_private, const char *path, char *why)
{
	struct stat st;

	if (fstat(fd, &st))
		return secret__refuse(-errno, path, /*what=*/NULL, why);
	if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode))
		return secret__refuse(-EINVAL, path,
				      "not a file: it has to be a regular file or a pipe", why);
	if (is_private && st.st_mode & (S_IROTH | S_IWOTH | S_IWGRP))
		return secret__refuse(
			-EPERM, path,
			"others can read or write it: run chmod o-rwx,g-w and replace its content",
			why);
	if ((uint64_t)st.st_size > max)
		return secret__refuse(-EFBIG, path, "too long", why);
	return 0;
}

/* Reads one byte more than allowed, to notice a file that is too long. Wipes it on failure. */
int secret__read(const char *path, size_t max, int is_private, char **ret, char *why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), err;
	ssize_t got;
	size_t len;
	char *text;

	if (fd < 0)
		return secret__refuse(-errno, path, /*what=*/NULL, why);
	err = check_file(fd, max, is_private, path, why);
	if (err) {
		close(fd);
		return err;
	}
	text = malloc(max + 2);
	got = text ? io__read(fd, text, max + 1) : -ENOMEM;
	len = got > 0 ? (size_t)got : 0;
	err = got < 0 ? (int)got : 0;
	if (len > max)
		err = -EFBIG;
	close(fd);
	if (!err) {
		text[len] = '\0';
		if (strlen(text) != len)
			err = secret__refuse(-EINVAL, path, "contains a NUL byte", why);
	} else {
		secret__refuse(err, path, err == -EFBIG ? "too long" : NULL, why);
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
			err = secret__refuse(
				-EINVAL, path,
				"a token must be one line of ASCII without spaces; make one "
				"with openssl rand -hex 32",
				why);
	}
	if (!err && (len < SECRET_TOKEN_MIN || len > SECRET_TOKEN_MAX))
		err = secret__refuse(
			-EINVAL, path,
			"a token must have 16 to 512 characters; make one with openssl rand "
			"-hex 32",
			why);
	if (err)
		secret__free(text);
	else
		*ret = text;
	return err;
}
