/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/fetch.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "serve/secret.h"

#define LINE_SIZE 1024		/* longest line of a file of hosts, in bytes with the NUL */
#define OUTPUT_MAX (64UL << 20) /* largest output of a program, in bytes */
#define CHART_LABEL "app.kubernetes.io/name=memtrace-bpf"

/* True for a URL; false for a host alone. */
static bool has_scheme(const char *server)
{
	return text__starts(server, "http://") || text__starts(server, "https://");
}

/* The start of host and port in a URL. */
static const char *authority(const char *url)
{
	return strstr(url, "://") + 3;
}

/* True for host and port alone: no user, path, query or fragment. */
static bool is_host_and_port(const char *host)
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

/* The URL of a server, without a path. A server without a scheme gets https://, or http:// if
 * h->http, and if it has no port either HOSTS_PORT. From malloc(); NULL: no memory. */
static char *make_url(const struct hosts *h, const char *server)
{
	const char *default_scheme = h->http ? "http://" : "https://";
	const char *scheme = has_scheme(server) ? "" : default_scheme; /* to be added */
	const char *host = *scheme ? server : authority(server);
	int len = (int)(host + strcspn(host, "/") - server); /* bytes of server without a path */
	char *url = NULL;

	if (*scheme && !has_port(host) &&
	    asprintf(&url, "%s%.*s:%d", scheme, len, server, HOSTS_PORT) < 0)
		return NULL;
	if (!url && asprintf(&url, "%s%.*s", scheme, len, server) < 0)
		return NULL;
	return url;
}

/* The name for messages: name, or the host of the URL if name is NULL. From malloc(); NULL: no
 * memory. */
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

/* A name that is taken gets its port if it came from the URL, and is an error if it was given. */
int hosts__add(struct hosts *h, const char *server, const char *name, const char **why)
{
	struct hosts_one one = { 0 };

	*why = "it is not HOST, HOST:PORT, http://HOST:PORT or https://HOST:PORT";
	if (!is_host_and_port(has_scheme(server) ? authority(server) : server))
		return -EINVAL;
	*why = "there are too many hosts";
	if (h->n >= HOSTS_MAX)
		return -EINVAL;
	if (array__grow(&h->all, &h->room, h->n + 1, sizeof(*h->all)))
		return -ENOMEM;
	one.url = make_url(h, server);
	one.name = one.url ? make_name(one.url, name) : NULL;
	if (!one.name) {
		free(one.url);
		return -ENOMEM;
	}
	*why = NULL;
	for (size_t i = 0; i < h->n && !*why; i++) {
		if (!strcmp(h->all[i].url, one.url))
			*why = "it is given twice";
		/* Several servers of a host have the same name, so they are named with their
		 * port. */
		else if (!strcmp(h->all[i].name, one.name) && !name) {
			free(one.name);
			one.name = strdup(authority(one.url));
			if (!one.name) {
				free(one.url);
				return -ENOMEM;
			}
		} else if (!strcmp(h->all[i].name, one.name))
			*why = "another host has this name";
	}
	if (*why) {
		free(one.url);
		free(one.name);
		return -EINVAL;
	}
	h->all[h->n++] = one;
	return 0;
}

/* Adds a host without a request, because none is possible. why: static. Returns 0, -ENOMEM or
 * -EINVAL. */
static int add_missing(struct hosts *h, const char *name, const char *why)
{
	struct hosts_one one = { .why = why };
	int err = -ENOMEM;

	if (h->n >= HOSTS_MAX)
		return -EINVAL;
	one.url = strdup("");
	one.name = make_name("://", name);
	if (!one.url || !one.name)
		goto failed;
	err = array__grow(&h->all, &h->room, h->n + 1, sizeof(*h->all));
	if (err)
		goto failed;
	h->all[h->n++] = one;
	return 0;
failed:
	free(one.url);
	free(one.name);
	return err;
}

/* Adds the UID of a pod of the job. Returns 0 or -ENOMEM. */
static int add_pod(struct hosts *h, const char *uid)
{
	char *copy = strdup(uid);

	if (!copy || array__grow(&h->pods, &h->pods_room, h->n_pods + 1, sizeof(*h->pods))) {
		free(copy);
		return -ENOMEM;
	}
	h->pods[h->n_pods++] = copy;
	return 0;
}

