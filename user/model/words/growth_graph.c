/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/growth_graph.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define SAVED "saved for "
#define GRAPH ", graph of "
#define GRADIENT "grad of "

bool growth_graph__has(const char *name)
{
	return !strncmp(name, SAVED, strlen(SAVED));
}

/* Bytes of a name without " and 3 more", which stands for other names of the same memory. */
static size_t own_length(const char *name)
{
	size_t len = strlen(name), end = len > 5 && !strcmp(name + len - 5, " more") ? len - 5 : 0;

	while (end && strchr("0123456789,*", name[end - 1]))
		end--;
	return end > 5 && !strncmp(name + end - 5, " and ", 5) ? end - 5 : len;
}

size_t growth_graph__keeper(const char *name, const char **at)
{
	const char *graph = growth_graph__has(name) ? strstr(name, GRAPH) : NULL;

	if (!graph)
		return 0;
	graph += strlen(GRAPH);
	if (!strncmp(graph, "global ", 7))
		graph += 7;
	else if (!strncmp(graph, "local ", 6))
		graph += 6;
	*at = graph;
	return own_length(graph);
}

char *growth_graph__words(const char *name, bool brief, char *buf, size_t size)
{
	const char *keeper;
	char of[400], what[400];
	size_t n = growth_graph__keeper(name, &keeper), len;

	if (!n) {
		text__clean(what, sizeof(what), name, strlen(name));
		snprintf(buf, size, "autograd's graph, %s", what);
		return buf;
	}
	text__clean(of, sizeof(of), keeper, n);
	len = strstr(name, GRAPH) - name;
	text__clean(what, sizeof(what), name, len);
	snprintf(buf, size, "the graph of %s%s%s", of, brief ? "" : ", ", brief ? "" : what);
	return buf;
}

const char *growth_graph__remedy(const char *name, bool backward)
{
	const char *graph = strstr(name, GRAPH);

	if (graph && !strncmp(graph + strlen(GRAPH), GRADIENT, strlen(GRADIENT)))
		return "backward(create_graph=True) gives gradients a graph: set p.grad = None "
		       "after each step, or use torch.autograd.grad()";
	if (!backward)
		return "no backward pass runs: compute it under torch.no_grad() or "
		       "torch.inference_mode(), which each thread sets for itself";
	return "keep its value (loss.item()) or loss.detach()";
}
