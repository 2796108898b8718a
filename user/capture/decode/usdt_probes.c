/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/usdt_probes.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "capture/decode/decoder.h"
#include "capture/target.h"
#include "inspect/elf.h"
#include "inspect/proc.h"
#include "memtrace.h"
#include "record/stream.h"

_Static_assert((int)MT_SCOPE_USDT == (int)SCOPE_USDT &&
		       MT_SCOPE_USDT + MT_SCOPE_PAIRS - 1 <= SCOPE_USDT_LAST,
	       "a source for each pair of probes");

int usdt_probes__choose(const struct decoder *decoder, const struct usdt_sites *usdt,
			struct probe_site sites[])
{
	size_t long_nops = 0;
	bool call;

	for (size_t i = 0; i < usdt->n; i++)
		long_nops += usdt->site[i].long_nop != 0;
	call = long_nops && !decoder->opts->inside && probes__nop_is_call();
	for (size_t i = 0; i < usdt->n; i++) {
		const struct usdt_site *site = &usdt->site[i];
		uint64_t offset = call && site->long_nop ? site->long_nop : site->offset;

		if (!offset)
			return -ENOTSUP;
		sites[i] = (struct probe_site){ .offset = offset, .ref_ctr = site->semaphore };
	}
	return 0;
}

/* The sites of scopes in a file. Ends come first, so that no scope begins without an end. */
struct sites {
	struct probe_site site[PROBES_SITES_MAX];
	size_t n;
};

/* The cookie of a begin. arg: where its first argument is; NULL: it has none, or not one that can
 * be the address of a name. */
static uint64_t begin_cookie(uint8_t source, const struct mt_usdt_arg *arg)
{
	uint32_t flags = MT_SCOPE_NAMED;

	if (!arg || arg->size != sizeof(uint64_t))
		return MT_SCOPE_COOKIE(source, 0, 0, 0);
	if (arg->memory)
		flags |= MT_SCOPE_MEMORY;
	return MT_SCOPE_COOKIE(source, flags, arg->reg, arg->disp);
}

/* Finds a probe and appends its sites. begins: its first argument may be a name. Returns 0 or the
 * error of usdt__find(). -EINVAL also: a site is not on a nop. -E2BIG: too many. */
static int add_sites(const struct decoder *decoder, const struct elf *elf,
		     const struct usdt_scope *scope, bool begins, uint8_t source, struct sites *ret)
{
	const char *probe = begins ? scope->begin : scope->end;
	bool named = begins;
	struct usdt_sites usdt;
	int err = usdt__find(elf, scope->provider, probe, named, &usdt);

	/* Without an argument, or in a form that is not known, the probe itself names the scope. */
	if (err == -EINVAL && named) {
		named = false;
		err = usdt__find(elf, scope->provider, probe, 0, &usdt);
	}
	if (err)
		return err;
	if (usdt.n > PROBES_SITES_MAX - ret->n)
		return -E2BIG;
	for (size_t i = 0; i < usdt.n; i++)
		if (!usdt.site[i].nop && !usdt.site[i].long_nop)
			return -EINVAL;
	err = usdt_probes__choose(decoder, &usdt, ret->site + ret->n);
	for (size_t i = 0; i < usdt.n && !err; i++) {
		const struct mt_usdt_arg *arg = named ? &usdt.args[i].arg[0] : NULL;

		ret->site[ret->n++].cookie = begins ? begin_cookie(source, arg)
						    : MT_SCOPE_COOKIE(source, MT_SCOPE_ENDS, 0, 0);
	}
	return err;
}

/* err: of add_sites() or probes__attach_calls(); -ESRCH: one of the two probes is missing. */
static const char *why_not(int err)
{
	switch (err) {
	case -ESRCH:
		return "it has only one of the two probes";
	case -ENOTSUP:
		return "a probe is on a long nop, where this kernel's probes end forked children";
	case -EINVAL:
		return "the format of its probes is unknown, or one is in more than 64 places";
	case -E2BIG:
		return "the probes are in more than 128 places";
	case -EXDEV:
		return "this kernel's probes by PID miss threads; run memtrace-bpf as root";
	default:
		return strerror(-err);
	}
}

