/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/fetch/hosts.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/text.h"
#include "serve/loopback.h"

#define LINE 1024

static bool has_scheme(const char *server)
{
	return !strncmp(server, "http://", 7) || !strncmp(server, "https://", 8);
}

/* The start of host and port in a URL. */
static const char *authority(const char *url)
{
	return strstr(url, "://") + 3;
}

/* True for host and port alone: no user, path, query or fragment. */
static bool is_plain(const char *host)
{
	size_t len = strcspn(host, "/");

	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)host[i]) && !strchr(".-_:[]", host[i]))
			return false;
	return len && host[len + strspn(host + len, "/")] == '\0';
}

/* Whether a port follows the host. An IPv6 address is in brackets. */
static bool has_port(const char *host)
{
	const char *end = strrchr(host, ']');

	return strchr(end ? end : host, ':');
}

static char *make_url(const struct hosts *h, const char *server)
{
	const char *scheme = has_scheme(server) ? "" : h->http ? "http://" : "https://";
	const char *host = *scheme ? server : authority(server);
	size_t len = strcspn(host, "/");
	char *url = NULL;

	len += (size_t)(host - server);
	if (*scheme && !has_port(host) &&
	    asprintf(&url, "%s%.*s:%d", scheme, (int)len, server, HOSTS_PORT) < 0)
		return NULL;
	if (!url && asprintf(&url, "%s%.*s", scheme, (int)len, server) < 0)
		return NULL;
	return url;
}

static char *make_name(const char *url, const char *name)
{
	const char *host = authority(url);
	char clean[HOSTS_NAME];
	size_t len;

	if (name)
		return strdup(text__clean(clean, sizeof(clean), name, strlen(name)));
	len = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
	return strdup(text__clean(clean, sizeof(clean), host, len));
}

int hosts__add(struct hosts *h, const char *server, const char *name, const char **why)
{
	struct hosts_one new = { 0 };

	*why = "it is not HOST, HOST:PORT, http://HOST:PORT or https://HOST:PORT";
	if (!is_plain(has_scheme(server) ? authority(server) : server))
		return -EINVAL;
	*why = "there are too many hosts";
	if (h->n >= HOSTS_MAX)
		return -EINVAL;
	if (array__grow(&h->all, &h->room, h->n + 1, sizeof(*h->all)))
		return -ENOMEM;
	new.url = make_url(h, server);
	new.name = new.url ? make_name(new.url, name) : NULL;
	if (!new.name) {
		free(new.url);
		return -ENOMEM;
	}
	*why = NULL;
	for (size_t i = 0; i < h->n && !*why; i++) {
		if (!strcmp(h->all[i].url, new.url))
			*why = "it is given twice";
		/* Several servers of a host have the same name, so they are named with their
		 * port. */
		else if (!strcmp(h->all[i].name, new.name) && !name) {
			free(new.name);
			new.name = strdup(authority(new.url));
			if (!new.name) {
				free(new.url);
				return -ENOMEM;
			}
		} else if (!strcmp(h->all[i].name, new.name))
			*why = "another host has this name";
	}
	if (*why) {
		free(new.url);
		free(new.name);
		return -EINVAL;
	}
	h->all[h->n++] = new;
	return 0;
}

int hosts__add_missing(struct hosts *h, const char *name, const char *why)
{
	struct hosts_one new = { .url = strdup(""), .name = make_name("://", name), .why = why };

	if (new.url &&new.name && h->n < HOSTS_MAX &&
	    !array__grow(&h->all, &h->room, h->n + 1, sizeof(*h->all))) {
		h->all[h->n++] = new;
		return 0;
	}
	free(new.url);
	free(new.name);
	return h->n < HOSTS_MAX ? -ENOMEM : -EINVAL;
}

int hosts__add_pod(struct hosts *h, const char *uid)
{
	char *copy = strdup(uid);

	if (!copy || array__grow(&h->pods, &h->pods_room, h->n_pods + 1, sizeof(*h->pods))) {
		free(copy);
		return -ENOMEM;
	}
	h->pods[h->n_pods++] = copy;
	return 0;
}

/* Adds the server of a line. */
static int add_line(struct hosts *h, char *line, const char **why)
{
	char *server, *name, *rest;

	line[strcspn(line, "#\r\n")] = '\0';
	server = strtok_r(line, " \t", &rest);
	name = server ? strtok_r(NULL, " \t", &rest) : NULL;
	*why = "more than a host and a name are on the line";
	if (!server || strtok_r(NULL, " \t", &rest))
		return server ? -EINVAL : 0;
	return hosts__add(h, server, name, why);
}

int hosts__read(struct hosts *h, const char *path)
{
	bool in = !strcmp(path, "-");
	FILE *f = in ? stdin : fopen(path, "re");
	char line[LINE], clean[256];
	const char *why = NULL;
	unsigned number = 0;
	int err = 0;

	text__clean(clean, sizeof(clean), path, strlen(path));
	if (!f) {
		log_err("%s: %s", clean, strerror(errno));
		return EXIT_FAILED;
	}
	while (!err && fgets(line, sizeof(line), f)) {
		number++;
		if (strlen(line) == sizeof(line) - 1) {
			why = "it is too long";
			err = -EINVAL;
		} else {
			err = add_line(h, line, &why);
		}
	}
	if (!err && ferror(f)) {
		why = "cannot read";
		err = -EINVAL;
	}
	if (!in)
		fclose(f);
	if (err)
		log_err("%s: line %u: %s", clean, number, err == -ENOMEM ? "out of memory" : why);
	return !err ? EXIT_OK : err == -ENOMEM ? EXIT_FAILED : EXIT_USAGE;
}

const char *hosts__unencrypted(const struct hosts *h)
{
	for (size_t i = 0; i < h->n; i++)
		if (!strncmp(h->all[i].url, "http://", 7) && !loopback__is(h->all[i].url))
			return h->all[i].url;
	return NULL;
}

void hosts__free(struct hosts *h)
{
	for (size_t i = 0; i < h->n; i++) {
		free(h->all[i].url);
		free(h->all[i].name);
	}
	for (size_t i = 0; i < h->n_pods; i++)
		free(h->pods[i]);
	free(h->pods);
	free(h->all);
	*h = (struct hosts){ 0 };
}
