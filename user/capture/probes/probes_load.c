/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Loads the programs where they are to run: in the kernel, or in the process itself. */
#include <string.h>

#include "base/log.h"
#include "capture/probes/probes_internal.h"
#include "inspect/container.h"

struct probes *probes__load(const struct probes_opts *opts, const char **why)
{
	struct probes *p = opts->capture.inside ? probes_inside__load(opts, why)
						: probes_kernel__load(opts, why);
	struct probes_opts without = *opts;

	if (!p && opts->capture.host) {
		without.capture.host = false;
		p = probes__load(&without, why);
		if (p)
			log_debug("the kernel refused the programs for host memory");
		return p;
	}
	if (!p)
		return NULL;
	if (opts->seen)
		memset(p->vars.seen_code, 1, MT_SEEN_SLOTS);
	p->empty = opts->empty;
	p->calls_each = probes__everywhere(p) && seccomp__filters_returns();
	return p;
}