/* Adds the server of a line, if there is one. Returns as hosts__add(). */
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
	bool is_stdin = !strcmp(path, "-");
	FILE *f = is_stdin ? stdin : fopen(path, "re");
	char line[LINE_SIZE], clean[256];
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
	if (!is_stdin)
		fclose(f);
	if (err)
		log_err("%s: line %u: %s", clean, number, err == -ENOMEM ? "out of memory" : why);
	if (err == -ENOMEM)
		return EXIT_FAILED;
	return err ? EXIT_USAGE : EXIT_OK;
}

const char *hosts__unencrypted(const struct hosts *h)
{
	for (size_t i = 0; i < h->n; i++)
		if (text__starts(h->all[i].url, "http://") && !loopback__is(h->all[i].url))
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

/* ---- programs that know the hosts of a job ---- */

/* Reads a pipe to its end. NULL: out of memory, or more than OUTPUT_MAX. */
static char *read_all(int fd)
{
	size_t len = 0, room = 65536;
	char *text = malloc(room), *bigger;
	ssize_t n;

	while (text) {
		n = read(fd, text + len, room - len - 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			text[len] = '\0';
			return text;
		}
		len += (size_t)n;
		if (len + 1 < room)
			continue;
		room *= 2;
		bigger = room <= OUTPUT_MAX ? realloc(text, room) : NULL;
		if (!bigger)
			free(text);
		text = bigger;
	}
	return NULL;
}

/* Runs a program with the caller's standard error. Returns its output; NULL: it failed, logged. */
static char *run_program(const char *const *argv)
{
	const char *program = argv[0];
	struct subprocess p = { 0 };
	int ends[2], status = 0, err;
	char *text;

	if (pipe2(ends, O_CLOEXEC)) {
		log_err("%s: %s", program, strerror(errno));
		return NULL;
	}
	err = subprocess__start(
		&(struct subprocess_opts){ .program = program,
					   .argv = argv,
					   .refused = "cannot be executed: is it in PATH?\n",
					   .out = ends[1],
					   .err = SUBPROCESS_INHERIT },
		&p);
	close(ends[1]);
	text = err ? NULL : read_all(ends[0]);
	close(ends[0]);
	if (err) {
		log_err("%s: %s", program, strerror(-err));
		return NULL;
	}
	if (!text) {
		subprocess__kill(&p);
		log_err("%s: its output is too long", program);
		return NULL;
	}
	subprocess__wait(&p, /*ms=*/-1, &status);
	if (!status)
		return text;
	log_err("%s failed with status %d; its messages are above", program,
		WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	free(text);
	return NULL;
}

/* Logs why something could not be added. Returns the exit code. */
static int log_failure(const char *what, int err, const char *why)
{
	char clean[256];

	log_err("%s: %s", text__clean(clean, sizeof(clean), what, strlen(what)),
		err == -ENOMEM ? "out of memory" : why);
	return err == -ENOMEM ? EXIT_FAILED : EXIT_USAGE;
}

/* ---- Slurm ---- */

int hosts__add_slurm(struct hosts *h, const char *nodes)
{
	const char *list = nodes ? nodes : getenv("SLURM_JOB_NODELIST"), *why;
	char *text, *line, *rest;
	int status = EXIT_OK, err;

	if (!list || !*list) {
		log_err("--slurm: SLURM_JOB_NODELIST is not set: run this in the job, or give the "
			"nodes: --slurm='node[1-8]'");
		return EXIT_UNUSABLE;
	}
	text = run_program((const char *const[]){ "scontrol", "show", "hostnames", list, NULL });
	if (!text)
		return EXIT_FAILED;
	for (line = strtok_r(text, "\n", &rest); line && !status;
	     line = strtok_r(NULL, "\n", &rest)) {
		err = hosts__add(h, line, NULL, &why);
		if (err)
			status = log_failure(line, err, why);
	}
	free(text);
	return status;
}

/* ---- Kubernetes ---- */

/* A text in an object of an object; NULL: none. */
static const char *member(const json_t *o, const char *outer, const char *key)
{
	return json_string_value(json_object_get(json_object_get(o, outer), key));
}

/* The array of pods that `kubectl get pods` prints; *doc: the document that owns it, for
 * json_decref(). space: a namespace; NULL: all. Returns NULL on failure, logged. */
static const json_t *get_pods(const char *space, const char *selector, json_t **doc)
{
	const char *const all[] = { "kubectl", "get",  "pods", "--all-namespaces", "-l", selector,
				    "-o",      "json", NULL };
	const char *const one[] = { "kubectl", "get",	 "pods", "--namespace", space,
				    "-l",      selector, "-o",	 "json",	NULL };
	char *text = run_program(space ? one : all);
	const json_t *items;

	*doc = text ? json_loads(text, 0, NULL) : NULL;
	items = json_object_get(*doc, "items");
	if (text && !json_is_array(items))
		log_err("kubectl: its answer is no list of pods");
	free(text);
	if (json_is_array(items))
		return items;
	json_decref(*doc);
	*doc = NULL;
	return NULL;
}

/* The port named "http" of a memtrace-bpf pod, otherwise HOSTS_PORT. */
static int find_port(const json_t *pod)
{
	const json_t *containers = json_object_get(json_object_get(pod, "spec"), "containers"), *c,
		     *p;
	size_t i, k;

	json_array_foreach(containers, i, c)
		json_array_foreach(json_object_get(c, "ports"), k, p) {
			const char *name = json_string_value(json_object_get(p, "name"));
			json_int_t port = json_integer_value(json_object_get(p, "containerPort"));

			if (name && !strcmp(name, "http") && port > 0 && port < 65536)
				return (int)port;
		}
	return HOSTS_PORT;
}

/* Whether the pod runs on the node, and is not being deleted. */
static bool runs_on(const json_t *pod, const char *node)
{
	const char *on = member(pod, "spec", "nodeName");
	const char *phase = member(pod, "status", "phase");

	if (!on || strcmp(on, node) != 0)
		return false;
	if (!phase || strcmp(phase, "Running") != 0)
		return false;
	return member(pod, "status", "podIP") && !member(pod, "metadata", "deletionTimestamp");
}

/* Adds the server in the memtrace-bpf pod on the node, or the node as missing. Returns 0 or an exit
 * code, logged. */
static int add_node(struct hosts *h, const char *node, const json_t *tracers)
{
	const json_t *t, *found = NULL;
	const char *ip, *why;
	char server[128];
	size_t i, n = 0;
	int err;

	json_array_foreach(tracers, i, t) {
		if (runs_on(t, node)) {
			found = t;
			n++;
		}
	}
	if (n != 1) {
		err = add_missing(
			h, node,
			n ? "several pods call themselves memtrace-bpf on this node: the DaemonSet "
			    "has one; remove the others from its namespace"
			  : "no pod of memtrace-bpf runs on this node, in the namespace of "
			    "--kubernetes-namespace");
		return err ? log_failure(node, err, "it cannot be added") : EXIT_OK;
	}
	ip = member(found, "status", "podIP");
	snprintf(server, sizeof(server), strchr(ip, ':') ? "[%s]:%d" : "%s:%d", ip,
		 find_port(found));
	err = hosts__add(h, server, node, &why);
	return err ? log_failure(node, err, why) : EXIT_OK;
}

/* True if a host has this name. */
static bool is_known(const struct hosts *h, const char *node)
{
	for (size_t i = 0; i < h->n; i++)
		if (!strcmp(h->all[i].name, node))
			return true;
	return false;
}

/* Adds the job's running pods and the servers on their nodes. Returns 0 or an exit code, logged. */
static int add_job(struct hosts *h, const char *selector, const json_t *job, const json_t *tracers)
{
	const json_t *pod;
	size_t i;
	int status;

	json_array_foreach(job, i, pod) {
		const char *node = member(pod, "spec", "nodeName");
		const char *uid = member(pod, "metadata", "uid");
		const char *phase = member(pod, "status", "phase");

		if (!node || !uid || !phase || strcmp(phase, "Running") != 0)
			continue;
		if (add_pod(h, uid))
			return log_failure(node, -ENOMEM, NULL);
		if (is_known(h, node))
			continue;
		status = add_node(h, node, tracers);
		if (status)
			return status;
	}
	if (h->n_pods)
		return EXIT_OK;
	log_err("--kubernetes: no running pod matches '%s'; kubectl get pods -A -l lists them",
		selector);
	return EXIT_UNUSABLE;
}

int hosts__add_kubernetes(struct hosts *h, const char *selector, const char *space)
{
	json_t *jobs = NULL, *all = NULL;
	const json_t *job = get_pods(/*space=*/NULL, selector, &jobs);
	const json_t *tracers = job ? get_pods(space, CHART_LABEL, &all) : NULL;
	int status = tracers ? add_job(h, selector, job, tracers) : EXIT_FAILED;

	json_decref(jobs);
	json_decref(all);
	return status;
}