static void warn_refused(const struct decoder *decoder, const struct usdt_scope *scope,
			 const struct map *map, int err)
{
	char file[256];

	log_warn("PID %d: --scope usdt:%s:%s,%s: not recorded in %s: %s",
		 (int)proc__pid(decoder->target->proc), scope->provider, scope->begin, scope->end,
		 text__clean(file, sizeof(file), map->path, strlen(map->path)), why_not(err));
}

/* Appends the sites of both probes of a pair. Returns 0; -ENOENT: the file has neither; or -errno,
 * after a warning. */
static int add_pair(const struct decoder *decoder, const struct elf *elf, const struct map *map,
		    size_t pair, struct sites *ret)
{
	const struct usdt_scope *scope = &decoder->opts->usdt[pair];
	uint8_t source = (uint8_t)(MT_SCOPE_USDT + pair);
	size_t before = ret->n;
	int err, begin_err;

	err = add_sites(decoder, elf, scope, /*begins=*/false, source, ret);
	begin_err = add_sites(decoder, elf, scope, /*begins=*/true, source, ret);
	if (err == -ENOENT && begin_err == -ENOENT)
		return -ENOENT;
	err = err ?: begin_err;
	if (!err)
		return 0;
	ret->n = before;
	warn_refused(decoder, scope, map, err == -ENOENT ? -ESRCH : err);
	return -EINVAL;
}

/* Attaches to the sites of a file. */
static void attach(const struct decoder *decoder, const struct elf *elf, const struct map *map,
		   const struct sites *sites, uint32_t found)
{
	const struct call_file file = { elf, map->inode, map->dev_major, map->dev_minor };
	int err;

	if (!sites->n || !probes__new_file(decoder->probes, &file, /*scopes=*/true))
		return;
	err = probes__attach_calls(decoder->probes, proc__pid(decoder->target->proc),
				   CALL_USDT_SCOPE, &file, sites->site, sites->n);
	if (!err)
		log_debug("scopes of USDT probes: %zu places", sites->n);
	for (size_t i = 0; i < MT_SCOPE_PAIRS && err; i++)
		if (found >> i & 1)
			warn_refused(decoder, &decoder->opts->usdt[i], map, err);
}

uint32_t usdt_probes__attach(const struct decoder *decoder, const struct map *map)
{
	const struct session_opts *opts = decoder->opts;
	uint32_t found = 0, refused = 0;
	struct sites sites = { .n = 0 };
	struct elf *elf;
	int err;

	if (!opts->usdt[0].provider[0])
		return 0;
	elf = elf__open_map(decoder->target->proc, map);
	if (!elf)
		return 0;
	for (size_t i = 0; i < MT_SCOPE_PAIRS && opts->usdt[i].provider[0]; i++) {
		err = add_pair(decoder, elf, map, i, &sites);
		found |= err ? 0 : 1U << i;
		refused |= err && err != -ENOENT ? 1U << i : 0;
	}
	attach(decoder, elf, map, &sites, found);
	elf__free(elf);
	return found | refused;
}

void usdt_probes__warn_missing(const struct decoder *decoder, uint32_t found)
{
	const struct session_opts *opts = decoder->opts;

	for (size_t i = 0; i < MT_SCOPE_PAIRS && opts->usdt[i].provider[0]; i++)
		if (!(found >> i & 1))
			log_warn("PID %d: --scope usdt:%s:%s,%s: no file of the process has "
				 "these probes; list them with readelf -n FILE",
				 (int)proc__pid(decoder->target->proc), opts->usdt[i].provider,
				 opts->usdt[i].begin, opts->usdt[i].end);
}
