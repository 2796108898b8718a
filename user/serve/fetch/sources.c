/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/sources.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/text.h"

#define OUTPUT (64UL << 20) /* bytes of a program's output */
#define CHART "app.kubernetes.io/name=memtrace-bpf"

/* ---- programs ---- */

/* Reads a pipe to its end. NULL: out of memory, or more than OUTPUT. */
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
		bigger = room <= OUTPUT ? realloc(text, room) : NULL;
		if (!bigger)
			free(text);
		text = bigger;
	}
	return NULL;
}

/* Runs a program with the caller's standard error. Returns its output; NULL: it failed, logged. */
static char *output_of(const char *const *argv)
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
	if (!err && !text)
		subprocess__kill(&p);
	else if (!err)
		subprocess__wait(&p, -1, &status);
	if (err || !text)
		log_err("%s: %s", program, err ? strerror(-err) : "its output is too long");
	else if (!WIFEXITED(status) || WEXITSTATUS(status))
		log_err("%s failed with status %d; its messages are above", program,
			WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	else
		return text;
	free(text);
	return NULL;
}

static int say(const char *what, int err, const char *why)
{
	char clean[256];

	log_err("%s: %s", text__clean(clean, sizeof(clean), what, strlen(what)),
		err == -ENOMEM ? "out of memory" : why);
	return err == -ENOMEM ? EXIT_FAILED : EXIT_USAGE;
}

/* ---- Slurm ---- */

int sources__slurm(struct hosts *h, const char *nodes)
{
	const char *list = nodes ? nodes : getenv("SLURM_JOB_NODELIST"), *why;
	char *text, *line, *rest;
	int status = EXIT_OK, err;

	if (!list || !*list) {
		log_err("--slurm: SLURM_JOB_NODELIST is not set: run this in the job, or give the "
			"nodes: --slurm='node[1-8]'");
		return EXIT_UNUSABLE;
	}
	text = output_of((const char *const[]){ "scontrol", "show", "hostnames", list, NULL });
	if (!text)
		return EXIT_FAILED;
	for (line = strtok_r(text, "\n", &rest); line && !status;
	     line = strtok_r(NULL, "\n", &rest)) {
		err = hosts__add(h, line, NULL, &why);
		if (err)
			status = say(line, err, why);
	}
	free(text);
	return status;
}

/* ---- Kubernetes ---- */

static const char *member(const json_t *o, const char *outer, const char *key)
{
	return json_string_value(json_object_get(json_object_get(o, outer), key));
}

/* The items of `kubectl get pods`; *doc is for json_decref(). space: NULL: all namespaces. NULL:
 * logged. */
static const json_t *pods(const char *space, const char *selector, json_t **doc)
{
	const char *const all[] = { "kubectl", "get",  "pods", "--all-namespaces", "-l", selector,
				    "-o",      "json", NULL };
	const char *const one[] = { "kubectl", "get",	 "pods", "--namespace", space,
				    "-l",      selector, "-o",	 "json",	NULL };
	char *text = output_of(space ? one : all);
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

/* The port of the chart's pods that is named "http". */
static int port_of(const json_t *pod)
{
	const json_t *containers = json_object_get(json_object_get(pod, "spec"), "containers"), *c,
		     *p;
	size_t i, k;

	json_array_foreach(containers, i, c) json_array_foreach(json_object_get(c, "ports"), k, p)
	{
		const char *name = json_string_value(json_object_get(p, "name"));
		json_int_t port = json_integer_value(json_object_get(p, "containerPort"));

		if (name && !strcmp(name, "http") && port > 0 && port < 65536)
			return (int)port;
	}
	return HOSTS_PORT;
}

/* Whether the pod runs on the node, and is not being deleted. */
static bool is_at(const json_t *pod, const char *node)
{
	const char *on = member(pod, "spec", "nodeName"), *phase = member(pod, "status", "phase");

	return on && !strcmp(on, node) && phase && !strcmp(phase, "Running") &&
	       member(pod, "status", "podIP") && !member(pod, "metadata", "deletionTimestamp");
}

/* Adds the pod of memtrace-bpf on the node, or the node as missing. */
static int add_node(struct hosts *h, const char *node, const json_t *tracers)
{
	const json_t *t, *found = NULL;
	const char *ip, *why;
	char server[128];
	size_t i, n = 0;
	int err;

	json_array_foreach(tracers, i, t)
	{
		if (is_at(t, node)) {
			found = t;
			n++;
		}
	}
	if (n != 1) {
		err = hosts__add_missing(
			h, node,
			n ? "several pods call themselves memtrace-bpf on this node: the DaemonSet "
			    "has one; remove the others from its namespace"
			  : "no pod of memtrace-bpf runs on this node, in the namespace of "
			    "--kubernetes-namespace");
		return err ? say(node, err, "it cannot be added") : EXIT_OK;
	}
	ip = member(found, "status", "podIP");
	snprintf(server, sizeof(server), strchr(ip, ':') ? "[%s]:%d" : "%s:%d", ip, port_of(found));
	err = hosts__add(h, server, node, &why);
	return err ? say(node, err, why) : EXIT_OK;
}

static bool is_known(const struct hosts *h, const char *node)
{
	for (size_t i = 0; i < h->n; i++)
		if (!strcmp(h->all[i].name, node))
			return true;
	return false;
}

/* Adds the job's running pods and their nodes. */
static int add_job(struct hosts *h, const char *selector, const json_t *job, const json_t *tracers)
{
	int status = EXIT_OK;
	const json_t *pod;
	size_t i;

	json_array_foreach(job, i, pod)
	{
		const char *node = member(pod, "spec", "nodeName"),
			   *uid = member(pod, "metadata", "uid"),
			   *phase = member(pod, "status", "phase");

		if (status || !node || !uid || !phase || strcmp(phase, "Running") != 0)
			continue;
		if (hosts__add_pod(h, uid))
			status = say(node, -ENOMEM, NULL);
		else if (!is_known(h, node))
			status = add_node(h, node, tracers);
	}
	if (!status && !h->n_pods) {
		log_err("--kubernetes: no running pod matches '%s'; kubectl get pods -A -l lists "
			"them",
			selector);
		status = EXIT_UNUSABLE;
	}
	return status;
}

int sources__kubernetes(struct hosts *h, const char *selector, const char *space)
{
	json_t *jobs = NULL, *all = NULL;
	const json_t *job = pods(NULL, selector, &jobs),
		     *tracers = job ? pods(space, CHART, &all) : NULL;
	int status = tracers ? add_job(h, selector, job, tracers) : EXIT_FAILED;

	json_decref(jobs);
	json_decref(all);
	return status;
}
